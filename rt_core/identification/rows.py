"""Rows of the regression `tau = Y theta`, filtered and decimated alike on both sides.

The model holds at every instant, so any linear filter may be applied to `tau` and to every column of `Y` together
without changing the parameters ("parallel filtering", Gautier 1997).  Here it is the low-pass at the cut-off and the
anti-aliasing filter of the decimation.  `Y` is built in cache, some hundred samples at a time, and only its filtered,
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
from rt_core.model.regressor import BLOCK, ColumnArrays, Samples, fill_block, joint_column, link_columns, warm_column
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
_CHUNK = 256  # samples whose columns are filtered together: they stay in cache
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
def _moving_columns(
    arrays: ColumnArrays, samples: Samples, tau: FloatArray, standing: FloatArray, place: IntArray, start: int,
    stop: int, out: FloatArray,
) -> None:  # fmt: skip
    """Compute regressor and torque of the samples `start` to `stop`, zero where a joint stands.

    Joint `j` moves where `|dq_j| >= standing[j]`.  `out` (M + 2 n, >= stop - start) receives column `c` of joint `j` in
    its row `place[c, j]`, and after these M rows whether joints move (0 or 1), and their torque, `tau` (N, n).
    """
    n = tau.shape[1]
    geometry, gravity, law, source, motor, shape = arrays
    state = np.zeros((5, n, BLOCK))
    links = np.zeros((n, n, 10 * BLOCK))
    value = np.zeros(BLOCK)
    moves = np.zeros((n, BLOCK))
    last = out.shape[0] - 2 * n
    for block in range(start, stop, BLOCK):
        size = min(BLOCK, stop - block)
        at = block - start
        fill_block(samples, block, size, state)
        for b in range(size):
            for i in range(n):
                moves[i, b] = 1.0 if np.abs(state[1, i, b]) >= standing[i] else 0.0
                out[last + i, at + b] = moves[i, b]
                out[last + n + i, at + b] = moves[i, b] * tau[block + b, i]
        link_columns(geometry, gravity, state, BLOCK, links)
        for c in range(law.shape[0]):
            if law[c] == LAW_LINK:
                k = source[c] // 10
                offset = (source[c] - 10 * k) * BLOCK
                for j in range(k + 1):
                    for b in range(size):
                        out[place[c, j], at + b] = moves[j, b] * links[k, j, offset + b]
            else:
                joint_column(law[c], shape[c], motor[c], state, state[3], value)
                warm_column(law[c], state[4, source[c]], value)
                for j in range(n):
                    if motor[c, j] != 0.0:
                        for b in range(size):
                            out[place[c, j], at + b] = motor[c, j] * moves[j, b] * value[b]


def _piece_rows(
    model: RobotModel, base: BaseParameters, piece: SignalPiece, centres: IntArray, taps: FloatArray,
    threshold: FloatArray, standing: FloatArray, theta: FloatArray | None,
) -> tuple[FloatArray, FloatArray, BoolArray]:  # fmt: skip
    """Return `Y` (n, p, K), filtered torque (K, n) and the rows in use (K, n) of one piece."""
    layout, n = base.layout, model.n
    q, dq, ddq, tau = (np.ascontiguousarray(x) for x in (piece.q, piece.row_velocity, piece.ddq, piece.tau))
    load = np.zeros((0, n))
    if layout.has_load:
        load = tau if theta is None else link_torque(model, base, theta, piece.q, piece.dq, piece.ddq)
    warmth = np.zeros((0, n))
    if layout.has_temperature:
        if piece.temperature is None:
            raise DataError(
                "friction follows temperature in this model, and the data have none: add a channel temperature, or set "
                'friction_temperature = "none" in [model] of the robot file'
            )
        warmth = piece.temperature - REFERENCE_TEMPERATURE
    # Link columns are zero in the rows of joints beyond the link, friction in those of other joints.
    filled = np.where(
        (layout.law == LAW_LINK)[:, None], np.arange(n) <= layout.source[:, None] // 10, layout.motor != 0.0
    )
    place = np.cumsum(filled).reshape(filled.shape) - 1
    columns, joints = np.nonzero(filled)
    Y = np.zeros((n, len(layout), centres.size))
    sums = np.zeros((2 * n, centres.size))  # filter weight of the samples that move, and torque
    raw = np.zeros((columns.size + 2 * n, _CHUNK))
    arrays, samples = ColumnArrays.of(model, layout), Samples(q, dq, ddq, load, warmth)
    half = taps.size // 2
    padded = np.concatenate((taps, np.zeros(1)))
    for start in range(0, piece.t.size, _CHUNK):
        stop = min(start + _CHUNK, piece.t.size)
        rows = slice(*np.searchsorted(centres, (start - half, stop + half)))
        lags = np.arange(start, stop)[:, None] - centres[rows] + half
        if lags.size == 0:
            continue
        _moving_columns(arrays, samples, tau, standing, place, start, stop, raw)
        filtered = raw[:, : stop - start] @ padded[np.where((lags >= 0) & (lags < taps.size), lags, taps.size)]
        Y[joints, columns, rows] += filtered[: columns.size]
        sums[:, rows] += filtered[columns.size :]
    use = (sums[:n].T > _MIN_SHARE) & (np.abs(piece.dq[centres]) >= threshold)
    return np.where(use.T[:, None], Y, 0.0), np.where(use, sums[n:].T, 0.0), use


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
        np.concatenate(times), np.concatenate(blocks, axis=2), q, dq, ddq, tau,
        np.concatenate(used), np.concatenate(numbers), rate, band, np.concatenate(warm) if warm else None,
        slow,
    )  # fmt: skip
