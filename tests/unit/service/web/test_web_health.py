"""What makes an arm not ready, from what the processes have said; and who may ask by HTTP."""

from pathlib import Path
from typing import Any

import pytest

from service.protocol.messages import BodyMessage, Envelope, encode
from service.protocol.worker_messages import Status
from service.security.files import SecretFileError
from service.web._cache import Cache
from service.web._health import SILENT_S, arm_states, daemon_problem, silence_text
from service.web.guard import is_local, read_tokens

S = 1_000_000_000
NOW = 1000 * S


def process(role: str, ready: str = "ready", silent_s: float = 0.1, error: str = "", **info: Any) -> dict[str, Any]:
    """A process's entry in the daemon's status; `ready` is its own state, what it tells of itself is in `info`."""
    return {
        "name": f"a/{role}", "role": role, "state": ready, "silent_s": silent_s, "last_error": error, "info": info,
    }  # fmt: skip


def at_work(frames: int = 7, received: int = 7, unusable: int = 0, state: str = "running") -> dict[str, Any]:
    return {
        "processes": [process("acquisition", state=state, frames=frames),
                      process("estimator", received=received, unusable=unusable)]
    }  # fmt: skip


def status(**body: Any) -> list[bytes]:
    return encode(BodyMessage("a", "status", Envelope("acquisition", 1, 0, 0, "sim", 0), body))


def problems(now: dict[str, Any], *messages: list[bytes], age_s: float = 0.5) -> list[str]:
    """What is wrong `age_s` after the status was told, the messages having come before."""
    cache = Cache(("a",), NOW - 100 * S)
    for parts in messages:
        cache.on_message(parts)
    cache.on_status(Status(NOW - round(age_s * S), **now))
    (state,) = arm_states(cache, NOW)
    assert state.ready == (not state.problems)
    return list(state.problems)


def test_nothing_is_known_at_first() -> None:
    cache = Cache(("a",), NOW)
    (state,) = arm_states(cache, NOW)
    assert [text.split(" of ")[0] for text in state.problems] == ["nothing is known"] * 2
    assert silence_text(cache, NOW + 2 * S) == ""
    assert "silent for 4.0 s" in silence_text(cache, NOW + 4 * S)


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (at_work(state="held"), "thetad control start arm=a"),
        (at_work(state="waiting"), "the source is waiting for @recorder"),
        ({"processes": [process("acquisition", "waiting", error="SIGKILL"), process("estimator")]},
         "the acquisition is waiting: SIGKILL"),
        ({"processes": [process("acquisition", frames=7), process("estimator", silent_s=3.4)]},
         "the estimator has not been heard for 3.9 s"),
    ],
)  # fmt: skip
def test_each_thing_that_is_wrong_is_named(now: dict[str, Any], words: str) -> None:
    (found,) = problems(now, status(waiting_for=["@recorder"]))
    assert words in found
    assert problems(at_work()) == problems(at_work(state="ended"), age_s=2.0) == []


def after(*counts: tuple[int, int, int]) -> list[str]:
    """What is wrong after a status every second with these counts: frames, received, unusable."""
    cache = Cache(("a",), NOW - len(counts) * S)
    cache.on_message(status(source={"state": "no answer", "problem": ""}))
    for second, (frames, received, unusable) in enumerate(counts, 1 - len(counts)):
        cache.on_status(Status(NOW + second * S, **at_work(frames, received, unusable)))
    (state,) = arm_states(cache, NOW)
    return list(state.problems)


def test_frames_that_stopped_and_why() -> None:
    assert after((7, 7, 0), (7, 7, 0), (7, 7, 0), (7, 7, 0)) == []
    assert after((7, 7, 0), *[(8, 8, 0)] * 5) == ["no frame for 4.0 s (no answer)"]


def test_an_estimator_is_judged_by_the_frames_that_it_works_off() -> None:
    """An arm that stands still gives it frames and no estimate; nothing of one is needed here."""
    assert after(*[(1000 * k, 1000 * k, 0) for k in range(1, 9)]) == []
    stuck = [(1000 * k, min(1000 * k, 3000), 0) for k in range(1, 9)]
    assert after(*stuck) == ["the estimator has processed no frame for 5.0 s"]
    without_torque = [(1000 * k, 1000 * k, 1000 * k) for k in range(1, 9)]
    assert after(*without_torque) == ["the estimator has processed no frame for 8.0 s"]
    assert after(*[*stuck, (9000, 500, 0)]) == []


def test_what_is_told_is_as_old_as_it_says() -> None:
    """Whoever reads the supervisor's words late knows that nothing came since."""
    cache = Cache(("a",), NOW - 100 * S)
    cache.on_status(Status(NOW - 60 * S, **at_work()))
    assert "silent for 60.0 s" in silence_text(cache, NOW)
    assert "has not been heard for 60.1 s" in arm_states(cache, NOW)[0].problems[0]


def test_the_gateway_and_the_end_concern_every_arm() -> None:
    def all_over(**gateway: Any) -> str:
        cache = Cache(("a",), NOW)
        cache.on_status(Status(NOW, processes=[{**process("gateway", **gateway), "name": "gateway"}]))
        return daemon_problem(cache, NOW)

    assert all_over() == ""
    assert all_over(ready="waiting", error="SIGKILL") == "the gateway is waiting: SIGKILL"
    assert all_over(silent_s=3.5) == "the gateway has not been heard for 3.5 s"
    cache = Cache(("a",), NOW)
    assert daemon_problem(cache, NOW) == ""
    cache.on_status(Status(NOW, stopping=True, **at_work()))
    later = NOW + round(2 * SILENT_S * S)
    assert daemon_problem(cache, later) == "the daemon stops"
    assert silence_text(cache, later) == ""  # it has nothing more to say


@pytest.mark.parametrize("host", ["localhost", "127.9.9.9:80", "[::1]", "[::1]:9874", "LocalHost:9874"])
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
    assert read_tokens(None, "read") == {}
    with pytest.raises(SecretFileError, match=r"http_token_file: .*is not there: make one"):
        read_tokens(path, "read")
    path.write_text("0123456789abcdef\n")
    path.chmod(0o644)
    with pytest.raises(SecretFileError, match=r"http_token_file: .*open to others \(mode 0644\): chmod 600"):
        read_tokens(path, "read")
    path.chmod(0o600)
    assert read_tokens(path, "read") == {"0123456789abcdef": "read"}
    assert read_tokens(path, "motion") == {"0123456789abcdef": "motion"}
    for wrong in (
        "", "short", "0123456789 abcdef", "0123456789abcdef\nmore", "0123456789abcdeé", "boss 0123456789abcdef",
        "read", "read 0123456789abcdef x", "0123456789abcdef\nread 0123456789abcdef",
    ):  # fmt: skip
        path.write_text(wrong)
        with pytest.raises(SecretFileError, match="holds no token"):
            read_tokens(path, "motion")


def test_a_line_may_give_its_token_a_role_but_no_higher_one_than_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.touch(mode=0o600)
    path.write_text("read 0123456789abcdef\noperate  fedcba9876543210\n0011223344556677\n")
    roles = {"0123456789abcdef": "read", "fedcba9876543210": "operate", "0011223344556677": "motion"}
    assert read_tokens(path, "motion") == roles
    with pytest.raises(SecretFileError, match=r"line 2 has the role operate, and daemon.http_role allows no more than"):
        read_tokens(path, "read")
