"""Report of the online estimator at one instant."""

from dataclasses import dataclass
from typing import Literal

from rt_core.types import BoolArray, FloatArray

EstimateStatus = Literal["unestimated", "estimated", "stale", "frozen", "invalid", "doubted", "starved"]


@dataclass(frozen=True)
class EstimateReport:
    """Present estimate with uncertainties, status and counters.

    Attributes
    ----------
    t_ns : int
        Instant of the latest data in the estimate, filter delay subtracted.
    theta, std : (p,) float64
        Base parameters and their standard deviations.
    validated : (p,) float64
        Last value that the data supported, NaN before the first.
    status : tuple of str
        "unestimated", "estimated", "stale", "frozen", "invalid", "doubted" or "starved" per parameter.
    excited : (p,) bool
        Whether the last few seconds alone would determine the parameter.
    scale : (p,) float64
        Root-mean-square torque per unit of each parameter, in units of the joints' noise; 0 before any has moved.
    lam : (n,) float64
        Forgetting factor per update and joint.
    innovation : (n,) float64
        Latest innovation [N*m], NaN for a joint at rest.
    sigma : (n,) float64
        Usual size of the innovation [N*m].
    delay_s : float
    frames, used, masked, repeated, lost, resets, updates : int
    """

    t_ns: int
    theta: FloatArray
    validated: FloatArray
    std: FloatArray
    status: tuple[EstimateStatus, ...]
    excited: BoolArray
    scale: FloatArray
    lam: FloatArray
    innovation: FloatArray
    sigma: FloatArray
    delay_s: float
    frames: int
    used: int
    masked: int
    repeated: int
    lost: int
    resets: int
    updates: int
