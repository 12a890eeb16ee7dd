"""Temperature in the simulated arm: heat, a scripted ambient temperature, and friction that follows."""

from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from rt_core.model.dynamics import inverse_dynamics
from rt_core.model.friction import Friction
from rt_core.model.parameters import standard_layout, standard_parameters
from rt_core.model.regressor import regressor
from sim_backend.arm.settings import AmbientSettings, SimSettings
from tests.lab.arms.simulated import single_joint
from tests.lab.arms.warm import EXACT, simulated, sweep, warm_arm

LAWS = {
    "coulomb": Friction("coulomb_viscous", temperature="coulomb"),
    "stribeck": Friction("stribeck", temperature="coulomb_viscous"),
    "harmonic drive": Friction("harmonic_drive_input", temperature="coulomb"),
    "load": Friction("coulomb_viscous", load=True, temperature="coulomb"),
    "smooth": Friction("stribeck", smoothing=0.02, temperature="coulomb"),
}


@pytest.mark.parametrize("coupled", [False, True], ids=["", "coupled"])
@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS.keys())
def test_samples_obey_the_equation_that_a_fit_assumes(law: Friction, coupled: bool) -> None:
    model = warm_arm(law, coupled=coupled)
    data = simulated(model, sweep(-40.0, 60.0, 4.0), 4.0)
    T = data.channels["temperature"]
    assert T.min() < -39.0
    assert T.max() > 20.0
    load = inverse_dynamics(model.geometry, model.gravity, model.inertial, data.q, data.dq, data.ddq)
    layout = standard_layout(model)
    Y = regressor(model, layout, data.q, data.dq, data.ddq, load=load, temperature=T)
    moving = np.all(np.abs(data.dq @ model.coupling.T) > 1e-9, axis=1)
    assert moving.mean() > 0.9
    error = np.abs(data.tau - Y @ standard_parameters(model, layout))[moving]
    assert error.max() < 1e-9 * np.abs(data.tau).max()


def test_the_stribeck_velocity_may_follow_temperature() -> None:
    arm = warm_arm(Friction("stribeck", quadratic="none", cubic=False, temperature="coulomb"))
    slope = -0.005 * arm.dynamics.stribeck_velocity
    dynamics = replace(arm.dynamics, stribeck_velocity_temperature=slope)
    data = simulated(replace(arm, dynamics=dynamics), sweep(-40.0, 60.0, 4.0), 4.0)
    warmth = data.channels["temperature"] - 20.0
    fc = dynamics.coulomb + dynamics.coulomb_temperature * warmth
    vb = dynamics.stribeck_velocity + slope * warmth
    v = data.dq
    fb = dynamics.breakaway + dynamics.breakaway_temperature * warmth
    expected = (fc + (fb - fc) * np.exp(-((v / vb) ** 2))) * np.sign(v) + dynamics.viscous * v
    moving = np.abs(v) > 1e-9
    np.testing.assert_allclose(data.friction[moving], expected[moving], atol=1e-9)


def test_a_joint_follows_the_ambient_temperature() -> None:
    settings = EXACT.model_copy(
        update={"temperature_rise_k": 0.0, "friction_heating_k_per_w": 0.0, "thermal_time_s": 1.5, "ambient_c": 10.0,
                "ambient": (AmbientSettings(time_s=4.0, ambient_c=50.0),)}
    )  # fmt: skip
    data = simulated(single_joint("revolute"), settings, 8.0)
    ramp = np.minimum(data.t, 4.0)
    rising = 10.0 + 10.0 * (ramp - 1.5 * (1.0 - np.exp(-ramp / 1.5)))
    falling = 50.0 + (rising[-1] - 50.0) * np.exp(-(data.t - 4.0) / 1.5)
    expected = np.where(data.t <= 4.0, rising, falling)
    assert np.abs(data.channels["temperature"][:, 0] - expected).max() < 1.01  # steps of 0.1 s of 10 K/s
    assert data.channels["temperature"][-1, 0] == pytest.approx(expected[-1], abs=0.15)


def test_friction_turns_into_heat() -> None:
    model = single_joint("revolute", coulomb=4.0, viscous=2.0)
    settings = EXACT.model_copy(
        update={"temperature_rise_k": 0.0, "friction_heating_k_per_w": 2.0, "thermal_time_s": 3.0}
    )
    data = simulated(model, settings, 6.0)
    power = 4.0 * np.abs(data.dq[:, 0]) + 2.0 * data.dq[:, 0] ** 2
    step = data.t[1] - data.t[0]
    lag = np.exp(-(data.t[-1] - data.t) / 3.0)
    expected = 20.0 + 2.0 * np.sum(power * lag) * step / 3.0
    assert expected > 20.5
    assert data.channels["temperature"][-1, 0] == pytest.approx(expected, abs=0.01)


def test_times_of_a_script_increase() -> None:
    points = [{"time_s": 5.0, "ambient_c": 0.0}, {"time_s": 5.0, "ambient_c": 10.0}]
    with pytest.raises(ValidationError, match="times must increase"):
        SimSettings.model_validate({"ambient": points})
    with pytest.raises(ValidationError, match="times must increase"):
        SimSettings.model_validate({"ambient": [{"time_s": 0.0, "ambient_c": 0.0}]})
    with pytest.raises(ValidationError, match="ambient_c"):
        SimSettings.model_validate({"ambient_c": -300.0})
