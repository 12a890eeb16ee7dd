"""The detector of drift: its rate of false alarms on simulated noise, and what it sees."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.detector import ALIKE, BETTER, drift_alarms
from rt_core.model.friction import LAW_COULOMB, LAW_LINK, LAW_VISCOUS
from rt_core.online.monitors._drift_limits import looks_until_a_run, run_limit
from rt_core.online.monitors.drift import Change, DriftDetector, DriftSettings, Watched
from rt_core.online.report import EstimateReport

N = 4
PER_JOINT = 5  # parameters: three of the link, two of the motor
P = N * PER_JOINT
MEMORY_S = 120.0
UPDATE_S = 0.01
NAMES = tuple(f"{symbol}{j + 1}" for j in range(N) for symbol in ("fv", "fc", "m", "mx", "my"))
JOINTS = tuple(f"joint_{j + 1}" for j in range(N))
LAYOUT = SimpleNamespace(
    law=np.tile([LAW_VISCOUS, LAW_COULOMB, LAW_LINK, LAW_LINK, LAW_LINK], N),
    source=np.array([s for j in range(N) for s in (j, j, 10 * j, 10 * j + 1, 10 * j + 2)]),
)
THETA = np.linspace(1.0, 3.0, P)
STD = 0.01 * THETA


def detector(**changes: float) -> DriftDetector:
    return DriftDetector(Watched(NAMES, JOINTS, LAYOUT), MEMORY_S, UPDATE_S, replace(DriftSettings(), **changes))  # type: ignore[arg-type]


def adopted(**changes: float) -> DriftDetector:
    made = detector(**changes)
    made.set_model(THETA, np.diag(STD**2), adopted=True)
    return made


def report(k: int, theta: np.ndarray, seconds: float = 1.0, **changes: object) -> EstimateReport:
    """What an estimator says after `k` times `seconds` of motion, all of it known."""
    nothing = np.zeros(N)
    said = EstimateReport(
        t_ns=round(k * seconds * 1e9), theta=theta, validated=theta, std=STD, status=("estimated",) * P,
        excited=np.ones(P, bool), scale=np.full(P, 50.0), lam=nothing, innovation=nothing, sigma=nothing, delay_s=0.3,
        frames=0, used=0, masked=0, repeated=0, lost=0, resets=0, updates=round(k * seconds / UPDATE_S),
    )  # fmt: skip
    return replace(said, **changes)  # type: ignore[arg-type]


class Residuals:
    """Squared residuals of an active model: independent gamma-distributed sums, with a level for each joint."""

    def __init__(self, seed: int, per_s: float = 10.0) -> None:
        self.rng, self.per_s = np.random.default_rng(seed), per_s
        self.squares, self.rows = np.zeros(N), np.zeros(N)

    def after(self, seconds: float, level: object = 1.0) -> tuple[np.ndarray, np.ndarray]:
        shape = 0.5 * self.per_s * seconds
        rows = seconds / UPDATE_S
        self.squares = self.squares + np.asarray(level) * rows * self.rng.gamma(shape, 1.0 / shape, N)
        self.rows = self.rows + rows
        return self.squares, self.rows


def still(k: int) -> tuple[np.ndarray, np.ndarray]:
    return np.full(N, 100.0 * k), np.full(N, 100.0 * k)


@pytest.mark.parametrize(("step", "looks"), [(1.0 / 120.0, 5), (0.05, 1)])
def test_a_run_beyond_a_level_is_as_seldom_as_worked_out(step: float, looks: int) -> None:
    rng = np.random.default_rng(4)
    count, level = 4000, 1.7
    keep = np.exp(-step)
    x = rng.standard_normal(10 * count)
    x = x[x < level][:count]
    run, length, k = np.zeros(count, int), [], 0
    while x.size:
        k += 1
        x = keep * x + np.sqrt(1.0 - keep**2) * rng.standard_normal(x.size)
        run = np.where(x > level, run + 1, 0)
        length += [k] * int((run == looks).sum())
        x, run = x[run < looks], run[run < looks]
    expected = looks_until_a_run(level, step, looks)
    assert np.mean(length) == pytest.approx(expected, abs=4.0 * np.std(length) / np.sqrt(count))


def test_limits_of_runs_are_reached_at_the_rate_asked_for() -> None:
    rate_hz = 1.0 / 3600.0
    limit = run_limit(rate_hz, MEMORY_S, P, 1.0, 5)
    assert 2.0 * P / looks_until_a_run(limit, 1.0 / MEMORY_S, 5) == pytest.approx(rate_hz, rel=1e-2)
    assert 1.5 <= run_limit(rate_hz, 0.5, P, 1.0, 5) < limit
    assert run_limit(rate_hz, np.inf, P, 1.0, 5) == run_limit(rate_hz, 1e4, P, 1.0, 5) < limit


def test_false_alarms_come_at_the_stated_rate() -> None:
    """25 hours of estimates at 10 Hz, as much wider than stated as is allowed for; and never more often."""
    found = drift_alarms(25.0, 0.25, BETTER, seed=3)
    assert found["within"], found
    assert found["residuals"] <= 0.05 * found["expected"]
    found = drift_alarms(25.0, 0.25, ALIKE, seed=4)
    assert found["no_more"], found
    assert found["alarms"] > 0.2 * found["expected"]


def test_a_changed_parameter_is_named_with_old_and_new_value() -> None:
    watched = adopted()
    changes: list[Change] = []
    for k in range(1, 100):
        theta = THETA.copy()
        theta[6] *= 1.0 + min(0.3, 0.005 * max(0, k - 20))  # coulomb friction of the second joint
        changes += watched.observe(report(k, theta), still(k))
    (change,) = changes
    assert (change.kind, change.joints, change.parameters) == ("drift", ("joint_2",), ("fc2",))
    assert "fc2" in change.text
    found = watched.report()
    assert found.state == "drifted"
    assert found.joints == {"joint_1": "steady", "joint_2": "drifted", "joint_3": "steady", "joint_4": "steady"}
    (parameter,) = found.parameters
    assert (parameter.name, parameter.joint) == ("fc2", "joint_2")
    assert parameter.old == THETA[6]
    assert parameter.new == pytest.approx(1.3 * THETA[6])
    assert parameter.std == pytest.approx(np.sqrt(2.0) * STD[6])
    # the difference reaches 7.0 of its own deviations, and a tenth of the value, between 41 and 45 s, then lasts 5 s
    assert 40.0 < found.since_ns * 1e-9 < 55.0
    (cleared,) = watched.set_model(1.1 * THETA, np.diag(STD**2), adopted=True)
    assert cleared.kind == "drift_cleared"
    assert watched.report().state == "steady"
    assert watched.set_model(None) == ()
    assert watched.report().state == "off"


@pytest.mark.parametrize(
    ("what", "seen"),
    [
        ({}, True),
        ({"scale": np.full(P, 0.05)}, False),  # a change that moves the torque by 0.05 of the noise
        ({"std": np.full(P, 1.0)}, False),  # a value that is not known well enough
        ({"excited": np.zeros(P, bool)}, False),  # a value that nothing has shown since
        ({"status": ("unestimated",) * P}, False),
        ({"status": ("stale",) * P}, True),
    ],
)
def test_only_what_is_known_and_matters_counts(what: dict[str, object], seen: bool) -> None:
    watched = adopted()
    for k in range(1, 60):
        watched.observe(report(k, 1.3 * THETA, **what), still(k))
    assert (watched.report().state == "drifted") == seen
    if seen:
        assert len(watched.report().parameters) == P


def test_a_model_that_does_not_know_a_parameter_says_nothing_of_it() -> None:
    watched = detector()
    variance = STD**2
    variance[:10], variance[10:15] = 0.0, np.inf
    watched.set_model(THETA, np.diag(variance), adopted=True)
    for k in range(1, 60):
        watched.observe(report(k, 1.3 * THETA), still(k))
    assert {p.joint for p in watched.report().parameters} == {"joint_4"}


def test_a_model_that_was_not_adopted_is_compared_after_a_memory() -> None:
    """Until then the estimate holds what it saw before the model was made."""
    watched = detector()
    watched.set_model(THETA, np.diag(STD**2))
    for k in range(1, 118):
        assert watched.observe(report(k, 1.3 * THETA), still(k)) == ()
    assert [c.kind for k in range(118, 140) for c in watched.observe(report(k, 1.3 * THETA), still(k))] == ["drift"]


def test_a_joint_whose_residual_rises_has_drifted_though_no_parameter_shows_it() -> None:
    watched, residuals = adopted(), Residuals(5)
    changes: list[Change] = []
    level = np.ones(N)
    for k in range(1, 900):
        level[2] = 1.0 if k < 600 else 4.0
        changes += watched.observe(report(k, THETA), residuals.after(1.0, level))
        if k < 600:
            assert changes == []
    (change,) = changes
    assert change.joints == ("joint_3",)
    assert change.parameters == ()
    found = watched.report()
    assert found.levels["joint_3"] == pytest.approx(4.0, rel=0.5)
    assert found.since_ns < 630e9


def test_standing_still_and_a_reset_are_no_drift() -> None:
    watched = adopted()
    for k in range(1, 15):
        watched.observe(report(k, THETA), still(k))
    for _ in range(1000):  # the same update again and again
        assert watched.observe(report(15, 1.3 * THETA), still(15)) == ()
    reset = {"resets": 1}
    assert watched.observe(report(1, 1.3 * THETA, **reset), still(0)) == ()
    for k in range(2, 10):
        assert watched.observe(report(k, 1.3 * THETA, **reset), still(k - 1)) == ()


def test_a_torque_that_is_not_explained_is_reported_once_and_taken_back_once() -> None:
    watched = detector()
    status = ["estimated"] * P
    bad = list(status)
    for k in (5, 6, 12, 13, 14):  # friction of the second joint, and the third's link
        bad[k] = "invalid"
    told: list[Change] = []
    for k in range(1, 100):
        said = tuple(bad if k == 3 or 20 <= k < 60 else status)  # once for a moment, then for long
        told += watched.observe(report(k, THETA, status=said), still(k))
    assert [change.kind for change in told] == ["invalid", "valid_again"]
    assert told[0].joints == ("joint_2",)
    assert told[0].parameters == ("fv2", "fc2", "m3", "mx3", "my3")


@pytest.mark.parametrize("waited", [7, 14])
def test_a_restart_in_the_middle_of_the_waiting_time(waited: int) -> None:
    """The times of excitation and of being beyond the limit go on: the alarm comes as if nothing had been."""

    def said(watched: DriftDetector, first: int, last: int) -> list[tuple[int, str]]:
        invalid = ("invalid",) + ("estimated",) * (P - 1)  # of which two looks are needed as well
        found = []
        for k in range(first, last):
            status = invalid if k >= 14 else ("estimated",) * P
            changes = watched.observe(report(k, 1.3 * THETA, status=status), residuals[k])
            found += [(k, change.kind) for change in changes]
        return found

    rising = Residuals(7)
    residuals = {k: rising.after(1.0) for k in range(1, 30)}
    whole, one, other = adopted(), adopted(), detector()
    told = said(whole, 1, 30)
    assert {kind for _, kind in told} == {"drift", "invalid"}
    first = said(one, 1, waited + 1)
    other.restore(one.state())
    assert first + said(other, waited + 1, 30) == told
    assert other.report() == whole.report()
    assert other.report().state == "drifted"
    for name, value in other.state().items():
        np.testing.assert_array_equal(value, whole.state()[name])
    with pytest.raises(ValueError, match="size"):
        other.restore({**one.state(), "joints": np.zeros((3, 2))})
    with pytest.raises(ValueError, match="lacks"):
        other.restore({})
    assert other.report() == whole.report()


def test_two_looks_are_needed_however_long_ago_the_last_was() -> None:
    watched = adopted()
    invalid = ("invalid",) * PER_JOINT + ("estimated",) * (P - PER_JOINT)
    step_s = 8.0
    for k in range(1, 5):
        assert watched.observe(report(k, THETA, step_s), still(k)) == ()
    assert watched.observe(report(5, 1.3 * THETA, step_s), still(5)) == ()
    assert watched.observe(report(6, THETA, step_s, status=invalid), still(6)) == ()
    assert watched.observe(report(7, 1.3 * THETA, step_s), still(7)) == ()
    (drift,) = watched.observe(report(8, 1.3 * THETA, step_s), still(8))
    assert drift.kind == "drift"
    assert watched.observe(report(9, THETA, step_s, status=invalid), still(9)) == ()
    (unexplained,) = watched.observe(report(10, THETA, step_s, status=invalid), still(10))
    assert unexplained.kind == "invalid"


@pytest.mark.parametrize("spoiled", [True, False])
def test_what_is_known_to_be_something_else_is_no_drift(spoiled: bool) -> None:
    watched = adopted()
    for k in range(1, 20):
        watched.observe(report(k, THETA), still(k))
    invalid = ("invalid",) + ("estimated",) * (P - 1)
    told = [
        c.kind for k in range(20, 60) for c in watched.skip(report(k, 1.3 * THETA, status=invalid), spoiled=spoiled)
    ]
    assert told == ["invalid"]  # which is looked for all the same
    looks = {k: watched.observe(report(k, 1.3 * THETA), still(k)) for k in range(60, 200)}
    (at,) = [k for k, changes in looks.items() if "drift" in [change.kind for change in changes]]
    assert at >= 59 + MEMORY_S if spoiled else at < 70
