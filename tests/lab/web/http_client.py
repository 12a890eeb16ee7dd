"""Asking a daemon by HTTP, and waiting for what it answers."""

import http.client
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(url: str, path: str, method: str = "GET", body: bytes | None = None, **headers: str) -> Answer:
    """One request on a connection of its own; `_` in the names of headers is a hyphen."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=TIMEOUT_S)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        return Answer(response.status, {key.lower(): value for key, value in response.getheaders()}, response.read())
    finally:
        connection.close()


def await_answer(url: str, path: str, done: Callable[[Answer], bool], deadline_s: float = 60.0) -> Answer:
    """Ask until `done` says yes."""
    deadline = time.monotonic() + deadline_s
    while not done(answer := ask(url, path)):
        assert time.monotonic() < deadline, answer
        time.sleep(0.05)
    return answer


def scrape(url: str) -> dict[str, Metric]:
    """The families of /metrics by name, as Prometheus' own parser reads them; counters without `_total`."""
    answer = ask(url, "/metrics")
    assert answer.status == 200, answer
    return {family.name: family for family in text_string_to_metric_families(answer.body.decode())}


def values(families: Mapping[str, Metric], sample: str, **labels: str) -> list[float]:
    """Values of the samples of this name that have these labels."""
    return [
        found.value
        for family in families.values()
        for found in family.samples
        if found.name == sample and labels.items() <= found.labels.items()
    ]


def value(families: Mapping[str, Metric], sample: str, **labels: str) -> float:
    """The value of the one sample of this name that has these labels."""
    (found,) = values(families, sample, **labels)
    return found
