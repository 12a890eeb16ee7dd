"""Save and restore the estimate of an elastic joint; filters are not saved, but cleared as after a gap."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from rt_core.elastic.rows import Drive
from rt_core.online._saved_state import saved_arrays
from rt_core.online.elastic import _layout as m
from rt_core.online.elastic._interface import Deflection, ElasticOnlineSettings
from rt_core.online.rls import noise as v
from rt_core.types import FloatArray, IntArray

#: Format of the saved state.
STATE_FORMAT = 1
#: Scalars and integers that depend on data; all others follow from the settings.
_LEARNED = (
    m.TIME, m.LAM, m.ERROR2, m.MEAN_ERROR2, m.CHANGED, m.FORGOTTEN, m.LOW, m.HIGH, m.LEFT, m.MEAN_STEP, m.OUTLIERS,
    m.TAKEN,
)  # fmt: skip
_COUNTED = (m.FRAMES, m.MASKED, m.REPEATED, m.GAPS, m.UPDATES, m.REJECTED)
#: Scalars and columns of "level" that are NaN before the first row.
_OPEN = (m.TIME,), (v.INNOVATION,)
#: Columns of "level" in a file.
_LEVELS = (
    v.INNOVATION, v.SIGMA2, v.WEIGHT2, v.TORQUE2, v.TORQUE_MEAN2, v.MOVED, v.SIGMA_SUM, v.SIGMA_COUNT, v.BLOCK_SUM,
    v.BLOCK_COUNT, v.INFLATION_SUM, v.INFLATION_COUNT, v.INNOVATION2, v.EXCESS,
)  # fmt: skip


def owner_of(
    drive: Drive, start: Mapping[str, float], rate_hz: float, settings: ElasticOnlineSettings, deflection: Deflection
) -> str:
    """Return the hash of all inputs of an estimator, which a saved state must match."""
    errors = deflection.errors
    given = {
        "drive": asdict(drive), "start": {name: float(value) for name, value in start.items()}, "rate_hz": rate_hz,
        "settings": asdict(settings), "encoders": [deflection.lag_s, deflection.zero],
        "errors": None if errors is None else [dict(errors.shift), dict(errors.std), errors.doubtful],
    }  # fmt: skip
    return hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()


def saved(owner: str, arrays: Mapping[str, FloatArray], s: FloatArray, ints: IntArray) -> dict[str, Any]:
    """Return the state to save: numbers, a text and arrays, `arrays` by name."""
    return {
        "format": STATE_FORMAT, "hash": owner, "learned": s[list(_LEARNED)], "counted": ints[list(_COUNTED)],
        **{name: _columns(name, array).copy() for name, array in arrays.items()},
    }  # fmt: skip


def _columns(name: str, array: FloatArray) -> FloatArray:
    """Return an array with its columns in the order of the file."""
    return array[:, list(_LEVELS)] if name == "level" else array


def take_saved(
    state: Mapping[str, Any], owner: str, arrays: Mapping[str, FloatArray], s: FloatArray, ints: IntArray
) -> None:
    """Fill `arrays`, scalars and integers from what `saved` returned; `ValueError`, without a change, if wrong."""
    if state.get("format") != STATE_FORMAT:
        raise ValueError(f"state format {state.get('format')!r}, this version reads {STATE_FORMAT}")
    if state.get("hash") != owner:
        raise ValueError("the saved state belongs to another start, drive or settings")
    like = {"learned": s[list(_LEARNED)], "counted": ints[list(_COUNTED)]}
    found = saved_arrays(state, like | {name: _columns(name, array) for name, array in arrays.items()})
    learned, counted = found.pop("learned"), found.pop("counted")
    if (counted < 0).any():
        raise ValueError("the saved state has negative counts")
    begun = counted[_COUNTED.index(m.UPDATES)] > 0
    closed = np.array([begun or place not in _OPEN[0] for place in _LEARNED])
    columns = np.array([begun or place not in _OPEN[1] for place in _LEVELS])
    bad = [
        name for name, array in found.items() if not np.isfinite(array[:, columns] if name == "level" else array).all()
    ]
    bad += [] if np.isfinite(learned[closed]).all() else ["learned"]
    if bad:
        raise ValueError(f"the saved state holds values that are not finite in {', '.join(bad)}")
    if not np.diag(found["R"]).all():
        raise ValueError("the saved state holds a singular information matrix")
    for name, array in arrays.items():
        array[(slice(None), list(_LEVELS)) if name == "level" else slice(None)] = found[name]
    s[list(_LEARNED)] = learned
    ints[list(_COUNTED)] = counted
