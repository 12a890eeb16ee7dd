"""The online estimate of an elastic joint is never surer than its rows: start, range seen, bad frames, gaps, rates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rt_core.elastic.rows import Drive
from rt_core.online.elastic import DeflectionErrors, ElasticJointEstimator, ElasticOnlineSettings, follow
from rt_core.online.elastic import _layout as m
from tests.lab.arms.harmonic_drive import RATE, TRUTH, N, Recorded, measured, one_after_the_other, record
from tests.lab.arms.online_joint import WRONG, make, report, take, twice


def overstretched(seed: int) -> Recorded:
    clean = record(None, k2=0.0)
    k2 = -1.5 * TRUTH["k1"] / (3.0 * float(np.abs(clean.d).max()) ** 2)
    more = k2 * clean.d**3
    spoilt = replace(clean, motor_torque=clean.motor_torque + more / N, sensor_torque=clean.sensor_torque + more)
    return measured(one_after_the_other(spoilt, spoilt), seed)


def test_stiffness_below_zero_within_the_range_seen_is_not_valid() -> None:
    r, estimator = overstretched(30), make()
    history = follow(estimator, r.t, r.theta_in, r.theta_out, r.motor_torque, r.sensor_torque)
    said = estimator.report()
    assert estimator.theta[0] > 0.0
    assert not said.valid
    assert "within the range seen" in said.reason
    assert {p.status for p in said.parameters} <= {"doubtful", "undetermined"}
    assert not history.determined[-1].any()
    assert report(make(), twice(30)).valid  # a spring that stiffens has none


def test_without_an_off_line_fit_errors_of_the_deflection_are_open() -> None:
    said = report(make(errors=None), twice(32))
    assert said.valid
    assert {p.status for p in said.parameters} == {"doubtful"}


@pytest.mark.parametrize("spread", [0.1, 1.0])
def test_start_does_not_tell_viscous_from_coulomb(spread: float) -> None:
    """At one speed, with noise: what the start adds to the information keeps columns apart, but is no data."""
    r = measured(record(None, speeds=(0.04,), hold=2.0), 33, noise=(0.2, 15.0))
    settings = ElasticOnlineSettings(start_spread=spread)
    said = report(ElasticJointEstimator(Drive(N), WRONG, RATE, settings, errors=DeflectionErrors()), r)
    for name in ("b_in", "b_inD", "b_out", "b_outC"):
        assert said[name].status == "undetermined", name
        assert "cannot be told from" in said[name].reason, name


@pytest.mark.parametrize(("name", "size"), [("b_outC", 1e-3), ("b_in", 1e-6), ("b_inD", 1e-5), ("k2", 1e7)])
def test_start_next_to_zero_holds_nothing_there(name: str, size: float) -> None:
    said = report(make(TRUTH | {name: size}), twice(34))
    if name == "k2":  # without it the spring is another one, and does not explain the torque
        assert not said.valid
        return
    assert said.valid
    assert said[name].value is None
    assert "mostly the start's" in said[name].reason
    told = [p for p in said.parameters if p.value is not None]
    assert len(told) == len(TRUTH) - 1, [p for p in said.parameters if p.value is None]
    for p in told:
        half = 0.5 * (p.upper - p.lower)
        assert abs(0.5 * (p.upper + p.lower) - TRUTH[p.name]) < 2.0 * half, p


def test_start_is_not_counted_as_data() -> None:
    """A narrow start far off: the stated spread is that of the rows, and the interval reaches what they tell."""
    start = TRUTH | {"b_outC": 1.5 * TRUTH["b_outC"]}
    r = measured(record(None), 35, noise=(0.2, 15.0))
    narrow, wide = (make(start, RATE, ElasticOnlineSettings(start_spread=spread)) for spread in (0.02, 1.0))
    take(narrow, r)
    take(wide, r)
    said, free = narrow.report()["b_outC"], wide.report()["b_outC"]
    assert said.value is not None, said.reason
    assert said.std > 0.5 * free.std
    assert said.lower < TRUTH["b_outC"] + 2.0 * free.std


def test_torque_spike_does_not_count() -> None:
    r = twice(36)
    torque = r.motor_torque.copy()
    torque[20_000] += 2e3
    said = report(make(), replace(r, motor_torque=torque))
    assert said.rejected > 10
    for name in ("k1", "k2", "b_in"):
        p = said[name]
        assert p.value == pytest.approx(TRUTH[name], abs=4.0 * p.std)


@pytest.mark.parametrize("cutoff", [4.0, 10.0])
def test_two_wrong_angles_close_together_do_not_count(cutoff: float) -> None:
    r = twice(37)
    link = r.theta_out.copy()
    link[[20_000, 20_000 + round(0.35 * RATE * 10.0 / cutoff)]] += 0.5
    estimator = make(settings=ElasticOnlineSettings(cutoff_hz=cutoff, top_velocity=1e3))
    said = report(estimator, replace(r, theta_out=link))
    assert said.rejected > 0
    # of what its tails in the filters do the limit, which is the torque itself, lets some pass
    assert said["k1"].value == pytest.approx(TRUTH["k1"], rel=0.02 if cutoff == 10.0 else 0.15)
    assert {p.status for p in said.parameters} <= {"doubtful", "undetermined"}


def test_angle_that_jumps_further_than_a_joint_turns_is_left_out() -> None:
    r = twice(38)
    link = r.theta_out.copy()
    link[20_000:20_003] += 0.5
    estimator = make()
    said = report(estimator, replace(r, theta_out=link))
    assert (said.masked, said.rejected) == (3, 0)
    assert said["k1"].value == pytest.approx(TRUTH["k1"], rel=0.02)
    link = r.theta_out.copy()
    link[20_000:] += 0.5  # the encoder has a new zero: nothing is left out for ever, and nothing fits
    estimator = make()
    said = report(estimator, replace(r, theta_out=link))
    assert 0 < said.masked < 20
    assert not said.valid


def test_one_wrong_motor_angle_does_not_end_the_rule_of_constant_speed() -> None:
    start = {name: WRONG[name] for name in ("k1", "k2", "b_in", "b_inD")}
    r = twice(39, hold=2.0)
    wrong = r.theta_in.copy()
    wrong[3000] += 0.05 * N
    clean, spoilt = (ElasticJointEstimator(Drive(N), start, RATE, errors=DeflectionErrors()) for _ in range(2))
    take(clean, r)
    take(spoilt, replace(r, theta_in=wrong))
    assert spoilt.report().updates < 1.02 * clean.report().updates


@pytest.mark.parametrize("every", [2, 4])
def test_slow_frames_are_filtered_as_fast_ones(every: int) -> None:
    """At 250 and 125 frames a second; the latter are too few for values without doubt."""
    r = twice(40)
    estimator = make(rate_hz=RATE / every)
    said = report(estimator, r, np.arange(0, r.t.size, every))
    fast = make()
    take(fast, r)
    assert estimator.delay_s == pytest.approx(fast.delay_s, rel=0.4)
    if every == 4:
        assert {p.status for p in said.parameters} <= {"doubtful", "undetermined"}
        return
    for name, true in TRUTH.items():
        p = said[name]
        assert p.value == pytest.approx(true, abs=4.0 * p.std), name


def test_frames_at_another_rate_are_not_valid() -> None:
    r, estimator = twice(41), make(rate_hz=1.03 * RATE)
    said = report(estimator, r)
    assert not said.valid
    assert "frames come every 0.002 s" in said.reason


def test_reset_forgets_all_but_the_start() -> None:
    estimator, new = make(), make()
    take(estimator, twice(42, k1=0.8 * TRUTH["k1"], k2=0.8 * TRUTH["k2"]))
    estimator.reset()
    assert not estimator.report().valid
    assert not estimator.report().changing
    r = twice(43)
    take(new, r)
    later = replace(r, t=r.t + 1000.0)
    take(estimator, later)
    np.testing.assert_allclose(estimator.theta, new.theta, rtol=1e-9)
    np.testing.assert_allclose(estimator.std, new.std, rtol=1e-9)


def test_gap_ends_what_the_last_seconds_told() -> None:
    r = twice(44)
    estimator = make(settings=ElasticOnlineSettings(excitation_s=22.0))
    take(estimator, r)
    assert all(estimator.report().excited)
    later = replace(r, t=r.t + 1000.0)
    take(estimator, later, slice(0, 10))
    assert not any(estimator.report().excited)


def masked_for(estimator: ElasticJointEstimator, r: Recorded, seconds: float) -> None:
    t = r.t[-1] + np.arange(1, round(seconds * RATE) + 1) / RATE
    nothing = np.full(t.size, np.nan)
    estimator.take(t, nothing, nothing, nothing, nothing)


def test_masked_frames_end_what_the_last_seconds_told() -> None:
    """A guided arm, or a dead encoder: the values stay, and nothing excites them any longer."""
    r, settings = twice(45), ElasticOnlineSettings(excitation_s=22.0)
    estimator, whole = make(settings=settings), make(settings=settings)
    take(estimator, r)
    before = estimator.report()
    assert all(before.excited)
    masked_for(estimator, r, 20.0)
    assert any(estimator.report().excited)  # some of it is as recent as the window is long
    masked_for(estimator, replace(r, t=r.t + 20.0), 24.0)
    after = estimator.report()
    assert not any(after.excited)
    assert after.parameters == before.parameters
    assert after.masked == before.masked + round(44.0 * RATE)
    # Nothing else has changed: from here on it goes on as after a pause without frames.
    take(whole, r)
    later = replace(r, t=r.t + 1000.0)
    take(estimator, later)
    take(whole, later)
    np.testing.assert_array_equal(estimator.theta, whole.theta)
    assert estimator.report().excited == whole.report().excited


def test_frames_that_are_bridged_age_it_once() -> None:
    """Single frames masked: the window is as long as with all of them."""
    r, settings = twice(46), ElasticOnlineSettings(excitation_s=22.0)
    spoilt, whole = make(settings=settings), make(settings=settings)
    torque = r.motor_torque.copy()
    torque[500::500] = np.nan
    torque[-1] = r.motor_torque[-1]
    take(whole, r)
    take(spoilt, replace(r, motor_torque=torque))
    assert spoilt.report().masked > 50
    assert spoilt._ints[m.SHORT_AGE] == whole._ints[m.SHORT_AGE]
