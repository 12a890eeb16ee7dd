"""Which recordings a model was fitted to, and whether other data are among them.

A model file says it under `data`: file, hash, times and marks of frames.  Of several recordings that were joined it has
a list, `sources`, of each by itself and on its own clock: times and hash of the joined one are found in no file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from drivers.files.recordings.recording import Recording
from rt_core.types import FloatArray
from service.models._frame_fingerprints import marks, shared


def origin_of(recording: Recording, t: FloatArray) -> dict[str, Any]:
    """Return what a model file says of the recording that it was fitted to, whose rows were at times `t` (K,) [s]."""
    first, last = float(t[0]), float(t[-1])
    out: dict[str, Any] = {
        "recording": recording.file_name,
        "sha256": recording.sha256,
        "first_s": first,
        "last_s": last,
    }
    if not recording.parts:
        return out | {"frames": marks(recording, first, last)}
    sources = []
    for part, (begin, end) in zip(recording.parts, recording.spans, strict=True):
        own = t[(t >= begin) & (t <= end)] - begin + float(part.t[0])
        if own.size:
            sources.append(origin_of(part, own))
    return out | {"sources": sources}


def share_seen(data: Mapping[str, Any], recording: Recording, t: FloatArray, guard_s: float = 0.0) -> float:
    """Return the share of the rows at `t` (K,) [s] of a recording that a model was fitted to.

    Parameters
    ----------
    data : dict
        `data` of the model file.
    recording : Recording
    t : (K,) float64
    guard_s : float
        Rows so near to those of the fit count as well [s].

    Returns
    -------
    float
        Where another file holds frames of the fit, the share of the fit's marks that are among the rows.
    """
    seen = 0.0
    for source in data.get("sources") or (data,):
        if source.get("sha256") == recording.sha256:
            first, last = float(source["first_s"]) - guard_s, float(source["last_s"]) + guard_s
            seen += float(np.mean((t >= first) & (t <= last)))
        else:
            known = source.get("frames") or []
            seen = max(seen, shared(known, recording, float(t[0]) - guard_s, float(t[-1]) + guard_s))
    return min(seen, 1.0)
