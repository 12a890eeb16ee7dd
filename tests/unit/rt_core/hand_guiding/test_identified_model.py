"""Guiding with a model identified from a noisy motion, by way of a model file: base parameters alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.hand_guiding import GuidingModel, GuidingState
from rt_core.identification.identify import identify
from rt_core.identification.preprocess import SignalSettings, prepare
from rt_core.model.base import base_parameters
from service.models.document import load_model, online_document, write_model
from sim_backend.arm.robot import SimulatedArm
from sim_backend.arm.settings import MotionSettings, SimSettings
from tests.lab.hand_guiding.rig import Rig, random_poses
from tests.unit.rt_core.hand_guiding.test_guiding import guide, stands


@pytest.fixture(scope="module")
def promoted(tmp_path_factory: pytest.TempPathFactory) -> GuidingModel:
    robot = load_robot("arm9")
    arm = SimulatedArm(robot.model, SimSettings(rate_hz=250.0), MotionSettings(seed=4), seed=4)
    data = arm.simulate(30.0)
    settings = SignalSettings(10.0, min_velocity=robot.model.standstill_velocity)
    found = identify(
        robot.model,
        base_parameters(robot.model),
        prepare(data.t, data.channels["q"], data.channels["tau"], settings),
        settings,
    )
    assert found.verdict == "ok"
    status = tuple("determined" for _ in found.theta)
    path: Path = tmp_path_factory.mktemp("models") / "arm9.yaml"
    source = {"arm": "arm9", "frames": [0, 7499]}
    covariance = found.uncertainty.covariance
    write_model(online_document(robot, found.base, settings, found.theta, found.std, covariance, status, source), path)
    file = load_model(path)
    assert file.standard is None
    return GuidingModel.of(file.robot.model, file.base, file.theta, file.standard)


@pytest.mark.parametrize("pose", [0, *(pytest.param(pose, marks=pytest.mark.soak) for pose in (1, 2, 3))])
def test_it_hovers_and_can_be_guided(promoted: GuidingModel, pose: int) -> None:
    start = random_poses(promoted.model, 4, seed=11)[pose]
    rig = Rig(load_robot("arm9").model, promoted, start=start)
    hovering = rig.run(3.0)
    assert hovering.states[-1] is GuidingState.GUIDING
    assert np.degrees(np.abs(hovering.q - start)).max() < 0.1
    pushed, after = guide(rig)
    assert np.abs(pushed.q[-1] - pushed.q[0]).max() > 0.2
    assert set(after.states) == {GuidingState.GUIDING}
    assert stands(after)
