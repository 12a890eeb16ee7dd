"""What a real daemon answers by HTTP: health, metrics, refusals; and what rude clients and ill processes change."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import re
import signal
import socket
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics

from drivers.frame import CHANNELS
from service.client import Control, Subscriber
from service.launch import DaemonProcess, LaunchError
from service.security.files import make_directory
from service.security.keys import SERVER_KEY, new_pair, write_pair
from service.web.connection import MOST, REQUEST_S
from service.web.families import FAMILIES
from tests.service.daemons import (
    await_message,
    await_status,
    config,
    log_lines,
    make_recording,
    processes,
    replayed,
    start,
)
from tests.service.http_client import Answer, ask, await_answer, scrape, value, values

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
TOKEN = "0123456789abcdef"
LATENCY = "thetad_estimate_latency_seconds"


@dataclasses.dataclass(frozen=True)
class Running:
    daemon: DaemonProcess
    url: str
    path: Path
    held: Answer  # to /readyz, before the source was let go


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """An arm that is replayed for ever and recorded, held at first, and one whose recording is soon at its end."""
    path = tmp_path_factory.mktemp("http")
    recording = make_recording(path / "rec.mcap")
    recorder = {"directory": str(path / "recorded")}
    arms = (
        replayed(recording, loop=True, hold=True, recorder=recorder, publish={"estimate_hz": 2.0}),  # one is always due
        replayed(recording, "over", speed="max"),
    )
    daemon = start(config(path, *arms, http=True, http_port=0), path)
    url = daemon.endpoints["http"]
    try:
        held = await_answer(url, "/readyz", lambda answer: b"is held" in answer.body)
        with Control(daemon.endpoints["control"]) as control:
            control.request("start", arm="axis")
        await_answer(url, "/readyz", lambda answer: answer.status == 200)
        yield Running(daemon, url, path, held)
    finally:
        daemon.stop()


@pytest.fixture
def url(running: Running) -> str:
    return running.url


@pytest.fixture
def control(running: Running) -> Iterator[Control]:
    with Control(running.daemon.endpoints["control"]) as control:
        yield control


@pytest.fixture
def unharmed(control: Control, url: str) -> Iterator[None]:
    """After an attack the same process answers as before."""
    before = processes(control)["web"]
    yield
    after = processes(control)["web"]
    assert (after["pid"], after["restarts"], after["state"]) == (before["pid"], 0, "ready")
    assert ask(url, "/healthz").status == 200


# ---------------------------------------------------------------- answers


def test_health(url: str) -> None:
    answer = ask(url, "/healthz")
    assert (answer.status, answer.json) == (200, {"status": "ok"})
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    assert "server" not in answer.headers


def test_ready_is_an_arm_at_work_or_at_its_end(running: Running) -> None:
    answer = ask(running.url, "/readyz")
    assert answer.json["status"] == "ready"
    assert answer.json["arms"] == [
        {"arm": "axis", "ready": True, "problems": []},
        {"arm": "over", "ready": True, "problems": []},
    ]
    assert len(answer.body.splitlines()) == 4  # one for each arm


def test_a_held_arm_is_not_ready(running: Running) -> None:
    assert running.held.status == 503
    assert running.held.json["status"] == "not ready"
    (axis,) = (arm for arm in running.held.json["arms"] if arm["arm"] == "axis")
    assert axis["ready"] is False
    assert "thetad control start arm=axis" in axis["problems"][0]


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_head_is_get_without_the_body(url: str, path: str) -> None:
    get, head = ask(url, path), ask(url, path, "HEAD")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-type"] == get.headers["content-type"]
    assert int(head.headers["content-length"]) > 0


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/healthz/", 404),
        ("GET", "/metrics/../../etc/passwd", 404),
        ("GET", "/%00", 404),
        ("POST", "/metrics", 405),
        ("DELETE", "/healthz", 405),
        ("BREW", "/readyz", 405),
    ],
)
def test_what_is_not_there_is_refused_in_one_line(url: str, method: str, path: str, status: int) -> None:
    answer = ask(url, path, method)
    assert answer.status == status
    assert list(answer.json) == ["error"]
    assert answer.body.count(b"\n") == 1
    assert answer.headers["content-type"] == "application/json"
    if status == 405:
        assert answer.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("127.3.2.1:9874", 200),
        ("[::1]:9874", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost@evil.example", 421),
        ("192.168.1.1", 421),
        ("", 421),
    ],
)
def test_only_loopback_names_are_answered(url: str, host: str, status: int) -> None:
    for path in ("/healthz", "/metrics", "/none"):
        answer = ask(url, path, Host=host)
        assert answer.status == (404 if (status, path) == (200, "/none") else status)
        assert status == 200 or "Host" in answer.json["error"]


# ---------------------------------------------------------------- metrics


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
    """Metrics of thetad in an expression, each with the labels that are asked for in braces."""
    return set(re.findall(r"\b(thetad_\w+)(\{[^}]*\})?", text))


def known_samples(url: str) -> dict[str, set[str]]:
    """Names of samples that there may be, with their labels."""
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


# ---------------------------------------------------------------- rude clients


def connect(url: str, received: int = 0) -> socket.socket:
    """A connection, with a buffer for so many received bytes if that is to be small."""
    parts = urlsplit(url)
    raw = socket.socket()
    raw.settimeout(20.0)
    if received:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, received)
    raw.connect((str(parts.hostname), int(parts.port or 0)))
    return raw


def until_the_end(raw: socket.socket) -> bytes:
    """What comes until the other side hangs up."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while chunk := raw.recv(65536):
            found += chunk
    return found


@pytest.mark.usefixtures("unharmed")
@pytest.mark.parametrize(
    "data",
    [
        random.Random(1).randbytes(10_000),
        random.Random(2).randbytes(1_000_000),
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 1_000_000,
        b"GET /" + b"x" * 1_000_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 100_000,
        b"\r\n" * 500_000,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" + random.Random(3).randbytes(10_000),
    ],
    ids=["random", "much-random", "header", "path", "headers", "lines", "http2", "after-a-request"],
)
def test_what_is_no_request_is_hung_up_on(url: str, data: bytes) -> None:
    with connect(url) as raw:
        with contextlib.suppress(ConnectionError):
            raw.sendall(data)
        answer = until_the_end(raw)
    answered = b"HTTP/1.1 200" if data.startswith(b"GET /healthz") else b"HTTP/1.1 4"
    assert answer.startswith(answered) or (answer == b"" and answered == b"HTTP/1.1 4")


@pytest.mark.usefixtures("unharmed")
def test_headers_that_come_at_once_have_a_limit_too(url: str) -> None:
    for long in (b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 20_000, b"GET /" + b"x" * 20_000 + b" HTTP/1.1"):
        with connect(url) as raw:
            raw.sendall(long + b"\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answer = until_the_end(raw)
        assert answer.startswith(b"HTTP/1.1 431 "), answer
        assert b"8192 bytes" in answer


@pytest.mark.usefixtures("unharmed")
def test_a_slow_request_is_hung_up_on_and_delays_nobody(url: str) -> None:
    """Drops of bytes do not buy more time, before a request, within its headers, or in its body."""
    began = time.monotonic()
    starts = (
        b"",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n",
        b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n",
    )
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(connect(url)) for _ in starts]
        for raw, data in zip(slow, starts, strict=True):
            raw.sendall(data)
        left = list(slow[1:])
        while left:
            assert ask(url, "/healthz").status == 200
            assert time.monotonic() - began < 6.0 * REQUEST_S
            for raw in list(left):
                try:
                    raw.sendall(b"x")
                except OSError:
                    left.remove(raw)
            time.sleep(0.2)
        assert until_the_end(slow[0]) == b""
    assert time.monotonic() - began > 0.9 * REQUEST_S


@pytest.mark.usefixtures("unharmed")
def test_many_silent_connections_make_room(url: str) -> None:
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(connect(url)) for _ in range(3 * MOST)]
        for _ in range(5):
            assert ask(url, "/readyz").status in (200, 503)
        assert until_the_end(silent[0]) == b""


@pytest.mark.usefixtures("unharmed")
def test_many_that_take_no_answer_make_room(url: str) -> None:
    asked = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n"
    with contextlib.ExitStack() as stack:
        for number in range(MOST + 4):
            raw = stack.enter_context(connect(url, received=2048))
            raw.sendall(asked + (b"Connection: close\r\n\r\n" if number % 2 else b"\r\n" + 4 * (asked + b"\r\n")))
        for _ in range(3):
            assert ask(url, "/readyz").status == 200


@pytest.mark.usefixtures("unharmed")
def test_a_long_body_is_not_waited_for(url: str) -> None:
    with connect(url) as raw:
        raw.sendall(b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            raw.sendall(bytes(1_000_000))
        assert raw.recv(100).startswith(b"HTTP/1.1 405")


# ---------------------------------------------------------------- ill processes


def test_a_stopped_estimator_makes_its_arm_not_ready(running: Running, control: Control) -> None:
    url, pid = running.url, processes(control)["axis/estimator"]["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        answer = await_answer(url, "/readyz", lambda answer: answer.status == 503)
        axis, over = answer.json["arms"]
        assert (axis["ready"], over["ready"]) == (False, True)
        assert "the estimator has" in axis["problems"][0]
        assert ask(url, "/healthz").status == 200
        assert value(scrape(url), "thetad_arm_ready", arm="axis") == 0.0
    finally:
        os.kill(pid, signal.SIGCONT)
    await_answer(url, "/readyz", lambda answer: answer.status == 200)


def slower_than_a_second(families: Any) -> float:
    """How many estimates of the arm came so long after their frame."""
    within = value(families, f"{LATENCY}_bucket", arm="axis", le="1")
    return value(families, f"{LATENCY}_count", arm="axis") - within


def test_a_killed_acquisition_makes_its_arm_not_ready_and_its_counters_begin_again(
    running: Running, control: Control
) -> None:
    url, before = running.url, processes(control)["axis/acquisition"]
    while (published := value(scrape(url), "thetad_frames_published_total", arm="axis")) < 5000.0:
        time.sleep(0.1)  # more than there will be soon after
    slow = slower_than_a_second(scrape(url))  # while something was stopped
    os.kill(before["pid"], signal.SIGKILL)
    answer = await_answer(url, "/readyz", lambda answer: b"the acquisition is" in answer.body)
    assert (answer.status, answer.json["arms"][0]["ready"]) == (503, False)
    await_status(control, lambda found: found["axis/acquisition"]["state"] == "ready")
    control.request("start", arm="axis")
    await_answer(url, "/readyz", lambda answer: answer.status == 200)
    families = scrape(url)
    assert value(families, "thetad_frames_published_total", arm="axis") < published
    assert value(families, "thetad_process_restarts_total", process="axis/acquisition") == before["restarts"] + 1
    enough = value(families, f"{LATENCY}_count", arm="axis") + 2.0
    while value(families, f"{LATENCY}_count", arm="axis") < enough:
        families = scrape(url)
    assert slower_than_a_second(families) == slow  # the time without a source is no latency
    assert value(families, "thetad_source_epochs_total", arm="axis", reader="estimator") == before["restarts"] + 2


def test_a_killed_web_process_is_back_at_its_port(running: Running, control: Control) -> None:
    before = processes(control)["web"]
    os.kill(before["pid"], signal.SIGKILL)
    found = await_status(
        control, lambda now: now["web"]["restarts"] > before["restarts"] and now["web"]["state"] == "ready"
    )
    assert all(process["restarts"] == 0 for name, process in found.items() if name not in ("web", "axis/acquisition"))
    await_answer(running.url, "/readyz", lambda answer: answer.status == 200)
    assert value(scrape(running.url), "thetad_process_restarts_total", process="web") == before["restarts"] + 1


def test_a_stopped_supervisor_is_no_health(running: Running) -> None:
    url = running.url
    os.kill(running.daemon.pid, signal.SIGSTOP)
    try:
        answer = await_answer(url, "/healthz", lambda answer: answer.status == 503)
        assert answer.json["status"] == "failed"
        assert "the supervisor has been silent for" in answer.json["reason"]
        ready = ask(url, "/readyz")
        assert (ready.status, ready.json["reason"][:14]) == (503, "the supervisor")
        assert value(scrape(url), "thetad_supervisor_silence_seconds") > 3.0
    finally:
        os.kill(running.daemon.pid, signal.SIGCONT)
    await_answer(url, "/healthz", lambda answer: answer.status == 200)
    await_answer(url, "/readyz", lambda answer: answer.status == 200)


def test_with_keys_a_token_is_asked_for_and_nobody_outlives_the_supervisor(tmp_path: Path) -> None:
    keys, token = tmp_path / "keys", tmp_path / "token"
    make_directory(keys)
    write_pair(keys / SERVER_KEY, new_pair(), "test")
    token.write_text(TOKEN + "\n")
    token.chmod(0o600)
    arm = replayed(make_recording(tmp_path / "rec.mcap"), loop=True)
    settings = config(
        tmp_path, arm, require_keys=True, keys_dir=str(keys), http=True, http_port=0, http_token_file=str(token)
    )
    with start(settings, tmp_path) as daemon:
        url = daemon.endpoints["http"]
        for headers in ({}, {"Authorization": "Bearer 0123456789abcdeF"}, {"Authorization": TOKEN}):
            for path in ("/healthz", "/metrics", "/none"):
                answer = ask(url, path, **headers)
                assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert ask(url, "/healthz", Authorization=f"Bearer {TOKEN}").status == 200
        os.kill(daemon.pid, signal.SIGKILL)
        deadline = time.monotonic() + 30.0
        with contextlib.suppress(ConnectionError):
            while True:
                ask(url, "/healthz")
                assert time.monotonic() < deadline


def test_a_port_that_another_has_keeps_only_those_from_starting_who_ask_for_it(tmp_path: Path) -> None:
    """HTTP that nobody asked for waits until its port is free; and at the end the daemon is alive, and not ready."""
    arm = replayed(make_recording(tmp_path / "rec.mcap"), loop=True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(LaunchError, match=rf"daemon\.http_port: cannot bind 127\.0\.0\.1:{port}"):
            start(config(tmp_path, arm, http=True, http_port=port), tmp_path)
        daemon = start(config(tmp_path, arm, http=None, http_port=port), tmp_path)
        with contextlib.ExitStack() as stack:
            stack.enter_context(daemon)
            control = stack.enter_context(Control(daemon.endpoints["control"]))
            found = await_status(control, lambda now: now["web"]["restarts"] > 1)
            kept = stack.pop_all()
    with kept:
        assert f"cannot bind 127.0.0.1:{port}" in found["web"]["last_error"]
        assert {name for name, process in found.items() if process["state"] != "ready"} == {"web"}
        assert control.request("status")["events"]["process_ended"] == 1  # it is told once
        await_status(control, lambda now: now["web"]["state"] == "ready")
        url = daemon.endpoints["http"]
        await_answer(url, "/readyz", lambda answer: answer.status == 200)
        os.kill(processes(control)["axis/acquisition"]["pid"], signal.SIGSTOP)  # the others wait for it
        os.kill(daemon.pid, signal.SIGTERM)
        answer = await_answer(url, "/readyz", lambda answer: answer.json["status"] == "stopping")
        assert (answer.status, answer.json["reason"]) == (503, "the daemon stops")
        assert value(scrape(url), "thetad_arm_ready", arm="axis") == 0.0
        with contextlib.suppress(ConnectionError):  # longer than a supervisor may be silent otherwise
            while (answer := ask(url, "/healthz")).status == 200:
                assert answer.json == {"status": "stopping"}
                time.sleep(0.1)
        assert answer.status == 200, answer
        assert daemon.wait(30.0) == 0
