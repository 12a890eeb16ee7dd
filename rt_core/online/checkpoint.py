"""Snapshot of an online estimate, for a rollback."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rt_core.online import _state as m
from rt_core.types import FloatArray, IntArray


@dataclass(frozen=True)
class Checkpoint:
    """Snapshot of an estimate, valid only for the estimator that made it.

    Attributes
    ----------
    floats, ints : arrays
        Of the `EstimatorState`.
    validated, excited_at : (p,) float64
        Last values supported by the data, and when each parameter was excited last [s].
    seen : (2, n) float64
        Lowest and highest temperatures that the estimate is based on [degC].
    generation : int
        Generation of the estimate; see `OnlineEstimator.generation`.
    trust : mapping
        State of the `TrustMonitor`.
    """

    floats: FloatArray
    ints: IntArray
    validated: FloatArray
    excited_at: FloatArray
    seen: FloatArray
    generation: int
    trust: Mapping[str, Any]

    @classmethod
    def of(
        cls, state: m.EstimatorState, validated: FloatArray, excited_at: FloatArray, seen: FloatArray, generation: int,
        trust: Mapping[str, Any],
    ) -> Checkpoint:  # fmt: skip
        """Copy the state of an estimator."""
        floats, ints = state.floats.copy(), state.ints.copy()
        return cls(floats, ints, validated.copy(), excited_at.copy(), seen.copy(), generation, trust)

    def put_into(self, state: m.EstimatorState) -> None:
        """Copy the snapshot into `state`, except for its time and counters of frames."""
        counters = state.ints[m.FRAMES : m.UPDATES].copy()
        time = state["scalars"][m.TIME]
        state.floats[:], state.ints[:] = self.floats, self.ints
        state.ints[m.FRAMES : m.UPDATES] = counters
        state["scalars"][m.TIME] = time
