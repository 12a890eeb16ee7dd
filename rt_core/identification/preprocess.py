"""Uniform, zero-phase filtered signals from recorded channels.

1. Drop invalid samples and samples that repeat the previous one in every channel (a logger faster than the robot), and
   cut the recording where samples are missing for longer than a filter can bridge.
2. Interpolate each piece to a uniform grid at the nominal rate.
3. Filter position and measured velocity with a zero-phase Butterworth low-pass well above the cut-off, so that the sign
   of friction changes where the joint reverses.
4. Take velocity as measured, or as the central difference of position.  Acceleration is the central difference of
   velocity, low-passed at the cut-off: differences amplify noise, which biases the parameters towards zero.

Torque stays unfiltered here: it passes the low-pass at the cut-off together with the regressor
(`rt_core.identification.rows`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy

from rt_core.model.temperature import HOLD_S, possible_of
from rt_core.types import BoolArray, FloatArray, IntArray

Velocity = Literal["measured", "position"]

#: Pass band of position and velocity, as a multiple of the cut-off frequency.
STATE_BAND = 4.0
#: Pass band of a measured velocity: nothing amplifies its noise, and friction changes sign within milliseconds.
MEASURED_BAND = 10.0
#: Shortest usable piece, in periods of the cut-off frequency.
_MIN_PERIODS = 4.0
#: Longest gap that is bridged, in periods of the cut-off frequency.
_BRIDGE_PERIODS = 0.25
#: Samples further apart than this many steps have lost some between them, whatever their cycle numbers; well above the
#: jitter of time stamps.
GAP_STEPS = 2.75
#: Samples this many periods of the cut-off from a lost one are left out: the filters spread the error of the bridge.
_GUARD_PERIODS = 1.0
#: So are samples within this many times the length of the loss after it: an arm that missed set positions catches up
#: with accelerations far above those of its motion, for longer the more it missed.
SETTLING = 10.0
#: Share of the samples that may be left out for gaps in time stamps alone; beyond it short ones are bridged.
MAX_LOST = 0.3


class DataError(ValueError):
    """Data that cannot be used; the message states the reason and a remedy."""


@dataclass(frozen=True)
class SignalSettings:
    """Settings of the filters; frequencies in Hz, times in s.

    Attributes
    ----------
    cutoff_hz : float
        Cut-off of the zero-phase low-pass on both sides of the regression, and on acceleration.
    rate_hz : float or None
        Rate of the rows of the regression, by decimation of both sides; None for five times the cut-off.  At most the
        recording's rate.
    filter_order : int
        Order of the Butterworth filter (it runs forwards and backwards).
    trim_s : float or None
        Cut at both ends of each recording; None for five periods of the cut-off frequency.
    min_velocity : (n,) float64 or None
        Rows of joint `j` are left out where `|dq_j|` is below this [rad/s or m/s].
    velocity : str
        "measured" where the recording has it, or "position": the derivative of the position.
    """

    cutoff_hz: float = 10.0
    rate_hz: float | None = None
    filter_order: int = 4
    trim_s: float | None = None
    min_velocity: FloatArray | None = None
    velocity: Velocity = "measured"

    @property
    def row_rate_hz(self) -> float:
        """Wanted rate of the rows."""
        return 5.0 * self.cutoff_hz if self.rate_hz is None else self.rate_hz

    @property
    def trim(self) -> float:
        """Cut at both ends of the recording [s]."""
        return 5.0 / self.cutoff_hz if self.trim_s is None else self.trim_s


@dataclass(frozen=True)
class SignalPiece:
    """A stretch without long gaps, on a uniform grid.

    `t` (N,) [s]; `q, dq, ddq` (N, n) filtered, `tau` (N, n) as measured; `bridged` (N,) marks samples near a lost one,
    which rows leave out, None if there are none; `temperature` (N, n) [degC] of the joints, None if unknown.
    """

    t: FloatArray
    q: FloatArray
    dq: FloatArray
    ddq: FloatArray
    tau: FloatArray
    bridged: BoolArray | None = None
    temperature: FloatArray | None = None

    @property
    def row_velocity(self) -> FloatArray:
        """(N, n) `dq`, zero where samples are bridged: rows leave out joints at rest."""
        return self.dq if self.bridged is None else np.where(self.bridged[:, None], 0.0, self.dq)


@dataclass(frozen=True)
class Signals:
    """Uniform filtered signals, with counts of the samples that were left out."""

    pieces: tuple[SignalPiece, ...]
    rate_hz: float
    t_first: float
    t_last: float
    repeated: int
    invalid: int
    gaps: int
    unused: int
    measured_velocity: bool
    impossible_temperatures: int = 0
    spans: tuple[tuple[float, float], ...] = ()  # first and last time of each recording, where several were joined
    part: tuple[float, float] = (-np.inf, np.inf)  # rows with `part[0] <= t < part[1]` are identified from
    disturbed: "Signals | None" = None  # from positions with as much noise again (`disturb`), which `tls` needs

    def inside(self, t: FloatArray, trim: float) -> BoolArray:
        """Return a mask (N,) of the times `t` (N,) [s] that remain after trimming both ends of each recording [s]."""
        left = np.zeros(t.shape, dtype=np.bool_)
        for first, last in self.spans or ((self.t_first, self.t_last),):
            left |= (t >= first + trim) & (t <= last - trim)
        return left


def nominal_rate(t: FloatArray) -> float:
    """Return the rate [Hz] of time stamps `t` [s]: from the median step, rounded if within 0.1 % of a round number."""
    rate = 1.0 / float(np.median(np.diff(t)))
    for digits in (-2, -1, 0):
        near = round(rate, digits)
        if near > 0 and abs(near - rate) < 1e-3 * rate:
            return float(near)
    return rate


def zero_phase(x: FloatArray, cutoff_hz: float, rate_hz: float, order: int) -> FloatArray:
    """Apply a forward-backward Butterworth low-pass to `x` (N, ...) along its first axis."""
    if cutoff_hz >= 0.5 * rate_hz:
        raise DataError(
            f"cut-off {cutoff_hz:g} Hz is not below half the sample rate ({0.5 * rate_hz:g} Hz): choose a lower cut-off"
        )
    sections = scipy.signal.butter(order, cutoff_hz, fs=rate_hz, output="sos")
    pad = min(x.shape[0] - 1, int(3.0 * rate_hz / cutoff_hz))
    return np.asarray(scipy.signal.sosfiltfilt(sections, x, axis=0, padlen=pad))


def central_difference(x: FloatArray, step: float) -> FloatArray:
    """Return the central difference along the first axis (one-sided at the ends)."""
    return np.asarray(np.gradient(x, step, axis=0))


def check_channels(t: FloatArray, q: FloatArray, tau: FloatArray, dq: FloatArray | None) -> None:
    """Raise `DataError` on shapes that disagree, fewer than 16 samples, NaN, or time that does not increase."""
    if t.ndim != 1 or q.ndim != 2 or tau.shape != q.shape or (dq is not None and dq.shape != q.shape):
        raise DataError(f"shapes disagree: t {t.shape}, q {q.shape}, tau {tau.shape}")
    if t.size != q.shape[0]:
        raise DataError(f"{t.size} time stamps but {q.shape[0]} samples")
    if t.size < 16:
        raise DataError(f"only {t.size} samples: too few for any identification")
    for name, values in (("t", t[:, None]), ("q", q), ("tau", tau), ("dq", dq)):
        if values is not None and not np.isfinite(values).all():
            row, column = np.argwhere(~np.isfinite(values))[0]
            raise DataError(f"channel {name}, joint {column + 1}: not a number at sample {row} (t = {t[row]:.6g} s)")
    steps = np.diff(t)
    if (steps <= 0.0).any():
        row = int(np.argmax(steps <= 0.0))
        raise DataError(
            f"time does not increase: sample {row + 1} is at {t[row + 1]:.6g} s after {t[row]:.6g} s "
            f"({int((steps <= 0).sum())} such steps); sort or repair the time stamps"
        )


def prepare(
    t: FloatArray, q: FloatArray, tau: FloatArray, settings: SignalSettings, *, dq: FloatArray | None = None,
    valid: BoolArray | None = None, rate_hz: float | None = None, seq: IntArray | None = None,
    temperature: FloatArray | None = None, noise: FloatArray | None = None, spans: Sequence[tuple[float, float]] = (),
) -> Signals:  # fmt: skip
    """Return the uniform filtered signals of a recording.

    Parameters
    ----------
    t : (N,) float64
        Time [s], increasing, steps may vary.
    q, tau : (N, n) float64
        Joint position and torque; `dq` (N, n) measured joint velocity or None; unused if `settings` say so.
    valid : (N,) bool or None
        Samples to use.
    rate_hz : float or None
        Nominal rate; None to take it from the time stamps.
    seq : (N,) int64 or None
        Cycle numbers of the source: a jump means lost samples, which time stamps may not show.
    temperature : (N, n) float64 or None
        Of the joints [degC], NaN where not reported; interpolated where values are at most `HOLD_S` apart.  Values of
        samples that are not `valid`, and impossible ones (`rt_core.model.temperature.possible`), are left out.
    noise : (N, n) float64 or None
        Added to the positions after repeated samples have been dropped, to measure the effect of noise.
    spans : sequence of (float, float)
        First and last time [s] of each recording, where several were joined.

    Raises
    ------
    DataError
        If the channels do not fit together, hold NaN where `valid`, or nothing usable remains.
    """
    total = t.size
    use = np.ones(total, dtype=bool) if valid is None else np.asarray(valid, dtype=bool).copy()
    if use.size != total:
        raise DataError(f"{use.size} validity flags for {total} samples")
    invalid = int(total - use.sum())
    number = np.arange(total) if seq is None else np.asarray(seq)
    if number.shape != (total,):
        raise DataError(f"{number.size} cycle numbers for {total} samples")
    if temperature is not None and temperature.shape != q.shape:
        raise DataError(f"temperature has shape {temperature.shape}, the positions have {q.shape}")
    t, q, tau, number = t[use], q[use], tau[use], number[use]
    dq = None if dq is None or settings.velocity == "position" else dq[use]
    check_channels(t, q, tau, dq)
    warm, impossible = (None, 0) if temperature is None else _without_gaps(t, temperature[use])
    rate = nominal_rate(t) if rate_hz is None else rate_hz
    if settings.cutoff_hz >= 0.45 * rate:
        raise DataError(
            f"cut-off {settings.cutoff_hz:g} Hz is too high for samples at {rate:g} Hz: at most {0.45 * rate:g} Hz"
        )
    same = (np.diff(q, axis=0) == 0.0).all(axis=1) & (np.diff(tau, axis=0) == 0.0).all(axis=1)
    if dq is not None:
        same &= (np.diff(dq, axis=0) == 0.0).all(axis=1)
    fresh = np.concatenate(([True], ~same))
    t, q, tau = t[fresh], q[fresh] if noise is None else (q + noise[use])[fresh], tau[fresh]
    dq = None if dq is None else dq[fresh]
    warm = None if warm is None else warm[fresh]
    repeats = np.diff(np.cumsum(~fresh)[fresh])  # a repeated sample is not a lost one
    jumps = np.diff(number[fresh]) - repeats > 1
    if t.size < 16:
        raise DataError("every sample repeats the one before: the recording holds no motion and no torque signal")

    bridge = max(_BRIDGE_PERIODS / settings.cutoff_hz, 3.0 / rate)
    cuts = np.flatnonzero(np.diff(t) > bridge) + 1
    steps = np.diff(t)
    short = steps <= bridge
    lost = _worst(t, ~jumps & short & (steps > GAP_STEPS / rate), _GUARD_PERIODS / settings.cutoff_hz)
    lost |= jumps & short
    pieces: list[SignalPiece] = []
    unused = 0
    for part in np.split(np.arange(t.size), cuts):
        if part.size < 16 or t[part[-1]] - t[part[0]] < _MIN_PERIODS / settings.cutoff_hz:
            unused += part.size
            continue
        pieces.append(
            _filter_piece(
                t[part], q[part], tau[part], None if dq is None else dq[part], rate, settings, lost[part[:-1]],
                None if warm is None else warm[part],
            )
        )  # fmt: skip
    if not pieces:
        raise DataError(
            f"no stretch of {_MIN_PERIODS / settings.cutoff_hz:g} s without a gap longer than "
            f"{bridge * 1e3:.3g} ms: the recording is too short or too fragmented for this cut-off"
        )
    return Signals(
        tuple(pieces), rate, float(t[0]), float(t[-1]), int((~fresh).sum()), invalid, int(cuts.size), unused,
        dq is not None, impossible, _used(t, spans),
    )  # fmt: skip


def _used(t: FloatArray, spans: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Return the first and last of the times `t` (N,) within each of `spans` that has any."""
    edges = [(int(np.searchsorted(t, a)), int(np.searchsorted(t, b, side="right"))) for a, b in spans]
    return tuple((float(t[a]), float(t[b - 1])) for a, b in edges if b > a)


def _without_gaps(t: FloatArray, temperature: FloatArray) -> tuple[FloatArray, int]:
    """Interpolate reported temperatures to all samples (N, n), and count impossible ones.

    Raises `DataError` where none was reported for too long.
    """
    out, impossible = np.empty(temperature.shape), 0
    for j in range(temperature.shape[1]):
        reported = np.flatnonzero(~np.isnan(temperature[:, j]))
        if not reported.size:
            raise DataError(f"channel temperature, joint {j + 1}: there is no value at all")
        good = possible_of(t[reported], temperature[reported, j])
        impossible += int(np.count_nonzero(~good))
        known = reported[good]
        if not known.size:
            raise DataError(
                f"channel temperature, joint {j + 1}: no value that can be, the first is "
                f"{temperature[reported[0], j]:g} degC: check its unit in the mapping, and the sensor"
            )
        times = t[known]
        after = np.searchsorted(times, t)
        earlier, later = times[np.maximum(after - 1, 0)], times[np.minimum(after, times.size - 1)]
        # the distance of two neighbouring values, at the ends that of the sample from the nearest one
        apart = np.where(after == 0, later - t, np.where(after == times.size, t - earlier, later - earlier))
        apart[later == t] = 0.0
        worst = int(np.argmax(apart))
        if apart[worst] > HOLD_S:
            raise DataError(
                f"channel temperature, joint {j + 1}: at {t[worst]:.6g} s there has been no value for more than "
                f"{HOLD_S:g} s, and friction that follows temperature needs it: cut the recording"
            )
        out[:, j] = np.interp(t, times, temperature[known, j])
    return out, impossible


def _worst(t: FloatArray, lost: BoolArray, guard: float) -> BoolArray:
    """Return the longest of the steps `lost` (N - 1,), as many as may be left out with `guard` [s] around them."""
    shortest = 0.0
    steps = np.diff(t)
    while lost.any():
        k = np.flatnonzero(lost)
        near = np.zeros(t.size + 1, dtype=np.int64)
        np.add.at(near, np.searchsorted(t, t[k] - guard), 1)
        np.add.at(near, np.searchsorted(t, t[k + 1] + guard), -1)
        if np.mean(np.cumsum(near)[:-1] > 0) <= MAX_LOST:
            break
        shortest = max(2.0 * shortest, 1.5 * float(steps[k].min()))
        lost = lost & (steps > shortest)
    return lost


def _filter_piece(
    t: FloatArray, q: FloatArray, tau: FloatArray, dq: FloatArray | None, rate: float, settings: SignalSettings,
    lost: BoolArray, temperature: FloatArray | None,
) -> SignalPiece:  # fmt: skip
    step = 1.0 / rate
    count = int(np.floor((t[-1] - t[0]) * rate * (1.0 + 1e-12))) + 1
    grid = t[0] + step * np.arange(count)
    grid[-1] = min(grid[-1], t[-1])

    def low_pass(x: FloatArray, cutoff_hz: float) -> FloatArray:
        return x if cutoff_hz >= 0.45 * rate else zero_phase(x, cutoff_hz, rate, settings.filter_order)

    def linear(x: FloatArray) -> FloatArray:
        return np.stack([np.interp(grid, t, x[:, j]) for j in range(x.shape[1])], axis=1)

    band = STATE_BAND * settings.cutoff_hz
    q_f = low_pass(scipy.interpolate.CubicSpline(t, q)(grid) if dq is None else linear(q), band)
    measured = MEASURED_BAND * settings.cutoff_hz
    dq_f = central_difference(q_f, step) if dq is None else low_pass(linear(dq), measured)
    ddq_f = low_pass(central_difference(dq_f, step), settings.cutoff_hz)
    bridged: BoolArray | None = None
    if lost.any():
        bridged = np.zeros(count, dtype=bool)
        guard = _GUARD_PERIODS / settings.cutoff_hz
        for k in np.flatnonzero(lost):
            after = t[k + 1] + guard + SETTLING * (t[k + 1] - t[k])
            bridged |= (grid > t[k] - guard) & (grid < after)
    warm = None if temperature is None else linear(temperature)
    return SignalPiece(grid, q_f, dq_f, ddq_f, linear(tau), bridged, warm)
