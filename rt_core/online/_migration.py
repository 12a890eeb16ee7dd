"""Saved states of earlier formats, laid out as the present one."""

from __future__ import annotations

import numpy as np

from rt_core.online import _state as m
from rt_core.online._state import FIELDS, HEAD, INT_FIELDS, Memory
from rt_core.types import FloatArray, IntArray

#: The first field that a later format than this one has added at the end.
_FIRST_ADDED = {4: "active", 5: "payload"}
EARLIER = tuple(_FIRST_ADDED)


def from_earlier(version: int, floats: FloatArray, ints: IntArray, present: Memory) -> tuple[FloatArray, IntArray]:
    """Map the two arrays of a state of format `version`, one of `EARLIER`, field by field.

    Fields that were added since are as in a memory that has seen nothing.  `present` is a memory of the same robot and
    settings, from which only the layout is taken, and what is known beforehand.

    Raises
    ------
    ValueError
        The arrays are not laid out as in that format.
    """
    fields = FIELDS[: FIELDS.index(_FIRST_ADDED[version])]
    added = len(FIELDS) - len(fields)
    old_head, head = HEAD + len(fields) + len(INT_FIELDS), HEAD + len(FIELDS) + len(INT_FIELDS)
    layout = present.ints[HEAD:head]
    first_added = int(layout[len(fields)])
    moved = layout[len(FIELDS) :] - added  # where integer fields began, with a shorter head before them
    if floats.shape != (first_added,) or ints.shape != (present.ints.size - added,):
        raise ValueError("the saved state has another size")
    if not np.array_equal(ints[HEAD:old_head], np.concatenate((layout[: len(fields)], moved))):
        raise ValueError("the saved state has another layout")
    new_floats, new_ints = np.zeros_like(present.floats), np.zeros_like(present.ints)
    for k, name in enumerate(fields):
        at, size = int(layout[k]), present[name].size
        new_floats[at : at + size] = floats[at : at + size]
    at = int(layout[FIELDS.index("payload")])
    new_floats[at : at + present["payload"].size] = present["payload"].ravel()
    new_ints[:HEAD] = ints[:HEAD]
    new_ints[m.TERMS] = present.ints[m.TERMS]
    new_ints[HEAD:head] = layout
    for k, name in enumerate(INT_FIELDS):
        size = present.integers(name).size
        new_ints[layout[len(FIELDS) + k] :][:size] = ints[moved[k] :][:size]
    return new_floats, new_ints
