"""The online estimate of an elastic joint is never surer than its rows: start, range seen, bad frames, gaps, rates."""

from dataclasses import replace

import numpy as np
import pytest

from rt_core.elastic.rows import Drive
from rt_core.online.elastic import Deflection, DeflectionErrors, ElasticJointEstimator, ElasticOnlineSettings, follow
from tests.lab.arms.harmonic_drive import RATE, TRUTH, N, measured, one_after_the_other, record
from tests.lab.arms.online_joint import WRONG, make, report, take, twice


def test_stiffness_below_zero_within_the_range_seen_is_not_valid() -> None:
    clean = record(None, k2=0.0)
    k2 = -1.5 * TRUTH["k1"] / (3.0 * float(np.abs(clean.d).max()) ** 2)
    more = k2 * clean.d**3
    spoilt = replace(clean, motor_torque=clean.motor_torque + more / N, sensor_torque=clean.sensor_torque + more)
    r, estimator = measured(one_after_the_other(spoilt, spoilt), 30), make()
    history = follow(estimator, r.t, r.theta_in, r.theta_out, r.motor_torque, r.sensor_torque)
    said = estimator.report()
    assert estimator.theta[0] > 0.0
    assert not said.valid
    assert "within the range seen" in said.reason
    assert {p.status for p in said.parameters} <= {"doubtful", "undetermined"}
    assert not history.determined[-1].any()
    assert report(make(), twice(30)).valid  # a spring that stiffens has none


def test_one_speed_does_not_tell_viscous_from_coulomb() -> None:
    """With noise: what the start adds to the information keeps columns apart, but is no data."""
    r = measured(record(None, speeds=(0.04,), hold=2.0), 33, noise=(0.2, 15.0))
    said = report(ElasticJointEstimator(Drive(N), WRONG, RATE, deflection=Deflection(errors=DeflectionErrors())), r)
    for name, other in (("b_in", "b_inD"), ("b_inD", "b_in"), ("b_out", "b_outC"), ("b_outC", "b_out")):
        p = said[name]
        assert (p.value, p.std, p.lower, p.upper, p.status) == (None, None, None, None, "undetermined")
        assert "cannot be separated from" in p.reason
        assert other in p.reason
        assert not said.excited[list(WRONG).index(name)]


@pytest.mark.parametrize(("name", "size"), [("b_outC", 1e-3), ("k2", 1e7)])
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
    said = report(make(), replace(r, theta_out=link))
    assert (said.masked, said.rejected) == (3, 0)
    assert said["k1"].value == pytest.approx(TRUTH["k1"], rel=0.02)
    link = r.theta_out.copy()
    link[20_000:] += 0.5  # the encoder has a new zero: nothing is left out for ever, and nothing fits
    said = report(make(), replace(r, theta_out=link))
    assert 0 < said.masked < 20
    assert not said.valid


def test_frames_at_another_rate_are_not_valid() -> None:
    r, estimator = twice(41), make(rate_hz=1.03 * RATE)
    said = report(estimator, r)
    assert not said.valid
    assert "frames come every 0.002 s" in said.reason


def test_masked_frames_and_gaps_end_what_the_last_seconds_told() -> None:
    """A guided arm, or a dead encoder: the values stay, and nothing excites them any longer."""
    r, settings = twice(45), ElasticOnlineSettings(excitation_s=22.0)
    estimator, whole = make(settings=settings), make(settings=settings)
    take(estimator, r)
    before = estimator.report()
    assert all(before.excited)
    t = r.t[-1] + np.arange(1, round(44.0 * RATE) + 1) / RATE
    nothing = np.full(t.size, np.nan)
    estimator.take(t, nothing, nothing, nothing, nothing)
    after = estimator.report()
    assert not any(after.excited)
    assert after.parameters == before.parameters
    assert after.masked == before.masked + t.size
    # From here on it goes on as after a pause without frames, which ends it as well.
    take(whole, r)
    later = replace(r, t=r.t + 1000.0)
    take(whole, later, slice(0, 10))
    assert not any(whole.report().excited)
    take(estimator, later, slice(0, 10))
    take(estimator, later)
    take(whole, later)
    np.testing.assert_array_equal(estimator.theta, whole.theta)
    assert estimator.report().excited == whole.report().excited
