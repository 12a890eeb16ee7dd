"""Concatenation of recordings of one arm, with gaps between them."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from drivers.files.recordings.data import Recording
from rt_core.model.temperature import HOLD_S, possible_of
from rt_core.types import FloatArray

#: Share of the shorter of two recordings that may be equal in both: arms at rest look alike.
_CHANCE = 0.01
#: Gap between two recordings [s]: longer than any filter bridges.
GAP_S = 60.0


class JoinError(ValueError):
    """Recordings that cannot be joined; the message has the reason."""


def join_recordings(recordings: Sequence[Recording]) -> Recording:
    """Concatenate recordings with gaps that nothing bridges.

    Returns a recording with the common channels; `parts` are the given recordings, `spans` their times.  Raises
    `JoinError`: they differ in robot, joints, units or rate, or overlap.
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
    refuse_duplicates(recordings)
    names = [name for name in first.channels if all(name in r.channels for r in recordings)]
    shifts_ns, next_ns = [], int(first.t_ns[0])
    for r in recordings:
        shifts_ns.append(next_ns - int(r.t_ns[0]))
        next_ns += int(r.t_ns[-1]) - int(r.t_ns[0]) + round(GAP_S * 1e9)
    seqs, last = [], -1
    for r in recordings:
        seqs.append(r.seq - r.seq[0] + last + 2)  # a gap of one
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


def refuse_duplicates(recordings: Sequence[Recording]) -> None:
    """Raise `JoinError` if two recordings are equal or overlap: common samples would count twice."""
    known: dict[str, Recording] = {}
    for r in recordings:
        if (other := known.setdefault(r.sha256, r)) is not r:
            raise JoinError(f"{r.path} holds the same as {other.path}: give each recording once")
    for a, b in itertools.combinations(recordings, 2):
        both = overlap(a, b)
        if both > _CHANCE * min(a.samples, b.samples):
            raise JoinError(f"{both} samples of {b.path} are in {a.path} too: give each stretch of the motion once")


def overlap(a: Recording, b: Recording) -> int:
    """Count the samples that are equal in both recordings: time stamps and all common channels."""
    _, in_a, in_b = np.intersect1d(a.t_ns, b.t_ns, return_indices=True)
    same = np.ones(in_a.size, dtype=bool)
    for name in a.channels.keys() & b.channels.keys():
        x, y = a.channels[name][in_a], b.channels[name][in_b]
        same &= ((x == y) | (np.isnan(x) & np.isnan(y))).all(axis=1)
    return int(same.sum())


def held_temperature(recording: Recording) -> FloatArray:
    """Return temperatures (N, n) with the first and last measured values extended to the ends, unless too far off.

    So no temperature is interpolated between this recording and the next.
    """
    out = np.array(recording.channels["temperature"])
    use = np.arange(recording.samples)
    if recording.valid is not None:
        use = np.flatnonzero(recording.valid.all(axis=1))
    for j in range(recording.n):
        measured = use[~np.isnan(out[use, j])]
        measured = measured[possible_of(recording.t[measured], out[measured, j])]
        if not measured.size:
            continue  # refused where it is needed
        for end, nearest in ((use[0], measured[0]), (use[-1], measured[-1])):
            if np.isnan(out[end, j]) and abs(recording.t[end] - recording.t[nearest]) <= HOLD_S:
                out[end, j] = out[nearest, j]
    return out
