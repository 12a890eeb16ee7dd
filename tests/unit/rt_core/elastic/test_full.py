"""All friction of a harmonic drive, by speed and by angle, and the hysteresis that spring and friction leave."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from rt_core.elastic.hysteresis import hysteresis
from rt_core.elastic.identify import ElasticFit, identify_elastic_joint
from rt_core.elastic.problem import SHAPED, JointProblem, Terms
from rt_core.elastic.rows import Drive, elastic_rows
from rt_core.identification.preprocess import DataError
from tests.lab.arms.harmonic_drive import (
    J_IN,
    J_OUT,
    MORE,
    RATE,
    SETTINGS,
    TRUTH,
    N,
    Recorded,
    measured,
    open_parameters,
    record,
)

#: From 2 to 87 rad/s on the motor's side, through 1.6 rad of the link's.
SPEEDS = tuple(float(v) for v in np.geomspace(0.007, 0.3, 10))
LOADS = (100.0, 400.0, 700.0)
LAG, ZERO = 1.5e-3, 1e-4
ALL = TRUTH | MORE | {"lag": LAG, "zero": ZERO}


def driven(seed: int | None, more: dict[str, float] | None = None, **experiment: object) -> Recorded:
    plan: dict[str, object] = {"speeds": SPEEDS, "loads": LOADS, "hold": 1.5, "lag": LAG, "zero": ZERO}
    items = tuple((MORE | (more or {})).items())
    return record(seed, **(plan | {"more": items, "there_and_back": True} | experiment))  # type: ignore[arg-type]


@cache
def found(seed: int) -> ElasticFit:
    return identify_elastic_joint([driven(seed).rows()], "full").answer


def held(fit: ElasticFit, truth: dict[str, float]) -> dict[str, bool]:
    """Whether the interval of each parameter that has one holds the truth."""
    inside = {}
    for p in fit.parameters:
        if p.value is not None:
            assert p.lower < p.value < p.upper, p
            inside[p.name] = p.lower < truth[p.name] < p.upper
    return inside


def test_columns_are_the_derivatives_of_the_torques() -> None:
    rows = driven(None, speeds=(0.01, 0.1), loads=(300.0,), hold=0.6).rows()
    problem = JointProblem([rows], Terms("both", "full"))
    x = np.array([ALL[name] for name in problem.names])
    _, J, _ = problem.evaluate(x)
    for k, name in enumerate(problem.names):
        if name == "lag":  # what it makes of friction on the link's side is left out
            continue
        step = np.zeros(x.size)
        step[k] = 1e-5 * max(abs(x[k]), 1e-4)
        up, down = (problem.evaluate(x + s * step)[0] for s in (1.0, -1.0))
        change = (up - down) / (2.0 * step[k])
        np.testing.assert_allclose(J[:, k], change, rtol=0, atol=1e-6 * np.abs(change).max(), err_msg=name)


def test_all_friction_is_recovered() -> None:
    fit = found(0)
    assert fit.verdict == "ok", fit.reasons
    assert fit.rows == "both"
    assert {p.name for p in fit.parameters} == set(ALL)
    assert {p.status for p in fit.parameters} == {"determined"}
    assert all(held(fit, ALL).values()), held(fit, ALL)
    for name, rel in (("k1", 0.01), ("k2", 0.01), ("b_in", 0.02), ("C2", 0.03), ("omega_s", 0.02), ("b_out", 0.02)):
        assert fit[name].value == pytest.approx(ALL[name], rel=rel), name


def test_intervals_hold_the_truth() -> None:
    inside = [held(found(seed), ALL) for seed in range(3)]
    assert all(set(each) == set(ALL) for each in inside)
    assert np.mean([list(each.values()) for each in inside]) >= 0.9, inside


def test_given_constants_are_kept_and_sharpen_the_rest() -> None:
    free, constants = found(0), {name: MORE[name] for name in ("omega1", "omega_s")}
    given = identify_elastic_joint([driven(0).rows()], "full", **constants).answer
    assert given.verdict == "ok"
    assert {p.name for p in given.parameters} == set(ALL) - {"omega1", "omega_s"}
    assert all(held(given, ALL).values())
    for name in ("C1", "b_inD", "C2"):
        ours, theirs = given[name].std, free[name].std
        assert ours < theirs, name


def test_tanh_is_not_told_from_coulomb_friction_far_above_its_constant() -> None:
    rows = driven(1, {"omega1": 0.05}).rows()
    known = identify_elastic_joint([rows], "full", omega1=0.05).answer
    given = open_parameters(known)
    assert set(given) == {"C1", "b_inD"}
    assert "b_inD" in given["C1"]
    assert "C1" in given["b_inD"]
    assert "the motor's speeds are 2." in given["C1"]
    fit = identify_elastic_joint([rows], "full").answer
    free = open_parameters(fit)
    # where tanh is a sign nothing tells that it is one, and not far on its way to a straight line
    assert {"omega1", "C1", "b_inD"} <= set(free) <= {"omega1", "C1", "b_inD", "b_in", "C2"}
    assert "omega1 is undetermined" in free["C1"]
    assert "rad/s" in free["omega1"]
    assert fit.verdict == "partly_determined"
    assert all(held(fit, ALL).values())
    assert all(held(known, ALL).values())
    assert known["C2"].value == pytest.approx(MORE["C2"], rel=0.05)


def test_friction_that_is_not_there_is_open() -> None:
    fit = identify_elastic_joint([driven(3, {"C1": 0.0, "C2": 0.0}).rows()], "full").answer
    open_ = open_parameters(fit)
    assert {"omega1", "omega_s", "C1", "C2"} <= set(open_)
    assert "does not show" in open_["omega1"]
    assert "does not show" in open_["omega_s"]
    assert all(held(fit, ALL).values())


def test_cyclic_friction_needs_angle() -> None:
    """Over 0.1 rad it is a constant and a slope, which an offset of the sensor and much else may be."""
    rows = driven(4, speeds=tuple(v / 12.0 for v in SPEEDS), begin=0.8).rows()
    fit = identify_elastic_joint([rows], "full", omega1=MORE["omega1"], omega_s=MORE["omega_s"]).answer
    open_ = open_parameters(fit)
    assert {"A1", "A2"} <= set(open_)
    for name in ("A1", "A2"):
        assert "an offset of the torque" in open_[name]
        assert "rad only" in open_[name]


@pytest.mark.parametrize("given", [{"omega1": 1e-6}, {"omega_s": 1e-6}, {"omega1": 1e6, "omega_s": 1e6}])
def test_constants_far_from_all_speeds_and_a_motor_that_stands(given: dict[str, float]) -> None:
    """Rows from standstill on, where nothing bounds the range of the constants from below."""
    r = driven(9, speeds=(0.02, 0.1), loads=(100.0, 300.0, 500.0), hold=0.6)
    rows = elastic_rows(
        r.t, r.theta_in, r.theta_out, r.motor_torque, Drive(N, J_IN), SETTINGS, sensor_torque=r.sensor_torque,
        min_velocity=0.0,
    )  # fmt: skip
    open_ = open_parameters(identify_elastic_joint([rows], "full", **given).answer)
    assert {SHAPED[name] for name in given} <= set(open_)


def test_constants_are_of_this_stage() -> None:
    rows = driven(0).rows()
    with pytest.raises(DataError, match="omega1 is of stage full"):
        identify_elastic_joint([rows], "viscous", omega1=1.0)
    with pytest.raises(DataError, match="omega_s 0 rad/s: from"):
        identify_elastic_joint([rows], "full", omega_s=0.0)


def hanging(half_width: float, rate_hz: float) -> Recorded:
    """A load that swings within 0.9 rad of hanging: the deflection grows just while the joint goes one way."""
    t = np.arange(0.0, 2.0 / rate_hz, 1.0 / RATE)
    q = 0.9 * np.sin(2.0 * np.pi * rate_hz * t)
    v = np.gradient(q, 1.0 / RATE)
    sign = np.tanh(v / 1e-3)
    sensor = 700.0 * np.sin(q) + J_OUT * np.gradient(v, 1.0 / RATE)
    torque = sensor + TRUTH["b_out"] * v + TRUTH["b_outC"] * sign
    d = (torque - half_width * np.tanh(np.gradient(torque, 1.0 / RATE))) / TRUTH["k1"]
    angle = N * (q + d)
    speed = np.gradient(angle, 1.0 / RATE)
    motor = J_IN * np.gradient(speed, 1.0 / RATE) + torque / N + TRUTH["b_in"] * speed + TRUTH["b_inD"] * sign
    return measured(Recorded(t, angle, q, motor, sensor, d, v, np.ones(t.size, dtype=np.bool_), TRUTH), 3)


def test_a_loop_that_goes_with_the_sign_of_the_speed_is_not_told_from_coulomb_friction() -> None:
    answer = identify_elastic_joint([hanging(20.0, 0.02).rows(inertia=J_IN)], cubic=False, lag_s=0.0).answer
    assert answer.fit.value("b_outC") < TRUTH["b_outC"] - 10.0  # that is where it is
    assert hysteresis(answer.fit) == (None, None)


@pytest.mark.parametrize("half_width", [0.0, 20.0])
def test_a_loop_that_goes_in_part_with_the_speed_is_told_whole(half_width: float) -> None:
    """Viscous friction shifts the deflection against the speed, and where they differ the loop shows."""
    fit = identify_elastic_joint([hanging(half_width, 0.05).rows(inertia=J_IN)], cubic=False, lag_s=0.0).answer.fit
    for loop in hysteresis(fit):
        assert loop.std < 0.2 * 20.0
        assert abs(loop.half_width - half_width) < 3.0 * loop.std


def test_a_deflection_that_goes_one_way_tells_no_loop() -> None:
    fit = identify_elastic_joint([record(5).rows(inertia=J_IN)]).answer.fit
    one_way = replace(fit, deflection=np.linspace(0.0, 1e-3, fit.deflection.size))
    assert hysteresis(one_way) == (None, None)
