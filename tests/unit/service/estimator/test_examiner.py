"""An arm's recent frames are examined in a process beside the loop, and what it finds is told."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from drivers.files.recordings.format import RecordingMeta
from drivers.files.robots.file import load_robot
from drivers.frame import JointFrame
from rt_core.online import OnlineEstimator, OnlineSettings
from service.estimator._examiner import Examiner
from service.estimator._frame_buffer import FrameBuffer
from service.estimator._frame_consumer import FrameBlock
from service.estimator._trust import TrustEvents
from service.io.log import get_log

RATE = 250.0
META = RecordingMeta("arm", ("slide",), ("m",), RATE, "sim", "nowhere")


def test_a_torque_that_is_late_from_the_first_frame_is_told(tmp_path: Path) -> None:
    robot = load_robot("emps")
    estimator = OnlineEstimator(robot.model, OnlineSettings(update_hz=50.0), RATE)
    buffer, told = FrameBuffer(60.0, RATE, 1, ("q", "tau")), list[tuple[str, str, dict[str, Any]]]()
    events = TrustEvents(estimator, lambda *event: told.append(event))
    examiner = Examiner(estimator, robot, buffer, tmp_path / "arm.examined", get_log("test"))
    turns, noise = np.array([1.0, 2.3, 3.7]), 0.2 * np.random.default_rng(0).standard_normal(round(20.0 * RATE))
    for k, error in enumerate(noise):
        t_ns, angle = round(1e9 * k / RATE), turns * (k / RATE) + np.arange(3)
        before = angle - turns * 0.02
        dq, ddq = 0.05 * turns @ np.cos(before), -0.05 * turns**2 @ np.sin(before)
        tau = 95.0 * ddq + 200.0 * dq + 20.0 * np.sign(dq) + error
        q, torque = np.array([0.05 * np.sin(angle).sum()]), np.array([tau])
        estimator.step(t_ns, k, q, torque)
        buffer.push(FrameBlock.of(JointFrame(k, t_ns, t_ns, q=q, tau=torque), (q, torque, None, None)))
        examiner.poll(t_ns, lambda: META, suppressed=False)
    while not told:
        time.sleep(0.01)
        examiner.poll(t_ns, lambda: META, suppressed=False)
        events.check(t_ns)
    examiner.close()
    assert [(kind, about["reasons"]) for kind, _, about in told] == [("doubted", ["diagnosis"])]
    assert "ms late against the motion (20 +- " in told[0][1]
    assert not list(tmp_path.glob("*.examined"))
