"""Every friction law in the simulated arm: against the regressor that a fit uses, and against closed forms."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.model.dynamics import inverse_dynamics
from rt_core.model.friction import Friction
from rt_core.model.parameters import standard_layout, standard_parameters
from rt_core.model.regressor import regressor
from rt_core.model.robot import JointDynamics, RobotModel
from sim_backend.arm.robot import SimulatedArm, SimulatedData
from sim_backend.arm.settings import DriveSettings, DynamicsParameter, EventSettings, MotionSettings
from sim_backend.arm.trajectory import SERIES, motor_torque, plan_motion
from sim_backend.errors import SimulationConfigError
from tests.lab.arms.simulated import AT_ZERO, EXACT, FREE, REST, random_arm, single_joint

LAWS = {
    "none": Friction("none"),
    "coulomb_viscous": Friction("coulomb_viscous"),
    "coulomb_viscous_offset": Friction("coulomb_viscous_offset"),
    "stribeck": Friction("stribeck"),
    "stribeck even": Friction("stribeck", quadratic="even"),
    "stribeck short": Friction("stribeck", quadratic="none", cubic=False),
    "harmonic drive": Friction("harmonic_drive_input"),
    "harmonic drive squared": Friction("harmonic_drive_input", delta=2.0),
    "cyclic": Friction("cyclic"),
    "stribeck cyclic": Friction("stribeck", cyclic=True),
    "coulomb load": Friction("coulomb_viscous", load=True),
    "stribeck load": Friction("stribeck", load=True),
    "everything": Friction("stribeck", load=True, cyclic=True),
    "coulomb smooth": Friction("coulomb_viscous", smoothing=0.02),
    "stribeck smooth": Friction("stribeck", smoothing=0.01),
    "everything smooth": Friction("harmonic_drive_input", smoothing=0.02, load=True, cyclic=True),
}


def with_friction(model: RobotModel, law: Friction, seed: int = 0) -> RobotModel:
    """`model` with a law and random values of everything that any law has."""
    rng = np.random.default_rng([seed, 7])
    n = model.n
    coulomb = rng.uniform(1.0, 4.0, n)
    dynamics = JointDynamics(
        armature=model.dynamics.armature,
        viscous=rng.uniform(2.0, 5.0, n),
        coulomb=coulomb,
        offset=model.dynamics.offset,
        breakaway=coulomb * rng.uniform(1.1, 1.6, n),
        stribeck_velocity=rng.uniform(0.03, 0.08, n),
        quadratic_friction=rng.uniform(-0.3, 0.5, n),
        cubic_friction=rng.uniform(-0.1, 0.2, n),
        load_friction=rng.uniform(0.02, 0.2, n),
        tanh_torque=rng.uniform(0.5, 2.0, n),
        tanh_velocity=rng.uniform(0.02, 0.1, n),
        decaying_viscous=rng.uniform(-0.5, 1.0, n),
        decay_velocity=rng.uniform(0.05, 0.3, n),
        cyclic_sine=rng.normal(size=n),
        cyclic_cosine=rng.normal(size=n),
    )
    return replace(model, friction=law, dynamics=dynamics)


def by_regressor(model: RobotModel, data: SimulatedData) -> np.ndarray:
    """Torque (N, n) by the columns and values that a fit has, at the exact samples."""
    layout = standard_layout(model)
    load = inverse_dynamics(model.geometry, model.gravity, model.inertial, data.q, data.dq, data.ddq)
    Y = regressor(model, layout, data.q, data.dq, data.ddq, load=load)
    return np.asarray(Y @ standard_parameters(model, layout))


@pytest.mark.parametrize("coupled", [False, True], ids=["", "coupled"])
@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS.keys())
def test_samples_obey_the_equation_that_a_fit_assumes(law: Friction, coupled: bool) -> None:
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


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS.keys())
def test_the_drives_feed_forward_knows_the_law(law: Friction) -> None:
    model = with_friction(random_arm(3, 5, prismatic=0.0), law)
    data = SimulatedArm(model, EXACT, MotionSettings(candidates=1)).simulate(5.0)
    assert np.abs(data.q - data.channels["setpoint"]).max() < 2e-4
    motion = plan_motion(model, MotionSettings(candidates=2))
    states = motion.sample(np.arange(0.2, 5.0, 0.05))
    tau = motor_torque(model, model.inertial, *states)
    set_data = SimulatedData(states[0], {}, *states, tau, tau)
    np.testing.assert_allclose(tau, by_regressor(model, set_data), rtol=0, atol=1e-9 * np.abs(tau).max())


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


def test_a_joint_that_breaks_away_slips_as_the_law_says() -> None:
    """The energy balance of a slip, `m v^2/2 = pull*x - work of friction`, with friction by the literal law."""
    model = slider(Friction("stribeck"), pull=2.6, viscous=1.0, quadratic_friction=0.5, cubic_friction=0.3, **STRIBECK)
    data = SimulatedArm(model, FREE, AT_ZERO).simulate(1.5)
    x, v = data.q[:, 0], data.dq[:, 0]
    law = 3.0 + 2.0 * np.exp(-((v / 0.05) ** 2)) + v + 0.5 * v**2 + 0.3 * v**3
    np.testing.assert_allclose(data.friction[1:, 0], law[1:], rtol=1e-12)
    work = np.concatenate(([0.0], np.cumsum(0.5 * (law[1:] + law[:-1]) * np.diff(x))))
    np.testing.assert_allclose(0.5 * 2.0 * v**2, 2.0 * 2.6 * x - work, atol=1e-5)
    assert v[-1] > 0.5


def test_stick_slip_has_the_period_of_theory() -> None:
    """A mass drawn by a spring at a creeping speed: `fb - fc` of spring force is built up while it sticks.

    With `vb` far below the speed of a slip, the slip is half a period of the free oscillation about the level
    of `fc` with amplitude `(fb - fc)/k`: the spring goes from `fb` to `2 fc - fb`, and the mass sticks for
    `2 (fb - fc)/(k V)`.
    """
    mass, speed, fb, fc = 2.0, 0.02, 5.0, 3.0
    model = slider(Friction("stribeck"), mass, coulomb=fc, breakaway=fb, stribeck_velocity=1e-4)
    joint = replace(model.joints[0], lower=-1.0, upper=1.0, velocity=10.0)
    model = replace(model, joints=(joint,))
    # The velocity loop's gain is nearly nothing and its integral is the spring: k = KI, on the error of velocity.
    stiffness = 200.0
    gain = 2.0 * np.pi * 1e-6 * mass
    drive = DriveSettings(
        feedforward="none", position_bandwidth_hz=1e-9, velocity_bandwidth_hz=1e-6, integral_time_s=gain / stiffness
    )
    motion = plan_motion(model, AT_ZERO)
    # A slow sine of large amplitude is a constant speed near its middle.
    w = 2.0 * np.pi * 0.001
    row = np.array([[0.0, np.inf, 1e-3, w, SERIES, 0.0]])
    motion = replace(motion, table=row, coefficients=np.array([[[[speed / w, 0.0]]]]), duration_s=np.inf)
    arm = SimulatedArm(model, EXACT.model_copy(update={"drive": drive}), motion)
    data = arm.simulate(5.0)
    starts = np.flatnonzero((data.dq[1:, 0] != 0.0) & (data.dq[:-1, 0] == 0.0))
    starts = starts[data.t[starts] > 1.0]
    period = np.diff(data.t[starts])
    omega = np.sqrt(stiffness / mass)
    drop = 2.0 * (fb - fc)
    slip = 2.0 * (np.pi - np.arctan(drop / 2.0 / stiffness * omega / speed)) / omega
    assert period.size >= 2
    np.testing.assert_allclose(period, drop / (stiffness * speed) + slip, rtol=0.02)


@pytest.mark.parametrize("velocity", [-0.4, -0.03, 0.01, 0.08, 0.6])
@pytest.mark.parametrize("quadratic", ["odd", "even"])
def test_torque_at_constant_speed(velocity: float, quadratic: str) -> None:
    """The drive's torque in steady sliding is the law's."""
    law = Friction("stribeck", quadratic=quadratic)
    values = STRIBECK | {"viscous": 8.0, "quadratic_friction": 0.7, "cubic_friction": -0.4}
    model = slider(law, **values)
    motion = plan_motion(model, AT_ZERO)
    w = 2.0 * np.pi * 0.001
    row = np.array([[0.0, np.inf, 0.5, w, SERIES, 0.0]])
    motion = replace(motion, table=row, coefficients=np.array([[[[velocity / w, 0.0]]]]))
    data = SimulatedArm(model, EXACT, motion).simulate(2.0)
    late = data.t > 1.0
    v, s = velocity, np.sign(velocity)
    square = v * abs(v) if quadratic == "odd" else v * v
    expected = (3.0 + 2.0 * np.exp(-((v / 0.05) ** 2))) * s + 8.0 * v + 0.7 * square - 0.4 * v**3
    np.testing.assert_allclose(data.dq[late, 0], velocity, rtol=1e-3)
    np.testing.assert_allclose(data.tau[late, 0], expected, rtol=1e-3)


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
    [
        (Friction("coulomb_viscous", smoothing=1e-7), {"coulomb": 3.0}, "friction_smoothing"),
        (Friction("harmonic_drive_input"), {"tanh_torque": 3.0, "tanh_velocity": 1e-7}, "tanh_velocity"),
    ],
)
def test_friction_too_steep_for_any_step_is_refused(law: Friction, values: dict[str, float], key: str) -> None:
    with pytest.raises(SimulationConfigError, match=rf"'only' is too steep .*{key} \(1e-07\)"):
        SimulatedArm(slider(law, **values), FREE, AT_ZERO)


@pytest.mark.parametrize("law", [Friction("stribeck", smoothing=0.005), Friction("harmonic_drive_input")])
def test_more_substeps_change_nothing(law: Friction) -> None:
    model = with_friction(random_arm(3, 9, prismatic=0.0), law)
    q = [SimulatedArm(model, FREE.model_copy(update={"substeps": k}), REST).simulate(1.5).q for k in (2, 16)]
    assert np.ptp(q[0], axis=0).max() > 0.3
    np.testing.assert_allclose(q[0], q[1], atol=1e-6)


@pytest.mark.parametrize("law", [Friction("stribeck", load=True), Friction("stribeck", smoothing=0.01)])
def test_a_swinging_arm_loses_what_friction_takes(law: Friction) -> None:
    model = with_friction(random_arm(3, 9, prismatic=0.0), law)
    d = model.dynamics
    still = replace(d, offset=np.zeros(3), **{k: np.zeros(3) for k in ("cubic_friction", "quadratic_friction")})
    model = replace(model, dynamics=still)
    data = SimulatedArm(model, FREE, REST).simulate(2.0)
    power = np.sum(data.friction * data.dq, axis=1)
    assert np.all(power >= 0.0)
    ground = inverse_dynamics(model.geometry, model.gravity, model.inertial, data.q, 0 * data.q, 0 * data.q)
    links = inverse_dynamics(model.geometry, model.gravity, model.inertial, data.q, data.dq, data.ddq)
    rotors = still.armature * data.ddq
    # d/dt kinetic energy = dq' (M ddq + C dq + Ia ddq) and -dq' g the work of gravity: together -power.
    gained = np.sum((links - ground + rotors) * data.dq, axis=1)
    np.testing.assert_allclose(gained + np.sum(ground * data.dq, axis=1), -power, atol=1e-8 * np.abs(gained).max())
    assert power.max() > 0.1


def test_events_change_what_the_law_has_and_nothing_else() -> None:
    event = EventSettings(time_s=1.0, joint="joint_2", parameter="breakaway", factor=1.3)
    model = with_friction(random_arm(3, 4, prismatic=0.0), LAWS["stribeck"])
    settings = EXACT.model_copy(update={"events": (event,)})
    arm = SimulatedArm(model, settings, MotionSettings(candidates=1))
    data = arm.simulate(4.0)
    np.testing.assert_allclose(arm.dynamics.breakaway, model.dynamics.breakaway * (1.0, 1.3, 1.0))
    changed = replace(model, dynamics=arm.dynamics)
    moving = np.all(np.abs(data.dq) > 1e-9, axis=1)
    for truth, part in ((model, data.t <= 1.0), (changed, data.t > 1.0)):
        assert np.abs(data.tau - by_regressor(truth, data))[part & moving].max() < 1e-9
    arm.set_dynamics(0, "stribeck_velocity", value=0.2)
    arm.set_dynamics(1, "cubic_friction", value=-0.5)
    assert (arm.dynamics.stribeck_velocity[0], arm.dynamics.cubic_friction[1]) == (0.2, -0.5)
    late = arm.simulate(2.0)
    moving = np.all(np.abs(late.dq) > 1e-9, axis=1)
    changed = replace(model, dynamics=arm.dynamics)
    assert np.abs(late.tau - by_regressor(changed, late))[moving].max() < 1e-9
    with pytest.raises(SimulationConfigError, match=r"tanh_torque means nothing to .* 'stribeck'; it has .*breakaway"):
        arm.set_dynamics(0, "tanh_torque", value=1.0)
    with pytest.raises(SimulationConfigError, match="cannot be negative"):
        arm.set_dynamics(0, "breakaway", value=-1.0)


@pytest.mark.parametrize(
    ("law", "parameter", "value", "message"),
    [
        (LAWS["coulomb load"], "load_friction", 1.0, "load_friction of joint 'joint_2' must be below 1"),
        (LAWS["harmonic drive"], "tanh_velocity", 1e-9, "too steep"),
        (LAWS["coulomb smooth"], "coulomb", 1e9, "too steep"),
        (LAWS["stribeck"], "coulomb", np.nan, "must be 3 finite values"),
        (LAWS["stribeck"], "breakaway", np.inf, "must be 3 finite values"),
        (LAWS["stribeck"], "stribeck_velocity", np.inf, "must be 3 finite values"),
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


def test_every_field_of_the_dynamics_can_change() -> None:
    names = {item.name for item in fields(JointDynamics)}
    assert names == set(DynamicsParameter.__args__)


@pytest.mark.parametrize("name", ["space6_stribeck", "space6_dyn"])
def test_the_second_truths_run_and_dissipate(name: str) -> None:
    model = load_robot(name).model
    assert model.friction.law == "stribeck"
    d = model.dynamics
    top = np.array([joint.velocity for joint in model.joints])
    for sign in (-1.0, 1.0):
        v = sign * np.linspace(1e-4, 1.0, 2000)[:, None] * top
        square = v * np.abs(v) if model.friction.quadratic == "odd" else v**2
        law = np.sign(v) * (d.coulomb + (d.breakaway - d.coulomb) * np.exp(-((v / d.stribeck_velocity) ** 2)))
        law = law + d.viscous * v + d.quadratic_friction * square + d.cubic_friction * v**3
        assert np.all(law * v > 0.0)
        assert np.all(np.diff(law[1000:] * sign, axis=0) > 0.0)  # and rises with speed, away from the Stribeck dip
    data = SimulatedArm(model, EXACT).simulate(10.0)
    moving = np.all(np.abs(data.dq) > 1e-9, axis=1)
    assert moving.mean() > 0.8
    assert np.abs(data.tau - by_regressor(model, data))[moving].max() < 1e-9 * np.abs(data.tau).max()
    assert np.abs(data.q - data.channels["setpoint"]).max() < 5e-3


def test_a_slow_joint_of_the_literal_table_sticks_and_slips() -> None:
    model = load_robot("space6_dyn").model
    drive = DriveSettings(feedforward="gravity", integral_time_s=0.1, position_bandwidth_hz=1.0)
    settings = EXACT.model_copy(update={"drive": drive})
    data = SimulatedArm(model, settings, MotionSettings(candidates=1, amplitude=0.02)).simulate(8.0)
    standing = data.dq == 0.0
    slips = np.sum(standing[:-1] & ~standing[1:], axis=0)
    assert slips.max() >= 3
    assert np.isfinite(data.tau).all()
    moving = np.all(np.abs(data.dq) > 1e-9, axis=1)
    assert np.abs(data.tau - by_regressor(model, data))[moving].max() < 1e-8
