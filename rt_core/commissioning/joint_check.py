"""Checks of signs, units and order of an arm's signals, from one small motion of each joint out and back.

- Position: the position of the commanded joint follows the command by a factor of 1, and no other joint moves.  The
  factor is the slope over the command at the lag of best fit.
- Velocity: its integral over short windows is the change of the position, by a factor of 1.
- Torque: friction dissipates power.  Over a closed motion the work of gravity and inertia is zero, so the integral of
  `tau*dq` is the work of friction and must be positive, whatever the arm and its load.  Half the difference of torque
  between the two ways states the same place by place, with a scatter for its significance.
- Size of the torque, against the effort limit.  `gravity_check` compares it with the description's links.

A verdict must differ from the other one by several standard deviations, else it is "cannot_tell".
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rt_core.commissioning._hysteresis import Passes, mean_with_std, passes, turning_time
from rt_core.commissioning.findings import CommissioningError, Finding, factor_text
from rt_core.types import FloatArray

#: Tolerance of a factor of 1, and of the factor 0 of a resting joint.
TOLERANCE = 0.1
#: Least distance of a verdict from the other, in standard deviations.
SURE = 5.0
#: Possible delay between the channels of torque and position [s]: it looks like a little friction.
DELAY_S = 0.01
#: Plausible peak torque, as multiples of the effort limit.
MAX_EFFORT, MIN_EFFORT = 3.0, 1e-2
#: Largest lag of a joint behind its command [s], and step of the search.
_MAX_LAG_S, _LAG_STEP_S = 0.3, 0.005
#: Part of the path in use, without the rest at its ends, and number of bins.
_FIRST, _LAST, _BINS = 0.05, 0.95, 20
_WINDOW_S = 0.05
POSITION = "position follows the command"
VELOCITY = "velocity is the change of position"
_AT_END = 20  # samples of the position at the end


@dataclass(frozen=True)
class SmallMotion:
    """Recording of a small motion of one joint out and back."""

    joint: int  # the commanded joint
    t: FloatArray  # (N,) times [s]
    command: FloatArray  # (N,) its set position [rad or m]
    way: float  # signed length of the motion one way [rad or m]
    q: FloatArray  # (N, n) measured positions of all joints
    dq: FloatArray | None = None  # (N, n) velocity, where it is measured
    tau: FloatArray | None = None  # (N, n) torque, where it is measured

    def __post_init__(self) -> None:
        """Raise CommissioningError for lengths that disagree, or no motion."""
        for name in ("command", "q", "dq", "tau"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.t):
                raise CommissioningError(f"{name} has {len(values)} samples for {len(self.t)} times")
        if not abs(self.way) > 0.0:
            raise CommissioningError("the joint was not commanded to move")


def slope(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the slope of `y` (N, m) over `x` (N,) by least squares, and a bound of its standard deviation, both (m,).

    The bound takes all residuals as fully correlated, as lag and noise of a controlled joint nearly are.
    """
    x = x - x.mean()
    y = y - y.mean(axis=0)
    power = float(x @ x)
    if not power > 0.0:
        return np.full(y.shape[1], np.nan), np.full(y.shape[1], np.inf)
    found = x @ y / power
    left = y - x[:, None] * found
    return np.asarray(found), np.sqrt(np.einsum("nm,nm->m", left, left) / power)


def _lagged_slope(t: FloatArray, command: FloatArray, q: FloatArray) -> tuple[float, float, float]:
    """Return the slope of one position (N,) over its command, a bound of its standard deviation, and the best lag [s].

    A lag is not a fault: without it, late motion would count as irregularity, of a correct and an inverted joint alike.
    """
    good = np.isfinite(command) & np.isfinite(q)
    if good.sum() < _AT_END:
        return np.nan, np.inf, 0.0
    t, command, q = t[good], command[good], q[good, None]
    found = []
    for lag_s in np.arange(0.0, _MAX_LAG_S + _LAG_STEP_S / 2.0, _LAG_STEP_S):
        factor, std = slope(np.interp(t - lag_s, t, command), q)
        found.append((float(factor[0]), float(std[0]), float(lag_s)))
    power = [float(np.var(q)) - factor**2 * float(np.var(np.interp(t - s, t, command))) for factor, _, s in found]
    return found[int(np.argmin(np.nan_to_num(power, nan=np.inf)))]


def check_position(motion: SmallMotion, names: Sequence[str], ranges: FloatArray | None = None) -> Finding:
    """Check that the measured position of the joint follows its command, and no other one does.

    `ranges` (n,) are those of the joints [rad or m]: other joints are compared by shares of their range, so that metres
    and radians are comparable.
    """
    k, check = motion.joint, POSITION
    scale = np.ones(len(names)) if ranges is None or not np.isfinite(ranges).all() else ranges[k] / ranges
    fits = [_lagged_slope(motion.t, motion.command, motion.q[:, j]) for j in range(len(names))]
    factors, stds = (np.array([fit[i] for fit in fits]) for i in (0, 1))
    own, std, lag_s = fits[k]
    others = np.where(np.arange(len(names)) == k, 0.0, np.nan_to_num(np.abs(factors * scale)))
    stds = stds * scale
    most = int(np.argmax(others))
    moved = f"{names[k]} was commanded to move"
    if not std < TOLERANCE * max(abs(own), 1.0):
        text = f"{moved}, and its position changes too irregularly to compare with the command"
        return Finding(check, k, "cannot_tell", own, std, np.nan, text)
    if others[most] > TOLERANCE and stds[most] < TOLERANCE * max(others[most], 1.0):
        if abs(own) < TOLERANCE:
            text = (
                f"{moved}, but the position of {names[most]} does by {factors[most]:.3g} times as much: the positions "
                "of the two are swapped; check the order of drives and encoders"
            )
        else:
            text = f"{moved}, and the position of {names[most]} moves by {factors[most]:.3g} times as much with it"
        return Finding(check, k, "wrong", own, std, np.nan, text)
    distance = abs(own - 1.0)
    if distance <= TOLERANCE:
        margin = (TOLERANCE - distance) / std if std > 0.0 else np.inf
        late = f", {1e3 * lag_s:.0f} ms late" if lag_s > 0.0 else ""
        return Finding(check, k, "ok", own, std, margin, f"follows by a factor of {own:.4g}{late}")
    margin = (distance - TOLERANCE) / std if std > 0.0 else np.inf
    if abs(own) < TOLERANCE:
        text = f"{moved}, and its measured position stays: is the encoder another joint's, or the brake closed?"
    else:
        why = factor_text(own)
        text = f"{moved}, and its measured position does by {own:.4g} times as much: {why}"
    return Finding(check, k, "wrong", own, std, margin, text)


def check_velocity(motion: SmallMotion, names: Sequence[str]) -> Finding | None:
    """Check that the velocity is the derivative of the position; None without a velocity."""
    if motion.dq is None:
        return None
    k, check = motion.joint, VELOCITY
    good = np.isfinite(motion.q[:, k]) & np.isfinite(motion.dq[:, k])
    # joints without a velocity must not prevent the check of others
    t, q, dq = motion.t[good], motion.q[good, k], np.nan_to_num(motion.dq[good])
    if t.size < 3:
        return Finding(check, k, "cannot_tell", np.nan, np.nan, np.nan, "the velocity has no values")
    step = max(1, round(_WINDOW_S / float(np.median(np.diff(t)))))
    area = np.concatenate((np.zeros((1, dq.shape[1])), np.cumsum(0.5 * (dq[1:] + dq[:-1]) * np.diff(t)[:, None], 0)))
    x, y = np.diff(q[::step]), np.diff(area[::step], axis=0)
    power = float(x @ x)
    if not power > 0.0:
        return Finding(check, k, "cannot_tell", np.nan, np.nan, np.nan, "the position does not change")
    found = x @ y / power
    own = float(found[k])
    std = float(np.sqrt(((y[:, k] - own * x) ** 2).sum() / max(x.size - 1, 1) / power))
    if not std < TOLERANCE * max(abs(own), 1.0):
        text = f"the velocity of {names[k]} is too noisy to compare with the change of its position"
        return Finding(check, k, "cannot_tell", own, std, np.nan, text)
    distance = abs(own - 1.0)
    margin = abs(distance - TOLERANCE) / std if std > 0.0 else np.inf
    if distance <= TOLERANCE:
        return Finding(check, k, "ok", own, std, margin, f"is the derivative of the position by a factor of {own:.4g}")
    others = np.where(np.arange(len(names)) == k, 0.0, np.abs(found))
    most = int(np.argmax(others))
    if abs(own) < TOLERANCE and others[most] > 1.0 - TOLERANCE:
        text = f"{names[k]} moves, and the velocity is that of {names[most]}: the velocities of the two are swapped"
    elif abs(own) < TOLERANCE:
        text = f"{names[k]} moves, and its velocity stays at zero: the channel is dead, or another joint's"
    else:
        text = f"the velocity of {names[k]} is {own:.4g} times the change of its position: {factor_text(own)}"
    return Finding(check, k, "wrong", own, std, margin, text)


def torque_passes(motion: SmallMotion) -> Passes:
    """Return positions and torques of all joints, and the command's acceleration, (B, 2 n + 1), place by place.

    A column without any value, of a joint that is not measured, stays NaN. Raises `CommissioningError` if the motion
    does not have both ways, or there is no torque.
    """
    if motion.tau is None:
        raise CommissioningError("no torque is measured")
    k = motion.joint
    share = (motion.q[:, k] - np.nanmedian(motion.q[-_AT_END:, k])) / motion.way
    turn_s = turning_time(motion.t, share)
    acceleration = np.gradient(np.gradient(motion.command, motion.t), motion.t)
    values = np.column_stack((motion.q, motion.tau, acceleration))
    silent = ~np.isfinite(values).any(axis=0)
    both = passes(share, np.where(silent, 0.0, values), motion.t < turn_s, motion.t > turn_s, _FIRST, _LAST, _BINS)
    return Passes(both.place, *(np.where(silent, np.nan, way) for way in (both.out, both.back)))


def check_torque_sign(motion: SmallMotion, names: Sequence[str], unit: str = "N*m") -> Finding | None:
    """Check that friction dissipates power: half the torque's difference between the ways, along the motion.

    None without a torque; `unit` is that of the torque, for the text.
    """
    if motion.tau is None:
        return None
    k, check, n = motion.joint, "friction takes power", motion.q.shape[1]
    try:
        both = torque_passes(motion)
    except CommissioningError as error:
        return Finding(check, k, "cannot_tell", np.nan, np.nan, np.nan, str(error))
    direction = np.sign(motion.way)
    mean, std = mean_with_std(both.half_difference[:, n : 2 * n] * direction)
    loss, spread = float(mean[k]), float(std[k])
    if not np.isfinite(loss):
        return Finding(check, k, "cannot_tell", np.nan, np.nan, np.nan, f"the torque of {names[k]} has no values")
    mean, std = np.nan_to_num(mean), np.nan_to_num(std)
    bound = _delay_bound(motion, both, k)
    shown = f"{names[k]}: {loss:.3g} ± {spread:.2g} {unit} against the motion"
    distance = (abs(loss) - bound) / spread if spread > 0.0 else np.inf * np.sign(abs(loss) - bound)
    if distance > SURE:
        if loss > 0.0:
            return Finding(check, k, "ok", loss, spread, distance - SURE, shown)
        text = f"{shown}: friction would drive the joint, so the sign of its torque or current is inverted"
        return Finding(check, k, "wrong", loss, spread, distance - SURE, text, kind="inverted")
    others = np.where(np.arange(n) == k, 0.0, np.abs(mean) / np.where(std > 0.0, std, np.inf))
    most = int(np.argmax(others))
    if others[most] > 4.0 * SURE and abs(mean[most]) > 10.0 * (abs(loss) + bound):
        text = f"{shown}, and {mean[most]:.3g} {unit} in the torque of {names[most]}: the two look swapped"
        return Finding(check, k, "wrong", loss, spread, float(others[most]) - SURE, text)
    text = f"{shown}: too little to tell its sign by"
    return Finding(check, k, "cannot_tell", loss, spread, np.nan, text)


def _delay_bound(motion: SmallMotion, both: Passes, k: int) -> float:
    """Return the apparent friction of a delay between torque and position, from the torque's change along the path."""
    n = motion.q.shape[1]
    q, level = both.half_sum[:, k], both.half_sum[:, n + k]
    steepness = abs(float(slope(q, level[:, None])[0][0]))
    moving = np.abs(np.gradient(motion.q[:, k], motion.t))
    return DELAY_S * float(np.quantile(moving, 0.9)) * steepness if np.isfinite(steepness) else 0.0


def check_torque_size(motion: SmallMotion, names: Sequence[str], effort: float, unit: str = "N*m") -> Finding | None:
    """Check the size of the torque against its limit `effort`; None without a torque or a limit."""
    if motion.tau is None or not np.isfinite(effort):
        return None
    k, check = motion.joint, "torque is of a possible size"
    tau = motion.tau[np.isfinite(motion.tau[:, k]), k]
    if tau.size == 0:
        return Finding(check, k, "cannot_tell", np.nan, np.nan, np.nan, f"the torque of {names[k]} has no values")
    peak = float(np.abs(tau).max())
    shown = f"{names[k]}: up to {peak:.3g} {unit}, its limit is {effort:g} {unit}"
    if peak > MAX_EFFORT * effort:
        text = f"{shown}: check its unit (N*mm, % or mA), gear ratio and torque constant"
        return Finding(check, k, "wrong", peak / effort, np.nan, peak / effort / MAX_EFFORT, text)
    if float(tau.max()) == float(tau.min()):
        return Finding(
            check, k, "wrong", peak / effort, np.nan, np.nan, f"{shown}, and it never changes: a dead channel"
        )
    if peak < MIN_EFFORT * effort:
        text = f"{shown}: so little is unlikely; check its unit, gear ratio and torque constant"
        return Finding(check, k, "cannot_tell", peak / effort, np.nan, np.nan, text)
    return Finding(check, k, "ok", peak / effort, np.nan, MAX_EFFORT * effort / peak, shown)
