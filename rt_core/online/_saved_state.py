"""Restore a saved state of the online estimator: it is checked completely before anything is copied."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rt_core.online import _state as m
from rt_core.types import FloatArray, IntArray

#: First field, by format, that the next format added at the end.
_FIRST_ADDED = {4: "active", 5: "payload"}
EARLIER = tuple(_FIRST_ADDED)
#: Format of the saved state; those of `EARLIER` can be read.
STATE_FORMAT = 6
# Fields that are always finite; innovations of joints at rest are not.
_LEARNED = (
    "theta", "R", "short", "leak", "power", "power_count", "shape", "load_theta", "sigma_sum", "sigma_count", "sigma2",
    "inflation_sum", "inflation_count", "weight2", "innovation2", "torque2", "torque_mean2", "moved", "forgetting",
    "excess", "block_sum", "block_count", "misfit", "misfit_count", "evidence", "evidence_rows",
)  # fmt: skip
# of the tests of the estimate; in the others NaN says that there is none yet
_KNOWN = ("trust_theta", "trust_covariance", "trust_known", "trust_noise", "trust_moved", "trust_velocity")


@dataclass(frozen=True, eq=False)
class SavedState:
    """Further contents of a saved state; `temperatures` (2, n) are the range of the estimate's data, NaN if unknown."""

    validated: FloatArray
    excited_at: FloatArray
    temperatures: FloatArray
    lost: int
    resets: int


def saved_arrays(saved: Mapping[str, Any], like: Mapping[str, Any], what: str = "") -> dict[str, NDArray[Any]]:
    """Return the arrays of a saved state by the names, types and shapes of `like`; `ValueError` if they are others."""
    missing = [name for name in like if saved.get(name) is None]
    if missing:
        raise ValueError(f"the saved state{what} lacks {', '.join(missing)}")
    found = {name: np.array(saved[name], dtype=value.dtype) for name, value in like.items()}
    wrong = [name for name, value in like.items() if found[name].shape != value.shape]
    if wrong:
        raise ValueError(f"the saved state{what} has another size: {', '.join(wrong)}")
    return found


def take_saved(saved: Mapping[str, Any], state_hash: str, state: m.EstimatorState, p: int) -> SavedState:
    """Fill `state` of `p` parameters from `saved`, return the rest; `ValueError`, without a change, if it is wrong."""
    if saved.get("format") not in (*EARLIER, STATE_FORMAT):
        known = ", ".join(map(str, EARLIER))
        raise ValueError(f"state format {saved.get('format')!r}, this version reads {known} and {STATE_FORMAT}")
    if saved.get("hash") != state_hash:
        raise ValueError("the saved state belongs to another robot or other settings")
    if saved["format"] in EARLIER:
        if not {"floats", "ints"} <= saved.keys():
            raise ValueError("the saved state has no floats or ints")
        saved = {**saved, **_from_earlier(saved, state)}
    like = {"floats": state.floats, "ints": state.ints, "validated": np.empty(p), "excited_at": np.empty(p)}
    floats, ints, validated, excited_at = saved_arrays(saved, like).values()
    if not np.array_equal(ints[: m.FRAMES], state.ints[: m.FRAMES]):
        raise ValueError("the saved state has other sizes")
    if not np.array_equal(ints[m.HEAD :], state.ints[m.HEAD :]):
        raise ValueError("the saved state has another layout")
    n = int(state.ints[m.N])
    temperatures = np.array(saved.get("temperatures", np.full((2, n), np.nan)), dtype=np.float64)
    if temperatures.shape != (2, n):
        raise ValueError("the saved state has temperatures of another number of joints")
    lost, resets = int(saved.get("lost", 0)), int(saved.get("resets", 0))
    of_tests = {name: np.asarray(saved.get(name, 0.0), dtype=np.float64) for name in _KNOWN}
    backup = state.floats.copy(), state.ints.copy()
    state.floats[:] = floats
    state.ints[:] = ints
    bad = [name for name in _LEARNED if not np.isfinite(state[name]).all()]
    bad += [name for name, value in of_tests.items() if not np.isfinite(value).all()]
    if bad or not np.diag(state["R"][:, :p] * state["scalars"][m.ROOT_SCALE]).all():
        state.floats[:], state.ints[:] = backup
        what = f"values that are not finite in {', '.join(bad)}" if bad else "a singular information matrix"
        raise ValueError(f"the saved state holds {what}")
    return SavedState(validated, excited_at, temperatures, lost, resets)


def _from_earlier(saved: Mapping[str, Any], present: m.EstimatorState) -> dict[str, FloatArray | IntArray]:
    """Map the two arrays of a state of a format of `EARLIER`; `ValueError` if they are not of its layout.

    Fields added since have their initial values.  `present` is a state of the same robot and settings; only its layout
    and constants are used.
    """
    floats, ints = (np.array(saved.get(name), dtype=kind) for name, kind in (("floats", float), ("ints", np.int64)))
    fields = m.FIELDS[: m.FIELDS.index(_FIRST_ADDED[saved["format"]])]
    added = len(m.FIELDS) - len(fields)
    old_head, head = m.HEAD + len(fields) + len(m.INT_FIELDS), m.HEAD + len(m.FIELDS) + len(m.INT_FIELDS)
    layout = present.ints[m.HEAD : head]
    first_added = int(layout[len(fields)])
    moved = layout[len(m.FIELDS) :] - added  # start of the integer fields after a shorter head
    if floats.shape != (first_added,) or ints.shape != (present.ints.size - added,):
        raise ValueError("the saved state has another size")
    if not np.array_equal(ints[m.HEAD : old_head], np.concatenate((layout[: len(fields)], moved))):
        raise ValueError("the saved state has another layout")
    new_floats, new_ints = np.zeros_like(present.floats), np.zeros_like(present.ints)
    for k, name in enumerate(fields):
        at, size = int(layout[k]), present[name].size
        new_floats[at : at + size] = floats[at : at + size]
    at = int(layout[m.FIELDS.index("payload")])
    new_floats[at : at + present["payload"].size] = present["payload"].ravel()
    new_ints[: m.HEAD] = ints[: m.HEAD]
    new_ints[m.TERMS] = present.ints[m.TERMS]
    new_ints[m.HEAD : head] = layout
    for k, name in enumerate(m.INT_FIELDS):
        size = present.integers(name).size
        new_ints[layout[len(m.FIELDS) + k] :][:size] = ints[moved[k] :][:size]
    return {"floats": new_floats, "ints": new_ints}
