"""What the online estimator of an elastic joint says at one moment."""

from __future__ import annotations

from dataclasses import dataclass

from rt_core.elastic.identify import ElasticParameter
from rt_core.types import FloatArray


@dataclass(frozen=True)
class ElasticEstimate:
    """What is known at present.

    Attributes
    ----------
    t_s : float
        The instant the newest row in the estimate belongs to: filter delay taken off.  NaN before the first.
    parameters : tuple of ElasticParameter
        "determined", "weak", "doubtful", or "undetermined"; the last have no value but a reason.  All are doubtful at
        best while the joint is `changing`, the estimate not `valid`, or errors of the deflection unknown or large.
    excited : tuple of bool
        Of each parameter, whether the last few seconds alone would determine it; masked frames are seconds, too.
    valid : bool
    reason : str or None
        Why the estimate must not be used.
    changing : bool
        The joint has changed, and what is remembered is in part from before: no interval tells of that.
    lam : float
        Newest forgetting factor, per update.
    relative_error : float
        Of the newest row: innovation over torque, root mean square of motor and sensor.
    innovation, sigma : (r,) float64
        Newest innovation of motor and sensor, and its usual size [N*m]; joint side.
    delay_s : float
    frames, masked, repeated, gaps, rejected, updates : int
        `masked` frames were not finite, `repeated` not later than the one before, `gaps` too long to bridge;
        `rejected` rows were outliers.
    """

    t_s: float
    parameters: tuple[ElasticParameter, ...]
    excited: tuple[bool, ...]
    valid: bool
    reason: str | None
    changing: bool
    lam: float
    relative_error: float
    innovation: FloatArray
    sigma: FloatArray
    delay_s: float
    frames: int
    masked: int
    repeated: int
    gaps: int
    rejected: int
    updates: int

    def __getitem__(self, name: str) -> ElasticParameter:
        """Return the parameter `name`."""
        return next(p for p in self.parameters if p.name == name)
