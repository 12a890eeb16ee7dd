"""Commands that move an arm and are interrupted, and commands about jobs where no daemon answers."""

import re
from typing import Any, Literal, cast

import pytest

from service.cli._common import CliError, Exit
from service.cli.motion._motion_session import ArmRecording, Progress, SessionResult, run_session
from service.client import Control
from tests.lab.command_line import thetad


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
    assert error.value.exit_code == Exit.INTERRUPTED
    assert arm.asked == ["status", "abort"]


@pytest.mark.parametrize("what", ["run", "guiding"])
def test_an_interrupt_says_what_came_of_the_motion(what: Literal["run", "guiding"]) -> None:
    session = interrupted(Arm(what, 3), what, 3)
    assert (session.done["outcome"], session.reason) == ("stopped", "aborted by request")
    assert session.code == Exit.INTERRUPTED
    for number in (None, 1):  # a daemon that has lost the motion meanwhile
        assert interrupted(Arm(what, number), what, 3).done["outcome"] == "moving"


NOBODY = "tcp://127.0.0.1:1"
SUBMIT = ("jobs", "submit", "identify", "recording=a")


@pytest.mark.parametrize(
    "command",
    [
        "jobs submit validate model=active recording=live:5", "jobs list", "jobs log 1 --follow", "jobs cancel 1 2",
        "jobs reidentify", "events --follow", "models show active", "models promote job:1 --recording live:5",
    ],
)  # fmt: skip
def test_without_a_daemon_each_command_says_so(command: str) -> None:
    done = thetad(*command.split(), "--control", NOBODY, "--timeout", "0.2")
    assert (done.code, done.out) == (3, "")
    assert done.err == f"thetad: {NOBODY}: no answer within 0.2 s; is the daemon running?\n"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("identfy", "rec.mcap"), ("'identfy': did you mean 'identify'?",)),
        (("jobs", "lst"), ("'lst': did you mean 'list'?",)),
        (("jobs", "submit", "nothing"), ("nothing", "identify, validate")),
        (("jobs", "submit", "identify"), ("recording: is missing",)),
        (("jobs", "submit", "identify", "rec.mcap"), ("'rec.mcap'", "NAME=VALUE")),
        ((*SUBMIT, "recording=b"), ("recording is given twice",)),
        ((*SUBMIT, "methods=ols"), ("methods: is not a parameter", "method,")),
        ((*SUBMIT, "weight=NaN"), ("weight", "got 'NaN'")), ((*SUBMIT, "starts=1" + "0" * 5000), ("starts",)),
        ((*SUBMIT, "bounds=" + "[" * 100_000), ("bounds",)), ((*SUBMIT, "span=0.6:0.2"), ("span", "0.6:0.2")),
        ((*SUBMIT, "--in", "soon"), ("'soon'", "10m")), ((*SUBMIT, "--timeout", "nan"), ("--timeout nan",)),
        (("jobs", "list", "--limit", "1001"), ("'1001'", "1000")), (("jobs", "list", "--state", "lost"), ("'lost'",)),
        (("jobs", "show", "9" * 30), ("is not the number of a job",)),
        (("jobs", "log", "1", "--follow", "--json"), ("--follow",)), (("jobs", "cancel"), ("ID",)),
        (("models", "show", "nope"), ("nope: no such file", "thetad models list")),
        (("models", "promote", "active", "--recording", "r.mcap", "--span", "1:0"), ("span", "1:0")),
        (("models", "promote", "m.yaml"), ("--recording",)),
        (("models", "diff", "a.yaml", "b.yaml", "--z", "x"), ("--z", "'x'")),
    ],
    ids=lambda value: " ".join(value)[:60],
)  # fmt: skip
def test_nonsense_is_refused_in_one_line(command: tuple[str, ...], words: tuple[str, ...]) -> None:
    thetad(*command, "--control", NOBODY).refused(*words)


def test_kinds_are_listed_with_what_they_take() -> None:
    kinds = thetad("jobs", "kinds", "identify", "promote", "--json").json["kinds"]
    assert [(kind["name"], kind["needs_arm"]) for kind in kinds] == [("identify", False), ("promote", True)]
    types = {row["name"]: row["type"] for row in kinds[0]["parameters"]}
    assert types["multi_start"] == "whole number, 1 to 256"
    assert types["loss"] == "bisquare | huber | none"
    text = thetad("jobs", "kinds", "identify").out
    assert re.search(r'^  method +estimator, default "wls"\n +ols \| .* \| ga .*$', text, re.M)
