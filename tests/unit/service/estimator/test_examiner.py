"""An arm's recent frames are examined in a process beside the loop, and what it finds is told."""

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs

from drivers.files.recordings.format import RecordingMeta
from drivers.files.robots.file import load_robot
from drivers.frame import JointFrame
from rt_core.model.base import base_parameters
from rt_core.online import OnlineEstimator, OnlineSettings
from service.estimator._examiner import Examiner
from service.estimator._frame_buffer import FrameBuffer
from service.estimator._frame_consumer import FrameBlock
from service.estimator._trust import TrustEvents
from service.estimator.examination_process import examine_window
from service.io.log import get_log
from service.io.state_file import save_state
from service.operations.inputs import WINDOW_OWNER, window_state

RATE = 250.0
META = RecordingMeta("arm", ("slide",), ("m",), RATE, "sim", "nowhere")
ROBOT = load_robot("emps")
FOUND = {"examined_moved": [0.0] * 4, "examined_text": "late", "examined_wrong": True, "seconds": 15.0, "cpu_s": 1.0}


T = np.arange(round(20.0 * RATE)) / RATE
TURNS = np.array([1.0, 2.3, 3.7])
ANGLE = T[:, None] * TURNS + np.arange(3)
LATE = ANGLE - 0.02 * TURNS
DQ = 0.05 * np.cos(LATE) @ TURNS
TAU = 200.0 * DQ + 20.0 * np.sign(DQ) - 95.0 * 0.05 * np.sin(LATE) @ TURNS**2


class Arm:
    """One whose torque is late from the first frame; `told` are its events."""

    def __init__(self, folder: Path) -> None:
        self.estimator = OnlineEstimator(ROBOT.model, OnlineSettings(update_hz=50.0), RATE)
        self.buffer, self.told = FrameBuffer(60.0, RATE, 1, ("q", "tau")), list[tuple[str, str, dict[str, Any]]]()
        self.events = TrustEvents(self.estimator, lambda *event: self.told.append(event))
        self.window, log = folder / "arm.examined", get_log("test")
        self.examiner = Examiner(self.estimator, ROBOT, self.buffer, self.window, log)
        self.tau = TAU + 0.2 * np.random.default_rng(0).standard_normal(T.size)

    def go_on(self, until: Callable[[], Any]) -> None:
        """Move for 20 s in all, and then stand, until it is so."""
        while not until():
            k = min(self.buffer.end, T.size - 1)
            t_ns, q, tau = round(1e9 * T[k]), np.array([0.05 * np.sin(ANGLE[k]).sum()]), self.tau[[k]]
            if k == self.buffer.end:
                frame = JointFrame(k, t_ns, t_ns, q=q, tau=tau)
                self.buffer.push(FrameBlock.of([frame], (q[None], tau[None], None, None)))
                self.estimator.step(t_ns, k, q, tau)
            else:
                time.sleep(0.01)
            self.examiner.poll(t_ns, lambda: META, suppressed=False)
            self.events.check(t_ns)

    @property
    def examined_s(self) -> Any:
        return self.events.document(0)["trust"]["examined_s"]


def answer_by(script: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a shell script take the place of the interpreter that examines."""
    path = folder / "answer"
    path.write_text(f"#!/bin/sh\ncat >{folder}/task\n{script}\n")
    path.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(path))


def test_a_torque_that_is_late_from_the_first_frame_is_told(tmp_path: Path) -> None:
    arm = Arm(tmp_path)
    assert arm.examined_s is None
    arm.go_on(lambda: arm.told)
    arm.examiner.close()
    assert [(kind, about["reasons"]) for kind, _, about in arm.told] == [("doubted", ["diagnosis"])]
    assert "ms late against the motion (20 +- " in arm.told[0][1]
    assert 15.0 < arm.examined_s < 17.0
    assert not arm.window.exists()


@pytest.mark.parametrize(
    ("script", "reason"),
    {
        "kill -9 $$": "ended with -9",
        "echo why >&2; exit 3": "why",
        r"printf '\377'": "UnicodeDecodeError",
        "echo []": "AttributeError",
        "echo '{}'": "KeyError",
        """echo '{"reason": "too little motion"}'""": "too little motion",
        f"echo '{json.dumps(FOUND | {'examined_moved': [0.0]})}'": "not an examination of this arm",
        f"echo '{json.dumps(FOUND | {'seconds': None})}'": "TypeError",
    }.items(),
)
def test_an_answer_that_is_none_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, reason: str
) -> None:
    answer_by(script, tmp_path, monkeypatch)
    arm = Arm(tmp_path)
    with capture_logs() as lines:
        arm.go_on(lambda: lines)
    arm.examiner.close()
    assert [line["event"] for line in lines] == ["not_examined"]
    assert reason in lines[0]["reason"]
    assert (arm.told, arm.examined_s, arm.window.exists()) == ([], None, False)


@pytest.mark.parametrize("what", ["nothing", "reset", "rollback", "close"])
def test_an_estimate_that_is_replaced_meanwhile_is_not_what_was_examined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    answer_by(f"until [ -e {tmp_path}/go ]; do sleep 0.01; done; echo '{json.dumps(FOUND)}'", tmp_path, monkeypatch)
    arm = Arm(tmp_path)
    arm.go_on((tmp_path / "task").exists)
    back = partial(arm.estimator.rollback, arm.estimator.snapshot())  # not even time has passed
    act: dict[str, Callable[[], Any]] = {"reset": arm.estimator.reset, "close": arm.examiner.close, "rollback": back}
    act.get(what, bool)()
    (tmp_path / "go").touch()
    with capture_logs() as lines:
        arm.go_on(lambda: arm.examiner._running is None)
    arm.examiner.close()
    assert [line["event"] for line in lines] == {"nothing": ["examined"], "close": ["not_examined"]}.get(what, [])
    assert [kind for kind, _, _ in arm.told] == (["doubted"] if what == "nothing" else [])
    assert not arm.window.exists()


@pytest.mark.parametrize(
    ("seconds", "factor", "said"), [(5.0, 57.3, "carriage: its velocity is 57.3 times"), (0.1, 1.0, "is too short")]
)
def test_data_that_identify_refuses_are_wrong_and_too_few_are_none(
    tmp_path: Path, seconds: float, factor: float, said: str
) -> None:
    k = np.arange(round(seconds * RATE))
    q, dq = 0.1 * np.sin(3.0 * k / RATE)[:, None], 0.3 * np.cos(3.0 * k / RATE)[:, None]
    state = window_state(META, 4_000_000 * k, k, {"q": q, "dq": factor * dq, "tau": 20.0 * np.sign(dq)})
    save_state(tmp_path / "arm.examined", state, WINDOW_OWNER)
    shape = base_parameters(ROBOT.model).layout.shape.tolist()
    task = {"window": tmp_path / "arm.examined", "robot": json.dumps(ROBOT.source), "shape": shape}
    found = examine_window(task | {"cutoff_hz": 10.0, "min_velocity": None})
    assert said in found["examined_text" if factor > 1.0 else "reason"]
    assert found.get("examined_wrong", False) == (factor > 1.0)
