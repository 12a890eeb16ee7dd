"""Every friction law in the simulated arm: against the regressor that a fit uses, and against closed forms."""

from dataclasses import replace

import numpy as np
import pytest

from rt_core.model.dynamics import inverse_dynamics
from rt_core.model.friction import Friction
from rt_core.model.parameters import standard_layout, standard_parameters
from rt_core.model.regressor import regressor
from rt_core.model.robot import JointDynamics, RobotModel
from sim_backend.arm.robot import SimulatedArm, SimulatedData
from sim_backend.arm.settings import DynamicsParameter, MotionSettings
from sim_backend.arm.trajectory import motor_torque, plan_motion
from sim_backend.errors import SimulationConfigError
from tests.lab.arms.simulated import AT_ZERO, EXACT, FREE, REST, random_arm, single_joint

LAWS = {
    "none": Friction("none"), "stribeck": Friction("stribeck"), "stribeck even": Friction("stribeck", quadratic="even"),
    "stribeck short": Friction("stribeck", quadratic="none", cubic=False),
    "harmonic drive": Friction("harmonic_drive_input"),
    "harmonic drive squared": Friction("harmonic_drive_input", delta=2.0),
    "coulomb load": Friction("coulomb_viscous", load=True), "everything": Friction("stribeck", load=True, cyclic=True),
    "coulomb smooth": Friction("coulomb_viscous", smoothing=0.02),
    "everything smooth": Friction("harmonic_drive_input", smoothing=0.02, load=True, cyclic=True),
}  # fmt: skip


def with_friction(model: RobotModel, law: Friction, seed: int = 0) -> RobotModel:
    """`model` with a law and random values of everything that any law has."""
    rng = np.random.default_rng([seed, 7])
    n = model.n
    coulomb = rng.uniform(1.0, 4.0, n)
    dynamics = JointDynamics(
        armature=model.dynamics.armature, viscous=rng.uniform(2.0, 5.0, n), coulomb=coulomb,
        offset=model.dynamics.offset, breakaway=coulomb * rng.uniform(1.1, 1.6, n),
        stribeck_velocity=rng.uniform(0.03, 0.08, n), quadratic_friction=rng.uniform(-0.3, 0.5, n),
        cubic_friction=rng.uniform(-0.1, 0.2, n), load_friction=rng.uniform(0.02, 0.2, n),
        tanh_torque=rng.uniform(0.5, 2.0, n), tanh_velocity=rng.uniform(0.02, 0.1, n),
        decaying_viscous=rng.uniform(-0.5, 1.0, n), decay_velocity=rng.uniform(0.05, 0.3, n),
        cyclic_sine=rng.normal(size=n), cyclic_cosine=rng.normal(size=n),
    )  # fmt: skip
    return replace(model, friction=law, dynamics=dynamics)


def by_regressor(model: RobotModel, data: SimulatedData) -> np.ndarray:
    """Torque (N, n) by the columns and values that a fit has, at the exact samples."""
    layout = standard_layout(model)
    load = inverse_dynamics(model.geometry, model.gravity, model.inertial, data.q, data.dq, data.ddq)
    Y = regressor(model, layout, data.q, data.dq, data.ddq, load=load)
    return np.asarray(Y @ standard_parameters(model, layout))


@pytest.mark.parametrize("coupled", [False, True], ids=["", "coupled"])
@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS.keys())
def test_samples_and_feed_forward_obey_the_equation_that_a_fit_assumes(law: Friction, coupled: bool) -> None:
    model = with_friction(random_arm(4, 3, coupled=coupled), law)
    if coupled:
        model.dynamics.load_friction[-1] = 0.0
    data = SimulatedArm(model, EXACT, MotionSettings(candidates=1)).simulate(4.0)
    moving = np.all(np.abs(data.dq @ model.coupling.T) > 1e-9, axis=1)
    assert moving.mean() > 0.9
    error = np.abs(data.tau - by_regressor(model, data))[moving]
    assert error.max() < 1e-9 * np.abs(data.tau).max()
    assert np.ptp(data.q, axis=0).min() > 0.05
    if law.law != "none":
        assert np.abs(data.friction).max() > 0.5
    states = plan_motion(model, MotionSettings(candidates=1)).sample(np.arange(0.2, 4.0, 0.05))
    tau = motor_torque(model, model.inertial, *states)
    wanted = by_regressor(model, SimulatedData(states[0], {}, *states, tau, tau))
    np.testing.assert_allclose(tau, wanted, rtol=0, atol=1e-9 * np.abs(tau).max())


def slider(law: Friction, mass: float = 2.0, pull: float = 0.0, **values: float) -> RobotModel:
    """A mass on a horizontal rail with friction, pulled along it with the acceleration `pull`."""
    model = replace(single_joint("prismatic", mass=mass), gravity=np.array([pull, 0.0, 0.0]), friction=law)
    return replace(model, dynamics=replace(model.dynamics, **{k: np.array([v]) for k, v in values.items()}))


STRIBECK = {"coulomb": 3.0, "breakaway": 5.0, "stribeck_velocity": 0.05}


@pytest.mark.parametrize(
    ("law", "values", "limit"),
    [
        (Friction("stribeck"), STRIBECK, 5.0),
        (Friction("stribeck"), STRIBECK | {"stribeck_velocity": 0.0}, 3.0),
        (Friction("coulomb_viscous"), STRIBECK, 3.0),
        (Friction("harmonic_drive_input"), STRIBECK | {"tanh_torque": 4.0, "tanh_velocity": 0.1}, 3.0),
        (Friction("stribeck", load=True), STRIBECK | {"load_friction": 0.2}, 5.0 / (1.0 - 0.2)),
    ],
    ids=["stribeck", "vb unknown", "coulomb", "harmonic drive", "load"],
)
def test_a_joint_breaks_away_at_its_limit(law: Friction, values: dict[str, float], limit: float) -> None:
    """On the slope the load is what pulls: with it, `pull <= fb + k1*pull`."""
    standing = SimulatedArm(slider(law, pull=0.999 * limit / 2.0, **values), FREE, AT_ZERO).simulate(1.0)
    assert not standing.dq.any()
    assert not standing.q.any()
    np.testing.assert_allclose(np.abs(standing.friction), 0.999 * limit)
    sliding = SimulatedArm(slider(law, pull=1.001 * limit / 2.0, **values), FREE, AT_ZERO).simulate(1.0)
    assert np.all(sliding.ddq > 0.0)
    assert np.all(sliding.dq[1:] > 0.0)


def test_smooth_friction_creeps_where_dry_friction_stands() -> None:
    """Below breakaway the creep is that of `fc*tanh(v/eps) = load`, and the integration of it is stable."""
    eps = 1e-3
    model = slider(Friction("coulomb_viscous", smoothing=eps), pull=1.0, coulomb=3.0)
    data = SimulatedArm(model, FREE, AT_ZERO).simulate(1.0)
    np.testing.assert_allclose(data.dq[200:, 0], eps * np.arctanh(2.0 / 3.0), rtol=1e-9)
    np.testing.assert_allclose(data.friction[200:, 0], 2.0, rtol=1e-9)


def test_load_friction_of_a_coupled_motor_is_refused() -> None:
    model = with_friction(random_arm(3, 1, coupled=True), LAWS["coulomb load"])
    with pytest.raises(SimulationConfigError, match=r"load_friction of joint 'joint_3' must be 0.*another joint"):
        SimulatedArm(model, EXACT, REST)


@pytest.mark.parametrize(
    ("law", "values", "key"),
    [(Friction("coulomb_viscous", smoothing=1e-7), {"coulomb": 3.0}, "friction_smoothing"),
     (Friction("harmonic_drive_input"), {"tanh_torque": 3.0, "tanh_velocity": 1e-7}, "tanh_velocity")],
)  # fmt: skip
def test_friction_too_steep_for_any_step_is_refused(law: Friction, values: dict[str, float], key: str) -> None:
    with pytest.raises(SimulationConfigError, match=rf"'only' is too steep .*{key} \(1e-07\)"):
        SimulatedArm(slider(law, **values), FREE, AT_ZERO)


@pytest.mark.parametrize(
    ("law", "parameter", "value", "message"),
    [
        (LAWS["coulomb load"], "load_friction", 1.0, "load_friction of joint 'joint_2' must be below 1"),
        (LAWS["harmonic drive"], "tanh_velocity", 1e-9, "too steep"),
        (LAWS["coulomb smooth"], "coulomb", 1e9, "too steep"),
        (LAWS["stribeck"], "coulomb", np.nan, "must be 3 finite values"),
        (LAWS["stribeck"], "breakaway", -1.0, "cannot be negative"),
        (LAWS["stribeck"], "tanh_torque", 1.0, r"tanh_torque means nothing to .* 'stribeck'; it has .*breakaway"),
    ],
)
def test_a_refused_change_leaves_the_arm_as_it_was(
    law: Friction, parameter: DynamicsParameter, value: float, message: str
) -> None:
    model = with_friction(random_arm(3, 4, prismatic=0.0), law)
    arm, twin = (SimulatedArm(model, EXACT, MotionSettings(candidates=1)) for _ in range(2))
    for each in (arm, twin):
        each.simulate(0.3)
    before = arm.dynamics
    with pytest.raises(SimulationConfigError, match=message):
        arm.set_dynamics(1, parameter, value=value)
    assert arm.dynamics is before
    np.testing.assert_array_equal(arm.simulate(0.5).tau, twin.simulate(0.5).tau)
    for each in (arm, twin):
        each.set_dynamics(0, "viscous", factor=1.5)
    np.testing.assert_array_equal(arm.simulate(0.5).tau, twin.simulate(0.5).tau)
