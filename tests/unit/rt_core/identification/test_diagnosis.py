"""What is wrong with data or robot file is named where it leaves little, and nothing is named otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from rt_core.identification.diagnostics.added_variables import gravity_axes, tilted
from rt_core.identification.diagnostics.intervals import widened
from rt_core.identification.identify import Identification, identify
from rt_core.identification.preprocess import SignalSettings, prepare
from rt_core.model.base import base_parameters
from rt_core.model.parameters import standard_parameters
from rt_core.model.robot import RobotModel
from tests.lab.arms.batch import Motion, arm, motion

SETTINGS = SignalSettings(cutoff_hz=10.0, min_velocity=np.full(3, 0.015))
NOISE = np.array([0.3, 0.3, 0.2])
Change = Callable[[Motion], Motion]


@pytest.fixture(scope="module")
def recordings() -> list[Motion]:
    found = []
    for seed in range(2):
        made = motion(arm(), seconds=30.0, seed=seed)
        found.append(replace(made, tau=made.tau + np.random.default_rng(seed).normal(size=made.tau.shape) * NOISE))
    return found


def fit(made: Motion, model: RobotModel | None = None) -> Identification:
    model = arm() if model is None else model
    return identify(model, base_parameters(model), prepare(made.t, made.q, made.tau, SETTINGS), SETTINGS)


def wrong(found: Identification, model: RobotModel) -> int:
    """Count values that are called determined and are more than four standard deviations from the truth."""
    true = found.base.theta(standard_parameters(model, found.base.standard))
    determined = np.array([s == "determined" for s in found.status])
    return int((determined & (np.abs(found.theta - true) > 4.0 * found.std)).sum())


def test_nothing_is_found_in_good_data(recordings: list[Motion]) -> None:
    for made in recordings:
        found = fit(made)
        assert found.verdict == "ok"
        assert found.diagnosis.named is None
        assert found.diagnosis.unexplained is None
        assert (found.diagnosis.sigma < 1.3 * found.diagnosis.noise).all()
        assert wrong(found, arm()) == 0


def columns(made: Motion, **changes: np.ndarray) -> Motion:
    return replace(made, **changes)


def turned(x: np.ndarray, joint: int, factor: float = -1.0) -> np.ndarray:
    out = x.copy()
    out[:, joint] *= factor
    return out


ORDER = [0, 2, 1]
CASES: dict[str, tuple[Change, str]] = {
    "torque late": (lambda m: columns(m, tau=np.roll(m.tau, 2, axis=0)), "torque_late"),
    "torque of one late": (
        lambda m: columns(m, tau=np.stack((m.tau[:, 0], np.roll(m.tau[:, 1], 5), m.tau[:, 2]), axis=1)),
        "torque_late",
    ),
    "torques swapped": (lambda m: columns(m, tau=m.tau[:, ORDER]), "torque_channels"),
    "torque turned": (lambda m: columns(m, tau=turned(m.tau, 1)), "torque_channels"),
    "positions swapped": (lambda m: columns(m, q=m.q[:, ORDER]), "positions"),
    "joints swapped": (lambda m: columns(m, q=m.q[:, ORDER], tau=m.tau[:, ORDER]), "positions"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_cause_is_named_and_nothing_wrong_is_determined(recordings: list[Motion], case: str) -> None:
    change, kind = CASES[case]
    for made in recordings:
        found = fit(change(made))
        assert found.verdict in ("doubtful", "not_explained")
        assert "determined" not in found.status
        named = found.diagnosis.named
        assert named is not None, found.reasons
        assert named.kind == kind


@pytest.mark.parametrize("degrees", [2.0, 30.0, 180.0])
def test_gravity_is_found_to_a_degree(recordings: list[Motion], degrees: float) -> None:
    true = arm().gravity
    believed = replace(arm(), gravity=tilted(true, np.radians([degrees, 0.0])))
    found = fit(recordings[0], believed)
    named = found.diagnosis.named
    assert named is not None
    assert named.gravity is not None
    cosine = named.gravity @ true / np.linalg.norm(named.gravity) / np.linalg.norm(true)
    assert np.degrees(np.arccos(np.clip(cosine, -1.0, 1.0))) < 1.0
    assert "determined" not in found.status


def test_an_error_without_a_name_is_not_given_one(recordings: list[Motion]) -> None:
    made = recordings[0]
    found = fit(columns(made, tau=made.tau + 60.0 * np.sin(3.0 * made.q)))
    assert found.diagnosis.named is None
    assert found.verdict in ("doubtful", "not_explained")
    assert any("largest residuals" in reason for reason in found.reasons)


def test_axes_of_a_tilt() -> None:
    for g in (np.array([0.0, 0.0, -9.81]), np.array([3.0, -5.0, 2.0])):
        axes = gravity_axes(g)
        np.testing.assert_allclose(axes @ axes.T, np.eye(2), atol=1e-15)
        np.testing.assert_allclose(axes @ g, 0.0, atol=1e-14)
        assert np.linalg.norm(tilted(g, np.array([0.3, 0.4]))) == pytest.approx(np.linalg.norm(g))
        cosine = tilted(g, np.array([0.3, 0.4])) @ g / (g @ g)
        assert np.arccos(cosine) == pytest.approx(0.5)


def test_a_widened_covariance_is_one_and_holds_at_least_the_blocks() -> None:
    rng = np.random.default_rng(0)
    A = rng.normal(size=(4, 4))
    covariance = A @ A.T
    covariance[3] = covariance[:, 3] = 0.0
    covariance[3, 3] = np.inf
    std = np.sqrt(np.diag(covariance))
    shift = np.array([[0.1, -3.0, 0.0, 5.0]])
    out = widened(covariance, std * np.array([0.5, 1.0, 3.0, 1.0]), shift)
    known = out[:3, :3]
    assert np.linalg.eigvalsh(known).min() > 0.0
    np.testing.assert_allclose(np.diag(known), (std[:3] * [1.0, 1.0, 3.0]) ** 2 + shift[0, :3] ** 2)
    assert np.isinf(out[3, 3])
