"""The online estimate of an elastic joint: truth found from wrong values, what is unknown said, nothing winds up."""

from dataclasses import replace
from math import exp

import numpy as np
import pytest

from rt_core.elastic.rows import Drive
from rt_core.online._state import padded
from rt_core.online.elastic import Deflection, ElasticJointEstimator, ElasticOnlineSettings
from rt_core.online.elastic import _layout as m
from rt_core.online.elastic._filters import ahead
from rt_core.online.elastic.update import forgetting, update
from rt_core.online.rls import noise
from rt_core.types import FloatArray
from tests.lab.arms.harmonic_drive import RATE, TRUTH, N, record
from tests.lab.arms.online_joint import WRONG, make, report, take, twice
from tests.lab.arms.poor_motion import one_speed, standing

MOTOR = ("k1", "k2", "b_in", "b_inD")


def test_forgetting_factor_is_equation_44() -> None:
    for e in np.linspace(0.0, 3.0, 61):
        assert forgetting(e * e, 0.05, -4.68) == pytest.approx(0.95 + 0.05 * exp(-4.68 * e**2), rel=1e-14)
    assert forgetting(0.0, 0.05, -4.68) == 1.0
    estimator, r = make(), record(1)
    for start in range(0, 9000, 300):
        take(estimator, r, slice(start, start + 300))
        said = estimator.report()
        if said.updates:
            assert said.lam == pytest.approx(0.95 + 0.05 * exp(-4.68 * said.relative_error**2), rel=1e-12)
    assert said.updates > 500


def test_one_update_is_resetting_least_squares() -> None:
    """Against the information matrix itself, written down."""
    rng = np.random.default_rng(1)
    p, width = 6, padded(6)
    s, ints = np.zeros(m.SCALARS), np.zeros(m.INTEGERS, dtype=np.int64)
    s[[m.RATIO, m.CONSTANT, m.INFLATION]] = N, 0.97, 1.0
    ints[[m.ROWS, m.BLOCK_ROWS, m.MAX_REJECTED]] = 2, 10**9, 0
    level, nothing = np.zeros((2, noise.LEVELS)), np.zeros((1, 1))
    level[:, noise.SIGMA2], level[:, noise.WEIGHT2] = (4.0, 9.0), (8.0, 27.0)
    units = np.array([4e5, 1e11, 0.03, 0.1, 600.0, 30.0])
    theta, R, short = np.ones(p), np.hstack((np.eye(p), np.zeros((p, width - p)))), np.zeros((2, p, width))
    short[:, np.arange(p), np.arange(p)] = m.SHORT_FLOOR
    filters = (nothing, nothing, nothing, nothing, np.zeros(4))
    work = (np.zeros((2 + p, width)), np.zeros((3, width)), units, np.ones(p))
    joint = m.JointArrays(s, ints, np.arange(p), *filters, theta, R, short, level, np.zeros(p), *work)
    information, expected = np.eye(p), np.ones(p)
    for _ in range(300):
        d, v = rng.normal(0.0, 1e-3), rng.normal(0.0, 0.05)
        row = np.array([d, d**3, v, 1.01 * v, np.sign(v), *rng.normal(0.0, 300.0, 2)])
        motor = np.array([d, d**3, N**2 * v, N * np.sign(v), 0.0, 0.0]) * units
        sensor = np.array([d, d**3, 0.0, 0.0, -1.01 * v, -np.sign(v)]) * units
        information = 0.97 * information + 0.03 * np.eye(p)
        information += np.outer(motor, motor) / 8.0 + np.outer(sensor, sensor) / 27.0
        pull = motor * (row[5] - motor @ expected) / 8.0 + sensor * (row[6] - sensor @ expected) / 27.0
        pull += 0.03 * (1.0 - expected)
        expected = expected + np.linalg.solve(information, pull)
        assert update(joint, row) == 1
    np.testing.assert_allclose(theta, expected, rtol=1e-7)
    root = np.triu(R[:, :p])
    np.testing.assert_allclose(root.T @ root, information, rtol=1e-9, atol=1e-9 * np.abs(information).max())


def test_link_filter_looks_ahead_between_samples() -> None:
    n = np.arange(161.0)
    taps = np.zeros(161)
    taps[60:101] = np.hanning(43)[1:-1]
    taps /= taps.sum()

    def signal(k: FloatArray) -> FloatArray:
        return np.sin(0.12 * k + 0.3) + 0.01 * k

    for samples in (-3.7, -1.0, 0.0, 0.5, 2.9, 10.0):
        assert ahead(taps, samples) @ signal(n) == pytest.approx(taps @ signal(n + samples), abs=1e-8)


def test_truth_is_found_from_values_30_percent_wrong() -> None:
    held = []
    for seed in range(8):
        estimator = make()
        take(estimator, twice(seed))
        said = estimator.report()
        assert said.valid, said.reason
        for name, true in TRUTH.items():
            p = said[name]
            assert p.status == "determined", (name, p.reason)
            assert abs(p.value - true) < 4.0 * p.std, name
            assert p.std < 0.05 * true, name
            held.append(p.lower < true < p.upper)
    assert np.mean(held) >= 0.85, np.mean(held)  # those of a run are correlated


def test_lag_and_zero_of_the_encoders_are_taken_off() -> None:
    estimator = make(lag_s=2.9e-3, zero=0.1)
    take(estimator, twice(2, lag=2.9e-3, zero=0.1))
    for name, true in TRUTH.items():
        assert estimator.report()[name].value == pytest.approx(true, rel=0.08), name
    ignored = make(zero=0.1)
    take(ignored, twice(2, lag=2.9e-3, zero=0.1))
    assert ignored.theta[ignored.names.index("b_out")] > 3.0 * TRUTH["b_out"]
    early = make(lag_s=-2.9e-3, zero=0.1)
    take(early, twice(2, lag=2.9e-3, zero=0.1))
    assert early.theta[early.names.index("b_in")] < 0.0
    assert "b_in comes out negative" in early.report().reason


def test_motor_row_alone_at_constant_speed() -> None:
    start = {name: WRONG[name] for name in MOTOR}
    estimator = ElasticJointEstimator(Drive(N), start, RATE)
    take(estimator, twice(3, hold=2.0))
    for name in MOTOR:
        p = estimator.report()[name]
        assert p.value == pytest.approx(TRUTH[name], abs=4.0 * p.std), name
        assert p.value == pytest.approx(TRUTH[name], rel=0.2), name


def test_standstill_keeps_what_is_known() -> None:
    estimator, r = make(), twice(6)
    take(estimator, r)
    before = estimator.report()
    estimator.take(*standing(r, 0, 200_000, np.random.default_rng(7)))
    after = estimator.report()
    assert after.updates - before.updates < 50  # what was still in the filters
    assert np.linalg.eigvalsh(estimator.information_root.T @ estimator.information_root).min() > 0.99
    assert not any(after.excited)
    for name, true in TRUTH.items():
        assert after[name].value == pytest.approx(true, rel=0.08), name


def test_poor_excitation_does_not_wind_up() -> None:
    estimator, r = make(settings=ElasticOnlineSettings(constant=0.99)), twice(8)
    take(estimator, r)
    rng = np.random.default_rng(9)
    for first in range(0, 300_000, 50_000):
        estimator.take(*one_speed(r, first, 50_000, rng))
    root = estimator.information_root
    assert np.isfinite(root).all()
    known = np.linalg.eigvalsh(root.T @ root)
    assert known.min() > 0.99  # never less than at the start
    assert (estimator.std < 1.01 * np.abs(list(WRONG.values()))).all()
    said = estimator.report()
    assert said.updates > 40_000
    assert {p.name for p in said.parameters if p.value is None} >= {"b_in", "b_inD", "b_out", "b_outC", "k2"}
    # what is not excited stays within what was known at the start
    assert (np.abs(estimator.theta - np.array(list(WRONG.values()))) < np.abs(list(WRONG.values()))).all()


def test_bad_frames_are_left_out() -> None:
    r = twice(12)
    bad = np.random.default_rng(13).choice(r.t.size, 60, replace=False)
    torque, link = r.motor_torque.copy(), r.theta_out.copy()
    torque[bad[:30]], link[bad[30:]] = np.nan, np.inf
    clean, spoilt = make(), make()
    take(clean, r)
    said = report(spoilt, replace(r, motor_torque=torque, theta_out=link))
    assert (said.masked, said.frames) == (60, r.t.size)
    assert said.updates < clean.report().updates
    for name, true in TRUTH.items():
        p = said[name]
        assert p.value == pytest.approx(true, abs=4.0 * p.std), name


def test_gaps_are_bridged_or_start_the_filters_anew() -> None:
    r = twice(14)
    keep = np.ones(r.t.size, dtype=bool)
    keep[5000:5005] = False  # 10 ms: bridged
    keep[9000:9400] = False
    estimator = make()
    said = report(estimator, r, np.flatnonzero(keep))
    assert said.gaps == 1
    assert said["k1"].value == pytest.approx(TRUTH["k1"], rel=0.02)
    theta = estimator.theta
    take(estimator, r, slice(r.t.size - 10, r.t.size))
    assert estimator.report().repeated == 10
    estimator.restart_stream()
    take(estimator, r, slice(0, 100))
    np.testing.assert_array_equal(estimator.theta, theta)


def test_frames_one_by_one_or_together_give_the_same() -> None:
    r = record(16)
    together, apart = make(), make()
    take(together, r, slice(0, 4000))
    for k in range(4000):
        take(apart, r, slice(k, k + 1))
    np.testing.assert_array_equal(together.theta, apart.theta)
    np.testing.assert_array_equal(together.information_root, apart.information_root)


@pytest.mark.parametrize(
    ("start", "more", "message"),
    [
        ({"k1": 4e5}, {}, "it takes k1, b_in and b_inD"),
        (TRUTH | {"b_mid": 1.0}, {}, "b_mid"),
        ({k: v for k, v in TRUTH.items() if k != "b_out"}, {}, "b_outC"),
        (TRUTH | {"b_in": 0.0}, {}, "start of b_in: 0"),
        (TRUTH | {"k1": float("nan")}, {}, "start of k1: nan"),
        (TRUTH, {"deflection": Deflection(0.03)}, "lag 0.03 s"),
        (TRUTH, {"deflection": Deflection(zero=1e5)}, "zero 100000 rad"),
        (TRUTH, {"rate_hz": 15.0}, "cut-off 10 Hz"),
        (TRUTH, {"rate_hz": 0.0}, "frame rate"),
    ],
)
def test_start_that_cannot_be(start: dict[str, float], more: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ElasticJointEstimator(Drive(N), start, **({"rate_hz": RATE} | more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changed", [{"alpha": 1.0}, {"beta": 0.0}, {"constant": 0.2}, {"cutoff_hz": -1.0}, {"start_spread": float("nan")}]
)
def test_settings_that_cannot_be(changed: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(changed))):
        ElasticOnlineSettings(**changed)


def test_channels_that_do_not_match() -> None:
    r, estimator = record(19), make()
    with pytest.raises(ValueError, match="has friction of a torque sensor's row"):
        estimator.take(r.t, r.theta_in, r.theta_out, r.motor_torque)
    with pytest.raises(ValueError, match="channels of shapes"):
        estimator.take(r.t, r.theta_in[:5], r.theta_out, r.motor_torque, r.sensor_torque)
