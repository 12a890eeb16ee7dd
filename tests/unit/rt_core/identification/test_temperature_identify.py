"""Friction over temperature from recordings: values, intervals, what narrow and missing temperatures leave open."""

import numpy as np
import pytest

from rt_core.identification.friction_curve import friction_curve
from rt_core.identification.identify import Identification, identify
from rt_core.identification.preprocess import DataError, SignalSettings, prepare
from rt_core.model.base import base_parameters
from rt_core.model.friction import Friction
from rt_core.model.parameters import standard_parameters
from rt_core.model.robot import RobotModel
from sim_backend.arm.robot import SimulatedData
from sim_backend.arm.settings import SimSettings
from tests.lab.arms.warm import EXACT, simulated, sweep, warm_arm

SETTINGS = SignalSettings(cutoff_hz=20.0)


def fit(model: RobotModel, data: SimulatedData) -> Identification:
    """Identify from a recording whose temperatures are told but twice a second."""
    at = data.channels["temperature"].copy()
    at[np.arange(data.t.size) % 250 != 0] = np.nan
    signals = prepare(
        data.t, data.channels["q"], data.channels["tau"], SETTINGS, dq=data.channels["dq"], temperature=at
    )
    return identify(model, base_parameters(model), signals, SETTINGS)


def noisy(settings: SimSettings) -> SimSettings:
    return settings.model_copy(update={"torque_noise": 0.0005, "velocity_noise": 1e-4, "rate_hz": 500.0})


@pytest.mark.slow
def test_the_truth_is_found_over_a_sweep() -> None:
    model = warm_arm(Friction("stribeck", quadratic="none", cubic=False, temperature="coulomb_viscous"))
    found = fit(model, simulated(model, noisy(sweep(-40.0, 60.0, 40.0)), 40.0))
    base = found.base
    truth = base_parameters(model).theta(standard_parameters(model, base.standard))
    assert found.verdict in ("ok", "weak_excitation"), found.reasons
    assert (np.abs(found.theta - truth) < 4.5 * found.std).all()
    for k, name in enumerate(base.names):
        if name.startswith("alpha") and name[5:].isdigit():
            assert found.status[k] == "determined"
            assert found.theta[k] == pytest.approx(truth[k], rel=0.03)
    for c, value in zip(found.estimate.constants, model.dynamics.stribeck_velocity, strict=True):
        assert c.status == "determined"
        assert c.value == pytest.approx(value, rel=0.1)
    assert (found.temperatures.lower < -35.0).all()
    assert (found.temperatures.upper > 50.0).all()


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
