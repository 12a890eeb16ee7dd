"""/metrics of a daemon, and the documentation, alerts and dashboards that refer to it."""

from __future__ import annotations

import dataclasses
import json
import re
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics

from drivers.frame import CHANNELS
from service.client import Control, Subscriber
from service.web._families import FAMILIES
from tests.lab.daemon.daemons import await_message, log_lines, processes
from tests.lab.daemon.shared import Keeper
from tests.lab.web.http_client import ask, await_answer, scrape, value, values
from tests.lab.web.http_daemon import Running, two_arms

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"


@pytest.fixture(scope="module")
def running(keeper: Keeper) -> Running:
    return keeper.get(two_arms)


@pytest.fixture
def url(running: Running) -> str:
    return running.url


@pytest.fixture
def control(running: Running) -> Iterator[Control]:
    with running.control() as control:
        yield control


def test_metrics_are_those_of_the_documentation(url: str) -> None:
    """Every family is there with its type, and docs/metrics.md has all of them, and no other."""
    found = scrape(url)
    assert {name: family.type for name, family in found.items()} == {
        family.name.removesuffix("_total"): family.kind for family in FAMILIES
    }
    lines = re.findall(
        r"^\| `(thetad_\w+)` \| (\w+) \| (.*?) \| (.*?) \|$", (ROOT / "docs/metrics.md").read_text(), re.M
    )
    assert lines == [
        (family.name, family.kind, ", ".join(f"`{label}`" for label in family.labels), family.help)
        for family in FAMILIES
    ]
    told = {family.name: set(family.labels) | ({"le"} if family.kind == "histogram" else set()) for family in FAMILIES}
    for family in found.values():
        for sample in family.samples:
            name = sample.name if sample.name in told else family.name
            assert set(sample.labels) <= told[name], sample


def test_names_follow_the_conventions() -> None:
    for family in FAMILIES:
        assert re.fullmatch(r"thetad(_[a-z]+)+", family.name), family.name
        assert family.name.endswith("_total") == (family.kind == "counter"), family.name
        assert not re.search(r"_(ms|us|ns|hz|mb|kb|percent|count|sum|bucket|milliseconds)(_|$)", family.name), (
            family.name
        )
        assert family.kind != "histogram" or family.name.endswith("_seconds")
        assert family.help.endswith((".", "]."))


def test_every_family_but_those_of_a_bus_has_samples(url: str, control: Control) -> None:
    control.request("submit", 30.0, kind="excite", arm="axis", due_s=1e6)
    await_answer(url, "/metrics", lambda answer: b"thetad_jobs{" in answer.body)
    empty = {name for name, family in scrape(url).items() if not family.samples}
    assert empty == {"thetad_bus_lost_cycles", "thetad_bus_recoveries"}


def test_an_event_of_a_job_is_a_line_of_the_log(running: Running, control: Control) -> None:
    id = control.request("submit", 30.0, kind="excite", arm="axis", due_s=1e6)["id"]
    deadline = time.monotonic() + 30.0
    while True:
        lines = [json.loads(line) for line in log_lines(running.path).splitlines()]
        told = [line for line in lines if line["event"] == "event" and line.get("job") == id]
        if told:
            break
        assert time.monotonic() < deadline
        time.sleep(0.05)
    (line,) = told
    assert (line["event_kind"], line["process"], line["arm"]) == ("job_submitted", "jobs", "axis")
    assert line["number"] > 0
    assert line["text"]


def test_openmetrics_and_the_text_format(url: str) -> None:
    text = ask(url, "/metrics")
    assert text.headers["content-type"].startswith("text/plain; version=")
    found = ask(url, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert found.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert len(list(openmetrics(found.body.decode()))) == len(FAMILIES)
    for strange in ("application/openmetrics-text; version=x", "text/plain; version=1.0.0; escaping=%00", ",;=" * 500):
        assert ask(url, "/metrics", Accept=strange).status == 200


def test_values(url: str, control: Control) -> None:
    """Counters count, and agree with what the processes themselves say."""
    first = scrape(url)
    later = scrape(url)
    while value(later, "thetad_loop_period_seconds_count", arm="axis") == value(
        first, "thetad_loop_period_seconds_count", arm="axis"
    ):
        later = scrape(url)
    for family in FAMILIES:
        if family.kind == "gauge":
            continue
        for sample in first[family.name.removesuffix("_total")].samples:
            (now,) = (
                found.value
                for found in later[family.name.removesuffix("_total")].samples
                if (found.name, found.labels) == (sample.name, sample.labels)
            )
            assert now >= sample.value, sample
    assert value(later, "thetad_arm_ready", arm="axis") == value(later, "thetad_ready") == 1.0
    assert value(later, "thetad_frames_received_total", arm="over", reader="estimator") == 2000.0
    assert value(later, "thetad_frames_published_total", arm="over") == 2000.0
    assert value(later, "thetad_loop_nominal_period_seconds", arm="axis") == 0.001
    assert value(later, "thetad_source_state", arm="over", state="ended") == 1.0
    assert value(later, "thetad_source_state", arm="axis", state="running") == 1.0
    assert not values(later, "thetad_loop_period_seconds_count", arm="over")  # it has no cycle to keep
    assert (
        value(later, "thetad_loop_period_seconds_sum", arm="axis")
        / value(later, "thetad_loop_period_seconds_count", arm="axis")
        > 0.0005
    )
    parameters = sum(values(later, "thetad_joint_parameters", arm="axis", joint="carriage"))
    assert parameters == len(control.request("snapshot", arm="axis")["theta"])
    assert 0.0 < value(later, "thetad_joint_forgetting_factor", arm="axis", joint="carriage") <= 1.0
    assert value(later, "thetad_recorder_recording", arm="axis") == 1.0
    assert value(later, "thetad_recorder_bytes_total", arm="axis") > 1000.0
    assert value(later, "thetad_events_total", kind="daemon_ready") == 1.0
    assert {sample.labels["process"] for sample in later["thetad_process_cpu_seconds"].samples} == {
        "supervisor",
        *processes(control),
    }
    assert (
        0.0
        < value(later, "thetad_process_open_fds", process="web")
        < value(later, "thetad_process_max_fds", process="web")
    )


def test_the_loop_is_on_the_wire_too(running: Running) -> None:
    with Subscriber(running.daemon.endpoints["frames"], ["axis/status"]) as stream:
        loop = await_message(stream).body["loop"]  # type: ignore[union-attr]
    assert loop["nominal_us"] == 1000.0
    assert loop["overruns"] >= 0
    for name in ("period", "execution"):
        found = loop[name]
        assert len(found["counts"]) == len(found["bounds_us"]) + 1
        assert sum(found["counts"]) > 0
        assert 0.0 < found["max_us"] <= found["sum_us"]
    assert sum(loop["execution"]["counts"]) == sum(loop["period"]["counts"]) + 1


def test_subscribers_are_counted(running: Running, url: str) -> None:
    def connections() -> float:
        return value(scrape(url), "thetad_gateway_connections", stream="estimates")

    deadline = time.monotonic() + 30.0
    while connections() != 0.0:  # those of other tests
        assert time.monotonic() < deadline
    with Subscriber(running.daemon.endpoints["estimates"], ["axis/estimate"]) as stream:
        await_message(stream)
        while connections() != 1.0:
            assert time.monotonic() < deadline
    while connections() != 0.0:
        assert time.monotonic() < deadline


# ---------------------------------------------------------------- what refers to them


def expressions(text: str) -> set[tuple[str, str]]:
    """Return the metrics of thetad in an expression, each with its label matchers."""
    return set(re.findall(r"\b(thetad_\w+)(\{[^}]*\})?", text))


def known_samples(url: str) -> dict[str, set[str]]:
    """Return the possible names of samples with their labels."""
    found: dict[str, set[str]] = {}
    told = scrape(url)
    for family in FAMILIES:
        assert family.name.removesuffix("_total") in told
        suffixes = ("_bucket", "_sum", "_count") if family.kind == "histogram" else ("",)
        for suffix in suffixes:
            found[family.name + suffix] = {*family.labels, "instance", "job"} | (
                {"le"} if suffix == "_bucket" else set()
            )
    return found


def check_expression(text: str, known: dict[str, set[str]]) -> None:
    found = expressions(text)
    assert found, text
    assert text.count("(") == text.count(")"), text
    for name, braces in found:
        assert name in known, f"{name} is not told by /metrics"
        assert set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", braces)) <= known[name], (name, braces)
    labels = set.union(*(known[name] for name, _ in found))
    for listed in re.findall(r"\bby \(([^)]*)\)", text):
        assert set(re.split(r",\s*", listed)) <= labels, text


def test_alerts_and_scrape_configuration(url: str) -> None:
    known = known_samples(url)
    rules = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"][0]["rules"]
    assert len({rule["alert"] for rule in rules}) == len(rules) > 10
    for rule in rules:
        if rule["alert"] != "ThetadDown":  # `up` is Prometheus' own
            check_expression(rule["expr"], known)
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["alert"] != "ThetadSupervisorSilent" or "for" not in rule  # its watchdog would be sooner
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert len(rule["annotations"]["runbook"]) > 40
        shown = re.findall(r"\$labels\.(\w+)", json.dumps(rule))
        labels = set().union(*(known[name] for name, _ in expressions(rule["expr"]))) | {"instance"}
        assert set(shown) <= labels, rule["alert"]
    scraped = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    assert all((DEPLOY / name).is_file() for name in scraped["rule_files"])
    (job,) = scraped["scrape_configs"]
    assert job["static_configs"][0]["targets"] == ["127.0.0.1:9874"]
    assert ask(url, job["metrics_path"]).status == 200


def test_dashboard(url: str) -> None:
    known = known_samples(url)
    dashboard = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    panels: list[dict[str, Any]] = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(place["x"] + i, place["y"] + j) for i in range(place["w"]) for j in range(place["h"])}
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, f"{panel['title']} lies over another panel"
        taken |= cells
        for target in panel.get("targets", []):
            check_expression(target["expr"], known)
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            check_expression(variable["definition"], known)
    shown = {name for panel in panels for target in panel.get("targets", []) for name, _ in expressions(target["expr"])}
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(panels))) <= variables
    assert len(shown) > 20


def test_the_plotjuggler_layout_shows_what_is_sent(running: Running) -> None:
    """Each curve is a number of a real message; joints and channels are those of a larger arm."""
    root = ElementTree.parse(DEPLOY / "plotjuggler-layout.xml").getroot()
    curves = [curve.attrib["name"] for curve in root.iter("curve")]
    assert len(curves) > 50
    sent: dict[str, list[dict[str, Any]]] = {}
    for stream, kinds in (("frames", ("stats", "status")), ("estimates", ("estimate", "torque", "stats"))):
        for kind in kinds:
            with Subscriber(running.daemon.endpoints[stream], [f"axis/{kind}"]) as subscriber:
                message = await_message(subscriber)
            fields = {field.name: getattr(message, field.name) for field in dataclasses.fields(message)}
            sent.setdefault(kind, []).append(fields.get("body", fields))
    for name in curves:
        arm, kind, *keys = re.sub(r"\[\d+\]$", "", name).split("/")
        assert arm == "space6"
        if kind == "frame":
            assert keys[0] in CHANNELS
            continue
        found: Any = next(body for body in sent[kind] if keys[0] in body)
        for key in keys:
            found = found[key]
        assert isinstance(found, (int, float)) or (len(found) > 0 and name.endswith("]")), name
