"""Rows of the regression `tau = Y theta`, filtered and decimated alike on both sides.

The model holds at every instant, so any linear filter may be applied to `tau` and to every column of `Y` together
without changing the parameters ("parallel filtering", Gautier 1997).  Here it is the low-pass at the cut-off and the
anti-aliasing filter of the decimation.  `Y` is built in cache, sixteen samples at a time, and only its filtered,
decimated rows are stored.

Samples of a joint at standstill, and samples near a lost one, are set to zero on both sides before the filter: friction
at rest is not a function of velocity and must not leak into rows nearby.  A joint that passes through zero velocity is
not at standstill.  `min_velocity` selects filtered rows instead, by the velocity in their middle.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from rt_core.identification.preprocess import DataError, SignalPiece, Signals, SignalSettings, zero_phase
from rt_core.jit import kernel
from rt_core.model.base import BaseParameters, link_torque
from rt_core.model.friction import LAW_LINK, REFERENCE_TEMPERATURE
from rt_core.model.regressor import BLOCK, joint_column, link_columns, warm_column
from rt_core.model.robot import RobotModel
from rt_core.types import BoolArray, FloatArray, IntArray

#: Pass band of the decimation, as a share of the new Nyquist frequency.
PASS_BAND = 0.8
#: Share of `RobotModel.standstill_velocity` below which a joint is at standstill: several times the noise of ordinary
#: velocity sensors, and passed within milliseconds at a reversal.
STANDING_SHARE = 0.2
_HALF_PERIODS = 10  # half length of the decimation filter, in new sample periods
_KAISER_BETA = 7.0
_IMPULSE_PERIODS = 3.0  # half length of the low-pass's impulse response, in periods of the cut-off
_MIN_SPEED = np.finfo(np.float64).tiny  # so that zero is always standstill
_MIN_SHARE = 0.5  # least filter weight of moving samples in a row


@dataclass(frozen=True)
class Rows:
    """Decimated rows of all joints."""

    t: FloatArray  # (K,) times [s]
    Y: FloatArray  # (n, p, K) base regressor, by columns
    q: FloatArray  # (K, n) state at the rows' times
    dq: FloatArray  # (K, n)
    ddq: FloatArray  # (K, n)
    tau: FloatArray  # (K, n) the filtered torque
    use: BoolArray  # (K, n); False where a joint's row is left out because the joint hardly moves
    piece: IntArray  # (K,) number of the stretch without gaps
    rate_hz: float  # of the rows
    band_hz: float  # pass band of both sides
    temperature: FloatArray | None = None  # (K, n) of the joints [degC], where friction follows it
    slow: bool = True  # as given to `build_rows`

    def select(self, start: float, stop: float) -> Rows:
        """Select the rows with `start <= t < stop`."""
        keep = (self.t >= start) & (self.t < stop)
        return Rows(
            self.t[keep], self.Y[:, :, keep], self.q[keep], self.dq[keep], self.ddq[keep], self.tau[keep],
            self.use[keep], self.piece[keep], self.rate_hz, self.band_hz,
            None if self.temperature is None else self.temperature[keep], self.slow,
        )  # fmt: skip

    def predict(self, theta: FloatArray) -> FloatArray:
        """Return the torque (K, n) of base parameters `theta` (p,)."""
        return np.asarray(np.einsum("npk,p->kn", self.Y, theta))


def standing_velocity(model: RobotModel, settings: SignalSettings, *, slow: bool = True) -> FloatArray:
    """Return the speed (n,) below which samples are zeroed before the filter [rad/s or m/s].

    At most `min_velocity`, or just that if `slow` is false.  Raises `DataError` if `min_velocity` has the wrong length.
    """
    if not slow:
        return np.maximum(_threshold(model, settings), _MIN_SPEED)
    return np.maximum(np.minimum(_threshold(model, settings), STANDING_SHARE * model.standstill_velocity), _MIN_SPEED)


def _threshold(model: RobotModel, settings: SignalSettings) -> FloatArray:
    threshold = np.zeros(model.n) if settings.min_velocity is None else np.asarray(settings.min_velocity)
    if threshold.shape != (model.n,):
        raise DataError(f"min_velocity has {threshold.size} values for {model.n} joints")
    return threshold


def low_pass_taps(settings: SignalSettings, rate_hz: float) -> FloatArray:
    """Return the impulse response of the zero-phase low-pass at the cut-off: symmetric, odd length, unit gain."""
    if settings.cutoff_hz >= 0.45 * rate_hz:
        return np.ones(1)
    half = int(np.ceil(_IMPULSE_PERIODS * rate_hz / settings.cutoff_hz))
    impulse = np.zeros(4 * half + 1)
    impulse[2 * half] = 1.0
    response = zero_phase(impulse, settings.cutoff_hz, rate_hz, settings.filter_order)[half : 3 * half + 1]
    return np.asarray(response / response.sum())


def row_filter(settings: SignalSettings, rate_hz: float, factor: int) -> FloatArray:
    """Return the taps of the filter before decimation by `factor`.

    The low-pass at the cut-off, with an anti-aliasing filter where that does not suffice.
    """
    taps = low_pass_taps(settings, rate_hz)
    if factor == 1 or settings.cutoff_hz <= PASS_BAND * 0.5 * rate_hz / factor:
        return taps
    length = 2 * _HALF_PERIODS * factor + 1
    anti_alias = scipy.signal.firwin(length, PASS_BAND / factor, window=("kaiser", _KAISER_BETA))
    return np.asarray(np.convolve(taps, anti_alias / anti_alias.sum()))


@kernel
def decimated_rows(
    geometry: FloatArray, gravity: FloatArray, law: IntArray, source: IntArray, motor: FloatArray, shape: FloatArray,
    q: FloatArray, dq: FloatArray, ddq: FloatArray, load: FloatArray, warmth: FloatArray, tau: FloatArray,
    standing: FloatArray, taps: FloatArray, centres: IntArray, out: FloatArray, out_tau: FloatArray, share: FloatArray,
) -> None:  # fmt: skip
    """Build filtered base regressor and torque at the samples `centres` (K,), ascending.

    `q, dq, ddq, load, warmth, tau` (N, n); `load`, and `warmth` of the joints above the reference temperature, have no
    rows if no column needs them; `taps` of odd length; the support of every centre must lie within the samples.
    Row `j` averages only the samples with `|dq_j| >= standing[j]`.  `out` (K, n, P), `out_tau` (K, n) and `share`
    (K, n), the filter weight of these samples, start at zero.
    """
    count, n = q.shape
    columns = law.shape[0]
    half = taps.shape[0] // 2
    loaded = load.shape[0] == count
    warmed = warmth.shape[0] == count
    state = np.zeros((5, n, BLOCK))
    links = np.zeros((n, n, 10 * BLOCK))
    value = np.zeros(BLOCK)
    weight = np.zeros((n, BLOCK))
    first = 0  # the first centre whose support is not yet complete
    for start in range(0, count, BLOCK):
        while first < centres.shape[0] and centres[first] + half < start:
            first += 1
        if first == centres.shape[0]:
            break
        if centres[first] - half >= start + BLOCK:
            continue
        size = min(BLOCK, count - start)
        for b in range(size):
            for i in range(n):
                state[0, i, b] = q[start + b, i]
                state[1, i, b] = dq[start + b, i]
                state[2, i, b] = ddq[start + b, i]
                if loaded:
                    state[3, i, b] = load[start + b, i]
                if warmed:
                    state[4, i, b] = warmth[start + b, i]
        link_columns(geometry, gravity, state[0], state[1], state[2], BLOCK, links)
        for r in range(first, centres.shape[0]):
            if centres[r] - half >= start + BLOCK:
                break
            for j in range(n):
                for b in range(BLOCK):
                    lag = start + b - centres[r] + half
                    inside = b < size and 0 <= lag < taps.shape[0] and np.abs(state[1, j, b]) >= standing[j]
                    weight[j, b] = taps[lag] if inside else 0.0
                for b in range(size):
                    share[r, j] += weight[j, b]
                    out_tau[r, j] += weight[j, b] * tau[start + b, j]
            row = out[r]
            for c in range(columns):
                if law[c] == LAW_LINK:
                    k = source[c] // 10
                    offset = (source[c] - 10 * k) * BLOCK
                    for j in range(k + 1):
                        x = links[k, j]
                        w = weight[j]
                        total = 0.0
                        for b in range(BLOCK):
                            total += w[b] * x[offset + b]
                        row[j, c] += total
                else:
                    joint_column(law[c], shape[c], motor[c], state[0], state[1], state[2], state[3], value)
                    warm_column(law[c], state[4, source[c]], value)
                    for j in range(n):
                        if motor[c, j] != 0.0:
                            w = weight[j]
                            total = 0.0
                            for b in range(BLOCK):
                                total += w[b] * value[b]
                            row[j, c] += motor[c, j] * total


def _piece_rows(
    model: RobotModel, base: BaseParameters, piece: SignalPiece, centres: IntArray, taps: FloatArray,
    threshold: FloatArray, standing: FloatArray, theta: FloatArray | None,
) -> tuple[FloatArray, FloatArray, BoolArray]:  # fmt: skip
    """Return `Y` (K, n, p), filtered torque (K, n) and the rows in use (K, n) of one piece."""
    layout = base.layout
    Y = np.zeros((centres.size, model.n, len(layout)))
    tau = np.zeros((centres.size, model.n))
    share = np.zeros((centres.size, model.n))
    channels = [np.ascontiguousarray(x) for x in (piece.q, piece.row_velocity, piece.ddq, piece.tau)]
    load = np.zeros((0, model.n))
    if layout.has_load:
        load = channels[3] if theta is None else link_torque(model, base, theta, piece.q, piece.dq, piece.ddq)
    warmth = np.zeros((0, model.n))
    if layout.has_temperature:
        if piece.temperature is None:
            raise DataError(
                "friction follows temperature in this model, and the data have none: add a channel temperature, or set "
                'friction_temperature = "none" in [model] of the robot file'
            )
        warmth = piece.temperature - REFERENCE_TEMPERATURE
    decimated_rows(
        model.geometry, model.gravity, layout.law, layout.source, layout.motor, layout.shape, channels[0], channels[1],
        channels[2], load, warmth, channels[3], standing, taps, centres, Y, tau, share,
    )  # fmt: skip
    use = (share > _MIN_SHARE) & (np.abs(piece.dq[centres]) >= threshold)
    return np.where(use[:, :, None], Y, 0.0), np.where(use, tau, 0.0), use


def build_rows(
    model: RobotModel, base: BaseParameters, signals: Signals, settings: SignalSettings, *,
    load_theta: FloatArray | None = None, slow: bool = True, every: int = 1,
) -> Rows:  # fmt: skip
    """Return the decimated rows of the whole recording, or each `every`-th of them.

    Load-dependent friction takes the load from base parameters `load_theta` (p,), or as a first approximation from the
    measured torque.  With `slow` false, all samples below `min_velocity` are zeroed before the filter: rows to score a
    prediction on, which is not meant for slower motion.

    Raises
    ------
    DataError
        If trimming leaves nothing, or the velocity threshold has the wrong length.
    """
    factor = max(1, round(signals.rate_hz / min(settings.row_rate_hz, signals.rate_hz)))
    taps = row_filter(settings, signals.rate_hz, factor)
    half = taps.size // 2
    threshold = _threshold(model, settings)
    standing = standing_velocity(model, settings, slow=slow)
    times: list[FloatArray] = []
    blocks: list[FloatArray] = []
    states: list[list[FloatArray]] = []
    used: list[BoolArray] = []
    warm: list[FloatArray] = []
    numbers: list[IntArray] = []
    for number, piece in enumerate(signals.pieces):
        centres = np.arange(half, piece.t.size - half, factor, dtype=np.int64)
        centres = centres[signals.inside(piece.t[centres], settings.trim)][::every]
        if centres.size == 0:
            continue
        Y, tau, use = _piece_rows(model, base, piece, centres, taps, threshold, standing, load_theta)
        times.append(piece.t[centres])
        blocks.append(Y)
        states.append([piece.q[centres], piece.dq[centres], piece.ddq[centres], tau])
        used.append(use)
        if base.layout.has_temperature and piece.temperature is not None:
            warm.append(piece.temperature[centres])
        numbers.append(np.full(centres.size, number, dtype=np.int64))
    if not times:
        raise DataError(
            f"nothing is left of {signals.t_last - signals.t_first:.3g} s after cutting {settings.trim:.3g} s at both "
            f"ends and {half / signals.rate_hz:.3g} s for the decimation filter: record longer or raise rate_hz"
        )
    q, dq, ddq, tau = (np.concatenate(x) for x in zip(*states, strict=True))
    rate = signals.rate_hz / factor
    band = min(settings.cutoff_hz, PASS_BAND * 0.5 * rate) if factor > 1 else settings.cutoff_hz
    return Rows(
        np.concatenate(times), np.ascontiguousarray(np.concatenate(blocks).transpose(1, 2, 0)), q, dq, ddq, tau,
        np.concatenate(used), np.concatenate(numbers), rate, band, np.concatenate(warm) if warm else None,
        slow,
    )  # fmt: skip
