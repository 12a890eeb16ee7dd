"""Parts of the dashboard by themselves: what is told when, what may be named, what a number looks like."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.frame import JointFrame
from service.config.load import Config, parse_config
from service.protocol.control import ControlError
from service.protocol.messages import BodyMessage, Envelope, EstimateMessage, FrameMessage, encode
from service.web._actions import read_action, to_request
from service.web._app import FOLDER
from service.web._cache import Cache
from service.web._history import FRESH_NS, HOUR, History
from service.web._live import WATCHED_S, Live
from service.web._recordings import find_recording, recordings_of
from tests.lab.asynchronous import asynchronous

S = 1_000_000_000


def configuration(folder: Path, **daemon: Any) -> Config:
    arm = {"name": "a", "robot": "emps", "driver": {"kind": "sim"}}
    table = {"daemon": {"state_dir": str(folder), **daemon}, "arm": [arm, {**arm, "name": "a-b"}]}
    return parse_config(table, "test", folder)


# ---------------------------------------------------------------- the present


def estimate(seq: int, at_ns: int, theta: float = 1.25) -> list[bytes]:
    status = ("estimated", "stale", "frozen", "unestimated", "invalid")
    message = EstimateMessage(
        "a",
        Envelope("estimator", 1, seq, seq * S // 50, "sim", at_ns),
        theta=np.full(5, theta),
        validated=np.full(5, 7.0),
        std=np.full(5, 0.5),
        status=status,
        excited=np.array([True, False, False, True, False]),
        lam=np.array([0.999]),
        innovation=np.array([np.nan]),
        sigma=np.array([0.25]),
        delay_s=0.1, frames=10, used=9, masked=1, lost=0, resets=0, hash="h",
    )  # fmt: skip
    return encode(message)


class Clock:
    """A time that is set."""

    now_ns = 1000 * S

    def __call__(self) -> int:
        return self.now_ns


def present() -> tuple[Clock, Cache, Live]:
    clock = Clock()
    cache = Cache(("a", "a-b"), clock())
    return clock, cache, Live(cache, 77, clock)


async def asked(live: Live, clock: Clock, arm: str, since: int = 0, epoch: int = 77) -> dict[str, Any]:
    """The answer to a question, with turns going by meanwhile."""
    task = asyncio.ensure_future(live.answer(arm, epoch, since))
    while not task.done():
        await asyncio.sleep(0)
        clock.now_ns += S // 20
        live.update(clock())
        await asyncio.sleep(0)
    return dict(json.loads(task.result()))


@asynchronous
async def test_only_what_has_changed_is_told() -> None:
    clock, cache, live = present()
    cache.on_message(estimate(0, clock()))
    first = await asked(live, clock, "a")
    assert {"fleet", "estimate", "standing", "bus"} <= set(first)
    cache.on_message(estimate(1, clock(), 1.5))
    second = await asked(live, clock, "a", first["turn"])
    assert set(second) == {"epoch", "turn", "now", "arm", "estimate"}
    assert second["turn"] > first["turn"]
    again = await asked(live, clock, "a", first["turn"])
    assert again["estimate"] == second["estimate"]  # who missed it gets it still
    other = await asked(live, clock, "a-b")
    assert "estimate" not in other
    assert "fleet" in other


@asynchronous
async def test_values_that_the_data_do_not_support_have_no_number() -> None:
    clock, cache, live = present()
    cache.on_message(estimate(0, clock()))
    said = await asked(live, clock, "a")
    assert said["estimate"]["theta"] == [1.25, 1.25, 1.25, None, None]
    assert said["estimate"]["std"] == [0.5, 0.5, 0.5, None, None]
    assert said["estimate"]["innovation"] == [None]
    assert said["standing"]["status"][3:] == ["unestimated", "invalid"]
    assert said["standing"]["excited"] == [1, 0, 0, 1, 0]
    clock.now_ns += 3600 * S
    late = await asked(live, clock, "a")  # an old value tells that it is old
    assert late["estimate"]["at"] == said["estimate"]["at"]
    assert late["now"] - late["estimate"]["at"] > 3600.0


@asynchronous
async def test_nothing_is_made_while_nobody_looks_and_what_is_shown_first_is_new() -> None:
    clock, cache, live = present()
    live.update(clock())
    assert live.turn == 0
    cache.on_message(estimate(0, clock(), 1.0))
    assert (await asked(live, clock, "a"))["estimate"]["theta"][0] == 1.0
    assert live.watched(clock()) == {"a"}
    clock.now_ns += round(2.0 * WATCHED_S * S)
    assert live.watched(clock()) == set()
    turn = live.turn
    cache.on_message(estimate(1, clock(), 2.0))
    live.update(clock())
    assert live.turn == turn
    assert (await asked(live, clock, "a"))["estimate"]["theta"][0] == 2.0


@asynchronous
async def test_a_process_that_was_started_again_tells_everything() -> None:
    clock, cache, live = present()
    cache.on_message(estimate(0, clock()))
    first = await asked(live, clock, "a")
    assert "estimate" in await asked(live, clock, "a", first["turn"] + 1000, epoch=76)
    assert "estimate" in await asked(live, clock, "a", first["turn"] + 1000)  # nobody can have a later turn


# ---------------------------------------------------------------- the last hour

META = {"hash": "h", "parameters": list("vwxyz"), "joints": ["j"]}


def frame(seq: int, at_ns: int) -> bytes:
    given = JointFrame(seq, seq * S, at_ns, q=np.array([float(seq)]))
    return encode(FrameMessage("a", Envelope("acquisition", 1, seq, seq * S, "sim", at_ns), given))[1]


def test_the_last_hour_is_kept_over_a_restart(tmp_path: Path) -> None:
    clock, cache, _ = present()
    history = cache.arms["a"].history = History(tmp_path / "history")
    (tmp_path / "history").write_bytes(b"rubbish")
    assert history.columns(["q.0"], 0.0, 0.0) == {"at": [], "q.0": []}
    cache.on_message(encode(BodyMessage("a", "meta", Envelope("estimator", 1, 0, 0, "sim", clock()), META)))
    for k in range(3):
        cache.on_message(estimate(k, clock(), 1.5 + k))
        cache.on_message([b"a/frames", frame(k - 1, clock()), frame(k, clock())])  # of several the last is kept
        cache.keep(clock(), 5000.0 + k)
        clock.now_ns += S
    clock.now_ns += FRESH_NS
    cache.keep(clock(), 5006.0)  # nothing has come meanwhile
    later = History(tmp_path / "history")
    later.add(META, [], clock(), 5007.0)
    found = later.columns(["theta.0", "theta.3", "q.0"], clock() * 1e-9, 5007.0)
    assert found["at"] == pytest.approx([999.0, 1000.0, 1001.0, 1005.0, 1006.0])
    assert found["theta.0"] == pytest.approx([1.5, 2.5, 3.5, np.nan, np.nan], nan_ok=True)
    assert found["q.0"] == pytest.approx([0.0, 1.0, 2.0, np.nan, np.nan], nan_ok=True)
    assert np.isnan(found["theta.3"]).all()  # what the data do not support has no value here either
    assert len(later.columns([], 0.0, 5001.5 + HOUR)["at"]) == 3  # without the two that are older than an hour
    later.add(META | {"hash": "of another model"}, [], clock(), 5008.0)
    assert len(later.columns([], 0.0, 5008.0)["at"]) == 1
    for name in ("q.1", "theta.5", "q", "q.-1", "time.0", "key.0", "q." + "9" * 30, ""):
        with pytest.raises(ControlError, match="there is no column"):
            later.columns([name], 0.0, 0.0)


# ---------------------------------------------------------------- actions


def test_actions_become_requests(tmp_path: Path) -> None:
    config = configuration(tmp_path)
    model = {"model": "job:1", "recording": "live:9.5", "span": "0:0.5"}
    for given, expected in (
        ({"do": "abort", "arm": "a"}, ("abort", {"arm": "a"})),
        ({"do": "arm", "arm": "a", "for_s": 30.0}, ("arm", {"arm": "a", "for_s": 30.0})),
        ({"do": "record", "arm": "a", "action": "start"},
         ("record", {"arm": "a", "action": "start", "owner": "the dashboard"})),
        ({"do": "cancel", "id": 3}, ("cancel", {"id": 3})),
        ({"do": "reidentify", "arm": "a"}, ("reidentify", {"arm": "a", "promote": True})),
        ({"do": "rollback", "arm": "a"}, ("rollback", {"arm": "a", "reason": ""})),
        ({"do": "promote", "arm": "a", **model}, ("submit", {"kind": "promote", "arm": "a", "parameters": model})),
    ):  # fmt: skip
        assert to_request(read_action(json.dumps(given).encode()), config) == expected


def test_anything_else_is_refused() -> None:
    for given in (
        b"", b"[]", b"{}", b"null", b"\xff", b'{"do": "abort"}', b'{"do": "shutdown"}', b'{"do": "backup"}',
        b'{"do": "abort", "arm": "a", "more": 1}', b'{"do": "abort", "arm": 7}', b'{"do": "cancel", "id": "3"}',
        b'{"do": "cancel", "id": -1}', b'{"do": "cancel", "id": 1e30}', b'{"do": "arm", "arm": "a", "for_s": 1e9}',
        b'{"do": "arm", "arm": "a", "for_s": NaN}', b'{"do": "record", "arm": "a", "action": "erase"}',
        b'{"do": "identify", "arm": "a", "recording": "/etc/passwd"}',
        b'{"do": "identify", "arm": "a", "recording": "file:../x"}',
        b'{"do": "identify", "arm": "a", "recording": "live:1\\n"}',
        b'{"do": "identify", "arm": "a", "recording": "live:9", "method": "rm -rf"}',
        b'{"do": "identify", "arm": "a", "recording": "live:9", "robot": "/etc/passwd"}',
        b'{"do": "promote", "arm": "a", "model": "/etc/passwd", "recording": "live:9"}',
        b'{"do": "submit", "kind": "identify"}', b'{"do": "rollback", "arm": "a", "reason": "' + b"x" * 500 + b'"}',
        b"[" * 10_000,
    ):  # fmt: skip
        with pytest.raises(ControlError) as error:
            read_action(given)
        assert error.value.type == "bad_argument", given
        assert 0 < len(error.value.message) <= 1000


# ---------------------------------------------------------------- recordings


def test_recordings_are_found_by_their_listed_names_alone(tmp_path: Path) -> None:
    config = configuration(tmp_path)
    folder = config.recording_dir(config.arm[0])
    folder.mkdir(parents=True)
    good = folder / "a-20260101T000000.mcap"
    again = folder / "a-20260101T000000-1.mcap"
    for name in (good, again, folder / "a-b-20260101T000000.mcap", folder / "other.mcap", folder / "a-2026.txt"):
        name.write_bytes(b"x")
    (folder / "a-20260102T000000.mcap").symlink_to("/etc/passwd")
    (folder / "a-20260103T000000.mcap").mkdir()
    arm = config.arm[0]
    assert {each.name for each in recordings_of(config, arm)} == {good.name, again.name}
    assert find_recording(config, arm, good.name) == good
    for other in ("", ".", "..", "../a", str(good), "a-20260102T000000.mcap", "a-20260103T000000.mcap", "other.mcap"):
        assert find_recording(config, arm, other) is None
    assert all(str(tmp_path) not in json.dumps(each.json_values()) for each in recordings_of(config, arm))
    identify = {"do": "identify", "arm": "a", "recording": f"file:{good.name}"}
    verb, args = to_request(read_action(json.dumps(identify).encode()), config)
    assert (verb, args["parameters"]["recording"]) == ("submit", str(good))
    for wrong in ({"recording": "file:none.mcap"}, {"arm": "nobody"}):
        with pytest.raises(ControlError, match=r"none named none\.mcap|no arm 'nobody'"):
            to_request(read_action(json.dumps(identify | wrong).encode()), config)


# ---------------------------------------------------------------- files


def test_nothing_of_the_page_is_read_as_html_or_comes_from_elsewhere() -> None:
    """Text goes into the page as text alone; whatever is loaded lies beside it."""
    for path in FOLDER.rglob("*"):
        if path.is_dir() or "vendor" in path.parts:
            continue
        text = path.read_text(encoding="utf-8")
        html = re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|style=", text)
        assert html is None, f"{path.name}: {html}"
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", ""), path.name
        assert "https://" not in text, path.name
    page = (FOLDER / "index.html").read_text(encoding="utf-8")
    assert "<script>" not in page
    assert "<style" not in page
