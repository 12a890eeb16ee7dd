"""A small residual is not enough: corrupted channels must not pass for a good identification."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.identification.estimate import EstimatorOptions
from rt_core.identification.identify import Identification, identify
from rt_core.identification.preprocess import SignalSettings, prepare
from rt_core.model.base import base_parameters
from sim_backend.arm.robot import SimulatedData
from tests.lab.arms.batch import Motion, arm, motion
from tests.lab.arms.physical import simulated

SETTINGS = SignalSettings(cutoff_hz=10.0, min_velocity=np.full(3, 0.015))
BASE = base_parameters(arm())


@pytest.fixture(scope="module")
def data() -> Motion:
    clean = motion(arm(), seconds=30.0)
    noise = np.random.default_rng(3).normal(size=clean.tau.shape) * np.array([0.3, 0.3, 0.2])
    return replace(clean, tau=clean.tau + noise)


def fit(data: Motion, q: np.ndarray | None = None, tau: np.ndarray | None = None) -> Identification:
    signals = prepare(data.t, data.q if q is None else q, data.tau if tau is None else tau, SETTINGS)
    return identify(arm(), BASE, signals, SETTINGS)


def test_clean_data_raise_no_doubt(data):
    result = fit(data)
    assert result.verdict == "ok"
    found = result.plausibility
    assert found.negative_coulomb == found.negative_viscous == ()
    assert found.mass_z > 10.0
    assert result.diagnosis.findings == ()


@pytest.mark.parametrize(("channel", "joint"), [("tau", 0), ("tau", 1), ("tau", 2), ("q", 0)])
def test_a_channel_with_its_sign_turned_is_refused(data, channel, joint):
    values = getattr(data, channel).copy()
    values[:, joint] *= -1.0
    assert fit(data, **{channel: values}).verdict == "not_explained"


def test_all_torques_turned_are_refused(data):
    result = fit(data, tau=-data.tau)
    assert result.verdict == "not_explained"
    assert result.plausibility.mass_z < -10.0
    assert any("mass matrix" in reason for reason in result.reasons)


@pytest.mark.parametrize("delay_ms", [10, -20])
def test_a_torque_that_is_late_or_early_is_named(data, delay_ms):
    shift = round(delay_ms * 0.5)  # samples at 500 Hz
    result = fit(data, tau=np.roll(data.tau, shift, axis=0))
    assert result.verdict in ("doubtful", "not_explained")
    named = result.diagnosis.named
    assert (named.kind, named.joint) == ("torque_late", None)
    assert named.estimate[0] == pytest.approx(delay_ms * 1e-3, abs=2e-3)
    if result.verdict == "doubtful":
        assert "determined" not in result.status
        assert any("against the motion" in reason for reason in result.reasons)


def test_a_joint_effect_that_is_missing_from_the_model_is_not_ok(data):
    spring = 60.0 * np.sin(3.0 * data.q)
    assert fit(data, tau=data.tau + spring).verdict != "ok"


SPACE6 = load_robot("space6").model
SPACE6_BASE = base_parameters(SPACE6)
SPACE6_SETTINGS = SignalSettings(10.0, min_velocity=SPACE6.standstill_velocity)
UNKNOWN = replace(SPACE6, inertial=None, dynamics=None)


def fit_space6(made: SimulatedData, tau: np.ndarray, **options: Any) -> Identification:
    signals = prepare(made.t, made.channels["q"], tau, SPACE6_SETTINGS)
    return identify(SPACE6, SPACE6_BASE, signals, SPACE6_SETTINGS, EstimatorOptions(**options))


def test_plausibility_of_possible_parameters_is_that_of_free_ones() -> None:
    """Possible parameters hold no negative friction and a positive mass matrix, and leave a small error here."""
    made = simulated(SPACE6, 3, 10.0, candidates=2)
    tau = made.channels["tau"].copy()
    for prior in (None, UNKNOWN):
        good = fit_space6(made, tau, method="physical", prior=prior)
        assert good.verdict in ("ok", "weak_excitation")
        assert good.plausibility.negative_coulomb == ()
    tau[:, 4] *= -1.0
    found = fit_space6(made, tau, method="physical", prior=UNKNOWN)
    assert found.theta[SPACE6_BASE.names.index("fc5")] >= 0.0
    assert found.metrics.relative_error < 0.15
    assert found.plausibility.negative_coulomb == (4,)
    assert found.verdict == "not_explained"
    assert any(SPACE6.joints[4].name in reason and "Coulomb" in reason for reason in found.reasons)
