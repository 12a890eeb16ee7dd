"""Settings of the online estimator of an elastic joint, errors known from an off-line fit, and its report."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from annotated_types import Interval, Lt

from rt_core.elastic.identify import ElasticParameter
from rt_core.settings import Bounded, NonNegative, Positive
from rt_core.types import FloatArray


@dataclass(frozen=True)
class ElasticOnlineSettings(Bounded):
    """Filters and forgetting of the estimator."""

    cutoff_hz: Positive = 10.0  # cut-off (-6 dB) of the linear-phase low-pass on both sides of the regression
    update_hz: Positive = 100.0  # rate of the rows, each of which updates the parameters
    # alpha, beta: variable forgetting (Sun et al., eq. 44), per update: lambda = (1 - alpha) + alpha*exp(beta*e^2)
    alpha: Annotated[float, Interval(gt=0.0, lt=1.0)] = 0.05
    beta: Annotated[float, Lt(0.0)] = -4.68
    # constant forgetting factor per update, instead of the variable one
    constant: Annotated[float, Interval(ge=0.5, le=1.0)] | None = None
    min_velocity: NonNegative = 2e-3  # joint-side speed below which samples are left out [rad/s]
    smoothing: NonNegative = 0.0  # `eps` of `tanh(v/eps)` in place of the sign of the speed [rad/s], joint side
    # standard deviation of each initial value, as a share of it.  Forgetting never exceeds it
    start_spread: Positive = 1.0
    excitation_s: Positive = 5.0  # window of the excitation report [s]; it covers the last one to two windows
    # motion after which the noise level is valid [s]; before, a share of the torque is added to it
    settle_s: Positive = 10.0
    # missing frames are bridged up to this long [s]; None for a quarter period of the cut-off
    max_gap_s: Positive | None = None
    # largest possible speed [rad/s], joint side: a frame whose angles imply a higher one is left out
    top_velocity: Positive = 30.0


@dataclass(frozen=True)
class DeflectionErrors:
    """Errors of deflection, lag and zero, from the off-line fit that an online estimate starts from.

    They bias a stiffness by an amount that the direct regression alone does not show.
    """

    # by name, inverse less direct regression; intervals span both
    shift: Mapping[str, float] = field(default_factory=dict)
    # by name, the standard deviation due to lag and zero, which are taken as exact online
    std: Mapping[str, float] = field(default_factory=dict)
    doubtful: bool = False  # the off-line values are doubtful, and so are estimates from the same motion


@dataclass(frozen=True)
class Deflection:
    """Lag of the link encoder [s], zero and errors of the deflection [rad], from an off-line fit."""

    lag_s: float = 0.0
    zero: float = 0.0
    # without them every status is "doubtful" at best: the direct regression alone does not show them
    errors: DeflectionErrors | None = None


#: The deflection as it is measured.
MEASURED = Deflection()


@dataclass(frozen=True)
class ElasticEstimate:
    """Present estimate with uncertainties, validity and counters."""

    t_s: float  # instant of the latest row in the estimate, filter delay subtracted; NaN before the first
    # "determined", "weak", "doubtful", or "undetermined"; the last have a reason instead of a value.  All are doubtful
    # at best while the joint is `changing`, the estimate not `valid`, or errors of the deflection unknown or large
    parameters: tuple[ElasticParameter, ...]
    # whether the last few seconds alone, masked frames included, would determine each parameter
    excited: tuple[bool, ...]
    valid: bool
    reason: str | None  # why the estimate must not be used
    changing: bool  # the joint has changed and part of the data is from before, which the intervals do not include
    lam: float  # latest forgetting factor, per update
    relative_error: float  # innovation over torque of the latest row, root mean square of motor and sensor
    # innovation, sigma: (r,) latest innovation of motor and sensor, and its usual size [N*m]; joint side
    innovation: FloatArray
    sigma: FloatArray
    delay_s: float
    # frames, masked, repeated, gaps, rejected, updates: `masked` frames were not finite, `repeated` ones not later than
    # the one before, `gaps` too long to bridge; `rejected` rows were outliers
    frames: int
    masked: int
    repeated: int
    gaps: int
    rejected: int
    updates: int

    def __getitem__(self, name: str) -> ElasticParameter:
        """Return the parameter `name`."""
        return next(p for p in self.parameters if p.name == name)
