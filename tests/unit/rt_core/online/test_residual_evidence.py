"""The filter bank against exact derivatives and SciPy; evidence against sums over plain rows, and least squares."""

import subprocess
import sys

import numpy as np
import pytest
from scipy import signal

from rt_core.model.base import payload_columns
from rt_core.model.parameters import standard_parameters
from rt_core.model.robot import RobotModel
from rt_core.online import OnlineEstimator
from rt_core.online.filters import filter_bank, low_pass
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
    assert sum_of(step).rows.tolist() == [1000.0] * N


BANKS = [(10.0, 1000.0), (10.0, 250.0), (100.0, 5000.0), (4.0, 200.0), (30.0, 100.0)]


def gain(taps: np.ndarray, frequency: float, rate: float) -> float:
    return float(np.abs(signal.freqz(taps, worN=[frequency], fs=rate)[1][0]))


@pytest.mark.parametrize(("cutoff", "rate"), BANKS[:4])
@pytest.mark.parametrize("share", [0.02, 0.1, 0.3])
def test_derivatives_of_a_sine_in_the_pass_band(cutoff: float, rate: float, share: float) -> None:
    """Velocity belongs to the wide low-pass, acceleration to that at the cut-off; aligned to the sample."""
    bank = filter_bank(cutoff, rate)
    w = 2.0 * np.pi * share * cutoff
    t = np.arange(2 * bank.smooth.size) / rate
    position, velocity = np.sin(w * t + 0.4), w * np.cos(w * t + 0.4)
    L, centre = bank.smooth.size, t.size - 1 - bank.delay
    wide, narrow = gain(bank.smooth, share * cutoff, rate), gain(low_pass(cutoff, rate), share * cutoff, rate)
    assert wide == pytest.approx(1.0, abs=0.01)
    assert narrow == pytest.approx(1.0, abs=0.03)
    acceleration = -w * w * position[centre]
    assert bank.smooth @ position[-L:] == pytest.approx(wide * position[centre], abs=1e-9)
    assert bank.first @ position[-L:] == pytest.approx(wide * velocity[centre], abs=1e-4 * w)
    assert bank.second @ position[-L:] == pytest.approx(narrow * acceleration, abs=2e-4 * w * w)
    assert bank.slope @ velocity[-L:] == pytest.approx(narrow * acceleration, abs=2e-4 * w * w)


def test_polynomials_up_to_the_second_degree_pass_exactly() -> None:
    bank = filter_bank(10.0, 1000.0)
    t = (np.arange(bank.smooth.size) - bank.delay) / 1000.0
    line = 2.0 - 3.0 * t
    assert bank.smooth @ line == pytest.approx(2.0, abs=1e-10)
    assert bank.first @ line == pytest.approx(-3.0, abs=1e-9)
    assert bank.slope @ line == pytest.approx(-3.0, abs=1e-9)
    assert bank.second @ line == pytest.approx(0.0, abs=1e-6)
    assert bank.second @ (5.0 * t * t) == pytest.approx(10.0, abs=1e-6)


@pytest.mark.parametrize(("cutoff", "rate"), [(500.0, 1000.0), (0.0, 1000.0), (600.0, 1000.0), (-1.0, 1000.0)])
def test_a_cutoff_beyond_half_the_rate_is_refused(cutoff: float, rate: float) -> None:
    with pytest.raises(ValueError, match="cut-off"):
        filter_bank(cutoff, rate)


@pytest.mark.parametrize(("cutoff", "rate"), BANKS)
def test_the_low_pass_is_the_windowed_one_of_scipy(cutoff: float, rate: float) -> None:
    taps = low_pass(cutoff, rate)
    theirs = signal.firwin(taps.size, cutoff, fs=rate, window=("kaiser", 4.5))
    np.testing.assert_allclose(taps, theirs, rtol=1e-12, atol=1e-15)


def test_the_estimator_starts_without_what_is_slow_to_import() -> None:
    """A restart of the estimator loses frames for as long as it takes; these two would take a second of it."""
    code = (
        "import sys, service.estimator.process; print([m for m in ('scipy.signal', 'scipy.stats') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120.0)
    assert done.stdout == "[]\n"
