"""What data do not determine has no value, and a reason; which samples become a row."""

from dataclasses import replace

import numpy as np
import pytest

from rt_core.elastic.identify import STAGES, identify_elastic_joint
from rt_core.elastic.rows import Drive, elastic_rows
from rt_core.identification.preprocess import DataError
from rt_core.types import FloatArray
from tests.lab.arms.harmonic_drive import J_IN, SETTINGS, TRUTH, N, open_parameters, record

FRICTION = ("b_in", "b_inD", "b_out", "b_outC")


@pytest.mark.parametrize("directions", [(1, -1), (1,)])
def test_one_speed_does_not_tell_viscous_from_coulomb(directions: tuple[int, ...]) -> None:
    found = identify_elastic_joint([record(1, speeds=(0.04,), directions=directions).rows()], lag_s=0.0, zero=0.0)
    fit = found.answer
    assert set(open_parameters(fit)) >= set(FRICTION)
    assert "same speed" in (fit["b_in"].reason or "")
    assert "b_inD" in (fit["b_in"].reason or "")
    if len(directions) == 2:
        assert fit.verdict == "partly_determined"
        assert fit["k1"].value == pytest.approx(TRUTH["k1"], rel=0.02)
        assert fit["k2"].value == pytest.approx(TRUTH["k2"], rel=0.02)


def test_one_load_does_not_tell_the_cubic_stiffness() -> None:
    recorded = record(2, loads=(500.0,))
    for fit in identify_elastic_joint([recorded.rows()], "stiffness", lag_s=0.0, zero=0.0).fits:
        assert set(open_parameters(fit)) == {"k1", "k2"}
        assert fit.verdict == "not_determined"
        assert "several loads" in (fit["k2"].reason or "")
    assert "k2" in open_parameters(identify_elastic_joint([recorded.rows()]).answer)


def test_linear_spring_does_not_tell_lag_from_viscous_friction() -> None:
    rows = record(3, k2=0.0, lag=2e-3).rows()
    fit = identify_elastic_joint([rows], cubic=False).answer
    assert set(open_parameters(fit)) == {"b_in", "b_out", "lag"}
    assert "give the lag" in (fit["lag"].reason or "")
    assert fit["k1"].value == pytest.approx(TRUTH["k1"], rel=0.01)
    given = identify_elastic_joint([rows], cubic=False, lag_s=2e-3).answer
    assert not open_parameters(given)
    assert given["b_out"].value == pytest.approx(TRUTH["b_out"], rel=0.05)


@pytest.mark.parametrize(("shift", "zero"), [(0.3, None), (0.0, 0.0)])
def test_angle_computed_from_the_motor_shows_no_deflection(shift: float, zero: float | None) -> None:
    recorded = record(4)
    same = replace(recorded, theta_out=recorded.theta_in / N + shift)
    for stage in STAGES:
        fit = identify_elastic_joint([same.rows()], stage, zero=zero).answer
        assert fit.verdict == "not_determined"
        assert set(open_parameters(fit)) == {p.name for p in fit.parameters}
        assert "no deflection" in (fit["k1"].reason or "")


def test_rigid_joint_leaves_only_the_noise_of_the_encoders() -> None:
    fit = identify_elastic_joint([record(5, k1=1e10, k2=0.0).rows()]).answer
    assert fit.verdict == "not_determined"
    assert set(open_parameters(fit)) == {p.name for p in fit.parameters}
    assert "does not follow the torque" in (fit["k1"].reason or "")


def test_wrong_sign_of_the_torque() -> None:
    recorded = record(6)
    turned = replace(recorded, motor_torque=-recorded.motor_torque)
    fit = identify_elastic_joint([turned.rows(sensor=False)]).answer
    assert fit.verdict == "not_determined"
    assert "negative" in (fit["k1"].reason or "")


def test_spring_that_would_give_way_within_the_range_seen() -> None:
    # loads about +-400 and +-700: a softening so strong that the slope is below zero at the largest, the secant not
    recorded = record(6)
    d = recorded.d
    k1, k2 = 4e5, -4e5 / (3.0 * (0.9 * np.abs(d[recorded.steady]).max()) ** 2)
    bent = replace(recorded, motor_torque=(k1 * d + k2 * d**3) / N)
    fit = identify_elastic_joint([bent.rows(sensor=False)], lag_s=0.0, zero=0.0).answer
    rms = float(np.sqrt(np.mean(fit.fit.deflection**2)))
    assert fit.fit.value("k1") + fit.fit.value("k2") * rms**2 > 0.0
    assert fit.verdict == "not_determined"
    assert "within the range seen" in (fit["k1"].reason or "")


def test_errors_of_the_deflection_widen_the_interval() -> None:
    recorded = record(7, k2=0.0)
    rng = np.random.default_rng(1)
    wave = 2e-4 * np.sin(2.0 * np.pi * 40.0 * recorded.theta_out + rng.uniform(0.0, 6.0))
    eccentric = replace(recorded, theta_out=recorded.theta_out + wave)
    fit = identify_elastic_joint([eccentric.rows()], cubic=False, lag_s=0.0).answer
    p = fit["k1"]
    assert fit.verdict == "doubtful"
    assert p.status == "doubtful"
    assert p.value < 0.97 * TRUTH["k1"]  # errors of the regressor pull towards zero
    assert p.lower < TRUTH["k1"] < p.upper


def test_bad_input_is_told() -> None:
    r = record(8)
    for ratio in (0.0, 1e200, np.nan):
        with pytest.raises(DataError, match="gear ratio"):
            Drive(ratio)
    with pytest.raises(DataError, match="rotor inertia"):
        Drive(N, -1.0)
    with pytest.raises(DataError, match="does not turn"):
        elastic_rows(r.t, np.zeros(r.t.size), r.theta_out, r.motor_torque, Drive(N), SETTINGS)
    with pytest.raises(DataError, match="rows remain where the joint is faster than"):
        elastic_rows(r.t, r.theta_in, r.theta_out, r.motor_torque, Drive(N), SETTINGS, min_velocity=1.0)
    with pytest.raises(ValueError, match="unknown stage"):
        identify_elastic_joint([r.rows()], "d")  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"lag 0\.03 s: at most"):
        identify_elastic_joint([r.rows()], lag_s=0.03)
    with pytest.raises(DataError, match=r"zero 1e\+120 rad: at most"):
        identify_elastic_joint([r.rows()], zero=1e120)
    with pytest.raises(DataError, match="no recording"):
        identify_elastic_joint([])
    with pytest.raises(DataError, match="not of one drive"):
        identify_elastic_joint([r.rows(), r.rows(sensor=False)])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"motor_torque": 0.0}, "motor torque \\* gear ratio is zero throughout"),
        ({"sensor_torque": 0.0}, "sensor torque is zero throughout"),
        ({"motor_torque": 1e305}, "motor torque \\* gear ratio reaches"),
        ({"theta_in": 1e300}, "motor angle / gear ratio reaches"),
        ({"theta_out": 1e200}, "link angle reaches"),
    ],
)
def test_channel_with_numbers_that_no_joint_has(changed: dict[str, float], message: str) -> None:
    r = record(8)
    scaled = replace(r, **{name: getattr(r, name) * factor for name, factor in changed.items()})
    with pytest.raises(DataError, match=message):
        scaled.rows()


APART_S = 100.0  # from the begin of one recording to that of the next


def times(trim_s: float, joined: bool) -> tuple[FloatArray, float]:
    """Times of the rows of two recordings, and how long each of them is [s]; `joined`: where they end is told."""
    r = record(None, speeds=(0.06,), loads=(300.0, 500.0), hold=2.0)
    length = float(r.t[-1])
    theta_in, theta_out, torque = (np.tile(x, 2) for x in (r.theta_in, r.theta_out, r.motor_torque))
    spans = [(begin, begin + length) for begin in (0.0, APART_S)] if joined else []
    t = np.concatenate((r.t, r.t + APART_S))
    settings = replace(SETTINGS, trim_s=trim_s)
    rows = elastic_rows(t, theta_in, theta_out, torque, Drive(N, J_IN), settings, spans=spans)
    return np.concatenate([piece.t for piece in rows.pieces]), length


def test_both_ends_of_each_of_several_recordings_are_cut() -> None:
    """All of them, not the first and the last alone: what is in the middle of the whole may be an end of one."""
    t, length = times(trim_s=1.0, joined=True)
    for begin in (0.0, APART_S):
        own = t[(t >= begin) & (t <= begin + length)] - begin
        assert 1.0 <= own.min() < 1.1
        assert length - 1.1 < own.max() <= length - 1.0
