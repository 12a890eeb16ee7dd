"""A saved state of the online estimator: checked as a whole before anything is taken from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rt_core.online import _state as m
from rt_core.online._migration import EARLIER, from_earlier
from rt_core.types import FloatArray

#: Format of the saved state; those of `EARLIER` are taken over.
STATE_FORMAT = 6
# Fields of a saved state that are finite at any time; innovations of joints at rest are not.
_LEARNED = (
    "theta", "R", "short", "leak", "power", "power_count", "shape", "load_theta", "sigma_sum", "sigma_count", "sigma2",
    "inflation_sum", "inflation_count", "weight2", "innovation2", "torque2", "torque_mean2", "moved", "forgetting",
    "excess", "block_sum", "block_count", "misfit", "misfit_count", "evidence", "evidence_rows",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class SavedState:
    """What a saved state holds beside the memory: `validated` and `excited_at` (p,), and counters.

    `temperatures` (2, n) are the lowest and the highest that it has learned from, NaN where it says nothing.
    """

    validated: FloatArray
    excited_at: FloatArray
    temperatures: FloatArray
    lost: int
    resets: int


def take_saved(state: Mapping[str, Any], state_hash: str, memory: m.Memory, p: int) -> SavedState:
    """Fill `memory`, of an estimator of `p` parameters, from `state` and return the rest of it.

    Raises
    ------
    ValueError
        If the state is of another format, model or settings, or damaged; then `memory` has not changed.
    """
    if state.get("format") not in (*EARLIER, STATE_FORMAT):
        known = ", ".join(map(str, EARLIER))
        raise ValueError(f"state format {state.get('format')!r}, this version reads {known} and {STATE_FORMAT}")
    if state.get("hash") != state_hash:
        raise ValueError("the saved state belongs to another robot or other settings")
    missing = [key for key in ("floats", "ints", "validated", "excited_at") if state.get(key) is None]
    if missing:
        raise ValueError(f"the saved state lacks {', '.join(missing)}")
    floats, validated, excited_at = (
        np.array(state[key], dtype=np.float64) for key in ("floats", "validated", "excited_at")
    )
    ints = np.asarray(state["ints"], dtype=np.int64)
    if state["format"] in EARLIER:
        floats, ints = from_earlier(int(state["format"]), floats, ints, memory)
    if floats.shape != memory.floats.shape or ints.shape != memory.ints.shape:
        raise ValueError("the saved state has another size")
    if validated.shape != (p,) or excited_at.shape != (p,):
        raise ValueError("the saved state has another number of parameters")
    if not np.array_equal(ints[: m.FRAMES], memory.ints[: m.FRAMES]):
        raise ValueError("the saved state has other sizes")
    if not np.array_equal(ints[m.HEAD :], memory.ints[m.HEAD :]):
        raise ValueError("the saved state has another layout")
    n = int(memory.ints[m.N])
    temperatures = np.array(state.get("temperatures", np.full((2, n), np.nan)), dtype=np.float64)
    if temperatures.shape != (2, n):
        raise ValueError("the saved state has temperatures of another number of joints")
    lost, resets = int(state.get("lost", 0)), int(state.get("resets", 0))
    backup = memory.floats.copy(), memory.ints.copy()
    memory.floats[:] = floats
    memory.ints[:] = ints
    bad = [name for name in _LEARNED if not np.isfinite(memory[name]).all()]
    if bad or not np.diag(memory["R"][:, :p] * memory["scalars"][m.ROOT_SCALE]).all():
        memory.floats[:], memory.ints[:] = backup
        what = f"values that are not finite in {', '.join(bad)}" if bad else "a singular information matrix"
        raise ValueError(f"the saved state holds {what}")
    return SavedState(validated, excited_at, temperatures, lost, resets)
