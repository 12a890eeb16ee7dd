"""Several recordings of one arm as one, with a gap between each and the next."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from drivers.files.recordings.data import Recording
from rt_core.model.temperature import HOLD_S, possible_of
from rt_core.types import FloatArray

#: Share of the shorter of two recordings that may be the same in both: arms that begin at rest look alike.
_CHANCE = 0.01
#: Between two recordings [s]: longer than any filter bridges.
GAP_S = 60.0


class JoinError(ValueError):
    """Recordings that do not belong together; the message says which and why."""


def join_recordings(recordings: Sequence[Recording]) -> Recording:
    """Put recordings one after the other; nothing reaches across the gaps.

    Returns
    -------
    Recording
        With the channels that all of them have; `parts` are those that were given, `spans` where each of them is.

    Raises
    ------
    JoinError
        If they are not of the same robot, joints, units and rate, or something is given twice.
    """
    first = recordings[0]
    for other in recordings[1:]:
        for what, a, b in (
            ("robot", (first.robot,), (other.robot,)),
            ("joints", first.joint_names, other.joint_names),
            ("units", first.units, other.units),
        ):
            if a != b:
                raise JoinError(
                    f"{other.path} has {what} {', '.join(b)}, {first.path} {', '.join(a)}: one arm at a time"
                )
        if not np.isclose(first.rate_hz, other.rate_hz, rtol=1e-3):
            raise JoinError(
                f"{other.path} has {other.rate_hz:g} samples a second, {first.path} {first.rate_hz:g}: only recordings "
                "of one rate are put together"
            )
    refuse_twice(recordings)
    names = [name for name in first.channels if all(name in r.channels for r in recordings)]
    shifts_ns, next_ns = [], int(first.t_ns[0])
    for r in recordings:
        shifts_ns.append(next_ns - int(r.t_ns[0]))
        next_ns += int(r.t_ns[-1]) - int(r.t_ns[0]) + round(GAP_S * 1e9)
    seqs, last = [], -1
    for r in recordings:
        seqs.append(r.seq - r.seq[0] + last + 2)  # one is missing between
        last = int(seqs[-1][-1])
    t_ns = np.concatenate([r.t_ns + shift for r, shift in zip(recordings, shifts_ns, strict=True)])
    t = (t_ns - t_ns[0]) * 1e-9
    valid = None
    if any(r.valid is not None for r in recordings):
        every = [np.ones((r.samples, r.n), dtype=bool) if r.valid is None else r.valid for r in recordings]
        valid = np.concatenate(every)
    channels = {
        name: np.concatenate([held_temperature(r) if name == "temperature" else r.channels[name] for r in recordings])
        for name in names
    }
    path = Path(" + ".join(str(r.path or "recording") for r in recordings))
    return Recording(
        t, t_ns, np.concatenate(seqs), channels, first.meta, valid, None, path, first.metadata, tuple(recordings)
    )


def refuse_twice(recordings: Sequence[Recording]) -> None:
    """Raise `JoinError` if two recordings are the same or overlap: what both hold would count as seen twice."""
    known: dict[str, Recording] = {}
    for r in recordings:
        if (other := known.setdefault(r.sha256, r)) is not r:
            raise JoinError(f"{r.path} holds the same as {other.path}: give each recording once")
    for a, b in itertools.combinations(recordings, 2):
        both = overlap(a, b)
        if both > _CHANCE * min(a.samples, b.samples):
            raise JoinError(f"{both} samples of {b.path} are in {a.path} too: give each stretch of the motion once")


def overlap(a: Recording, b: Recording) -> int:
    """Count the samples that are in both recordings: of the same time stamp, and the same in all that both measured."""
    _, in_a, in_b = np.intersect1d(a.t_ns, b.t_ns, return_indices=True)
    same = np.ones(in_a.size, dtype=bool)
    for name in a.channels.keys() & b.channels.keys():
        x, y = a.channels[name][in_a], b.channels[name][in_b]
        same &= ((x == y) | (np.isnan(x) & np.isnan(y))).all(axis=1)
    return int(same.sum())


def held_temperature(recording: Recording) -> FloatArray:
    """Temperatures (N, n) of a recording, with the first and last that were told at its ends unless too far off.

    So no temperature has to be known between this recording and the next.
    """
    out = np.array(recording.channels["temperature"])
    use = np.arange(recording.samples)
    if recording.valid is not None:
        use = np.flatnonzero(recording.valid.all(axis=1))
    for j in range(recording.n):
        told = use[~np.isnan(out[use, j])]
        told = told[possible_of(recording.t[told], out[told, j])]
        if not told.size:
            continue  # refused where it is needed
        for end, nearest in ((use[0], told[0]), (use[-1], told[-1])):
            if np.isnan(out[end, j]) and abs(recording.t[end] - recording.t[nearest]) <= HOLD_S:
                out[end, j] = out[nearest, j]
    return out
