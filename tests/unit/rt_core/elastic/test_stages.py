"""The off-line stages on the figures of Sun et al., table of stage (c): friction left out shows where it must."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from rt_core.elastic.identify import ElasticJoint, Stage, identify_elastic_joint
from rt_core.types import FloatArray
from tests.lab.arms.harmonic_drive import J_IN, RATE, TRUTH, N, Recorded, record

SPRING = np.array([TRUTH["k1"], TRUTH["k2"]])
BACKWARDS = (-400.0, -600.0, -800.0)


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

    @property
    def noisy(self) -> bool:
        return bool(np.nanmax(np.abs(self.noise["motor"])) > 0.0)


def torques(recorded: Recorded) -> dict[str, FloatArray]:
    """Torques (N,) of the rows, NaN where there is none."""
    out = {side: np.full(recorded.t.size, np.nan) for side in ("motor", "sensor")}
    for piece in recorded.rows().pieces:
        at = np.rint(piece.t * RATE).astype(int)
        out["motor"][at], out["sensor"][at] = piece.motor_torque, piece.sensor_torque
    return out


@pytest.fixture(scope="module", params=[None, 0, 1], ids=["exact", "seed 0", "seed 1"])
def case(request: pytest.FixtureRequest) -> Measured:
    """The grid of speeds and loads exactly, and with the counts of both encoders and the noise of both torques."""
    recorded = record(request.param)
    seen, exact = torques(recorded), torques(record(None))
    noise = {side: seen[side] - exact[side] for side in seen}
    return Measured(recorded, noise | {"coupled": 0.5 * (noise["motor"] + noise["sensor"])})


def agrees(case: Measured, values: FloatArray, friction: FloatArray, noise: FloatArray, moved: tuple[int, ...]) -> None:
    """Check that `values` are the truth and what is projected on it of the friction left out, to 1 %.

    So they are with the torques' noise in them, but for those of `moved`, and all of them to 0.1 % once what that noise
    makes of them is counted.
    """
    expected = friction + noise
    np.testing.assert_allclose(values, expected, rtol=0.001)
    if case.noisy:
        assert np.all(np.abs(noise) > 0.0)
    direct = [k for k in range(values.size) if k not in moved]
    np.testing.assert_allclose(values[direct], friction[direct], rtol=0.01)


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
        agrees(
            case, fit.fit.values, friction, projected(r, t, case.noise[fit.rows]), (1,) if fit.rows == "motor" else ()
        )
        if fit.rows == "motor":
            assert friction[1] < 0.13 * SPRING[1]


def test_coulomb_takes_up_viscous_friction(case: Measured) -> None:
    r = case.recorded
    s = np.sign(r.v)
    found = stage(r, "coulomb")
    assert [fit.rows for fit in found.fits] == ["motor", "sensor", "both"]
    left_out = (N**2 * TRUTH["b_in"] * r.v, -TRUTH["b_out"] * r.v)
    for fit, name, left, column in zip(found.fits[:2], ("b_inD", "b_outC"), left_out, (N * s, -s), strict=True):
        t = fit.fit.rows.t
        friction = np.array([*SPRING, TRUTH[name]]) + projected(r, t, left, column)
        agrees(case, fit.fit.values, friction, projected(r, t, case.noise[fit.rows], column), ())


def test_both_rows_with_coulomb_friction_take_up_viscous_friction(case: Measured) -> None:
    """The fit of both rows together, with the weights that it gave them."""
    r = case.recorded
    both = stage(r, "coulomb").answer
    at = np.rint(both.fit.rows.t * RATE).astype(int)
    d, v, none = r.d[at], r.v[at], np.zeros(at.size)
    s = np.sign(v)
    weight = 1.0 / np.repeat(both.fit.solution.weighted_with, at.size)
    columns = np.vstack((np.column_stack((d, d**3, N * s, none)), np.column_stack((d, d**3, none, -s))))
    left_out = np.concatenate((N**2 * TRUTH["b_in"] * v, -TRUTH["b_out"] * v))
    noise = np.concatenate((case.noise["motor"][at], case.noise["sensor"][at]))
    scale = np.linalg.norm(columns, axis=0)
    unit = columns / scale * weight[:, None]
    taken, moved = (np.linalg.lstsq(unit, x * weight)[0] / scale for x in (left_out, noise))
    assert both.fit.names == ("k1", "k2", "b_inD", "b_outC")
    agrees(case, both.fit.values, np.array([*SPRING, TRUTH["b_inD"], TRUTH["b_outC"]]) + taken, moved, ())


@pytest.mark.parametrize("cubic", [True, False])
@pytest.mark.parametrize("name", ["stiffness", "coulomb"])
def test_stage_that_leaves_friction_out_is_for_comparison(name: Stage, cubic: bool) -> None:
    rows = record(7, lag=2e-3, k2=TRUTH["k2"] if cubic else 0.0).rows()
    for lag_s in (None, 2e-3):
        for fit in identify_elastic_joint([rows], name, cubic=cubic, lag_s=lag_s).fits:
            assert fit.verdict == "doubtful", (fit.rows, fit.reasons)
            assert fit["k1"].status == "doubtful"
            assert {p.status for p in fit.parameters} <= {"doubtful", "undetermined"}
            assert any("for comparison only" in reason for reason in fit.reasons)
            assert any("in one" in reason for reason in fit.reasons) == (lag_s is None)
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
    assert both["apparent_lag_motor"].unit == "s"
    assert both["k1"].value == pytest.approx(TRUTH["k1"], rel=0.01)


@pytest.mark.parametrize(("loads", "sign"), [((300.0, 500.0, 700.0), 1.0), (BACKWARDS, -1.0)])
def test_driving_hardens_the_motor_row_and_driven_back_softens_it(loads: tuple[float, ...], sign: float) -> None:
    recorded = record(1, loads=loads)
    motor, sensor, coupled = stage(recorded, "stiffness").fits
    d = float(np.sqrt(np.mean(recorded.d[recorded.steady] ** 2)))

    def torque(x: FloatArray) -> float:
        return float(x[0] * d + x[1] * d**3)

    assert sign * (torque(motor.fit.values) / torque(SPRING) - 1.0) > 0.05
    assert sign * (torque(sensor.fit.values) / torque(SPRING) - 1.0) < -0.02
    between = sorted((torque(motor.fit.values), torque(sensor.fit.values)))
    assert between[0] < torque(coupled.fit.values) < between[1]


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


def test_motor_row_alone() -> None:
    rows = record(5, hold=2.0, noise=(0.005, 1.0)).rows(sensor=False)
    for name, parameters in (("stiffness", ("k1", "k2")), ("coulomb", ("k1", "k2", "b_inD"))):
        (fit,) = identify_elastic_joint([rows], name, lag_s=0.0, zero=0.0).fits  # type: ignore[arg-type]
        assert fit.rows == "motor"
        assert tuple(p.name for p in fit.parameters) == parameters
    found = identify_elastic_joint([rows]).answer
    for parameter in ("k1", "k2", "b_in", "b_inD"):
        assert found[parameter].value == pytest.approx(TRUTH[parameter], rel=0.03), parameter


def test_motor_that_turns_against_its_joint() -> None:
    recorded = record(6)
    ahead = identify_elastic_joint([recorded.rows()]).answer
    turned = replace(recorded, theta_in=-recorded.theta_in, motor_torque=-recorded.motor_torque)
    against = identify_elastic_joint([turned.rows(ratio=-N)]).answer
    np.testing.assert_allclose(against.fit.values, ahead.fit.values, rtol=1e-9)
