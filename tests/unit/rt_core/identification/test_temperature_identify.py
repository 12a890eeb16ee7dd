"""Friction over temperature from recordings: values, intervals, what narrow and missing temperatures leave open."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rt_core.identification.estimate import Method, disturb
from rt_core.identification.friction_curve import friction_curve
from rt_core.identification.identify import Identification, identify
from rt_core.identification.preprocess import DataError, SignalSettings, prepare
from rt_core.identification.temperature import temperatures_of
from rt_core.model.base import base_parameters
from rt_core.model.friction import Friction
from rt_core.model.parameters import standard_parameters
from rt_core.model.robot import RobotModel
from sim_backend.arm.robot import SimulatedData
from sim_backend.arm.settings import SimSettings
from tests.lab.arms.warm import EXACT, simulated, sweep, warm_arm

SETTINGS = SignalSettings(cutoff_hz=20.0)


def fit(model: RobotModel, data: SimulatedData, temperature: np.ndarray | None = None) -> Identification:
    at = data.channels["temperature"] if temperature is None else temperature
    signals = prepare(
        data.t, data.channels["q"], data.channels["tau"], SETTINGS, dq=data.channels["dq"], temperature=at
    )
    return identify(model, base_parameters(model), signals, SETTINGS)


def noisy(settings: SimSettings) -> SimSettings:
    return settings.model_copy(update={"torque_noise": 0.0005, "velocity_noise": 1e-4, "rate_hz": 500.0})


@pytest.mark.parametrize(
    "law",
    [
        Friction("coulomb_viscous", temperature="coulomb_viscous"),
        Friction("stribeck", quadratic="none", cubic=False, temperature="coulomb"),
    ],
    ids=["coulomb_viscous", "stribeck"],
)
def test_the_truth_is_found_over_a_sweep(law: Friction) -> None:
    model = warm_arm(law)
    found = fit(model, simulated(model, noisy(sweep(-40.0, 60.0, 60.0)), 60.0))
    base = found.base
    truth = base_parameters(model).theta(standard_parameters(model, base.standard))
    assert found.verdict in ("ok", "weak_excitation"), found.reasons
    assert (np.abs(found.theta - truth) < 4.5 * found.std).all()
    for k, name in enumerate(base.names):
        if name.startswith("alpha") and name[5:].isdigit():
            assert found.status[k] == "determined"
            assert found.theta[k] == pytest.approx(truth[k], rel=0.03)
    if law.law == "stribeck":
        vb = {c.name: c for c in found.estimate.constants}
        for i, value in enumerate(model.dynamics.stribeck_velocity, start=1):
            assert vb[f"vb{i}"].status == "determined"
            assert vb[f"vb{i}"].value == pytest.approx(value, rel=0.1)
    seen = found.temperatures
    assert (seen.lower < -35.0).all()
    assert (seen.upper > 50.0).all()


def test_a_temperature_that_hardly_changes_leaves_the_slope_open() -> None:
    model = warm_arm(Friction("coulomb_viscous", temperature="coulomb"))
    found = fit(model, simulated(model, noisy(sweep(20.0, 22.0, 20.0)), 20.0))
    status = dict(zip(found.base.names, found.status, strict=True))
    assert {status[f"alpha{i}"] for i in (1, 2, 3)} == {"undetermined"}
    assert status["fc1"] == "determined"
    assert found.verdict == "weak_excitation"
    assert sum("at least 5 K" in reason for reason in found.reasons) == 3


def test_friction_at_the_reference_is_open_where_only_another_temperature_was_seen() -> None:
    model = warm_arm(Friction("coulomb_viscous", temperature="coulomb"))
    hot = noisy(sweep(48.0, 50.0, 20.0)).model_copy(update={"temperature_rise_k": 0.0, "friction_heating_k_per_w": 0.0})
    found = fit(model, simulated(model, hot, 20.0))
    status = dict(zip(found.base.names, found.status, strict=True))
    assert {status[f"alpha{i}"] for i in (1, 2, 3)} == {"undetermined"}
    assert found.metrics.relative_error < 0.02


def test_a_friction_curve_is_that_of_its_temperature() -> None:
    model = warm_arm(Friction("coulomb_viscous", temperature="coulomb"), seed=1)
    found = fit(model, simulated(model, noisy(sweep(-40.0, 60.0, 30.0)), 30.0))
    d, known = model.dynamics, np.isfinite(found.std)
    for T in (-40.0, 10.0, 60.0):
        curve = friction_curve(
            model, found.base, found.rows, found.theta, found.uncertainty.covariance, known, 1, temperature=T
        )
        assert curve.temperature == T
        v = curve.grid
        expected = (d.coulomb[1] + d.coulomb_temperature[1] * (T - 20.0)) * np.sign(v) + d.viscous[1] * v + d.offset[1]
        np.testing.assert_allclose(curve.fitted, expected, atol=0.1)
        at = curve.temperatures
        lawful = (d.coulomb[1] + d.coulomb_temperature[1] * (at - 20.0)) * np.sign(curve.velocity)
        lawful += d.viscous[1] * curve.velocity + d.offset[1]
        assert np.abs(curve.torque - lawful).std() < 3.0 * found.metrics.rmse[1]


def test_temperatures_may_be_told_seldom() -> None:
    model = warm_arm(Friction("coulomb_viscous", temperature="coulomb"))
    data = simulated(model, noisy(sweep(0.0, 40.0, 20.0)), 20.0)
    sparse = data.channels["temperature"].copy()
    sparse[np.arange(data.t.size) % 500 != 0] = np.nan
    often, seldom = fit(model, data), fit(model, data, sparse)
    np.testing.assert_allclose(seldom.theta, often.theta, atol=0.3 * often.std.max())


def test_data_without_temperatures_are_refused() -> None:
    model = warm_arm(Friction("coulomb_viscous", temperature="coulomb"))
    data = simulated(model, EXACT, 15.0)
    q, tau, T = (data.channels[name] for name in ("q", "tau", "temperature"))
    base = base_parameters(model)
    with pytest.raises(DataError, match="the data have none"):
        identify(model, base, prepare(data.t, q, tau, SETTINGS), SETTINGS)
    nothing, gap = T.copy(), T.copy()
    nothing[:, 1] = np.nan
    gap[data.t > 2.0, 2] = np.nan
    with pytest.raises(DataError, match="joint 2: there is no value"):
        prepare(data.t, q, tau, SETTINGS, temperature=nothing)
    with pytest.raises(DataError, match=r"joint 3: at 14\.999 s there has been no value for more than"):
        prepare(data.t, q, tau, SETTINGS, temperature=gap)
    with pytest.raises(DataError, match="temperature has shape"):
        prepare(data.t, q, tau, SETTINGS, temperature=T[:, :2])


@pytest.mark.parametrize("method", ["tls", "iv"])
def test_slopes_are_found_where_positions_and_velocities_are_noisy(method: Method) -> None:
    model = warm_arm(Friction("coulomb_viscous", temperature="coulomb"))
    base = base_parameters(model)
    data = simulated(model, noisy(sweep(-40.0, 60.0, 40.0)), 40.0)
    q, dq, tau, T = (data.channels[name] for name in ("q", "dq", "tau", "temperature"))
    signals, disturbed = (
        prepare(data.t, one[0], tau, SETTINGS, dq=one[1], temperature=T)
        for one in ((q, dq), (disturb(q, 0), disturb(dq, 1)))
    )
    found = identify(model, base, signals, SETTINGS, method=method, disturbed=disturbed if method == "tls" else None)
    truth = base.theta(standard_parameters(model, base.standard))
    for k, name in enumerate(base.names):
        if name.startswith("alpha"):
            assert found.status[k] == "determined"
            assert found.theta[k] == pytest.approx(truth[k], rel=0.03)


def test_a_coupled_motor_is_seen_by_every_joint_that_it_turns() -> None:
    model = warm_arm(Friction("coulomb_viscous", temperature="coulomb"), coupled=True)
    found = fit(model, simulated(model, noisy(sweep(0.0, 40.0, 20.0)), 20.0))
    turns = model.coupling != 0.0
    motor, joint = np.argwhere(turns & ~np.eye(3, dtype=bool))[0]
    use = found.rows.use.copy()
    use[:, motor] = False
    seen = temperatures_of(model, replace(found.rows, use=use))
    alone = temperatures_of(replace(model, transmission=None), replace(found.rows, use=use))
    assert np.isfinite(seen.lower[motor])
    assert np.isnan(alone.lower[motor])
    assert use[:, joint].any()
