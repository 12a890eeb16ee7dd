"""The off-line stages on the figures of Sun et al., table of stage (c): friction left out shows where it must."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from rt_core.elastic.identify import ElasticJoint, Stage, identify_elastic_joint
from rt_core.types import FloatArray
from tests.lab.arms.harmonic_drive import J_IN, RATE, TRUTH, N, Recorded, record

SPRING = np.array([TRUTH["k1"], TRUTH["k2"]])


def stage(recorded: Recorded, name: Stage) -> ElasticJoint:
    return identify_elastic_joint([recorded.rows()], name, lag_s=0.0, zero=0.0)


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
    found = stage(r, "stiffness")
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
