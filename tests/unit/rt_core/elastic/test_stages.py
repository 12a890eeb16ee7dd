"""The off-line stages on the figures of Sun et al.; lag and zero between the two encoders."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from rt_core.elastic.common_lag import Lag, common_lag, deflection_lag
from rt_core.elastic.identify import Stage, identify_elastic_joint
from rt_core.identification.preprocess import DataError
from rt_core.types import FloatArray
from tests.lab.arms.harmonic_drive import J_IN, RATE, TRUTH, N, Recorded, measured, record

SPRING = np.array([TRUTH["k1"], TRUTH["k2"]])


def projected(recorded: Recorded, t: FloatArray, friction: FloatArray, *more: FloatArray) -> FloatArray:
    """What least squares makes of `friction` on the true spring columns and `more`, at the times `t`."""
    at = np.rint(t * RATE).astype(int)
    assert recorded.steady[at].all()
    columns = np.stack([recorded.d, recorded.d**3, *more], axis=1)[at]
    scale = np.linalg.norm(columns, axis=0)
    return np.asarray(np.linalg.lstsq(columns / scale, friction[at])[0] / scale)


@dataclass(frozen=True)
class Measured:
    """A recording, and what noise of the torques is in its rows (N,), filtered as they are; NaN where there is none."""

    recorded: Recorded
    noise: dict[str, FloatArray]


def torques(recorded: Recorded) -> dict[str, FloatArray]:
    """Torques (N,) of the rows, NaN where there is none."""
    out = {side: np.full(recorded.t.size, np.nan) for side in ("motor", "sensor")}
    for piece in recorded.rows().pieces:
        at = np.rint(piece.t * RATE).astype(int)
        out["motor"][at], out["sensor"][at] = piece.motor_torque, piece.sensor_torque
    return out


@pytest.fixture(scope="module", params=[None, 0], ids=["exact", "noisy"])
def case(request: pytest.FixtureRequest) -> Measured:
    """The grid of speeds and loads exactly, and with the counts of both encoders and the noise of both torques."""
    recorded = record(request.param)
    seen, exact = torques(recorded), torques(record(None))
    noise = {side: seen[side] - exact[side] for side in seen}
    return Measured(recorded, noise | {"coupled": 0.5 * (noise["motor"] + noise["sensor"])})


def test_stiffness_alone_takes_up_all_friction(case: Measured) -> None:
    """The motor's row has `k2` of an eighth of the truth: what friction leaves of it is less than noise can move."""
    r = case.recorded
    s = np.sign(r.v)
    lost_in = N**2 * TRUTH["b_in"] * r.v + N * TRUTH["b_inD"] * s
    lost_out = TRUTH["b_out"] * r.v + TRUTH["b_outC"] * s
    left_out = {"motor": lost_in, "sensor": -lost_out, "coupled": 0.5 * (lost_in - lost_out)}
    found = identify_elastic_joint([r.rows()], "stiffness", lag_s=0.0, zero=0.0)
    assert [fit.rows for fit in found.fits] == list(left_out)
    for fit in found.fits:
        t = fit.fit.rows.t
        friction = SPRING + projected(r, t, left_out[fit.rows])
        np.testing.assert_allclose(fit.fit.values, friction + projected(r, t, case.noise[fit.rows]), rtol=0.001)
        if fit.rows == "motor":
            assert friction[1] < 0.13 * SPRING[1]


@pytest.mark.parametrize(("name", "cubic"), [("stiffness", True), ("coulomb", False)])
def test_stage_that_leaves_friction_out_is_for_comparison(name: Stage, cubic: bool) -> None:
    rows = record(7, lag=2e-3, k2=TRUTH["k2"] if cubic else 0.0).rows()
    for lag_s in (None, 2e-3):
        for fit in identify_elastic_joint([rows], name, cubic=cubic, lag_s=lag_s).fits:
            assert fit.verdict == "doubtful", (fit.rows, fit.reasons)
            assert {p.status for p in fit.parameters} <= {"doubtful", "undetermined"}
            assert any("for comparison only" in reason for reason in fit.reasons)
            assert "lag" not in {p.name for p in fit.parameters}


def test_apparent_lag_of_each_row_has_its_viscous_friction() -> None:
    found = identify_elastic_joint([record(1, lag=2e-3, k2=0.0).rows()], "coulomb", cubic=False)
    motor = 2e-3 - N**2 * TRUTH["b_in"] / TRUTH["k1"]
    sensor = 2e-3 + TRUTH["b_out"] / TRUTH["k1"]
    assert found.fits[0]["apparent_lag"].value == pytest.approx(motor, abs=1e-4)
    assert found.fits[1]["apparent_lag"].value == pytest.approx(sensor, abs=1e-4)
    both = found.answer
    assert both["apparent_lag_motor"].value == pytest.approx(motor, abs=1e-4)
    assert both["apparent_lag_sensor"].value == pytest.approx(sensor, abs=1e-4)
    assert both["k1"].value == pytest.approx(TRUTH["k1"], rel=0.01)


def test_last_stage_recovers_all_six() -> None:
    found = identify_elastic_joint([record(3, hold=4.0, noise=(0.01, 0.7)).rows()]).answer
    assert found.verdict == "ok", found.reasons
    assert found.rows == "both"
    for name, true in TRUTH.items():
        p = found[name]
        assert p.value == pytest.approx(true, rel=0.02), name
        assert p.lower < true < p.upper, name
        assert p.status == "determined"
    assert found.metrics.relative_error < 0.01


def test_known_inertia_lets_all_motion_count() -> None:
    recorded = record(4)
    constant, all_motion = recorded.rows(), recorded.rows(inertia=J_IN)
    assert all_motion.count > 1.2 * constant.count
    found = identify_elastic_joint([all_motion]).answer
    assert found.verdict == "ok"
    for name, true in TRUTH.items():
        p = found[name]
        assert abs(p.value - true) < 4.0 * p.std, name


def test_motor_that_turns_against_its_joint() -> None:
    recorded = record(6)
    ahead = identify_elastic_joint([recorded.rows()]).answer
    turned = replace(recorded, theta_in=-recorded.theta_in, motor_torque=-recorded.motor_torque)
    against = identify_elastic_joint([turned.rows(ratio=-N)]).answer
    np.testing.assert_allclose(against.fit.values, ahead.fit.values, rtol=1e-9)


@pytest.mark.parametrize(("lag", "sensor"), [(-1.3e-3, True), (2.9e-3, False)])
def test_lag_is_found_to_a_tenth_of_a_millisecond(lag: float, sensor: bool) -> None:
    rows = record(1, lag=lag, hold=2.0, noise=(0.01, 1.0)).rows(sensor=sensor)
    p = identify_elastic_joint([rows]).answer["lag"]
    assert p.value == pytest.approx(lag, abs=1e-4)
    assert p.upper - p.lower < 1.5e-4
    assert p.lower < lag < p.upper


def test_each_recording_has_its_own_zero() -> None:
    rows = [record(seed, zero=zero, lag=1e-3).rows() for seed, zero in ((4, 0.1), (5, -0.2))]
    found = identify_elastic_joint(rows).answer
    assert found["zero_1"].value == pytest.approx(0.1, abs=2e-6)
    assert found["zero_2"].value == pytest.approx(-0.2, abs=2e-6)
    assert found["k2"].value == pytest.approx(TRUTH["k2"], rel=0.01)


TRUE = 1.5e-3


def test_a_joint_tells_its_encoders_lag_less_its_own_viscous_friction() -> None:
    apparent = []
    for seed in range(3):
        r = measured(record(None, lag=TRUE, k2=0.0), seed)
        found = deflection_lag([r.rows(sensor=False, inertia=J_IN)] * 2, cubic=False)
        assert found.std < 0.1e-3
        apparent.append(found.value)
    np.testing.assert_allclose(apparent, TRUE - N**2 * TRUTH["b_in"] / TRUTH["k1"], atol=0.15e-3)


def test_a_joint_at_one_speed_without_change_tells_none() -> None:
    rows = record(None, speeds=(0.04,), loads=(100.0,), directions=(1,)).rows(sensor=False)
    with pytest.raises(DataError, match=r"do not tell a lag|no deflection"):
        deflection_lag([rows], cubic=False)


def test_the_interval_holds_the_mean_of_joints_that_differ() -> None:
    rng = np.random.default_rng(7)
    held, narrow = [], []
    for _ in range(400):
        std = rng.uniform(0.02e-3, 0.1e-3, 6)
        values = TRUE + rng.normal(0.0, 0.1e-3, 6) + rng.normal(0.0, std)
        found = common_lag([Lag(v, s) for v, s in zip(values, std, strict=True)])
        held.append(found.lower < TRUE < found.upper)
        narrow.append(found.std)
    assert 0.92 < np.mean(held) < 0.985
    assert np.mean(narrow) < 0.08e-3


def test_joints_that_agree_differ_by_nothing_and_one_alone_has_no_mean() -> None:
    assert common_lag([Lag(TRUE, 1e-5)]) is None
    found = common_lag([Lag(TRUE, 1e-5)] * 3)
    assert found.value == pytest.approx(TRUE)
    assert found.between == 0.0
    assert found.std == pytest.approx(1e-5 / np.sqrt(3.0))
