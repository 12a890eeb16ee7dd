"""HTTP interface of the dashboard: roles, refusals, lists, live values and slow readers."""

import http.client
import json
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.lab.daemon.shared import Keeper, Site
from tests.lab.daemon.sockets import TOKENS, plain
from tests.lab.web.http_client import TIMEOUT_S, Answer, ask

MARK = {"Content_Type": "application/json", "X_Thetad": "1"}


class Dashboard:
    """HTTP of a running daemon, asked with the token of a role."""

    def __init__(self, site: Site) -> None:
        self.url, self.path = site.url, site.path

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
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = page.headers["content-security-policy"]
    for word in ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"):
        assert word in policy
    assert "unsafe" not in policy
    for name in ("main.js", "style.css", "views/arm.js", "vendor/uPlot.iife.min.js"):
        file = ask(site.url, f"/static/{name}")
        assert (file.status, file.headers["x-content-type-options"]) == (200, "nosniff")
        assert file.headers["content-security-policy"] == policy
        assert file.headers["content-type"].startswith("text/")
        assert ask(site.url, f"/static/{name}", If_None_Match=file.headers["etag"]).status == 304


def test_only_names_that_there_are_are_found(site: Dashboard) -> None:
    for path in (
        "/static/../server.py", "/static/%2e%2e/server.py", "/static//etc/passwd", "/static/views/../../guard.py",
        "/static/main.js%00", "/static/views", "/api/recordings/../../log", "/api/arms/", "/api/arms/axis/../axis/x",
    ):  # fmt: skip
        answer = site.get(path)
        assert (answer.status, list(answer.json)) == (404, ["error"]), path


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
        {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": own.replace("http:", "https:")},
        {"Origin": f"{own}0"}, {"Sec_Fetch_Site": "cross-site"}, {"Sec_Fetch_Site": "same-site"},
    ):  # fmt: skip
        for answer in (site.get("/api/now", **headers), site.do(abort, **headers), site.get("/healthz", **headers)):
            assert answer.status == 403, headers
            assert answer.json["error"].startswith(f"Origin {headers.get('Origin', '')}: a page from elsewhere")
    assert site.get("/api/session", Host="evil.example").status == 421
    ours = site.get("/api/session", Origin=own, Sec_Fetch_Site="same-origin")
    assert ours.status == 200
    assert "access-control-allow-origin" not in ours.headers
    assert site.do(abort, Content_Type="text/plain").status == 400
    unmarked = {"Authorization": f"Bearer {TOKENS['operate']}", "Content_Type": "application/json"}
    assert "x-thetad" in ask(site.url, "/api/do", "POST", b"{}", **unmarked).json["error"]


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


def test_hostile_actions_are_refused_in_words(site: Dashboard) -> None:
    """More of them: tests/unit/service/web/test_parts.py."""
    for action in (b"rubbish", {"do": "cancel", "id": 12345}, b'{"do": "cancel", "id": ' + b"9" * 4000 + b"}"):
        answer = site.do(action, "motion")
        assert answer.status == 400, answer
        assert answer.json["error"]
        assert len(answer.body) < 5000
    for id in ("-1", "9" * 4301, "%C2%B2"):
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
    assert site.until("/api/jobs", lambda said: said["jobs"])["jobs"][0]["id"] == job.json["id"]
    one = site.get(f"/api/jobs/{job.json['id']}")
    assert str(site.path) not in one.body.decode()  # neither of the recording nor of results
    assert one.json["parameters"]["method"] == "ols"
    assert "robot" not in one.json["parameters"]
    site.do({"do": "cancel", "id": job.json["id"]})
    site.until(f"/api/jobs/{job.json['id']}", lambda said: said["state"] not in ("queued", "running"))


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


def test_a_slow_reader_gets_fewer_answers_and_always_the_newest(site: Dashboard) -> None:
    """After twenty estimates of the fast reader it gets one answer, with the latest, and no older ones after it."""
    fast, slow = Reader(site), Reader(site)
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
    fast.connection.close()
    slow.connection.close()
