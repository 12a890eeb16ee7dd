"""What commands that move an arm say when they are interrupted."""

from __future__ import annotations

from typing import Any, Literal, cast

import pytest

from service.cli._common import EXIT_INTERRUPTED, CliError
from service.cli.motion._motion_session import ArmRecording, Progress, SessionResult, run_session
from service.client import Control


class Arm:
    """Answers of a daemon whose arm has moved `number` times; None: never since it was started."""

    def __init__(self, what: str, number: int | None) -> None:
        self.asked: list[str] = []
        motion = None if number is None else {"number": number, "outcome": "stopped", "reason": "aborted by request"}
        self.said: dict[str, Any] = {"run": None, "guiding": None, "reason": "it has not been armed"} | {what: motion}

    def request(self, verb: str, *_: Any, **__: Any) -> dict[str, Any]:
        self.asked.append(verb)
        return {"processes": [], "arms": ["one"]} if verb == "status" else self.said


def interrupted(arm: Arm, what: Literal["run", "guiding"], heard: int | None) -> SessionResult:
    """Stay with a motion of number `heard` until Ctrl-C; None: that comes before the daemon's first answer."""

    def act(progress: Progress) -> dict[str, Any]:
        if heard is not None:
            progress({what: {"number": heard, "outcome": "moving", "reason": ""}, "reason": ""})
        raise KeyboardInterrupt

    control = cast(Control, arm)
    return run_session(control, "one", what, ArmRecording(control, "one", wanted=False), act, lambda _: None)


@pytest.mark.parametrize("number", [None, 3])
def test_an_interrupt_before_the_first_answer(number: int | None) -> None:
    """Whether an arm has never moved, or somebody has moved it before."""
    arm = Arm("guiding", number)
    with pytest.raises(CliError, match="interrupted before anything was begun") as error:
        interrupted(arm, "guiding", None)
    assert error.value.exit_code == EXIT_INTERRUPTED
    assert arm.asked == ["status", "abort"]


@pytest.mark.parametrize("what", ["run", "guiding"])
def test_an_interrupt_says_what_came_of_the_motion(what: Literal["run", "guiding"]) -> None:
    session = interrupted(Arm(what, 3), what, 3)
    assert (session.done["outcome"], session.reason) == ("stopped", "aborted by request")
    assert session.code == EXIT_INTERRUPTED
    for number in (None, 1):  # a daemon that has lost the motion meanwhile
        assert interrupted(Arm(what, number), what, 3).done["outcome"] == "moving"
