"""Verdicts: what the data support is found, what they do not is not claimed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rt_core.batch.identify import identify
from rt_core.batch.preprocess import DataError, SignalSettings, prepare
from rt_core.model.base import base_parameters
from rt_core.model.regressor import regressor
from tests.batch.batch_arms import arm, motion, truth

SETTINGS = SignalSettings(cutoff_hz=10.0, min_velocity=np.full(3, 0.015))
NOISE = np.array([0.3, 0.3, 0.2])


@pytest.fixture(scope="module")
def data():
    clean = motion(arm(), seconds=30.0)
    rng = np.random.default_rng(5)
    return replace(clean, tau=clean.tau + NOISE * rng.normal(size=clean.tau.shape))


def fit(data, model=None, tau=None, q=None, settings=SETTINGS, **options):
    model = arm() if model is None else model
    signals = prepare(data.t, data.q if q is None else q, data.tau if tau is None else tau, settings)
    return identify(model, base_parameters(model), signals, settings, **options)


def test_good_data_are_identified(data):
    result = fit(data)
    assert result.verdict == "ok"
    assert result.reasons == ()
    z = (result.theta - truth(arm(), result.base)) / result.std
    assert np.mean(np.abs(z) < 1.96) >= 0.9
    assert result.metrics.relative_error < 0.005
    assert (result.metrics.R > 0.999).all()
    assert not result.gravity.suspicious
    assert result.gravity.sensitive


@pytest.mark.parametrize("method", ["ols", "wls", "iwls"])
def test_every_method_finds_the_truth(data, method):
    result = fit(data, method=method)
    z = (result.theta - truth(arm(), result.base)) / result.std
    assert np.mean(np.abs(z) < 1.96) >= 0.85


@pytest.mark.parametrize("gravity", [(0, 0, 9.81), (9.81, 0, 0), (0, -9.81, 0), (0, -6.94, -6.94), (0, 0, 0)])
def test_a_wrong_mounting_direction_is_named(data, gravity):
    result = fit(data, model=arm(tuple(float(g) for g in gravity)))
    assert result.verdict == "not_explained"
    assert any("mounting direction" in reason for reason in result.reasons)
    np.testing.assert_allclose(result.gravity.best, [0.0, 0.0, -9.81], atol=0.01)


def test_a_dead_torque_channel_is_named(data):
    tau = data.tau.copy()
    tau[:, 1] = 0.25
    result = fit(data, tau=tau)
    assert result.verdict == "not_explained"
    assert any("joint shoulder" in reason and "no signal" in reason for reason in result.reasons)


def test_a_torque_channel_of_pure_noise_is_named(data):
    tau = data.tau.copy()
    tau[:, 2] = np.random.default_rng(0).normal(size=tau.shape[0])
    result = fit(data, tau=tau)
    assert result.verdict == "not_explained"
    assert any(reason.startswith("joint elbow: the model explains") for reason in result.reasons)


def test_a_joint_that_never_moves_leaves_its_friction_undetermined(data):
    still = data.q.copy()
    still[:, 0] = 0.3
    model = arm()
    base = base_parameters(model)
    exact = motion(model, seconds=30.0)
    frozen = replace(exact, q=still)
    dq, ddq = exact.dq.copy(), exact.ddq.copy()
    dq[:, 0] = ddq[:, 0] = 0.0
    tau = regressor(model, base.layout, still, dq, ddq) @ truth(model, base)
    tau += NOISE * np.random.default_rng(2).normal(size=tau.shape)
    settings = replace(SETTINGS, min_velocity=np.zeros(3))
    result = fit(frozen, tau=tau, q=still, settings=settings)
    by_name = dict(zip(result.base.names, result.status, strict=True))
    assert by_name["fv1"] == by_name["fc1"] == "undetermined"
    assert by_name["fv2"] == by_name["fc3"] == "determined"
    assert result.verdict != "ok"
    gated = fit(frozen, tau=tau, q=still)
    assert gated.verdict == "not_explained"
    assert any("joint base never moves" in reason for reason in gated.reasons)


def test_degrees_do_not_pass_for_radians(data):
    assert fit(data, q=np.degrees(data.q)).verdict != "ok"


def test_a_motion_too_small_for_its_noise_is_not_called_ok(data):
    small = motion(arm(), seconds=30.0)
    q = 0.01 * small.q
    result = fit(data, q=q, settings=replace(SETTINGS, min_velocity=np.zeros(3)))
    assert result.verdict != "ok"


def test_spans_outside_and_too_short_are_refused(data):
    with pytest.raises(DataError, match="lies outside the recording"):
        fit(data, start_s=100.0)
    with pytest.raises(DataError, match="rows for"):
        fit(data, start_s=5.0, stop_s=5.1)
