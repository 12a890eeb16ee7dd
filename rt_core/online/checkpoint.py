"""What an estimate was at some moment, to go back to."""

from __future__ import annotations

from dataclasses import dataclass

from rt_core.online import _state as m
from rt_core.types import FloatArray, IntArray


@dataclass(frozen=True)
class Checkpoint:
    """What an estimate was at some moment; of use to the estimator that made it.

    Attributes
    ----------
    floats, ints : arrays
        Its memory.
    validated, excited_at : (p,) float64
        Newest values that could be believed, and when each parameter was excited last [s].
    seen : (2, n) float64
        Temperatures that it has learned from [degC].
    generation : int
        Of estimates of one estimator that began from something else.
    """

    floats: FloatArray
    ints: IntArray
    validated: FloatArray
    excited_at: FloatArray
    seen: FloatArray
    generation: int

    @classmethod
    def of(
        cls, memory: m.Memory, validated: FloatArray, excited_at: FloatArray, seen: FloatArray, generation: int
    ) -> Checkpoint:
        """Copy what an estimator has."""
        return cls(
            memory.floats.copy(), memory.ints.copy(), validated.copy(), excited_at.copy(), seen.copy(), generation
        )  # fmt: skip

    def put_into(self, memory: m.Memory) -> None:
        """Copy it back; the time and the counters of frames in `memory` stay."""
        counters = memory.ints[m.FRAMES : m.UPDATES].copy()
        time = memory["scalars"][m.TIME]
        memory.floats[:], memory.ints[:] = self.floats, self.ints
        memory.ints[m.FRAMES : m.UPDATES] = counters
        memory["scalars"][m.TIME] = time
