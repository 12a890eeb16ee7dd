"""Margins and excesses against brute force, prior torque against the simulated arm, tip against the link frames."""

from dataclasses import replace

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.excitation.constraints import Constraints, Margin, PriorTorque
from rt_core.excitation.design import Designer
from rt_core.excitation.errors import ExcitationError
from rt_core.excitation.fourier import Basis, FourierSeries
from rt_core.excitation.limits import Limits
from rt_core.excitation.settings import ExcitationSettings
from rt_core.model.base import random_states
from rt_core.model.frames import link_poses
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray
from sim_backend.arm.trajectory import motor_torque
from tests.lab.arms.excitation import arm, joint, series_on, three, two


def constraints(model: RobotModel, **settings: object) -> Constraints:
    asked = ExcitationSettings(**settings)  # type: ignore[arg-type]
    return Constraints(model, Limits.of(model, asked), asked)


def some_series(n: int, seed: int = 0, size: float = 0.3) -> FourierSeries:
    rng = np.random.default_rng(seed)
    return FourierSeries(0.2, 0.2 * rng.normal(size=n), *(size * rng.normal(size=(2, n, 4))))


def by_place(margins: tuple[Margin, ...]) -> dict[tuple[str, str], Margin]:
    return {(m.where, m.quantity): m for m in margins}


def test_limits_of_a_robot_and_the_share_that_may_be_used() -> None:
    model = arm(joint("given"), joint("open", lower=-np.inf, upper=np.inf, velocity=np.inf, effort=np.inf))
    limits = Limits.of(model, ExcitationSettings(position_fraction=0.5, velocity_fraction=0.4, effort_fraction=0.1))
    np.testing.assert_allclose(limits.lower, [-1.125, -np.pi / 4])  # half of -2 .. 1.5 about -0.25
    np.testing.assert_allclose(limits.upper, [0.625, np.pi / 4])
    np.testing.assert_allclose(limits.velocity, [0.8, 0.8])
    np.testing.assert_allclose(limits.acceleration, [8.0, 8.0])  # 0.8 of five times 2 rad/s a second
    np.testing.assert_array_equal(limits.effort, [15.0, np.inf])
    np.testing.assert_array_equal(limits.assumed["position"], [False, True])
    np.testing.assert_array_equal(limits.assumed["velocity"], [False, True])
    np.testing.assert_array_equal(limits.assumed["acceleration"], [True, True])


@pytest.mark.parametrize("sides", [(-np.inf, 1.0), (1.0, np.inf)])
def test_half_open_positions_keep_the_side_that_is_given(sides: tuple[float, float]) -> None:
    limits = Limits.of(arm(joint("half", lower=sides[0], upper=sides[1])), ExcitationSettings(position_fraction=1.0))
    assert limits.upper[0] - limits.lower[0] == pytest.approx(np.pi)
    assert 1.0 in (limits.lower[0], limits.upper[0])


def test_limits_that_leave_nothing_or_do_not_fit() -> None:
    for change, what in (
        ({"lower": 1.0, "upper": 1.0}, "'wrong': lower limit 1 is not below"),
        ({"velocity": 0.0}, "'wrong': velocity limit 0"),
        ({"velocity": 1e308}, "'wrong': acceleration limit inf"),
        ({"effort": 0.0}, "'wrong': effort limit 0"),
    ):
        with pytest.raises(ExcitationError, match=what):
            Limits.of(arm(joint("right"), joint("wrong", **change)), ExcitationSettings())
    with pytest.raises(ExcitationError, match=r"1 values.*2 joints"):
        Limits.of(two(), ExcitationSettings(acceleration=(1.0,)))
    with pytest.raises(ExcitationError, match="no link parameters"):
        PriorTorque(replace(two(), inertial=None))


@pytest.mark.parametrize("name", ["space6_stribeck", "staubli_tx40"])
def test_prior_torque_is_that_of_the_simulated_arm(name: str) -> None:
    model = load_robot(name).model
    states = random_states(model, 50, seed=4)
    np.testing.assert_allclose(
        PriorTorque(model)(states), motor_torque(model, model.inertial, *states), rtol=1e-9, atol=1e-9
    )


def test_margins_against_brute_force() -> None:
    """Extremes of 40 000 samples are reached, and hardly more than they."""
    model = three()
    box = ((-2.0, 2.0), (-2.0, 2.0), (-1.0, 2.0))
    held = constraints(model, workspace=box, f_avoid_hz=1.0, f0_hz=0.2, harmonics=4)
    series = some_series(3)
    q, dq, ddq = series_on(series.as_dict(), np.linspace(0.0, 5.0, 40_001))
    tau = np.concatenate([motor_torque(model, model.inertial, *(s[k::8] for s in (q, dq, ddq))) for k in range(8)])
    tip = np.array([link_poses(model, row)[-1] @ np.append(model.tip_translation, 1.0) for row in q[::20]])[:, :3]
    found = by_place(held.margins(series))
    assert len(found) == 3 * 5 + 6 + 1
    for i, one in enumerate(model.joints):
        for quantity, peak in (
            ("lower", -q[:, i].min()), ("upper", q[:, i].max()), ("velocity", np.abs(dq[:, i]).max()),
            ("acceleration", np.abs(ddq[:, i]).max()), ("effort", np.abs(tau[:, i]).max()),
        ):  # fmt: skip
            margin = found[one.name, quantity]
            reached = -margin.reached if quantity == "lower" else margin.reached
            assert peak * (1 - 1e-3 * (quantity == "effort")) <= reached + 1e-12
            assert reached == pytest.approx(peak, rel=2e-3)
            if quantity not in ("lower", "upper"):
                assert margin.share == pytest.approx(1.0 - margin.reached / margin.allowed)
        low, high = found[one.name, "lower"], found[one.name, "upper"]
        half = 0.5 * (high.allowed - low.allowed)
        assert low.share == pytest.approx((low.reached - low.allowed) / half)
        assert high.share == pytest.approx((high.allowed - high.reached) / half)
    for k, axis in enumerate("xyz"):
        assert found[f"tip {axis}", "lower"].reached == pytest.approx(tip[:, k].min(), abs=1e-3)
        assert found[f"tip {axis}", "upper"].reached == pytest.approx(tip[:, k].max(), abs=1e-3)
    assert found["series", "frequency"].share == pytest.approx(0.2)


def peak_torque(model: RobotModel, series: FourierSeries) -> FloatArray:
    """Largest torque at 20 000 samples of a period, 2000 times denser where a joint turns round."""
    plain = series.as_dict()
    t = np.linspace(0.0, series.period_s, 20_001)
    sign = np.signbit(series_on(plain, t)[1])
    turns = np.unique(np.nonzero(sign[1:] != sign[:-1])[0])
    times = np.concatenate([t, *(np.linspace(t[k], t[k + 1], 2001) for k in turns)])
    parts = (motor_torque(model, model.inertial, *series_on(plain, part)) for part in np.array_split(times, 10))
    return np.asarray(np.max([np.abs(tau).max(axis=0) for tau in parts], axis=0))


def test_a_narrow_stribeck_peak_is_found() -> None:
    """Friction that peaks below 0.001 rad/s, at reversals that the refined grid does not all look at."""
    model, f0_hz = load_robot("space6_dyn").model, 0.02
    designer = Designer(model, ExcitationSettings(f0_hz=f0_hz, harmonics=5))
    series = designer.space.series(designer._start(2))
    true = peak_torque(model, series)
    margins = by_place(designer.constraints.margins(series))
    reached = np.array([margins[one.name, "effort"].reached for one in model.joints])
    np.testing.assert_allclose(reached, true, rtol=1e-4)


def test_a_search_sees_the_peak_at_reversals_on_its_coarse_grid() -> None:
    model = load_robot("space6_dyn").model
    designer = Designer(model, ExcitationSettings(f0_hz=0.02, harmonics=5))
    series = designer.space.series(designer._start(0))
    true = peak_torque(model, series)
    grid = Basis.grid(100, 0.02, 5)
    states = grid.states(series)
    coarse = np.abs(PriorTorque(model)(states)).max(axis=0)
    i = int((true / coarse).argmax())
    assert true[i] > 1.1 * coarse[i]
    # Only that joint's effort limits the motion: just below what it takes there is an excess, just above there is none.
    for factor, exceeded in ((0.99, True), (1.05, False)):
        free = [replace(one, effort=np.inf) for one in model.joints]
        free[i] = replace(free[i], effort=float(factor * true[i]))
        held = constraints(replace(model, joints=tuple(free)), effort_fraction=1.0)
        everything_else = constraints(
            replace(model, joints=tuple(replace(one, effort=np.inf) for one in model.joints))
        ).excess(states, grid.overshoot)
        assert (held.excess(states, grid.overshoot) > everything_else) == exceeded


def test_excess_is_the_sum_of_the_relative_excesses() -> None:
    model = arm(joint("only"), inertial=None)
    held = constraints(model, position_fraction=1.0, velocity_fraction=1.0, acceleration_fraction=1.0)
    q, dq, ddq = (np.array([[a], [b]]) for a, b in ((-2.0 - 0.35, 1.5 + 0.7), (-3.0, 1.0), (0.0, 11.0)))
    # Positions relative to half of 3.5 rad, velocity to 2 rad/s, acceleration to 10 rad/s^2.
    assert held.excess((q, dq, ddq), 1.0) == pytest.approx(0.2 + 0.4 + 0.5 + 0.1)
    assert held.excess((0.1 * q, 0.1 * dq, 0.1 * ddq), 1.0) == 0.0
    assert held.excess((0.1 * q, 0.7 * dq, 0.1 * ddq), 1.01) == pytest.approx(2.1 * 1.01 / 2.0 - 1.0)


def test_excess_of_torque_and_tip() -> None:
    model = two()
    states = random_states(model, 10, seed=3)
    free = constraints(replace(model, joints=tuple(replace(one, effort=np.inf) for one in model.joints)))
    tau = np.abs(motor_torque(model, model.inertial, *states)).max(axis=0)
    tight = replace(model, joints=tuple(replace(o, effort=float(t)) for o, t in zip(model.joints, tau, strict=True)))
    before = free.excess(states, 1.0)
    # Each joint needs the whole of what it has, is allowed 80 %, and 2 % are kept for peaks between samples.
    assert constraints(tight).excess(states, 1.0) - before == pytest.approx(2 * (1.02 / 0.8 - 1.0))
    tip = np.array([link_poses(model, row)[-1] @ np.append(model.tip_translation, 1.0) for row in states[0]])[:, :3]
    box = tuple((float(low), float(high)) for low, high in zip(tip.min(axis=0), tip.max(axis=0), strict=True))
    assert constraints(free.model, workspace=box).excess(states, 1.0) == pytest.approx(before)
    x = box[0]
    narrow = ((x[0] + 0.25 * (x[1] - x[0]), x[1]), *box[1:])
    assert constraints(free.model, workspace=narrow).excess(states, 1.0) - before == pytest.approx(0.25 / 0.375)


def test_room_is_what_a_motion_can_grow_by() -> None:
    model = three()
    held = constraints(model)
    series = some_series(3, size=0.05)
    grid = Basis.grid(400, 0.2, 4)
    room = held.share_of_room(grid.states(series), grid.overshoot)
    assert (room > 1.0).all()
    at_limit = by_place(held.margins(series.shrunk(room)))
    for one in model.joints:
        shares = [at_limit[one.name, what].share for what in ("lower", "upper", "velocity", "acceleration")]
        assert -1e-9 <= min(shares) < 1e-3  # the grid is coarse enough to have to be careful


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"harmonics": 5, "f0_hz": 0.5, "f_avoid_hz": 2.0}, "above the 2 Hz.*base frequency of 0.4 Hz"),
        ({"f0_hz": float("nan")}, "f0_hz"),
        ({"f0_hz": 101.0}, "f0_hz must be from 0.0001 to 100 Hz"),
        ({"position_fraction": 1e-200}, "position_fraction must be from 0.001 to 1"),
        ({"velocity_fraction": 1.2}, "velocity_fraction"),
        ({"clearance_m": -0.1}, "clearance_m"),
        ({"acceleration": np.array([1.0, 0.0])}, "acceleration must be above 0 and below 1e.09 for each joint"),
        ({"slow_velocity": (1.0, None)}, "slow_velocity must be a number"),
        ({"objective": "best"}, "condition, d_optimal"),
        ({"samples": 0, "harmonics": 1, "rest": False}, "samples must be at least 4 a harmonic, 4 for 1"),
        ({"workspace": ((0.0, 1.0), (1.0, 1.0), (0.0, 1.0))}, "workspace y"),
    ],
)
def test_settings_that_are_wrong(wrong: dict[str, object], what: str) -> None:
    with pytest.raises(ExcitationError, match=what):
        ExcitationSettings(**wrong)  # type: ignore[arg-type]


def test_the_frequency_to_avoid_itself_is_allowed() -> None:
    held = constraints(two(), f0_hz=0.1, harmonics=3, f_avoid_hz=0.3)  # 3 times 0.1 is above 0.3 by rounding
    margins = held.margins(FourierSeries(0.1, np.zeros(2), np.zeros((2, 3)), np.zeros((2, 3))))
    assert by_place(margins)["series", "frequency"].share == 0.0
