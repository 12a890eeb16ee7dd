"""Signals of an arm at rest: rate, noise, channels without a signal, impossible positions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rt_core.commissioning.findings import CommissioningError
from rt_core.types import FloatArray, IntArray

_MIN = 20
#: Turns of a revolute joint from which its position looks like degrees or the motor's side.
_TURNS = 10.0


@dataclass(frozen=True)
class AtRest:
    """Signals at rest."""

    rate_hz: float  # from the median step of the time stamps
    lost: int  # cycles that are missing in the count of the source
    mean: dict[str, FloatArray]  # (n,) by channel
    # (n,) by channel, from differences of neighbouring samples, so that drift does not count
    noise: dict[str, FloatArray]
    moved: FloatArray  # (n,) range of each joint's position [rad or m]


def at_rest(t: FloatArray, seq: IntArray, channels: Mapping[str, FloatArray]) -> AtRest:
    """Describe signals (N, n) at times `t` (N,) [s]; `channels` holds at least "q".

    Raises `CommissioningError` if there are fewer than 20 samples, times do not increase, or a position is never
    finite.
    """
    if len(t) < _MIN:
        raise CommissioningError(f"{len(t)} frames: at least {_MIN} are needed")
    steps = np.diff(t)
    if not (steps > 0.0).all():
        raise CommissioningError("the time stamps of the frames do not grow: the source's clock jumps")
    step = float(np.median(steps))
    q = channels["q"]
    silent = ~np.isfinite(q).any(axis=0)
    if silent.any():
        raise CommissioningError(f"joint number {int(np.argmax(silent)) + 1} has no position in any frame")
    mean, noise = {}, {}
    for name, x in channels.items():
        measured = np.isfinite(x).any(axis=0)
        x = np.where(measured, x, 0.0)
        mean[name] = np.where(measured, np.nanmean(x, axis=0), np.nan)
        noise[name] = np.where(measured, np.nanstd(np.diff(x, axis=0), axis=0) / np.sqrt(2.0), np.nan)
    moved = np.nanmax(q, axis=0) - np.nanmin(q, axis=0)
    lost = int(np.maximum(np.diff(seq) - 1, 0).sum())
    return AtRest(1.0 / step, lost, mean, noise, moved)


def position_text(here: float, lower: float, upper: float, *, turns: bool) -> str:
    """Return what is wrong with a position at rest [rad or m]; empty if it is within the limits."""
    reach = 1e-3 * (upper - lower) if np.isfinite(upper - lower) else 0.0
    if lower - reach <= here <= upper + reach:
        return ""
    shown = f"is at {here:.4g}, its limits are {lower:.4g} to {upper:.4g}"
    if turns and lower <= np.radians(here) <= upper and abs(here) > 2.0 * np.pi:
        return f"{shown}: read as degrees it would be within them; check the unit of its position"
    if turns and abs(here) > _TURNS * 2.0 * np.pi:
        return f"{shown}: is it the motor's side of the gear?"
    if not turns and lower <= 1e-3 * here <= upper:
        return f"{shown}: read as millimetres it would be within them; check the unit of its position"
    if lower <= -here <= upper:
        return f"{shown}: with the other sign it would be within them; check sign and zero of its position"
    return f"{shown}: check unit, sign and zero of its position, or move the joint back by hand"


def set_position_text(q: FloatArray, setpoint: FloatArray, names: Sequence[str], allowed: FloatArray) -> str:
    """Return how positions `q` (n,) differ from the set positions (n,) that drives hold.

    Empty if all are within `allowed` (n,) [rad or m].  A reason is given only if it alone explains the difference.
    """
    off = ~(np.abs(q - setpoint) <= allowed)
    if not off.any():
        return ""
    k = int(np.argmax(np.abs(q - setpoint) / allowed))
    shown = f"{names[k]} is measured at {q[k]:.4g} while its drive holds {setpoint[k]:.4g}"
    reasons = []
    if abs(q[k] + setpoint[k]) <= allowed[k]:
        reasons.append("the sign of its position is inverted")
    for factor, meaning in ((180.0 / np.pi, "degrees for radians"), (np.pi / 180.0, "radians for degrees")):
        if abs(q[k] / factor - setpoint[k]) <= allowed[k] / max(factor, 1.0):
            reasons.append(f"it looks like {meaning}")
    reasons += [
        f"it agrees with that of {name}: positions are swapped"
        for j, name in enumerate(names)
        if off[j] and j != k and abs(q[k] - setpoint[j]) <= allowed[k] and abs(q[j] - setpoint[k]) <= allowed[j]
    ]
    return f"{shown}: {reasons[0]}" if len(reasons) == 1 else f"{shown}: check sign, unit, zero and order of positions"
