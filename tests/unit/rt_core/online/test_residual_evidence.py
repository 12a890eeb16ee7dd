"""Evidence against sums over plain rows, and hypotheses against least squares."""

from __future__ import annotations

import numpy as np
import pytest

from rt_core.model.base import payload_columns
from rt_core.model.parameters import standard_parameters
from rt_core.model.robot import RobotModel
from rt_core.online import OnlineEstimator
from rt_core.online.monitors.change_hypotheses import fit, hypotheses, judge, onset, pace_of
from rt_core.online.monitors.change_report import friction_change
from rt_core.online.monitors.residual_evidence import Evidence, friction_columns, sum_of
from sim_backend.arm.robot import SimulatedData
from tests.lab.online_oracle import rows
from tests.unit.rt_core.online.test_estimator import RATE, SETTINGS, arm_and_data, feed


@pytest.fixture(scope="module", params=[False, True], ids=["direct", "coupled"])
def moved(request: pytest.FixtureRequest) -> tuple[RobotModel, SimulatedData]:
    return arm_and_data(3, coupled=request.param)


def test_evidence_is_the_sum_over_clean_rows(moved: tuple[RobotModel, SimulatedData]) -> None:
    model, data = moved
    estimator = OnlineEstimator(model, SETTINGS, RATE)
    base = estimator.base
    theta = base.theta(standard_parameters(model, base.standard)) * 1.1
    estimator.set_active(theta)
    feed(estimator, data, slice(3000))
    found = estimator.take_evidence()
    plain = rows(model, base, data.channels["q"][1:3000], data.channels["tau"][1:3000], SETTINGS.cutoff_hz, RATE, 4)
    places = friction_columns(base.layout, model.n)
    columns = payload_columns(base, model)
    for j in range(model.n):
        use = np.abs(plain.share[:, j] - 1.0) < 0.01
        Y = plain.Y[use, j]
        terms = [Y[:, c] if c >= 0 else 0.0 * Y[:, 0] for c in places[j]]
        predicted = Y @ theta
        X = np.column_stack((Y @ columns, *terms, predicted, np.ones(len(Y)), plain.tau[use, j] - predicted))
        size = np.linalg.norm(X, axis=0)
        scale = np.outer(size, size) + 1e-12
        assert abs(found.rows[j] - use.sum()) <= 2  # the last row may not be finished
        np.testing.assert_allclose(found.gram[j] / scale, (X.T @ X) / scale, atol=2e-3)
    again = estimator.take_evidence()
    assert not again.rows.any()
    assert not again.gram.any()
    estimator.set_active(None)
    feed(estimator, data, slice(3000, 3500))
    assert not estimator.take_evidence().rows.any()


N, WIDTH = 3, 15  # two friction terms each
PLACES = np.array([[0, 1], [2, 3], [4, 5]])
SOURCE = np.array([0, 0, 1, 1, 2, 2])


def drawn(seed: int, coefficients: np.ndarray, count: int = 400, noise: float = 0.1) -> tuple[Evidence, np.ndarray]:
    """Evidence of random features with a residual that has these coefficients (n, d - 1), and the features."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, count, WIDTH))
    X[:, :, -2] = 1.0
    X[:, :, -1] = np.einsum("nkd,nd->nk", X[:, :, :-1], coefficients) + noise * rng.standard_normal((N, count))
    return Evidence(np.swapaxes(X, 1, 2) @ X, np.full(N, float(count))), X


def test_the_payload_is_the_least_squares_fit_of_all_joints() -> None:
    load = np.linspace(-1.0, 2.0, 10)
    coefficients = np.zeros((N, WIDTH - 1))
    coefficients[:, :10] = load
    evidence, X = drawn(1, coefficients)
    variance = np.array([0.01, 0.04, 0.02])
    found = fit(hypotheses(PLACES, SOURCE)[0], evidence, variance, 1200.0)
    weight = np.repeat(1.0 / np.sqrt(variance), X.shape[1])[:, None]
    A, r = X[:, :, :10].reshape(-1, 10) * weight, X[:, :, -1].reshape(-1) * weight[:, 0]
    expected, left = np.linalg.lstsq(A, r, rcond=None)[:2]
    np.testing.assert_allclose(found.values, expected, rtol=1e-8)
    np.testing.assert_allclose(found.gain, r @ r - left[0], rtol=1e-8)
    np.testing.assert_allclose(found.std, np.sqrt(np.diag(np.linalg.inv(A.T @ A))), rtol=1e-8)
    rest = evidence.about(coefficients)
    X[:, :, -1] -= np.einsum("nkd,nd->nk", X[:, :, :-1], coefficients)
    np.testing.assert_allclose(rest.gram, np.swapaxes(X, 1, 2) @ X, atol=1e-8)


@pytest.mark.parametrize(
    ("joint", "feature", "cause"),
    [(None, 0, "payload"), (1, 11, "friction"), (2, 12, "sensor_gain"), (0, 13, "sensor_offset")],
)
def test_each_cause_is_reported(joint: int | None, feature: int, cause: str) -> None:
    coefficients = np.zeros((N, WIDTH - 1))
    coefficients[slice(None) if joint is None else joint, feature] = 0.2
    evidence, _ = drawn(2, coefficients)
    verdict = judge(hypotheses(PLACES, SOURCE), evidence, np.full(N, 0.01), np.full(N, 0.01), 1e-3, 0.8)
    assert verdict.decisive
    assert (verdict.fits[0].hypothesis.cause, verdict.fits[0].hypothesis.joint) == (cause, joint)
    assert verdict.explained == pytest.approx(1.0, abs=0.05)


def test_what_looks_alike_or_is_not_explained_is_not_told() -> None:
    coefficients = np.zeros((N, WIDTH - 1))
    coefficients[1, 10] = 0.2
    evidence, _ = drawn(3, coefficients)
    alike = evidence.gram.copy()
    alike[1, 12], alike[1, :, 12] = alike[1, 10], alike[1, :, 10]  # the predicted torque is friction only
    alike[1, 12, 12] = alike[1, 10, 10]
    level = np.full(N, 0.01)
    verdict = judge(hypotheses(PLACES, SOURCE), Evidence(alike, evidence.rows), level, level, 1e-3, 0.8)
    assert not verdict.decisive
    assert {fit.hypothesis.cause for fit in verdict.fits} == {"friction", "sensor_gain"}
    assert {fit.hypothesis.joint for fit in verdict.fits} == {1}
    loud = evidence.gram.copy()
    loud[0, -1, -1] *= 100.0  # a residual that no feature explains
    verdict = judge(hypotheses(PLACES, SOURCE), Evidence(loud, evidence.rows), level, level, 1e-3, 0.8)
    assert not verdict.decisive
    assert verdict.explained < 0.5


@pytest.mark.parametrize("span_k", [0.1, 60.0])
def test_a_change_is_that_of_the_slope_over_temperature_only_if_temperature_has_varied(span_k: float) -> None:
    slopes = np.array([-1, 0, -1, 2, -1, 4])  # each second term is the slope of the first one
    rng = np.random.default_rng(4)
    X = rng.standard_normal((N, 400, WIDTH))
    X[:, :, 11] = X[:, :, 10] * (20.0 + span_k * (rng.uniform(size=(N, 400)) - 0.5))
    X[:, :, -1] = 0.1 * rng.standard_normal((N, 400))
    X[1, :, -1] += 0.02 * X[1, :, 11] if span_k > 1.0 else 0.4 * X[1, :, 10]
    evidence = Evidence(np.swapaxes(X, 1, 2) @ X, np.full(N, 400.0))
    friction = next(h for h in hypotheses(PLACES, SOURCE, slopes) if (h.cause, h.joint) == ("friction", 1))
    found = fit(friction, evidence, np.full(N, 0.01), 1200.0).values
    expected = [0.0, 0.02] if span_k > 1.0 else [0.4, 0.0]
    assert (np.abs(found - expected) < [0.05, 0.002]).all(), found


def test_the_beginning_and_the_pace_of_a_change() -> None:
    candidates = hypotheses(PLACES, SOURCE)
    friction = next(h for h in candidates if (h.cause, h.joint) == ("friction", 1))
    step: list[Evidence] = []
    ramp: list[Evidence] = []
    for k in range(20):
        for found, size in ((step, 0.2 if k >= 5 else 0.0), (ramp, 0.02 * k)):
            coefficients = np.zeros((N, WIDTH - 1))
            coefficients[1, 10] = size
            found.append(drawn(k, coefficients, 50)[0])
    level = np.full(N, 0.01)
    assert onset(friction, step, level) == 5
    assert pace_of(friction, step, level, 1e-3) == "abrupt"
    assert pace_of(friction, ramp, level, 1e-3) == "gradual"
    found = fit(friction, sum_of(ramp), level, 100.0)
    for pace, kind in (("gradual", "friction_drift"), ("abrupt", "friction_changed")):
        told = friction_change(found, pace, ["joint_2"], tuple("abcdef"), PLACES, 0)  # type: ignore[arg-type]
        assert told.kind == kind
        assert {p["name"] for p in told.data["parameters"]} == {"c", "d"}
    assert pace_of(friction, step[5:6], level, 1e-3) == "unknown"
    whole = sum_of(step)
    assert whole.rows.tolist() == [1000.0] * N
