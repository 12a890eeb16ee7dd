"""What commissioning makes of an arm's answers: late permits, lost runs, recorders that a killed call has left on."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from service.client import ControlError
from service.commission._site import Site
from service.commission.errors import StepFailedError

HERE = np.array([0.1, 0.2])


class Answers:
    """Control socket of a daemon that answers as it is told to; it writes down what was asked."""

    def __init__(self, run: Callable[[], dict[str, Any]], permit: Callable[[], str], recorder: dict[str, Any]) -> None:
        self.asked: list[str] = []
        self.owner = ""
        self.outcome = "running"  # of a trajectory that has just been checked
        self._run, self._permit, self._recorder = run, permit, recorder

    def request(self, verb: str, _timeout_s: float, **args: Any) -> dict[str, Any]:
        self.asked.append(f"record {args['action']}" if verb == "record" else verb)
        if verb == "status":
            return {
                "arms": ["a"],
                "configuration": {"a": {"driver_sha256": "abc", "permit_max_s": 600.0}},
                "daemon": {"endpoints": {"frames": "tcp://127.0.0.1:9"}},
                "processes": [{"name": "a/recorder", "info": self._recorder}],
            }
        if verb == "arm":
            return {"permit": self._permit()}
        if verb in ("run_trajectory", "heartbeat"):
            started = {"run": running(0.0) | {"outcome": self.outcome}, "reason": ""}
            return self._run() if verb == "heartbeat" else started
        self.owner = args.get("owner", self.owner)
        return {"path": "/rec/one.mcap", "state": "disarmed"}


def running(t_s: float) -> dict[str, Any]:
    return {"number": 1, "outcome": "running", "t_s": t_s, "duration_s": 1.0, "reason": ""}


def done() -> dict[str, Any]:
    return {"run": running(1.0) | {"outcome": "completed"}, "reason": ""}


def site(
    monkeypatch: pytest.MonkeyPatch, run: Callable[[], dict[str, Any]] = done, permit: Callable[[], str] = lambda: "p",
    recorder: Mapping[str, Any] = {"state": "off"},
) -> tuple[Site, Answers]:  # fmt: skip
    answers = Answers(run, permit, dict(recorder))
    found = Site(answers, "a")  # type: ignore[arg-type]
    monkeypatch.setattr(found, "where", lambda: (HERE, HERE))
    return found, answers


def make(_here: object, _measured: object) -> Any:
    return SimpleNamespace(as_message=dict)


@pytest.mark.parametrize("outcome", ["running", "checked"])  # the first heartbeat lets it begin
def test_a_run_that_is_lost_was_stopped_and_its_recording_is_kept(
    monkeypatch: pytest.MonkeyPatch, outcome: str
) -> None:
    def lost() -> dict[str, Any]:
        raise ControlError("timeout", "a/acquisition: no answer")

    arm, answers = site(monkeypatch, lost)
    answers.outcome = outcome
    move = arm.move(make, 1.0, name="sweep")
    assert str(move.path) == "/rec/one.mcap"
    assert move.stopped == "run_trajectory: it was lost: a/acquisition: no answer"
    assert answers.asked.count("run_trajectory") == 1
    assert answers.asked[-2:] == ["disarm", "record stop"]
    with pytest.raises(StepFailedError, match=r"the sweep was stopped: run_trajectory: it was lost") as caught:
        move.check("the sweep", {"recordings": [str(move.path)]})
    assert caught.value.result == {"recordings": ["/rec/one.mcap"]}


def once(words: str) -> Callable[[], str]:
    """A permit that is refused at first."""
    said = [ControlError("unavailable", words)]

    def permit() -> str:
        if said:
            raise said.pop()
        return "p"

    return permit


@pytest.mark.parametrize("state", ["guiding", "approach", "running"])
def test_an_arm_that_somebody_else_moves_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    """When that session has ended, the hand may still be on the arm."""
    refused = f"arm: the arm is in state '{state}': abort the run, or wait for its end"
    arm, answers = site(monkeypatch, permit=once(refused))
    with pytest.raises(StepFailedError, match=f"in state '{state}'"):
        arm.move(make, 1.0)
    assert answers.asked[-1] == "arm"
    assert not {"disarm", "run_trajectory"} & set(answers.asked)  # either would end what the other does


@pytest.mark.parametrize(
    "words",
    [
        "arm: drives cannot be enabled: they are still stopping; try again in a moment",
        "arm: the arm is in state 'stopping': abort the run, or wait for its end",
        "arm: a run or guiding is under way: abort it, or wait for its end",
        "arm: the arm is held, or waits for its estimator and recorder: `thetad control start` lets a held arm begin",
    ],
)
def test_drives_that_stop_and_an_estimator_that_is_not_ready_are_waited_for(
    monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    arm, answers = site(monkeypatch, permit=once(words))
    assert arm.move(make, 1.0).stopped == ""
    assert answers.asked.count("arm") == 2


def test_drives_that_a_late_answer_may_have_switched_on_are_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def late() -> str:
        raise ControlError("timeout", "no answer")

    arm, answers = site(monkeypatch, permit=late)
    with pytest.raises(StepFailedError, match="no answer"):
        arm.move(make, 1.0)
    assert answers.asked[-2:] == ["arm", "disarm"]
    assert "record start" not in answers.asked


@pytest.mark.parametrize("mine", [False, True])
def test_only_the_recorder_that_a_killed_call_has_left_on_is_taken_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mine: bool
) -> None:
    arm, answers = site(monkeypatch, recorder={"state": "recording", "path": "/rec/left.mcap", "owner": "0123"})
    arm.journal = tmp_path / "recording.txt"
    arm.journal.write_text("0123\n" if mine else "4567\n", encoding="utf-8")
    if not mine:
        with pytest.raises(StepFailedError, match="on already"):
            arm.move(make, 1.0)
        assert "arm" not in answers.asked
    else:
        assert arm.move(make, 1.0).stopped == ""
        assert answers.asked.index("record stop") < answers.asked.index("arm")
        assert not arm.journal.exists()
