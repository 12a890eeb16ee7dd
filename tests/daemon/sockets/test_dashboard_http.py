"""HTTP interface of the dashboard: roles, refusals, lists, live values and slow readers."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from service.client import Control
from service.web._connection import REQUEST_S
from service.web._live import TURN_S
from tests.lab.daemon.daemons import await_status, processes
from tests.lab.daemon.shared import Keeper, Site
from tests.lab.daemon.sockets import TOKENS, plain
from tests.lab.web.http_client import TIMEOUT_S, Answer, ask

MARK = {"Content_Type": "application/json", "X_Thetad": "1"}


class Dashboard:
    """HTTP of a running daemon, asked with the token of a role."""

    def __init__(self, site: Site) -> None:
        self.daemon, self.url, self.path = site.daemon, site.url, site.path

    def get(self, path: str, role: str = "read", **headers: str) -> Answer:
        return ask(self.url, path, Authorization=f"Bearer {TOKENS[role]}", **headers)

    def do(self, action: Any, role: str = "operate", **headers: str) -> Answer:
        body = action if isinstance(action, bytes) else json.dumps(action).encode()
        given = {**MARK, "Authorization": f"Bearer {TOKENS[role]}", **headers}
        return ask(self.url, "/api/do", "POST", body, **given)

    def until(self, path: str, done: Callable[[Any], bool]) -> Any:
        deadline = time.monotonic() + 60.0
        while not done(found := self.get(path).json):
            assert time.monotonic() < deadline, found
            time.sleep(0.05)
        return found


@pytest.fixture(scope="module")
def site(keeper: Keeper) -> Dashboard:
    found = Dashboard(keeper.get(plain))
    found.until("/api/now?arm=axis", lambda said: "estimate" in said and "torque" in said)
    return found


# ---------------------------------------------------------------- pages and refusals


def test_the_page_is_for_all_and_loads_nothing_from_elsewhere(site: Dashboard) -> None:
    page = ask(site.url, "/")
    assert page.status == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    for name in ("main.js", "style.css", "views/arm.js", "vendor/uPlot.iife.min.js"):
        file = ask(site.url, f"/static/{name}")
        assert file.status == 200
        assert file.headers["x-content-type-options"] == "nosniff"
        assert file.headers["content-security-policy"] == policy
        assert file.headers["content-type"].startswith("text/")
        assert ask(site.url, f"/static/{name}", If_None_Match=file.headers["etag"]).status == 304


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py", "/static/%2e%2e/server.py", "/static//etc/passwd", "/static/views/../../guard.py",
        "/static/main.js/", "/static/main.js%00", "/static/MAIN.JS", "/static/views", "/api/recordings/../../log",
        "/api/jobs/../session", "/api/arms/", "/api/arms/axis/../axis/x",
    ],
)  # fmt: skip
def test_only_names_that_there_are_are_found(site: Dashboard, path: str) -> None:
    answer = site.get(path)
    assert answer.status == 404
    assert list(answer.json) == ["error"]


def test_without_a_token_there_are_no_values(site: Dashboard) -> None:
    for path in ("/api/session", "/api/now", "/api/jobs", "/api/recordings", "/api/arms/axis", "/metrics"):
        answer = ask(site.url, path)
        assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert ask(site.url, "/api/do", "POST", b'{"do": "abort", "arm": "axis"}', **MARK).status == 401


def test_pages_from_elsewhere_get_nothing(site: Dashboard) -> None:
    """By their origin, by what the browser says of their site, by the name that they ask for, or without our mark."""
    abort = {"do": "abort", "arm": "axis"}
    own = f"http://{urlsplit(site.url).netloc}"
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": own.replace("http:", "https:")},
        {"Origin": f"{own}0"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ):
        for answer in (site.get("/api/now", **headers), site.do(abort, **headers), site.get("/healthz", **headers)):
            assert answer.status == 403, headers
            assert answer.json["error"].startswith(f"Origin {headers.get('Origin', '')}: a page from elsewhere")
    assert site.get("/api/session", Host="evil.example").status == 421
    assert site.get("/api/session", Origin=own, Sec_Fetch_Site="same-origin").status == 200
    assert "access-control-allow-origin" not in site.get("/api/session", Origin=own).headers
    assert site.do(abort, X_Thetad="1", Content_Type="text/plain").status == 400
    token = f"Bearer {TOKENS['operate']}"
    plain = ask(site.url, "/api/do", "POST", b"{}", Authorization=token, Content_Type="application/json")
    assert plain.status == 400
    assert "x-thetad" in plain.json["error"]


def test_roles(site: Dashboard) -> None:
    record = {"do": "record", "arm": "axis", "action": "stop"}
    arm = {"do": "arm", "arm": "axis"}
    assert site.get("/api/session").json["role"] == "read"
    assert "submit" not in site.get("/api/session").json["allowed"]
    assert "arm" in site.get("/api/session", "motion").json["allowed"]
    denied = site.do(record, "read")
    assert (denied.status, "needs the role operate, and you have read" in denied.json["error"]) == (403, True)
    assert site.do(record, "operate").status == 200
    assert site.do(arm, "operate").status == 403
    armed = site.do(arm, "motion")  # it gets as far as the arm, which is a recording
    assert (armed.status, "has no drives" in armed.json["error"]) == (400, True)
    stop = site.do({"do": "abort", "arm": "axis"}, "read")  # nobody needs a key here, so that anybody may stop it
    assert (stop.status, "has no drives" in stop.json["error"]) == (400, True)


@pytest.mark.parametrize(
    "action",
    [
        b"", b"rubbish", b"[]", b'{"do": "shutdown"}', {"do": "run_trajectory", "arm": "axis"},
        {"do": "identify", "arm": "axis", "recording": "/etc/passwd"},
        {"do": "identify", "arm": "axis", "recording": "file:../../secret.mcap"},
        {"do": "identify", "arm": "axis", "recording": "file:axis-20200101T000000.mcap"},
        {"do": "identify", "arm": "<script>alert(1)</script>", "recording": "live:5"},
        {"do": "promote", "arm": "axis", "model": "/etc/passwd", "recording": "live:5"},
        {"do": "record", "arm": "nobody", "action": "start"}, {"do": "cancel", "id": 12345},
        {"do": "rollback", "arm": "axis"}, b'{"do": "cancel", "id": ' + b"9" * 4000 + b"}", b"[" * 5000,
    ],
)  # fmt: skip
def test_hostile_actions_are_refused_in_words(site: Dashboard, action: Any) -> None:
    answer = site.do(action, "motion")
    assert answer.status == 400, answer
    assert answer.json["error"]
    assert len(answer.body) < 5000


def test_a_body_that_is_too_long_is_not_read(site: Dashboard) -> None:
    answer = site.do(b" " * 100_000)
    assert answer.status == 400
    assert "16384 bytes" in answer.json["error"]


@pytest.mark.parametrize("id", ["x", "-1", "9" * 4301, "%C2%B2"])
def test_a_job_is_named_by_a_whole_number(site: Dashboard, id: str) -> None:
    answer = site.get(f"/api/jobs/{id}")
    assert (answer.status, answer.json["error"]) == (400, "id: expected a whole number")


# ---------------------------------------------------------------- lists


def test_a_recording_is_made_listed_and_identified_by_its_name(site: Dashboard) -> None:
    assert site.get("/api/recordings").json["recorders"] == ["axis"]
    assert site.do({"do": "record", "arm": "axis", "action": "start"}).json["recording"] is True
    (found, *_) = site.until("/api/recordings", lambda said: said["recordings"])["recordings"]
    assert set(found) == {"arm", "name", "bytes", "changed"}
    assert str(site.path) not in json.dumps(found)
    job = site.do({"do": "identify", "arm": "axis", "recording": f"file:{found['name']}", "method": "ols"})
    assert (job.status, job.json["kind"]) == (200, "identify")
    assert site.do({"do": "record", "arm": "axis", "action": "stop"}).json["recording"] is False
    jobs = site.until("/api/jobs", lambda said: said["jobs"])["jobs"]
    assert jobs[0]["id"] == job.json["id"]
    one = site.get(f"/api/jobs/{job.json['id']}")
    assert str(site.path) not in one.body.decode()  # neither of the recording nor of results
    assert one.json["parameters"]["method"] == "ols"
    assert "robot" not in one.json["parameters"]
    site.do({"do": "cancel", "id": job.json["id"]})
    site.until(f"/api/jobs/{job.json['id']}", lambda said: said["state"] not in ("queued", "running"))
    events = site.until("/api/events", lambda said: said["events"])["events"]
    assert "job_submitted" in {each["kind"] for each in events}
    assert site.get("/api/models").json["arms"]["axis"]["active"] is None


def test_facts_and_prior_belong_to_the_estimates(site: Dashboard) -> None:
    facts = site.get("/api/arms/axis").json
    estimate = site.get("/api/now?arm=axis").json["estimate"]
    assert facts["hash"] == estimate["hash"]
    assert len(facts["parameters"]) == len(facts["units"]) == len(facts["of_joint"]) == len(estimate["theta"])
    prior = site.get("/api/arms/axis/prior").json
    assert prior["hash"] == facts["hash"]
    assert len(prior["parameters"]) == len(facts["parameters"])
    (curve,) = prior["friction"]
    assert curve["joint"] == facts["joints"][0]


# ---------------------------------------------------------------- the present


class Reader:
    """Requests live values on one connection, as a browser does."""

    def __init__(self, site: Dashboard) -> None:
        self.connection = http.client.HTTPConnection(urlsplit(site.url).netloc, timeout=TIMEOUT_S)
        self.turn = self.epoch = 0
        self.answers: list[dict[str, Any]] = []

    def read(self) -> dict[str, Any]:
        path = f"/api/now?arm=axis&epoch={self.epoch}&since={self.turn}"
        self.connection.request("GET", path, headers={"Authorization": f"Bearer {TOKENS['read']}"})
        said: dict[str, Any] = json.loads(self.connection.getresponse().read())
        self.turn, self.epoch = said["turn"], said["epoch"]
        self.answers.append(said)
        return said


@pytest.fixture
def readers(site: Dashboard) -> Iterator[tuple[Reader, Reader]]:
    two = Reader(site), Reader(site)
    yield two
    for reader in two:
        reader.connection.close()


def test_a_slow_reader_gets_fewer_answers_and_always_the_newest(
    site: Dashboard, readers: tuple[Reader, Reader]
) -> None:
    """After twenty estimates of the fast reader it gets one answer, with the latest, and no older ones after it."""
    fast, slow = readers
    slow.read()
    estimates: list[dict[str, Any]] = []
    for count in (20, 40):
        before = slow.turn
        while len(estimates) < count:
            said = fast.read()
            estimates += [said["estimate"]] if "estimate" in said else []
        newest = slow.read()
        assert newest["turn"] - before >= 10
        assert newest["estimate"]["t"] >= estimates[-1]["t"]
    assert len(slow.answers) == 3
    turns = [said["turn"] for said in fast.answers]
    assert turns == sorted(turns)
    times = [each["t"] for each in estimates]
    assert times == sorted(times)
    times = [said["torque"]["t"] for said in fast.answers if "torque" in said]
    assert times == sorted(set(times))
    assert len(times) > 5
    assert all(said["now"] >= said["estimate"]["at"] for said in fast.answers if "estimate" in said)


def test_who_takes_no_answer_is_hung_up_on_and_keeps_nobody_waiting(
    site: Dashboard, readers: tuple[Reader, Reader]
) -> None:
    """A socket that requests hundreds of answers and reads none."""
    name, port = urlsplit(site.url).netloc.rsplit(":", 1)
    ask_for = f"GET /metrics HTTP/1.1\r\nHost: {name}:{port}\r\nAuthorization: Bearer {TOKENS['read']}\r\n\r\n"
    with Control(site.daemon.endpoints["control"]) as control, socket.socket() as deaf:

        def answers_until(connections: int) -> int:
            """How many answers the other one gets until the web process has so many connections."""
            before, deadline = len(readers[0].answers), time.monotonic() + 60.0
            readers[0].read()
            while processes(control)["web"]["info"]["connections"] != connections:
                readers[0].read()
                assert time.monotonic() < deadline
            return len(readers[0].answers) - before

        answers_until(1)
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.settimeout(TIMEOUT_S)
        deaf.connect((name, int(port)))
        deaf.setblocking(False)
        with contextlib.suppress(BlockingIOError, ConnectionError):
            for _ in range(2000):
                deaf.send(ask_for.encode())
        answers_until(2)
        assert answers_until(1) >= REQUEST_S  # were it kept waiting by the other, it would have had one or two
        deaf.settimeout(TIMEOUT_S)
        with contextlib.suppress(ConnectionError):  # otherwise this waits until its time is over, and fails
            while deaf.recv(65536):
                pass


def test_most_turns_bring_something_and_only_what_has_changed(site: Dashboard, readers: tuple[Reader, Reader]) -> None:
    reader = readers[0]
    first = reader.read()
    assert {"fleet", "estimate", "standing", "torque", "bus"} <= set(first)
    for _ in range(30):
        said = reader.read()
        assert said["turn"] > 0
    passed_s = said["now"] - first["now"]  # by the clock that the turns go by
    assert reader.turn - first["turn"] <= passed_s / TURN_S + 2.0
    assert sum("estimate" in said for said in reader.answers[1:]) > 20
    assert sum("standing" in said for said in reader.answers[1:]) < 15


def test_a_source_that_is_silent_is_seen_to_grow_old(site: Dashboard, readers: tuple[Reader, Reader]) -> None:
    reader = readers[0]
    with Control(site.daemon.endpoints["control"]) as control:
        pid = processes(control)["axis/acquisition"]["pid"]
        os.kill(pid, signal.SIGSTOP)
        try:
            estimate: dict[str, Any] = reader.read()["estimate"]
            deadline = time.monotonic() + 30.0
            while True:
                said = reader.read()
                estimate = said.get("estimate", estimate)
                problems = said["fleet"]["arms"][0]["problems"] if "fleet" in said else []
                if said["now"] - estimate["at"] > 3.5 and problems:
                    break
                assert time.monotonic() < deadline
        finally:
            os.kill(pid, signal.SIGCONT)
        assert "the acquisition has not been heard" in problems[0]
        await_status(control, lambda found: found["axis/acquisition"]["state"] == "ready")
