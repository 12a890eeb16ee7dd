"""Result of a calibration."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rt_core.calibration.error_model import ErrorModel
from rt_core.calibration.identifiability import Fixed
from rt_core.calibration.prediction import Expected
from rt_core.calibration.selection import Observability
from rt_core.calibration.uncertainty import Dependence
from rt_core.types import BoolArray, FloatArray, IntArray

Verdict = Literal["ok", "undetermined", "not_explained", "outliers", "at_bound", "not_converged", "no_gain", "overfit"]
Status = Literal["determined", "imprecise", "prior", "undetermined"]
#: Share of the variance from priors above which a parameter is known by its prior.
CARRIED = 0.5


@dataclass(frozen=True)
class ParameterEstimate:
    """Geometric parameter of the arm.

    Attributes
    ----------
    status : str
        "determined"; "imprecise": fitted because it improves the prediction, but too uncertain by itself; "prior":
        known from its prior more than from the poses; "undetermined": nominal.
    value, std : float or None
        Error relative to `nominal` and its standard deviation, in `unit`; None if the data do not determine it.
    prior : float or None
        Standard deviation of its prior; None without one.
    """

    name: str
    unit: str
    nominal: float
    status: Status
    value: float | None = None
    std: float | None = None
    prior: float | None = None

    @property
    def relative_std(self) -> float | None:
        """`std` over the absolute `value`; None without a value, or if it is zero."""
        return None if not self.value or self.std is None else self.std / abs(self.value)


@dataclass(frozen=True, eq=False)
class FrameEstimate:
    """Base in the measuring frame, or tool in the last frame of the geometry."""

    translation: tuple[float | None, ...]  # (3,) [m]; None along undetermined axes
    translation_std: tuple[float | None, ...]  # (3,) [m]
    rotation: FloatArray | None  # (3, 3); None if undetermined about some axis
    rotation_std: tuple[float | None, ...]  # (3,) [rad] about the frame's own axes


@dataclass(frozen=True)
class Errors:
    """Distances between measured and predicted positions [m], and angles [rad] where orientation is measured."""

    mean: float
    rms: float
    maximum: float
    angle_mean: float | None = None
    angle_maximum: float | None = None

    @classmethod
    def of(cls, residual: FloatArray) -> "Errors":
        """Return the errors of residuals (N, 3), (N, 6) or (N, 1), N at least 1."""
        distance = np.linalg.norm(residual[:, :3], axis=1)
        found = float(distance.mean()), float(np.sqrt(np.mean(distance**2))), float(distance.max())
        if residual.shape[1] < 6:
            return cls(*found)
        angle = np.linalg.norm(residual[:, 3:], axis=1)
        return cls(*found, float(angle.mean()), float(angle.max()))


@dataclass(frozen=True)
class Accuracy:
    """Errors of the same poses with nominal geometry (base and tool fitted if parameters) and calibrated.

    `postures` of the `count` poses are distinct.
    """

    count: int
    before: Errors
    after: Errors
    postures: int


@dataclass(frozen=True)
class Change:
    """A change between two poses."""

    at: int  # first pose after it
    what: str  # "instrument" (or the base), "tool" or "joint 2"
    # translation [m] and rotation [rad] of the instrument, or the tool, or the joint's zero [rad] or [m]
    size: tuple[float, ...]
    left: float  # share of the root-mean-square error that is left without it


@dataclass(frozen=True)
class Doubts:
    """Measurements that do not fit."""

    poses: tuple[int, ...] = ()  # fitted poses with errors above 8 scales of the others; numbers within all poses
    exchanged: tuple[tuple[int, int], ...] = ()  # pairs of them that fit each other's measurement
    dominant: bool = False  # whether they dominate the error of a fit that includes them
    unit: str = ""  # unit, sign, scale, order or convention that explains the measurements much better; may be empty
    unit_left: float | None = None  # share of the typical error that is left with it
    needed: int = 0  # fitted poses needed for a search for bad ones if there were too few; else 0
    change: Change | None = None  # what explains half of the squared error, or more, as a change in time


@dataclass(frozen=True, eq=False)
class Calibration:
    """Estimated geometry of an arm."""

    model: ErrorModel
    x: FloatArray  # (P,) all errors, zero where held
    # all parameters of the arm; with values if the verdict is "ok" or "not_converged"
    parameters: tuple[ParameterEstimate, ...]
    # if estimated; without values if the verdict is "not_explained", "overfit" or "at_bound"
    base: FrameEstimate | None
    tool: FrameEstimate | None  # likewise
    # the base in the instrument's frame at its second station, and so on; `base` is that at the first
    stations: tuple[FrameEstimate, ...]
    free: tuple[str, ...]  # fitted parameters of arm, base and tool
    covariance: FloatArray  # (p, p) of those, including the errors of parameters held as imprecise
    # whether errors of successive fitted poses are correlated; then the covariance is that of blocks
    dependence: Dependence
    freedom: float  # degrees of freedom of the standard deviations: of the residual, or of the blocks
    fixed: tuple[Fixed, ...]  # all others, with the reason
    correlated: tuple[tuple[str, str, float], ...]  # pairs of free parameters with an absolute correlation above 0.9
    condition_number: float  # of the scaled columns of the free parameters that the fitted poses alone determine
    observability: Observability  # indices O1 to O5 of the fitted poses, for the same parameters
    scale: FloatArray  # (2,) standard deviation of a coordinate: positions [m], rotations [rad] (NaN if not measured)
    training: Accuracy  # of the fitted poses
    test: Accuracy | None  # of the others, if there are any
    # (N, 3), (N, 6) or (N, 1): model minus measurement of every pose, [m] and [rad], along the axes of the first
    # station's frame; for sockets from the mean of the socket's fitted poses or, if there are none, of all others in
    # it; for distances the distance alone
    residual_before: FloatArray
    residual_after: FloatArray  # likewise
    weights: FloatArray  # (N,) weight of each pose in the loss, also of those not fitted
    # (N,) poses with less than a quarter of the weight in a robust fit, which is made if least squares leave large
    # errors
    outlying: BoolArray
    # "ok"; "undetermined": the poses determine nothing of the arm; "not_explained": the error is too large for errors
    # of geometry; "outliers": poses that do not fit dominate it; "no_gain": no better than the nominal geometry;
    # "overfit": much worse on the test poses; "at_bound": some parameter is at its limit; "not_converged": the
    # optimiser ended before the minimum, and the covariance includes the remaining distance
    verdict: Verdict
    reasons: tuple[str, ...]  # one sentence each
    evaluations: int  # of the objective, by the selected method
    doubts: Doubts  # poses that do not fit at all, and possible causes of a bad result
    held: tuple[str, ...]  # parameters held as imprecise
    joint_covariance: FloatArray  # (p + h, p + h) of `free` and of `held`, whose errors are correlated
    expected: Expected  # error that new poses of the arm will have

    @property
    def places(self) -> FloatArray:
        """Unknown fixed points (G, 3) [m] in the robot's base; empty with an instrument."""
        return self.model.places(self.x)

    def predict(
        self, q: FloatArray, load: FloatArray | None = None, head: IntArray | None = None,
        station: IntArray | None = None,
    ) -> tuple[FloatArray, FloatArray]:  # fmt: skip
        """Return positions (N, 3) [m] and rotations (N, 3, 3) of the calibrated arm, as measured, at `q` (N, n).

        Arguments as for `ErrorModel.predict`.  Without measured orientation the rotations are of the nominal tool.
        """
        return self.model.predict(q, self.x, load, head, station)


def carried_by_prior(names: Sequence[str], share: FloatArray) -> set[str]:
    """Return the fitted parameters `names` (p,) that are known by priors more than by poses; `share` (p,) of each."""
    return {name for name, on in zip(names, share > CARRIED, strict=True) if on}


def arm_parameters(
    model: ErrorModel, x: FloatArray, std: dict[str, float], doubtful: Collection[str] = (),
    carried: Collection[str] = (), prior: FloatArray | None = None,
) -> tuple[ParameterEstimate, ...]:  # fmt: skip
    """Return the estimates of the arm's parameters; `std` has the fitted ones.

    `doubtful` of these are imprecise and `carried` known by priors, whose standard deviations are `prior` (P,).
    """
    out = []
    for k, (name, unit) in enumerate(zip(model.names, model.units, strict=True)):
        if not model.of_arm[k]:
            continue
        nominal = float(model.nominal[k])
        believed = None if prior is None or not np.isfinite(prior[k]) else float(prior[k])
        if name in std:
            status: Status = "prior" if name in carried else "imprecise" if name in doubtful else "determined"
            out.append(ParameterEstimate(name, unit, nominal, status, float(x[k]), std[name], believed))
        else:
            out.append(ParameterEstimate(name, unit, nominal, "undetermined", prior=believed))
    return tuple(out)


def frame_estimate(model: ErrorModel, which: str, x: FloatArray, std: dict[str, float]) -> FrameEstimate | None:
    """Return the estimate of the base (of a station) or the tool; None if it has no parameters."""
    if model.belongs_to(which).size == 0:
        return None
    rotation, translation = model.frame(which, x)
    shifts = tuple(std.get(f"{which}_{label}") for label in ("x", "y", "z"))
    turns = tuple(std.get(f"{which}_{label}") for label in ("rx", "ry", "rz"))
    values = tuple(None if s is None else float(t) for s, t in zip(shifts, translation, strict=True))
    return FrameEstimate(values, shifts, None if None in turns else rotation, turns)
