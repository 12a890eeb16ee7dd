"""Verdict on a calibration, and what to change if it must not be used."""

from collections.abc import Sequence

import numpy as np
import scipy

from rt_core.calibration import _robust as robust
from rt_core.calibration.error_model import ErrorModel
from rt_core.calibration.fit import Objective
from rt_core.calibration.prediction import NOTHING
from rt_core.calibration.result import Verdict
from rt_core.robust_loss import Loss
from rt_core.types import BoolArray, FloatArray, IntArray

#: Significance level of an improvement.
SIGNIFICANCE = 0.01
#: Test errors over expected ones from which a significant difference is an overfit.
OVERFIT = 1.5
#: Largest error of geometry, as a share of the spread of the measurements.
UNEXPLAINED = 0.1
#: Largest error left by instrument and arm, as a share of the distance from the base ...
LARGE = 5e-3
#: ... or over the expected noise.
BEYOND_NOISE = 3.0
#: Largest share of outliers in a robust fit; with more, two parts of the data may disagree.
MAX_OUTLYING = 0.2

#: Nothing of the arm is determined, although not all of it is excluded.
BLIND = "these poses determine no parameter of the arm: move all joints, over a wide range"
SIZE_UNKNOWN = (
    "a ball in sockets does not show the size of the arm: give spacings between sockets that are fitted, exclude a "
    "length that is known, or give prior_length"
)


def judged(
    objective: Objective, residuals: tuple[FloatArray, FloatArray], parts: tuple[BoolArray, BoolArray],
    width: FloatArray, converged: bool, expected_noise: float | None = None,
) -> tuple[Verdict, tuple[str, ...]]:  # fmt: skip
    """Return the verdict and its reasons; of several verdicts, the one to be dealt with first.

    `residuals` before and after (N, k), one a distinct posture, have the variance of a pose's error, also of a socket
    at the mean of its poses.  `parts` (N,) are the postures that are fitted, and those that test the result.
    """
    (before, after), (use, tested) = residuals, parts
    model, free = objective.model, objective.free
    loss: Loss = "squares" if objective.loss == "squares" else "bisquare"
    rows = objective.sample.width * len(objective.sample)
    spent = objective.spent()

    def size(residual: FloatArray, spent: float = 0.0) -> float:
        lengths = np.linalg.norm(residual[:, :3], axis=1)
        return robust.scale(lengths, min(residual.shape[1], 3), loss, spent / rows)

    arm = free[model.of_arm[free]]
    sample = objective.sample
    positions = sample.positions if sample.point is None else model.predict(sample.q, objective.x, sample.load)[0]
    at = np.zeros(len(sample), dtype=np.int64) if sample.station is None else sample.station
    middle = np.array([positions[at == s].mean(axis=0) for s in range(model.stations)])
    spread = float(np.sqrt(np.mean((positions - middle[at]) ** 2)))
    left = size(after[use])
    if left > max(UNEXPLAINED * spread, NOTHING):
        return "not_explained", (
            f"the error is {1e3 * left:.3g} mm a coordinate, where the measured positions spread by {1e3 * spread:.3g} "
            "mm: check units, zeros and signs of the joints, the robot, and whether base and tool are known",
        )
    bound = np.flatnonzero(at_bound(objective, width)).tolist()
    if bound:
        return "at_bound", bound_reasons(model, bound)
    if expected_noise is None:
        limit, text = LARGE * _extent(objective), "for what geometry leaves"
    else:
        limit, text = BEYOND_NOISE * expected_noise, f"where {1e3 * expected_noise:.3g} mm are expected"
    if left > max(limit, NOTHING):
        return "not_explained", (
            f"the error left is {1e3 * left:.3g} mm a coordinate, too large {text}: check units, signs, scales and "
            "order of the joints, and whether the instrument was moved; or give the noise as expected_noise",
        )
    if not converged:
        return "not_converged", (
            "the search ended short of the minimum; the standard deviations include the distance left: "
            "use pso_lm or lm, or allow more iterations",
        )
    if arm.size and not _gains(objective, arm, spent):
        return "no_gain", ("the errors of the nominal geometry are no larger than chance explains",)
    if not tested.any():
        return "ok", ()
    nominal, now = size(before[tested]), size(after[tested])
    if arm.size and now >= nominal > NOTHING and _worse(before[tested], after[tested]):
        return "no_gain", (
            f"on the test poses the error is {1e3 * now:.3f} mm with the estimates, {1e3 * nominal:.3f} mm without",
        )
    # errors of new poses exceed the residual of the fit by the cost of its parameters (random normal rows)
    expected = size(after[use], spent) * np.sqrt(1.0 + spent / max(rows - spent - 1.0, 1.0))
    coordinates = min(sample.width, 3)
    counted = coordinates * robust.scale_efficiency(coordinates, loss)
    freedom = max(len(sample) * (1.0 - spent / rows), 0.1) * counted
    luck = scipy.stats.f.isf(SIGNIFICANCE, int(tested.sum()) * counted, freedom)
    if now > max(OVERFIT, np.sqrt(luck)) * expected and now > NOTHING:
        return "overfit", (
            f"the error on the test poses is {1e3 * now:.3f} mm a coordinate, {1e3 * float(expected):.3f} mm "
            "were to be expected: measure more poses, or exclude parameters",
        )
    return "ok", ()


def at_bound(objective: Objective, width: FloatArray) -> BoolArray:
    """Return which errors (P,) are as large as the largest allowed, `width` (P,)."""
    free = np.isin(np.arange(objective.x.size), objective.free)
    return np.asarray(free & (np.abs(objective.x) >= (1.0 - 1e-6) * width))


def bound_reasons(model: ErrorModel, bound: Sequence[int]) -> tuple[str, ...]:
    """Return the reasons of the verdict "at_bound" for the parameters `bound` (from 0)."""
    found = []
    for ranges, units, what in (
        ("range_length", ("m",), ""),
        ("range_angle", ("rad",), ""),
        ("range_compliance", ("rad/(N*m)", "m/N"), ", if the masses of the robot file and gravity are right"),
    ):
        names = [model.names[k] for k in bound if model.units[k] in units]
        if names:
            error = "compliance" if ranges == "range_compliance" else "error"
            found.append(f"{', '.join(names)} reached the largest {error} allowed: widen {ranges}{what}")
    return tuple(found)


def given_up_reason(count: int, of: int) -> str:
    """Return the reason of the verdict "outliers" for a robust fit."""
    return (
        f"{count} of the {of} fitted poses do not fit the others: look for what changed between them, such as an "
        "instrument, base or tool that was moved, and calibrate the parts one by one; an instrument that was moved can "
        "have its places told apart as stations"
    )


def _extent(objective: Objective) -> float:
    """Return the root-mean-square distance of the measured point from the robot's base [m]."""
    s = objective.sample
    positions, _ = objective.model.predict(s.q, objective.x, s.load, s.head)  # as seen from the first station
    _, base = objective.model.frame("base", objective.x)
    return float(np.sqrt(np.mean(np.sum((positions - base) ** 2, axis=1))))


def outliers_reason(count: int) -> str:
    return f"{count} poses that do not fit the others make up most of the error: fit with robust, or leave them out"


def _gains(objective: Objective, arm: IntArray, spent: float) -> bool:
    """Check whether the errors `arm` lower the loss significantly (F test); the fit used `spent` degrees of freedom."""
    nominal = objective.total(np.zeros(objective.free.size))
    fitted = objective.total(objective.x[objective.free])
    left = max(objective.sample.width * len(objective.sample) - spent, 1.0)
    taken = max(spent - (objective.free.size - arm.size), 1.0)
    if np.sqrt(nominal / len(objective.sample)) * objective.scale[0] < NOTHING:
        return False
    ratio = (nominal - fitted) / taken / max(fitted / left, np.finfo(np.float64).tiny)
    return bool(ratio > scipy.stats.f.isf(SIGNIFICANCE, taken, left))


def _worse(before: FloatArray, after: FloatArray) -> bool:
    """Check whether distances (N, 3) or (N, 6) `after` are significantly larger than `before` (signed-rank test)."""
    change = np.linalg.norm(after[:, :3], axis=1) - np.linalg.norm(before[:, :3], axis=1)
    return bool(change.any() and scipy.stats.wilcoxon(change, alternative="greater").pvalue < SIGNIFICANCE)
