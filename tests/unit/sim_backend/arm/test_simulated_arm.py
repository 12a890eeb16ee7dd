"""The simulated arm against independent physics: Pinocchio, SciPy's integrator, closed forms."""

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp
from scipy.signal import butter, sosfiltfilt

from drivers.files.robots.file import load_robot
from rt_core.model.forward import equations_of_motion, solve_definite
from rt_core.model.robot import JointDynamics, RobotModel
from sim_backend.arm.robot import SimulatedArm, SimulatedData
from sim_backend.arm.settings import MotionSettings, SimSettings
from sim_backend.errors import SimulationConfigError
from tests.lab.arms.simulated import AT_ZERO, EXACT, FREE, REST, random_arm, rigid_torque, single_joint, twin

MOVING = MotionSettings(candidates=1)


def residual(model: RobotModel, data: SimulatedData) -> np.ndarray:
    """Torque that Pinocchio and the written friction law leave unexplained at each sample (N, n)."""
    C, d = model.coupling, model.dynamics
    motor = data.dq @ C.T
    own = d.armature * (data.ddq @ C.T) + d.viscous * motor + d.coulomb * np.sign(motor)
    return data.tau - rigid_torque(model, data.q, data.dq, data.ddq) - own @ C - d.offset


@given(n=st.integers(1, 9), seed=st.integers(0, 1000), coupled=st.booleans())
@hypothesis_settings(max_examples=15)
def test_samples_obey_the_equations_of_motion_at_their_instant(n: int, seed: int, coupled: bool) -> None:
    model = random_arm(n, seed, coupled=coupled and n > 1)
    data = SimulatedArm(model, EXACT, MOVING).simulate(4.0)
    moving = np.all(np.abs(data.dq @ model.coupling.T) > 1e-9, axis=1)
    assert moving.mean() > 0.95
    assert np.abs(residual(model, data)[moving]).max() < 1e-9 * np.abs(data.tau).max()


def test_motion_equals_that_of_an_independent_integrator() -> None:
    model = random_arm(4, 5, friction=True)
    model = replace(model, dynamics=replace(model.dynamics, coulomb=np.zeros(4)))
    oracle = twin(model)
    oracle.armature = model.dynamics.armature
    store = oracle.createData()

    def rates(_: float, y: np.ndarray) -> np.ndarray:
        torque = -model.dynamics.viscous * y[4:] - model.dynamics.offset
        return np.concatenate((y[4:], pin.aba(oracle, store, y[:4], y[4:], torque)))

    data = SimulatedArm(model, FREE, REST).simulate(2.001)
    truth = solve_ivp(rates, (0.0, 2.0), np.concatenate((data.q[0], np.zeros(4))), rtol=1e-11, atol=1e-12).y[:, -1]
    assert np.abs(data.q[0] - data.q[-1]).max() > 0.3
    assert np.allclose(data.q[-1], truth[:4], rtol=0, atol=1e-6)
    assert np.allclose(data.dq[-1], truth[4:], rtol=0, atol=1e-5)


def test_a_swinging_pendulum_comes_to_a_stand_for_good() -> None:
    model = single_joint("revolute", coulomb=1.5)
    data = SimulatedArm(model, FREE, MotionSettings(kind="hold", centre=(0.3,))).simulate(20.0)
    standing = data.dq[:, 0] == 0.0
    stop = np.flatnonzero(~standing)[-1]
    assert 500 < stop < 19_000
    assert np.all(data.q[stop + 1 :] == data.q[-1])
    assert np.abs(data.friction[stop + 1 :]).max() <= 1.5
    assert np.abs(data.friction[stop + 1 :]).min() > 0.0
    # No chatter on the way: few reversals, and friction opposes motion throughout.
    signs = np.sign(data.dq[: stop + 1, 0])
    assert np.count_nonzero(np.diff(signs[signs != 0.0])) < 20
    assert np.all(data.friction[:, 0] * data.dq[:, 0] >= 0.0)


def test_two_standing_joints_under_load_stand_and_the_third_moves_alone() -> None:
    model = random_arm(3, 6, prismatic=0.0)
    d = model.dynamics
    model = replace(model, dynamics=replace(d, coulomb=np.array([1e4, 0.0, 1e4]), viscous=np.zeros(3)))
    data = SimulatedArm(model, FREE, REST).simulate(2.0)
    assert not data.dq[:, [0, 2]].any()
    assert np.ptp(data.q[:, 1]) > 0.1
    need = rigid_torque(model, data.q, data.dq, data.ddq) + d.armature * data.ddq + d.offset + data.friction
    assert np.allclose(need, 0.0, atol=1e-9)  # the friction recorded is the torque that holds them


def test_filtered_samples_have_no_delay_between_torque_and_motion() -> None:
    model = load_robot("space6").model
    d = model.dynamics
    data = SimulatedArm(model, SimSettings(torque_noise=0.0)).simulate(24.0)
    low_pass = butter(4, 10.0, fs=1000.0, output="sos")
    sampled = (data.channels["q"], data.channels["tau"], data.friction)
    q, tau, friction = (sosfiltfilt(low_pass, x, axis=0) for x in sampled)
    dq = np.gradient(q, 1e-3, axis=0)
    ddq = np.gradient(dq, 1e-3, axis=0)
    used = slice(3000, -1000, 4)
    assert np.array_equal(model.coupling, np.eye(model.n))
    need = rigid_torque(model, q[used], dq[used], ddq[used]) + d.armature * ddq[used] + d.offset
    error = need + friction[used] - tau[used]
    slope = np.gradient(tau, 1e-3, axis=0)[used]
    delay_s = (error * slope).sum(axis=0) / (slope**2).sum(axis=0)
    assert np.abs(delay_s).max() < 10e-6
    assert np.linalg.norm(error) < 3e-4 * np.linalg.norm(tau[used])


def test_equal_seeds_give_equal_samples_however_they_are_asked_for() -> None:
    model = random_arm(4, 9, coupled=True)
    whole = SimulatedArm(model, motion=MOVING, seed=7).simulate(0.6)
    arm = SimulatedArm(model, motion=MOVING, seed=7)
    parts = [arm.simulate(0.2), arm.simulate(0.003), arm.simulate(0.397)]
    arm.reset()
    frames = [arm.step() for _ in range(600)]
    other = SimulatedArm(model, motion=MOVING, seed=8).simulate(0.6)
    assert [f.seq for f in frames] == list(range(600))
    for channel, values in whole.channels.items():
        assert np.array_equal(values, np.concatenate([part.channels[channel] for part in parts]))
        assert np.array_equal(values, [getattr(frame, channel) for frame in frames])
    assert np.array_equal(whole.t, np.concatenate([part.t for part in parts]))
    assert np.array_equal(whole.q, other.q)
    assert not np.array_equal(whole.channels["tau"], other.channels["tau"])


def test_encoders_round_to_their_counts() -> None:
    model = random_arm(4, 9, coupled=True)
    data = SimulatedArm(model, SimSettings(encoder_bits=12), MOVING).simulate(3.0)
    step = np.array([(2 * np.pi if joint.kind == "revolute" else 1.0) / 4096 for joint in model.joints])
    counts = data.channels["q"] / step
    assert np.allclose(counts, np.round(counts), atol=1e-9)
    error = data.channels["q"] - data.q
    assert np.all(np.abs(error) <= 0.5001 * step)
    assert np.all(np.abs(error).max(axis=0) > 0.4 * step)
    motor = data.channels["q_motor"] / (2 * np.pi / 4096)
    assert np.allclose(motor, np.round(motor), atol=1e-6)


def test_noise_has_the_asked_size_and_motor_channels_agree_with_the_joint_side() -> None:
    model = random_arm(3, 2, coupled=True)
    settings = SimSettings(
        encoder_bits=None, torque_noise=(0.1, 0.2, 0.3), current_noise=(0.01, 0.02, 0.03), velocity_noise=0.004
    )
    data = SimulatedArm(model, settings, MOVING).simulate(20.0)
    transmission = model.transmission
    current = np.linalg.solve(transmission.matrix.T, data.tau.T).T / transmission.torque_constant
    for noise, std in (
        (data.channels["tau"] - data.tau, (0.1, 0.2, 0.3)),
        (data.channels["current"] - current, (0.01, 0.02, 0.03)),
        (data.channels["dq"] - data.dq, 0.004),
    ):
        assert np.allclose(noise.std(axis=0) / std, 1.0, atol=0.03)
        assert np.all(np.abs(noise.mean(axis=0)) < 0.04 * np.asarray(std))
        assert np.all(np.abs((noise[1:] * noise[:-1]).mean(axis=0)) < 0.04 * np.asarray(std) ** 2)  # white
    assert np.allclose(transmission.joint_position(data.channels["q_motor"]), data.q, atol=1e-9)


def test_torque_stays_within_the_effort_limit() -> None:
    model = random_arm(3, 2, prismatic=0.0)
    arm = SimulatedArm(model, EXACT, MOVING)
    peak = np.abs(arm.simulate(10.0).tau).max(axis=0)
    weak = replace(model, joints=tuple(replace(j, effort=0.7 * p) for j, p in zip(model.joints, peak, strict=True)))
    tau = SimulatedArm(weak, EXACT, arm.motion).simulate(10.0).tau
    assert np.all(np.abs(tau).max(axis=0) <= 0.7 * peak * (1.0 + 1e-12))
    assert np.any(np.abs(tau).max(axis=0) > 0.699 * peak)


def test_temperature_rises_to_what_the_load_gives() -> None:
    model = single_joint("revolute", coulomb=0.1)
    settings = EXACT.model_copy(update={"thermal_time_s": 0.5, "temperature_rise_k": 30.0, "rate_hz": 200.0})
    held = replace(model, joints=(replace(model.joints[0], effort=20.0),))
    data = SimulatedArm(held, settings, AT_ZERO).simulate(6.0)
    share = (2.0 * 9.81 * 0.5 / 20.0) ** 2
    expected = 20.0 + 30.0 * share * (1.0 - np.exp(-data.t / 0.5))
    assert np.allclose(data.channels["temperature"][:, 0], expected, atol=0.02)


def test_an_event_changes_friction_from_its_time_on() -> None:
    model = random_arm(3, 4, prismatic=0.0)
    event = {"time_s": 2.0, "joint": "joint_2", "parameter": "coulomb", "factor": 1.2}
    settings = SimSettings.model_validate({**EXACT.model_dump(), "events": [event]})
    arm = SimulatedArm(model, settings, MOVING)
    data = arm.simulate(6.0)
    changed = model.dynamics.coulomb * (1.0, 1.2, 1.0)
    assert np.allclose(arm.dynamics.coulomb, changed)
    moving = np.all(np.abs(data.dq) > 1e-9, axis=1)
    early = (data.t <= 2.0) & moving
    truth = {True: model, False: replace(model, dynamics=replace(model.dynamics, coulomb=changed))}
    for before, part in ((True, early), (False, (data.t > 2.0) & moving)):
        assert np.count_nonzero(part) > 1000
        assert np.abs(residual(truth[before], data)[part]).max() < 1e-9
        assert np.abs(residual(truth[not before], data)[part]).max() > 0.1 * model.dynamics.coulomb[1]
    frames = SimulatedArm(model, settings, MOVING)
    assert np.array_equal([frames.step().tau for _ in range(3000)], data.channels["tau"][:3000])
    arm.reset()
    assert np.array_equal(arm.dynamics.coulomb, model.dynamics.coulomb)


def test_a_value_that_changes_over_a_time_follows_a_line() -> None:
    """The truth beside the line, and what the motion itself needs beside the truth of each step."""
    model = random_arm(3, 4, prismatic=0.0)
    line = {"time_s": 1.0, "joint": "*", "parameter": "coulomb", "factor": 1.5, "duration_s": 2.0}
    sudden = {"time_s": 3.0, "joint": "joint_1", "parameter": "coulomb", "value": 9.0}
    settings = SimSettings.model_validate({**EXACT.model_dump(), "events": [sudden, line]})
    arm = SimulatedArm(model, settings, MOVING)
    before, rise = model.dynamics.coulomb, 0.5 * model.dynamics.coulomb
    values = []
    for k in range(32):
        data = arm.simulate(0.1)
        values.append(arm.dynamics.coulomb)
        share = np.clip((0.1 * (k + 1) - 1.0) / 2.0, 0.0, 1.0)
        wanted = before + share * rise
        if k >= 30:
            wanted = np.append(9.0, wanted[1:])
        assert np.all(np.abs(values[-1] - wanted) <= rise * 0.1 / 2.0 + 1e-12)
        # samples up to the next step, which has a sample of its own at the end of each tenth of a second
        moving = np.all(np.abs(data.dq) > 1e-9, axis=1)
        moving[0] = False
        true = replace(model, dynamics=replace(model.dynamics, coulomb=values[-1]))
        if moving.any():
            assert np.abs(residual(true, data)[moving]).max() < 1e-9
    assert np.allclose(np.diff(np.array(values)[:, 1:], axis=0)[10:29], rise[1:] / 20.0)
    assert np.array_equal(values[-1][1:], before[1:] * 1.5)
    assert np.array_equal(model.dynamics.armature, arm.dynamics.armature)


def test_a_value_that_still_changes_cannot_begin_another_change() -> None:
    model = random_arm(2, 4, prismatic=0.0)
    events = [
        {"time_s": 1.0, "joint": "joint_2", "parameter": "viscous", "factor": 2.0, "duration_s": 5.0},
        {"time_s": 5.0, "joint": "*", "parameter": "viscous", "value": 1.0},
    ]
    with pytest.raises(ValueError, match="viscous of joint 'joint_2' still changes until 6 s"):
        SimulatedArm(model, SimSettings.model_validate({"events": events}))


def test_arms_that_cannot_be_simulated_are_refused() -> None:
    model = random_arm(2, 1)
    unphysical = np.array(model.inertial)
    unphysical[1, 0] = -50.0
    event = {"time_s": 1, "joint": "x", "parameter": "viscous", "value": 1}
    for arm, settings, message in (
        (replace(model, inertial=None), {}, "no inertial parameters"),
        (replace(model, inertial=unphysical, dynamics=None), {}, "not physical"),
        (model, {"torque_noise": (0.1,)}, "torque_noise has 1 values"),
        (replace(model, dynamics=JointDynamics(*(-np.ones((4, 2))))), {}, "armature of robot"),
        (model, {"events": [event]}, "'x' is not a joint"),
    ):
        with pytest.raises(SimulationConfigError, match=message):
            SimulatedArm(arm, SimSettings.model_validate(settings), REST)
    good = SimulatedArm(model)
    for change, message in (({}, "either factor or value"), ({"factor": -1.0}, "cannot be negative")):
        with pytest.raises(SimulationConfigError, match=message):
            good.set_dynamics(0, "coulomb", **change)
    with pytest.raises(SimulationConfigError, match="the motion has 2 joints"):
        SimulatedArm(random_arm(3, 1), motion=good.motion)


@given(n=st.integers(1, 9), seed=st.integers(0, 10_000), prismatic=st.sampled_from([0.0, 0.4, 1.0]))
def test_equal_to_pinocchio_on_random_arms(n: int, seed: int, prismatic: float) -> None:
    model = random_arm(n, seed, prismatic=prismatic)
    oracle = twin(model)
    data = oracle.createData()
    q, dq, tau = np.random.default_rng(seed).uniform(-3.0, 3.0, (3, 4, n))
    mass, bias = equations_of_motion(model.geometry, model.gravity, model.inertial, q, dq)
    ddq = np.linalg.solve(mass, (tau - bias)[..., None])[..., 0]
    for k in range(4):
        M = pin.crba(oracle, data, q[k])
        M = np.triu(M) + np.triu(M, 1).T
        assert np.allclose(mass[k], M, rtol=0, atol=1e-12 * np.abs(M).max())
        b = pin.nle(oracle, data, q[k], dq[k])
        assert np.allclose(bias[k], b, rtol=0, atol=1e-11 * max(1.0, np.abs(b).max()))
        a = pin.aba(oracle, data, q[k], dq[k], tau[k])
        assert np.allclose(ddq[k], a, rtol=0, atol=1e-13 * np.linalg.cond(M) * max(1.0, np.abs(a).max()))


@given(n=st.integers(1, 12), seed=st.integers(0, 1000))
def test_definite_solver_equals_numpy_and_reads_the_lower_triangle_only(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n, n))
    matrix = root @ root.T + 0.1 * np.eye(n)
    right = rng.normal(size=n)
    x, lower = right.copy(), np.tril(matrix) + np.triu(np.full((n, n), np.nan), 1)
    assert solve_definite(lower, x)
    assert np.allclose(matrix @ x, right, atol=1e-8 * np.abs(right).max())


def test_definite_solver_refuses_what_is_not_definite() -> None:
    assert not solve_definite(np.array([[1.0, 2.0], [2.0, 1.0]]), np.ones(2))
    assert not solve_definite(np.array([[np.nan]]), np.ones(1))
