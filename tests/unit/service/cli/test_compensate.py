"""Compensation of an arm measured in its own base at its own tip: both points and the base are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.calibration.calibrate import calibrate
from rt_core.calibration.compensation import compensate
from rt_core.calibration.geometry import Geometry
from rt_core.calibration.settings import CalibrationSettings
from service.cli.calibration.compensate import corrected_geometry, hidden_at_tip
from service.operations.calibration.document import corrected_geometry as written_geometry
from service.operations.calibration.nominal_geometry import nominal_geometry
from service.protocol.json_values import json_values
from tests.lab.arms.calibration import forward, frame, postures


@pytest.mark.parametrize("point", ["measured", "tip"])
def test_errors_of_the_last_row_count_at_the_tip(point: str) -> None:
    """Standard DH puts `d6` and `theta6` beyond the last joint; both points are one here."""
    robot = load_robot("ur10")
    nominal = replace(nominal_geometry(robot), tip_translation=np.array([0.05, 0.0, 0.0]))
    errors = {"a2": 1e-3, "d6": 2e-3, "theta6": 5e-3}
    rng = np.random.default_rng(0)
    q = postures(nominal, 120, rng)
    tip = frame((0.05, 0.0, 0.0), (0.0, 0.0, 0.0))
    measured = forward(nominal, q, errors, np.eye(4), tip)[:, :3, 3] + rng.normal(0.0, 3e-5, (120, 3))
    found = calibrate(nominal, q, measured, CalibrationSettings(base=False, tool=False))
    assert found.verdict == "ok"
    own = Geometry.from_model(robot.model)
    document = {"geometry": json_values(written_geometry(found))}
    calibrated = corrected_geometry(document, own, point)
    looked = rng.uniform(-1.5, 1.5, (6, 6))
    targets = forward(nominal, looked, errors, np.eye(4), tip)[:, :3, 3]
    commands = compensate(own, calibrated, targets, None, looked).commands
    missed = forward(nominal, commands, errors, np.eye(4), tip)[:, :3, 3] - targets
    assert np.linalg.norm(missed, axis=1).max() < 1e-4


@pytest.mark.parametrize(
    ("settings", "hidden"),
    [
        (CalibrationSettings(), {"d6", "a6", "alpha6", "theta6"}),
        (CalibrationSettings(tool=False), set()),
        (CalibrationSettings(prior_length=2e-3), {"alpha6", "theta6"}),
        (CalibrationSettings(prior_length=2e-3, prior_angle=2e-3), set()),
    ],
    ids=["tool", "known", "lengths", "priors"],
)
def test_what_an_estimated_tool_holds_is_named(settings: CalibrationSettings, hidden: set[str]) -> None:
    nominal = replace(nominal_geometry(load_robot("ur10")), tip_translation=np.array([0.05, 0.02, 0.1]))
    rng = np.random.default_rng(0)
    q = postures(nominal, 80, rng)
    tip = frame((0.05, 0.02, 0.1), (0.0, 0.0, 0.0))
    base = frame((1.0, 0.3, -0.2), (0.1, 0.2, 1.0))
    measured = forward(nominal, q, {"a2": 1e-3, "theta3": 2e-3}, base, tip)[:, :3, 3]
    found = calibrate(nominal, q, measured + rng.normal(0.0, 3e-5, (80, 3)), settings)
    fixed = [{"name": item.name, "reason": item.reason, "on": dict(item.on)} for item in found.fixed]
    named = hidden_at_tip({"tool": None if found.tool is None else {}, "fixed": fixed})
    assert set(named) == hidden


def test_lines_are_followed_without_turning_joints_round() -> None:
    """Straight lines with the tool down: joints turn no more than the way asks for."""
    geometry = Geometry.from_model(load_robot("ur10").model)
    down = np.tile(np.diag([1.0, -1.0, -1.0]), (25, 1, 1))
    way = np.linspace(0.0, 1.0, 25)[:, None]
    followed = 0
    for seed in range(5, 11):
        ends = np.random.default_rng(seed).uniform([-0.8, -0.8, 0.1], [0.8, 0.8, 0.6], (2, 3))
        found = compensate(geometry, geometry, ends[0] + way * (ends[1] - ends[0]), down)
        steps = np.abs(np.diff(found.commands[found.reached], axis=0))
        assert found.largest_step == pytest.approx(steps.max() if steps.size else 0.0)
        # A joint that is a whole turn or more from where it was could be nearer within limits of a turn either side.
        assert (steps <= np.pi + 0.1).all()
        followed += bool(found.reached.all())
    assert followed >= 4
