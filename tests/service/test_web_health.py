"""What makes an arm not ready, from what the processes have said; and who may ask by HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.security.files import SecretFileError
from service.web.guard import is_local, read_token
from service.web.health import arm_states, silent
from service.web.latest import Latest
from service.wire import BodyMessage, Envelope, EstimateMessage, encode

S = 1_000_000_000
NOW = 1000 * S


def process(role: str, ready: str = "ready", silent_s: float = 0.1, error: str = "", **info: Any) -> dict[str, Any]:
    """A process's entry in the daemon's status; `ready` is its own state, what it tells of itself is in `info`."""
    return {
        "name": f"a/{role}", "role": role, "state": ready, "silent_s": silent_s, "last_error": error, "info": info,
    }  # fmt: skip


def at_work(**acquisition: Any) -> dict[str, Any]:
    info = {"state": "running", "frames": 7} | acquisition
    return {"processes": [process("acquisition", **info), process("estimator")]}


def estimate(t_host_ns: int) -> list[bytes]:
    one, envelope = np.ones(1), Envelope("estimator", 1, 0, 0, "sim", t_host_ns)
    return encode(
        EstimateMessage(
            "a", envelope, one, one, one, ("estimated",), one > 0, one, one, one, 0.1, 1, 1, 0, 0, 0, "hash",
        )
    )  # fmt: skip


def status(**body: Any) -> list[bytes]:
    return encode(BodyMessage("a", "status", Envelope("acquisition", 1, 0, 0, "sim", 0), body))


def problems(told: dict[str, Any], *messages: list[bytes], age_s: float = 0.5) -> list[str]:
    """What is wrong `age_s` after the status was told, the messages having come before."""
    latest = Latest(("a",), NOW - 100 * S)
    for parts in messages:
        latest.on_message(parts)
    latest.on_status(told, NOW - round(age_s * S))
    (state,) = arm_states(latest, NOW)
    assert state.ready == (not state.problems)
    return list(state.problems)


FRESH = estimate(NOW - S)


def test_at_work() -> None:
    assert problems(at_work(), FRESH) == []
    assert problems(at_work(), estimate(NOW - 9 * S), FRESH) == []


def test_nothing_is_known_at_first() -> None:
    latest = Latest(("a",), NOW)
    (state,) = arm_states(latest, NOW)
    assert [text.split(" of ")[0] for text in state.problems] == ["nothing is known"] * 2
    assert silent(latest, NOW + 2 * S) == ""
    assert "silent for 4.0 s" in silent(latest, NOW + 4 * S)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (at_work(state="held"), "thetad control start arm=a"),
        (at_work(state="waiting"), "the source is waiting for @recorder"),
        (
            {"processes": [process("acquisition", "waiting", error="SIGKILL"), process("estimator")]},
            "the acquisition is waiting: SIGKILL",
        ),
        (
            {"processes": [process("acquisition", frames=7, state="running"), process("estimator", "starting")]},
            "the estimator is starting",
        ),
        (
            {"processes": [process("acquisition", frames=7), process("estimator", silent_s=3.4)]},
            "the estimator has been silent for 3.4 s",
        ),
    ],
)
def test_each_thing_that_is_wrong_is_named(told: dict[str, Any], words: str) -> None:
    (found,) = problems(told, FRESH, status(waiting_for=["@recorder"]))
    assert words in found


def test_frames_that_stopped_and_why() -> None:
    found = problems(at_work(), FRESH, status(source={"state": "no answer", "problem": ""}), age_s=4.0)
    assert found == ["no frame for 4.0 s (no answer)"]


def test_estimates_that_are_old_or_missing() -> None:
    assert problems(at_work()) == ["there is no estimate yet"]
    assert problems(at_work(), estimate(NOW - 5 * S)) == ["the newest estimate rests on a frame that is 5.0 s old"]


def test_an_arm_that_is_guided_or_at_its_end_needs_no_estimate() -> None:
    guided = status(safety={"guiding": {"outcome": "guiding"}})
    assert problems(at_work(), guided) == []
    assert problems(at_work(), status(safety={"guiding": {"outcome": "completed"}})) == ["there is no estimate yet"]
    assert problems(at_work(state="ended"), age_s=60.0) == []


def test_messages_that_cannot_be_read_are_counted() -> None:
    latest = Latest(("a",), NOW)
    for parts in ([b"a/status", b"rubbish"], [b"\xff/status", b""], [b"b/status", b""], [b"a"], [b"a/frame", b"\x80"]):
        latest.on_message(parts)
    assert latest.refused == 3
    latest.on_message([b"a/estimate", b"rubbish"])
    assert latest.arms["a"].estimate is None


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9:80", "[::1]", "[::1]:9874", "LocalHost:9874"])
def test_loopback_names(host: str) -> None:
    assert is_local(host)


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "localhost.evil.example", "10.0.0.1", "127.0.0.1:x", "127.0.0.1:9 ", "2130706433", "::1", "0"],
)
def test_other_names(host: str) -> None:
    assert not is_local(host)


def test_a_token_is_read_only_if_nobody_else_can(tmp_path: Path) -> None:
    path = tmp_path / "token"
    assert read_token(None) == ""
    with pytest.raises(SecretFileError, match=r"http_token_file: .*is not there: make one"):
        read_token(path)
    path.write_text("0123456789abcdef\n")
    path.chmod(0o644)
    with pytest.raises(SecretFileError, match=r"http_token_file: .*open to others \(mode 0644\): chmod 600"):
        read_token(path)
    path.chmod(0o600)
    assert read_token(path) == "0123456789abcdef"
    for wrong in ("", "short", "0123456789 abcdef", "0123456789abcdef\nmore", "0123456789abcdeé"):
        path.write_text(wrong)
        with pytest.raises(SecretFileError, match="holds no token"):
            read_token(path)
