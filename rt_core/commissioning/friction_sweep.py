"""Friction of all joints at once, from a path at constant speed and back, without a model.

Half the difference of torque between the two ways is friction: at constant speed there is no inertia torque, and
gravity, Coriolis and centrifugal torque are even in the direction.  A torque offset, or a difference of friction
between the directions, is in the half sum together with gravity.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rt_core.commissioning._hysteresis import Passes, mean_with_std, passes, slope_std, turning_time
from rt_core.commissioning.findings import CommissioningError
from rt_core.commissioning.joint_check import DELAY_S
from rt_core.commissioning.profiles import Sweep
from rt_core.types import FloatArray

#: Margin at both ends of constant speed, as a share of it and at least [s]: drives overshoot a little.
_MARGIN, _MIN_MARGIN_S = 0.08, 0.1
#: Largest relative error of the speed.
_OFF_SPEED = 0.1
#: Largest drift of a resting joint, as a share of the largest speed.
_MIN_SPEED = 1e-3
_MIN = 20
#: Largest delay between the channels of torque and position [s].
_MAX_DELAY_S = 0.02
#: Standard deviations by which a joint's delay differs from the arm's; least standard deviation of a delay [s].
_OTHER, _MIN_STD_S = 4.0, 1e-5
#: Order of the polynomial of the level over the place, for its derivative.
_ORDER = 4


@dataclass(frozen=True)
class SweepPoint:
    """Friction at one speed."""

    speed: FloatArray  # (n,) mean speed of each joint at constant speed [rad/s or m/s], positive
    # (n,) half the difference of torque between the ways, in the direction of motion, averaged over the path [N*m or N]
    friction: FloatArray
    std: FloatArray  # (n,) its standard deviation


@dataclass(frozen=True)
class SweepPasses:
    """Constant-speed part of a sweep, place by place: positions (B, n) and a signal (B, n) both ways.

    `speed` (n,) is positive, `direction` (n,) that of the way out, `reach_s` the length of the path over its speed.
    """

    speed: FloatArray
    q: FloatArray
    signal: Passes
    direction: FloatArray
    reach_s: float


def sweep_passes(
    t: FloatArray, q: FloatArray, signal: FloatArray, start: FloatArray, end: FloatArray, sweep: Sweep, bins: int = 20
) -> SweepPasses:
    """Find both ways of a sweep in a recording, and average position and signal place by place.

    Parameters
    ----------
    t : (N,) float64
        Times [s]; there may be other motion before and after the sweep, but none that reaches `end` after it.
    q, signal : (N, n) float64
        Measured positions, and torque or current.
    start, end : (n,) float64
        Ends of the path, a straight line of the joints.

    Raises
    ------
    CommissioningError
        If the recording does not hold the sweep, or a joint does not keep the speed.
    """
    way = end - start
    # all joints count alike, by their share of their own path, whatever their unit
    moved = np.abs(way) > 0.0
    if not moved.any():
        raise CommissioningError("no joint moves along the path")
    complete = np.isfinite(q).all(axis=1)  # a frame without a position of all joints has no place on the path
    t, q, signal = t[complete], q[complete], signal[complete]
    if t.size < _MIN:
        raise CommissioningError(f"{t.size} frames hold a position of all joints")
    share = ((q[:, moved] - start[moved]) / way[moved]).mean(axis=1)
    turn_s = turning_time(t, share)
    margin_s = max(_MARGIN * sweep.constant_s, _MIN_MARGIN_S)
    windows = sweep.windows(turn_s, margin_s)
    if windows[0][0] < t[0] or windows[1][1] > t[-1]:
        raise CommissioningError("the recording does not hold the whole way there and back")
    out, back = ((t >= first) & (t <= last) for first, last in windows)
    speed = np.zeros(q.shape[1])
    for rows in (out, back):
        if rows.sum() < 3:
            raise CommissioningError("there are no samples at constant speed")
        since = t[rows] - t[rows].mean()
        speed += 0.5 * np.abs(since @ (q[rows] - q[rows].mean(axis=0)) / (since @ since))
    wanted = np.abs(way) / sweep.reach_s
    off = ~(np.abs(speed - wanted) <= np.maximum(_OFF_SPEED * wanted, _MIN_SPEED * wanted.max()))
    if off.any():
        j = int(np.argmax(off))
        raise CommissioningError(
            f"joint number {j + 1} moves at {speed[j]:.4g} instead of {wanted[j]:.4g}: it sticks and slips, or does "
            "not follow"
        )
    first, last = (float(v) for v in np.quantile(share[out], (0.0, 1.0)))
    silent = ~np.isfinite(signal).any(axis=0)
    both = passes(share, np.hstack((q, np.where(silent, 0.0, signal))), out, back, first, last, bins)
    n = q.shape[1]
    of_signal = Passes(both.place, *(np.where(silent, np.nan, x[:, n:]) for x in (both.out, both.back)))
    return SweepPasses(speed, both.half_sum[:, :n], of_signal, np.sign(way), sweep.reach_s)


def sweep_points(sweeps: Sequence[SweepPasses]) -> tuple[list[SweepPoint], FloatArray]:
    """Return the friction at the speeds of several sweeps, corrected for delays of the torque, and the delays (n,) [s].

    A torque that is late by `D` belongs to another place: half the difference changes by `-D` times the rate of the
    gravity torque, which grows with the speed like viscous friction.  Unlike friction it varies along the path with
    that rate, so delays are fitted over all places and speeds.  By default a joint's delay is that of the arm.
    """
    rates = [_rate(sweep) for sweep in sweeps]
    delay, uncertainty = _delays(sweeps, rates)
    points = []
    for sweep, rate in zip(sweeps, rates, strict=True):
        mean, std = mean_with_std((sweep.signal.half_difference + delay * rate) * sweep.direction)
        apparent = uncertainty * np.abs(rate.mean(axis=0))
        points.append(SweepPoint(sweep.speed, mean, np.hypot(std, np.nan_to_num(apparent))))
    return points, delay


def _delays(sweeps: Sequence[SweepPasses], rates: Sequence[FloatArray]) -> tuple[FloatArray, FloatArray]:
    """Return the delays (n,) of the joints and their standard deviations [s], by default those of the arm."""
    n = len(sweeps[0].speed)
    found, spread = np.zeros(n), np.full(n, np.inf)
    for j in range(n):
        parts = []
        for sweep, rate in zip(sweeps, rates, strict=True):
            half = sweep.signal.half_difference[:, j]
            parts.append((rate[:, j].mean() - rate[:, j], half - half.mean()))
        x, y = (np.concatenate(side) for side in zip(*parts, strict=True))
        power = float(x @ x)
        if not power > 0.0 or not np.isfinite(y).all():
            continue
        found[j] = float(x @ y) / power
        spread[j] = slope_std(power, y - found[j] * x, x.size - len(sweeps)) + _MIN_STD_S
    weight = 1.0 / spread**2
    common, std = 0.0, DELAY_S  # where gravity changes too evenly, a usual delay is the uncertainty
    if weight.sum() > 0.0:
        mean, least = float(weight @ found / weight.sum()), float(1.0 / np.sqrt(weight.sum()))
        if least < DELAY_S and abs(mean) < _MAX_DELAY_S:
            common, std = mean, least
    own = (np.abs(found - common) > _OTHER * spread) & (np.abs(found) < _MAX_DELAY_S)
    return np.where(own, found, common), np.where(own, spread, std)


def _rate(sweep: SweepPasses) -> FloatArray:
    """Return the rate (B, n) of the direction-independent torque on the way out [N*m/s]."""
    place, level = sweep.signal.place, sweep.signal.half_sum
    x = (place - place.mean()) / max(float(np.ptp(place)), 1e-12)
    order = min(_ORDER, len(place) - 2)
    silent = ~np.isfinite(level).all(axis=0)
    fit = np.polynomial.polynomial.polyfit(x, np.where(silent, 0.0, level), order)
    change = np.polynomial.polynomial.polyval(x, np.polynomial.polynomial.polyder(fit)).T
    return np.asarray(np.where(silent, np.nan, change / max(float(np.ptp(place)), 1e-12) / sweep.reach_s))
