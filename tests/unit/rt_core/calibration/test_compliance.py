"""Joints that give way to what they hold against gravity."""

from dataclasses import replace

import numpy as np
import pinocchio
import pytest

from drivers.files.robots.file import load_robot
from rt_core.calibration.calibrate import calibrate
from rt_core.calibration.error_model import error_model
from rt_core.calibration.geometry import Geometry
from rt_core.calibration.sample import Sample
from rt_core.calibration.settings import CalibrationError, CalibrationSettings
from rt_core.model.urdf_writer import urdf_from_model
from rt_core.types import FloatArray
from service.operations.calibration.document import doubts_text, rising_joints
from service.operations.calibration.nominal_geometry import gravity_load, nominal_geometry
from tests.lab.arms.calibration import as_measured, check_derivatives, forward, frame, postures

ROBOT = load_robot("ur10")
UR10 = nominal_geometry(ROBOT)
BASE = frame((0.5, -0.3, 0.2), (0.0, 0.0, 0.4))
TOOL = frame((0.06, -0.04, 0.12), (0.0, 0.0, 0.0))
ERRORS = {"a2": 1e-3, "alpha3": -1.5e-3, "theta3": 2e-3}
GIVES = np.array([0.0, 3e-5, 5e-5, 1e-4, 1e-4, 0.0])
SOFT = CalibrationSettings(compliance=True)


def held(q: FloatArray) -> FloatArray:
    model = pinocchio.buildModelFromXML(urdf_from_model(ROBOT.model, ROBOT.model.inertial))
    data = model.createData()
    if model.nq > q.shape[1]:  # Pinocchio has cosine and sine where there is no limit
        q = np.stack((np.cos(q), np.sin(q)), axis=2).reshape(len(q), -1)
    return np.array([pinocchio.computeGeneralizedGravity(model, data, posture) for posture in q])


def measured_at(q: FloatArray, orientation: bool) -> FloatArray:
    return as_measured(forward(UR10, q - GIVES * held(q), ERRORS, BASE, TOOL), orientation)


def test_load_is_that_of_pinocchio() -> None:
    q = postures(UR10, 20, np.random.default_rng(0))
    np.testing.assert_allclose(gravity_load(ROBOT.model, q), held(q), atol=1e-9)


@pytest.mark.parametrize("orientation", [False, True], ids=["position", "pose"])
def test_derivatives_are_those_of_differences(orientation: bool) -> None:
    rng = np.random.default_rng(1)
    for geometry in (UR10, Geometry.from_model(load_robot("space6").model)):
        q = postures(geometry, 10, rng)
        model = error_model(geometry, orientation=orientation, compliance=True)
        x = rng.normal(0.0, 1e-3, model.size)
        positions, rotations = model.predict(q, np.zeros(model.size))
        sample = Sample.of(q, positions, rotations if orientation else None)
        sample = replace(sample, load=rng.normal(0.0, 50.0, q.shape))
        check_derivatives(model, sample, x, h=1e-7, atol=3e-6)


@pytest.mark.parametrize("orientation", [False, True], ids=["position", "pose"])
def test_exact_measurements_give_geometry_and_compliance(orientation: bool) -> None:
    q = postures(UR10, 150, np.random.default_rng(2))
    result = calibrate(UR10, q, measured_at(q, orientation), SOFT, load=gravity_load(ROBOT.model, q))
    assert result.verdict == "ok"
    found = {p.name: p for p in result.parameters}
    for k in range(1, 5):  # behind the vertical axis, and before the last, whose load hardly varies
        p = found[f"compliance{k + 1}"]
        assert p.unit == "rad/(N*m)"
        if p.value is not None:
            assert p.value == pytest.approx(GIVES[k], abs=1e-9)
    assert found["compliance2"].value is not None
    assert found["compliance3"].value is not None
    for name, value in ERRORS.items():
        assert found[name].value == pytest.approx(value, abs=1e-8)
    # The first axis is vertical and holds nothing.
    assert {item.name: item.reason for item in result.fixed}["compliance1"] == "no_effect"
    other = postures(UR10, 20, np.random.default_rng(3))
    positions, _ = result.predict(other, gravity_load(ROBOT.model, other))
    np.testing.assert_allclose(positions, measured_at(other, False), atol=1e-8)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_joints_that_rise_under_their_load_are_named(sign: float) -> None:
    q = postures(UR10, 150, np.random.default_rng(2))
    measured = measured_at(q, False) + np.random.default_rng(4).normal(0.0, 5e-5, (150, 3))
    result = calibrate(UR10, q, measured, SOFT, load=sign * gravity_load(ROBOT.model, q))
    assert result.verdict == "ok"
    text = [sentence for sentence in doubts_text(result, list(range(150))) if "would rise under its load" in sentence]
    assert len(text) == (sign < 0.0)
    if text:
        assert "compliance2, compliance3" in text[0]
        assert text[0].partition(" below")[0] == ", ".join(rising_joints(result))


def test_what_the_joints_hold_has_to_be_given() -> None:
    q = postures(UR10, 60, np.random.default_rng(2))
    measured = measured_at(q, False)
    with pytest.raises(CalibrationError, match="compliance needs what each joint holds"):
        calibrate(UR10, q, measured, SOFT)
    with pytest.raises(CalibrationError, match="range_compliance must be above 0 and at most 1"):
        CalibrationSettings(range_compliance=0.0)
    with pytest.raises(CalibrationError, match="load has shape"):
        calibrate(UR10, q, measured, SOFT, load=np.zeros((60, 5)))
