"""What the online estimator says at one moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rt_core.types import BoolArray, FloatArray

EstimateStatus = Literal["unestimated", "estimated", "stale", "frozen", "invalid"]


@dataclass(frozen=True)
class EstimateReport:
    """What is known at present.

    Attributes
    ----------
    t_ns : int
        The instant the newest data in the estimate belong to: filter delay taken off.
    theta, std : (p,) float64
        Base parameters and their standard deviations.
    validated : (p,) float64
        The last value that was supported by the data, NaN before the first.
    status : tuple of str
        "unestimated", "estimated", "stale", "frozen" or "invalid" per parameter.
    excited : (p,) bool
        Which parameters the last few seconds alone would determine.
    scale : (p,) float64
        Torque by which a unit of each parameter moves its joints, root mean square, in units of their noise; 0 before
        any of them has moved.
    lam : (n,) float64
        Forgetting factor per update and joint.
    innovation : (n,) float64
        Newest innovation [N*m], NaN for a joint at rest.
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
