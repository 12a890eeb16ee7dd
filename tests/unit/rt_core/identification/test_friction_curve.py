"""Friction curves against known friction: every law, coupled motors, filters, and where there is nothing to show."""

from dataclasses import replace

import numpy as np
import pytest

from rt_core.identification.friction_curve import FrictionCurve, friction_curve
from rt_core.identification.least_squares import Solution, compress, solve
from rt_core.identification.rows import Rows
from rt_core.identification.uncertainty import estimate_covariance
from rt_core.model.base import BaseParameters, base_parameters
from rt_core.model.friction import LAW_ARMATURE, LAW_COSINE, LAW_LINK, LAW_LOAD, LAW_SINE, Friction
from rt_core.model.parameters import standard_parameters
from rt_core.model.regressor import regressor
from rt_core.model.robot import JointDynamics, RobotModel, Transmission
from tests.lab.arms.batch import arm, motion

LAWS = {
    "coulomb_viscous": Friction(), "smooth": Friction("coulomb_viscous_offset", smoothing=0.05),
    "stribeck": Friction("stribeck"), "stribeck_even": Friction("stribeck", quadratic="even", cubic=False),
    "harmonic_drive": Friction("harmonic_drive_input", delta=1.5), "loaded_cyclic": Friction(load=True, cyclic=True),
}  # fmt: skip
NOISE = 0.3


def known_arm(friction: Friction, coupled: bool = False) -> RobotModel:
    dynamics = JointDynamics(
        armature=np.array([0.5, 0.4, 0.2]), viscous=np.array([4.0, 5.0, 2.0]), coulomb=np.array([5.0, 6.0, 3.0]),
        offset=np.array([0.3, -0.5, 0.2]), breakaway=np.array([8.0, 9.0, 6.0]),
        stribeck_velocity=np.array([0.2, 0.3, 0.15]), quadratic_friction=np.array([0.5, -0.4, 0.2]),
        cubic_friction=np.array([0.1, 0.2, 0.05]), load_friction=np.array([0.02, 0.03, 0.01]),
        tanh_torque=np.array([2.0, 1.0, 3.0]), tanh_velocity=np.array([0.4, 0.5, 0.3]),
        decaying_viscous=np.array([9.0, 7.0, 8.0]), decay_velocity=np.array([0.3, 0.4, 0.2]),
        cyclic_sine=np.array([0.5, 0.2, 0.1]), cyclic_cosine=np.array([0.1, 0.3, 0.2]),
    )  # fmt: skip
    transmission = None
    if coupled:
        matrix = np.diag([80.0, -50.0, 40.0])
        matrix[2, 1] = 60.0
        transmission = Transmission(matrix, np.zeros(3), np.ones(3))
    return replace(arm(), friction=friction, dynamics=dynamics, transmission=transmission)


def plain_friction(model: RobotModel, joint: int, v: np.ndarray) -> np.ndarray:
    """The laws as their table has them, in NumPy: what the motor of `joint` asks at its own velocity."""
    f, d, j = model.friction, model.dynamics, joint
    s = np.tanh(v / f.smoothing) if f.smoothing > 0.0 else np.sign(v)
    if f.law in ("coulomb_viscous", "coulomb_viscous_offset"):
        return np.asarray(d.coulomb[j] * s + d.viscous[j] * v)
    if f.law == "stribeck":
        decay = np.exp(-((v / d.stribeck_velocity[j]) ** 2))
        out = (d.coulomb[j] + (d.breakaway[j] - d.coulomb[j]) * decay) * s + d.viscous[j] * v
        out += d.quadratic_friction[j] * {"even": v**2, "odd": v * np.abs(v), "none": 0.0 * v}[f.quadratic]
        return np.asarray(out + (d.cubic_friction[j] * v**3 if f.cubic else 0.0))
    assert f.law == "harmonic_drive_input"
    out = d.viscous[j] * v + d.tanh_torque[j] * np.tanh(v / d.tanh_velocity[j]) + d.coulomb[j] * s
    return np.asarray(out + d.decaying_viscous[j] * v * np.exp(-(np.abs(v / d.decay_velocity[j]) ** f.delta)))


def true_friction(model: RobotModel, joint: int, v: np.ndarray) -> np.ndarray:
    """What `joint` feels while the others stand still, offset included."""
    total = np.full(v.shape, model.dynamics.offset[joint])
    for motor in range(model.n):
        weight = model.coupling[motor, joint]
        if weight != 0.0:
            total += weight * plain_friction(model, motor, weight * v)
    return total


def unfiltered(model: RobotModel, base: BaseParameters, seed: int, noise: float = NOISE, seconds: float = 20.0) -> Rows:
    """Rows at 100 Hz that no filter has passed, of a rich motion with white noise on the torque."""
    states = motion(arm(), seconds, 100.0, seed)
    q, dq, ddq = states.q, states.dq, states.ddq
    rng = np.random.default_rng(seed)
    load = 20.0 * rng.standard_normal(q.shape)
    Y = regressor(model, base.layout, q, dq, ddq, load=load)
    tau = Y @ base.theta(standard_parameters(model, base.standard)) + noise * rng.standard_normal(q.shape)
    use = np.abs(dq) > 0.02
    piece = np.zeros(q.shape[0], dtype=np.int64)
    return Rows(states.t, np.ascontiguousarray(Y.transpose(1, 2, 0)), q, dq, ddq, tau, use, piece, 100.0, 50.0)


def curve_of(model: RobotModel, base: BaseParameters, rows: Rows, joint: int) -> tuple[FrictionCurve | None, Solution]:
    solution = solve(compress(rows.Y, rows.tau, rows.use), len(base), "wls")
    covariance = estimate_covariance(rows, solution).covariance
    return friction_curve(model, base, rows, solution.theta, covariance, solution.supported, joint), solution


def recorded(friction: Friction, seed: int, coupled: bool = False) -> tuple[RobotModel, BaseParameters, Rows]:
    model = known_arm(friction, coupled)
    base = base_parameters(model)
    return model, base, unfiltered(model, base, seed)


@pytest.mark.parametrize("law", LAWS)
def test_truth_lies_within_the_band(law: str) -> None:
    model, base, rows = recorded(LAWS[law], 3)
    inside = []
    for joint in range(model.n):
        curve, solution = curve_of(model, base, rows, joint)
        assert not curve.coupled
        on = np.isfinite(curve.grid)
        truth = true_friction(model, joint, curve.grid[on])
        std = (curve.upper - curve.fitted)[on] / 1.96
        z = (curve.fitted[on] - truth) / std
        assert np.abs(z).max() < 4.0
        inside.append(np.mean(np.abs(z) < 1.96))
        assert std.max() < 0.3 * np.abs(truth).max()  # a band that says something
        np.testing.assert_allclose(curve.fitted - curve.lower, curve.upper - curve.fitted, rtol=1e-9, atol=1e-12)
        # the points are the torque less what all other columns explain
        use = rows.use[:, joint]
        other = np.isin(base.layout.law, (LAW_LINK, LAW_ARMATURE, LAW_LOAD, LAW_SINE, LAW_COSINE))
        explained = rows.Y[joint][other][:, use].T @ solution.theta[other]
        np.testing.assert_allclose(curve.torque, rows.tau[use, joint] - explained, atol=1e-9)
        np.testing.assert_array_equal(curve.velocity, rows.dq[use, joint])
    assert np.mean(inside) > 0.7


def test_a_coupled_motor_shows_at_both_joints() -> None:
    model, base, rows = recorded(Friction(), 4, coupled=True)
    curves = [curve_of(model, base, rows, joint)[0] for joint in range(3)]
    assert [curve.coupled for curve in curves] == [False, True, True]
    for joint, curve in enumerate(curves):
        on = np.isfinite(curve.grid)
        truth = true_friction(model, joint, curve.grid[on])
        half = (curve.upper - curve.fitted)[on]
        assert (np.abs(curve.fitted[on] - truth) < 2.0 * half).all()
        residual = curve.torque - true_friction(model, joint, curve.velocity)
        assert np.std(residual) == pytest.approx(NOISE, rel=0.15)


def test_curve_stays_within_the_velocities_seen() -> None:
    model, base, rows = recorded(Friction(), 6)
    for joint in range(3):
        curve = curve_of(model, base, rows, joint)[0]
        assert np.isnan(curve.grid).sum() == 1
        grid = curve.grid[np.isfinite(curve.grid)]
        assert (np.diff(grid) > 0.0).all()
        assert grid[0] == pytest.approx(curve.velocity.min())
        assert grid[-1] == pytest.approx(curve.velocity.max())
        smallest = max(np.abs(curve.velocity).min(), model.standstill_velocity[joint])
        assert np.abs(grid).min() >= smallest - 1e-12


def test_one_direction_only() -> None:
    model = replace(known_arm(Friction()), offset=False)
    base = base_parameters(model)
    rows = unfiltered(model, base, 6)
    curve = curve_of(model, base, replace(rows, use=rows.use & (rows.dq > 0.0)), 0)[0]
    assert np.isfinite(curve.grid).all()
    assert curve.grid[0] > 0.0
    # one way, Coulomb friction and offset cannot be told apart: nothing is shown rather than a guess
    model, base, rows = recorded(Friction(), 6)
    assert curve_of(model, base, replace(rows, use=rows.use & (rows.dq > 0.0)), 0)[0] is None


def test_nothing_to_show() -> None:
    assert curve_of(*recorded(Friction("none"), 1), 0)[0] is None
    model, base, rows = recorded(Friction(), 1)
    still = replace(rows, use=rows.use & np.array([False, True, True]))
    assert curve_of(model, base, still, 0)[0] is None
    _, solution = curve_of(model, base, rows, 0)
    supported = solution.supported.copy()
    supported[base.names.index("fc2")] = False
    covariance = np.eye(len(base))
    assert friction_curve(model, base, rows, solution.theta, covariance, supported, 1) is None
    assert friction_curve(model, base, rows, solution.theta, covariance, supported, 0) is not None


def test_an_uncertain_velocity_constant_widens_the_band() -> None:
    model, base, rows = recorded(LAWS["stribeck"], 7)
    theta = base.theta(standard_parameters(model, base.standard))
    p = len(base)
    covariance = np.zeros((p + 2, p + 2))
    covariance[p, p], covariance[p + 1, p + 1] = 0.1**2, np.inf
    known = np.ones(p, dtype=bool)
    curve = friction_curve(model, base, rows, theta, covariance, known, 1, ("vb2", "vb1"))
    on = np.isfinite(curve.grid)
    x = curve.grid[on] / model.dynamics.stribeck_velocity[1]
    slope = (model.dynamics.breakaway[1] - model.dynamics.coulomb[1]) * 2.0 * x**2 * np.exp(-(x**2))
    np.testing.assert_allclose((curve.upper - curve.fitted)[on], 1.959964 * 0.1 * slope, rtol=1e-5, atol=1e-9)
