"""Report of the online estimator of an elastic joint at one instant."""

from __future__ import annotations

from dataclasses import dataclass

from rt_core.elastic.identify import ElasticParameter
from rt_core.types import FloatArray


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
