"""Arms with springs in their joints, against Pinocchio, SciPy's integrator, energy, and rigid arms."""

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest
from pydantic import ValidationError
from scipy.integrate import solve_ivp

from drivers.files.robots.file import load_robot
from rt_core.model.friction import Friction
from rt_core.model.robot import JointDynamics, RobotModel, Transmission
from sim_backend.arm.robot import SimulatedArm
from sim_backend.arm.settings import MotionSettings, SimSettings
from sim_backend.drive.drive_arm import DriveArm
from sim_backend.errors import SimulationConfigError
from tests.lab.arms.simulated import AT_ZERO, EXACT, FREE, REST, random_arm, rigid_torque, single_joint, twin

MOVING = MotionSettings(candidates=1, base_frequency_hz=0.5)


def elastic_arm(n: int, seed: int, *, friction: bool = True, rigid: tuple[int, ...] = ()) -> RobotModel:
    """A random arm with springs, resonant between about 5 and 50 Hz, in all joints but those of `rigid`."""
    model = random_arm(n, seed, friction=friction)
    rng = np.random.default_rng(seed)
    soft = np.array([i not in rigid for i in range(n)])
    k1 = rng.uniform(2e3, 2e4, n) * soft
    extra = {
        "stiffness": k1, "stiffness_cubic": 1e2 * k1, "spring_damping": rng.uniform(1.0, 4.0, n) * soft * friction,
        "link_viscous": rng.uniform(0.2, 1.0, n) * soft * friction,
        "link_coulomb": rng.uniform(0.2, 1.0, n) * soft * friction,
    }  # fmt: skip
    return replace(model, dynamics=replace(model.dynamics, **extra))


def spring_torque(d: JointDynamics, deflected: np.ndarray, rate: np.ndarray) -> np.ndarray:
    return np.asarray(d.stiffness * deflected + d.stiffness_cubic * deflected**3 + d.spring_damping * rate)


@pytest.mark.parametrize(("n", "seed", "rigid"), [(1, 1, ()), (5, 3, (0, 3)), (7, 4, ())])
def test_samples_obey_the_equations_of_both_sides(n: int, seed: int, rigid: tuple[int, ...]) -> None:
    model = elastic_arm(n, seed, rigid=rigid)
    d = model.dynamics
    data = SimulatedArm(model, EXACT, MOVING).simulate(3.0)
    e, links = data.elastic, rigid_torque(model, data.q, data.dq, data.ddq)
    scale = np.abs(data.tau).max()
    np.testing.assert_allclose(e.sensor, links, rtol=0, atol=1e-10 * scale)
    motors = d.armature * e.ddq_motor + d.offset + data.friction
    soft = d.elastic
    torque = spring_torque(d, e.q_motor - data.q, e.dq_motor - data.dq)
    np.testing.assert_allclose((motors + torque)[:, soft], data.tau[:, soft], rtol=0, atol=1e-9 * scale)
    np.testing.assert_allclose((torque - e.link_friction)[:, soft], links[:, soft], rtol=0, atol=1e-9 * scale)
    np.testing.assert_allclose((motors + links)[:, ~soft], data.tau[:, ~soft], rtol=0, atol=1e-9 * scale)
    np.testing.assert_array_equal(e.q_motor[:, ~soft], data.q[:, ~soft])
    for friction, rate, viscous, dry in (
        (data.friction, e.dq_motor, d.viscous, d.coulomb),
        (e.link_friction[:, soft], data.dq[:, soft], d.link_viscous[soft], d.link_coulomb[soft]),
    ):
        moving = np.abs(rate) > 1e-9
        assert moving.mean() > 0.9
        law = viscous * rate + dry * np.sign(rate)
        np.testing.assert_allclose(friction[moving], law[moving], rtol=0, atol=1e-9 * scale)
        assert np.all(np.abs(friction - viscous * rate) <= dry + 1e-9)
    assert np.ptp(e.q_motor - data.q, axis=0)[soft].min() > 1e-5


def test_the_method_is_of_fourth_order() -> None:
    model = elastic_arm(3, 7)
    d = replace(model.dynamics, coulomb=np.zeros(3), breakaway=np.zeros(3), link_coulomb=np.zeros(3))
    model = replace(model, dynamics=d)
    oracle = twin(model)
    store = oracle.createData()

    def rates(_: float, z: np.ndarray) -> np.ndarray:
        x, y, v, w = z.reshape(4, 3)
        torque = spring_torque(d, x - y, v - w)
        motors = (-torque - d.viscous * v - d.offset) / d.armature
        return np.concatenate((v, w, motors, pin.aba(oracle, store, y, w, torque - d.link_viscous * w)))

    steps = [FREE.model_copy(update={"rate_hz": 100.0, "substeps": substeps}) for substeps in (5, 10, 20)]
    runs = [SimulatedArm(model, settings, REST).simulate(0.31) for settings in steps]
    e = runs[0].elastic
    start = np.concatenate((e.q_motor[0], runs[0].q[0], np.zeros(6)))
    truth = solve_ivp(rates, (0.0, 0.3), start, method="DOP853", rtol=1e-13, atol=1e-14).y[:, -1]
    assert np.abs(truth[:6] - start[:6]).max() > 0.05
    found = [np.concatenate((r.elastic.q_motor[-1], r.q[-1], r.elastic.dq_motor[-1], r.dq[-1])) for r in runs]
    errors = np.array([np.abs(z - truth).max() for z in found])
    assert errors[-1] < 1e-5
    np.testing.assert_allclose(np.log2(errors[:-1] / errors[1:]), 4.0, atol=0.3)


def test_a_link_that_its_friction_holds_stands_while_its_motor_winds_the_spring_up() -> None:
    model = replace(single_joint("prismatic", mass=2.0), gravity=np.zeros(3))
    d = replace(model.dynamics, armature=np.ones(1), stiffness=np.array([1e4]), link_coulomb=np.array([5.0]))
    model = replace(model, dynamics=d)
    arm = SimulatedArm(model, FREE, AT_ZERO)
    arm.simulate(0.01)
    arm.set_outside_force([4.9, 0.0, 0.0])
    held = arm.simulate(0.2)
    assert not held.q.any()
    assert held.elastic.link_friction[-1, 0] == pytest.approx(4.9)
    arm.set_outside_force([8.0, 0.0, 0.0])
    moved = arm.simulate(0.5)
    # Both masses together, up to what the spring swings.
    assert moved.dq[-1, 0] == pytest.approx((8.0 - 5.0) / 3.0 * 0.5, rel=0.05)


@pytest.mark.parametrize(
    "law", [Friction("stribeck", smoothing=0.02), Friction("harmonic_drive_input", cyclic=True, temperature="coulomb")]
)
def test_motors_have_every_law_of_friction(law: Friction) -> None:
    model = elastic_arm(2, 11)
    d = model.dynamics
    n = np.ones(2)
    d = replace(
        d, breakaway=1.5 * d.coulomb, stribeck_velocity=0.05 * n, quadratic_friction=0.2 * n, cubic_friction=0.1 * n,
        tanh_torque=0.5 * n, tanh_velocity=0.05 * n, decaying_viscous=0.3 * n, decay_velocity=0.2 * n,
        cyclic_sine=0.4 * n, cyclic_cosine=-0.3 * n, coulomb_temperature=-0.01 * d.coulomb,
    )  # fmt: skip
    model = replace(model, dynamics=d, friction=law)
    warm = EXACT.model_copy(update={"ambient_c": 35.0, "temperature_rise_k": 0.0})
    data = SimulatedArm(model, warm, MOVING).simulate(3.0)
    e = data.elastic
    v = e.dq_motor
    s = np.tanh(v / law.smoothing) if law.smoothing else np.sign(v)
    fc = d.coulomb - (0.01 * d.coulomb * 15.0 if law.temperature != "none" else 0.0)
    expected = d.viscous * v + fc * s
    if law.law == "stribeck":
        expected += (d.breakaway - d.coulomb) * np.exp(-((v / 0.05) ** 2)) * s + 0.2 * v * np.abs(v) + 0.1 * v**3
    if law.law == "harmonic_drive_input":
        expected += 0.5 * np.tanh(v / 0.05) + 0.3 * v * np.exp(-np.abs(v / 0.2))
        expected += 0.4 * np.sin(e.q_motor) - 0.3 * np.cos(e.q_motor)
    moving = np.abs(v) > 1e-9
    assert moving.mean() > 0.9
    np.testing.assert_allclose(data.friction[moving], expected[moving], rtol=1e-9, atol=1e-9)
    left = data.tau - d.armature * e.ddq_motor - data.friction - d.offset - e.spring
    assert np.abs(left).max() < 1e-9 * np.abs(data.tau).max()


def test_frames_show_both_encoders_and_torque_on_either_side() -> None:
    model = load_robot("arm7_elastic").model
    motor, link = (
        SimulatedArm(model, SimSettings(torque_sensor=side), MotionSettings(candidates=1)).simulate(1.0)
        for side in ("motor", "link")
    )
    np.testing.assert_array_equal(motor.channels["current"], link.channels["current"])
    e = link.elastic
    ratio = np.diag(model.transmission.matrix)
    step = 2.0 * np.pi / 2**20
    assert np.abs(motor.channels["q"] - motor.q).max() <= 0.51 * step
    assert np.abs(motor.channels["q_motor"] - ratio * e.q_motor).max() <= 0.51 * step
    assert np.abs(motor.channels["q_motor"] / ratio - motor.channels["q"]).max() > 100.0 * step
    assert np.std(motor.channels["dq"] - motor.dq) < 1.1e-3
    effort = np.array([joint.effort for joint in model.joints])
    assert np.all(np.std(motor.channels["tau"] - motor.tau, axis=0) < 0.0025 * effort)
    assert np.all(np.std(link.channels["tau"] - e.sensor, axis=0) < 0.0025 * effort)
    assert np.abs(e.sensor - link.tau).max() > 5.0


def test_a_change_of_stiffness_makes_no_jump_and_some_are_refused() -> None:
    model = elastic_arm(2, 6)
    arm = SimulatedArm(model, EXACT, MOVING)
    before = arm.simulate(0.5)
    arm.set_dynamics(0, "stiffness", factor=0.8)
    np.testing.assert_allclose(arm.dynamics.stiffness, model.dynamics.stiffness * (0.8, 1.0))
    data = arm.simulate(0.5)
    e = data.elastic
    torque = spring_torque(arm.dynamics, e.q_motor - data.q, e.dq_motor - data.dq)
    np.testing.assert_allclose(torque[1:], e.spring[1:], rtol=1e-9, atol=1e-9)
    assert np.abs(data.q[0] - before.q[-1]).max() < 1e-2
    for joint, parameter, value, words in (
        (0, "stiffness", 0.0, "stiffness of joint 'joint_1' cannot become zero"),
        (0, "armature", 0.0, "armature of joint 'joint_1' must be above 0"),
        (0, "link_coulomb", -1.0, "cannot be negative"),
    ):
        with pytest.raises(SimulationConfigError, match=words):
            arm.set_dynamics(joint, parameter, value=value)


def pendulum(height: float, share: float, at: float) -> tuple[SimulatedArm, float]:
    """A pendulum at `at`, its spring with a `share` of `m*g*l`, gravity's stiffness about the vertical; and that."""
    model = single_joint("revolute", mass=2.0, offset=(0.0, height))
    gravity = 2.0 * 0.5 * float(np.linalg.norm(model.gravity))
    own = replace(model.dynamics, armature=np.array([1.0]), stiffness=np.array([share * gravity]))
    return SimulatedArm(replace(model, dynamics=own), EXACT, MotionSettings(kind="hold", centre=(at,))), gravity


@pytest.mark.parametrize(
    ("height", "share", "at", "least"),
    [(0.5, 1.1, 0.02, 0.005), (-0.5, 0.5, 0.02, 0.005), (-0.5, 0.2, 0.02, 0.005), (-0.5, 0.2, 1.5, 1.0)],
    ids=["upright", "hanging", "hanging-softly", "sideways"],
)
def test_springs_little_stiffer_than_gravity_hold_and_softer_ones_only_what_hangs(
    height: float, share: float, at: float, least: float
) -> None:
    arm, gravity = pendulum(height, share, at)
    data = arm.simulate(0.1)
    pulled = share * gravity * (data.elastic.q_motor[0, 0] - data.q[0, 0])
    assert pulled == pytest.approx(-np.sign(height) * gravity * np.sin(data.q[0, 0]), rel=1e-6)
    assert abs(data.q[0, 0] - at) > least
    assert abs(data.q[0, 0]) < 0.5


@pytest.mark.parametrize("share", [0.9, 0.2])
@pytest.mark.parametrize("at", [0.0, 1e-9, 0.02])
def test_springs_softer_than_gravity_hold_nothing_upright(share: float, at: float) -> None:
    """Exactly upright gravity has no torque, and a little beside it the link would hang far off: neither is a rest."""
    with pytest.raises(SimulationConfigError, match="gravity turns them further than the springs hold"):
        pendulum(0.5, share, at)


def test_what_cannot_be_simulated_is_refused() -> None:
    model = elastic_arm(2, 2)
    d = model.dynamics
    coupled = Transmission(np.array([[50.0, 0.0], [30.0, 30.0]]), np.zeros(2), np.ones(2))
    for wrong, words in (
        (replace(model, transmission=coupled), "elastic joints and a motor that also turns with another joint"),
        (replace(model, friction=Friction(load=True), dynamics=replace(d, load_friction=np.full(2, 0.1))),
         "elastic joints and friction that depends on the load"),
        (replace(model, dynamics=replace(d, armature=np.array([1.0, 0.0]))), "armature of joint 'joint_2'"),
        (replace(model, dynamics=replace(d, stiffness=np.array([1e3, 1e11]))),
         "stiffness of joint 'joint_2' is 1e\\+11"),
        (replace(model, joints=tuple(replace(joint, effort=100.0) for joint in model.joints),
                 dynamics=replace(d, stiffness_cubic=np.array([0.0, 1e30]))),
         "stiffness of joint 'joint_2' reaches .* at its effort limit 100: with"),
        (replace(model, dynamics=replace(d, stiffness=np.full(2, 1e-3), stiffness_cubic=np.zeros(2))), "come to rest"),
        (replace(model, dynamics=replace(d, stiffness=np.array([-1.0, 1.0]))), "stiffness of robot 'random' must be"),
    ):  # fmt: skip
        with pytest.raises(SimulationConfigError, match=words):
            SimulatedArm(wrong, EXACT, REST)
    with pytest.raises(SimulationConfigError, match="an arm that is commanded has rigid ones only"):
        DriveArm(model)
    with pytest.raises(SimulationConfigError, match="torque_sensor = 'link' needs a joint with stiffness"):
        SimulatedArm(random_arm(2, 2), SimSettings(torque_sensor="link"), REST)
    with pytest.raises(ValidationError, match="torque_sensor"):
        SimSettings.model_validate({"torque_sensor": "both"})
