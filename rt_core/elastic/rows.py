"""Rows of the regression of an elastic joint from its filtered and aligned signals.

Both sides of the spring are referred to the joint.  With the motor angle `theta_in`, its torque `Km*Ia`, the gear ratio
`N` (negative if the motor turns against the joint) and the link angle `theta_out`,

    d = theta_in/N - theta_out        deflection: positive where the motor is ahead,
    T_k = k1*d + k2*d^3               torque of the spring on the link.

Sun et al. define the deflection as `theta_out - theta_in/N`, but print rows that hold for the sign above, which is used
here.

Every channel passes the same linear-phase filter, so the equations hold for the rows as for the samples.  If the
rotor's inertia is known, its torque is subtracted and all samples in motion count, otherwise those at constant speed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from rt_core.identification.preprocess import DataError, SignalPiece, SignalSettings, central_difference, prepare
from rt_core.identification.rows import row_filter
from rt_core.types import BoolArray, FloatArray, IntArray

#: Largest lag [s]: more is impossible between channels of one bus.
MAX_LAG_S = 0.02
#: Largest zero of the deflection [rad]: multi-turn encoders that were never aligned.
MAX_ZERO = 1e4
#: Plausible gear ratios, and largest plausible rotor inertia [kg*m^2].
GEAR_RATIOS = (1e-3, 1e6)
MAX_INERTIA = 1e4
#: Largest plausible angle and torque [rad, N*m, joint side]; smallest torque that is not zero.
_MAX = 1e9
_NO_TORQUE = 1e-9
_NO_SPEED = 1e-9  # [rad/s]
_SHARPEST = 1e-9  # smoothing of the sign below this [rad/s] is none
#: Quantile of the speed that counts as the largest, so that a single wrong angle does not.
_TOP = 0.999
#: Default speed from which a joint moves, as a share of its largest.
MOVING_SHARE = 0.02
#: Speed is constant where it changes by less than this share of the largest in one period of the cut-off.
CONSTANT_SHARE = 0.02
#: Samples within this many periods of the cut-off from one that is left out are left out as well: the filter spreads a
#: reversal so far, and filtering does not commute with the cube of the deflection.
_GUARD_PERIODS = 2.0
_MIN_ROWS = 20


@dataclass(frozen=True)
class Drive:
    """Parameters of the drive."""

    gear_ratio: float  # `N`, with sign
    rotor_inertia: float | None = None  # on the motor side [kg*m^2]; None where unknown

    def __post_init__(self) -> None:
        low, high = GEAR_RATIOS
        if not low <= abs(self.gear_ratio) <= high:
            raise DataError(f"gear ratio {self.gear_ratio:g}: give a number of size {low:g} to {high:g}, with its sign")
        if self.rotor_inertia is not None and not 0.0 <= self.rotor_inertia <= MAX_INERTIA:
            raise DataError(f"rotor inertia {self.rotor_inertia:g} kg*m^2: give a number from 0 to {MAX_INERTIA:g}")


@dataclass(frozen=True)
class ElasticPiece:
    """Rows of a stretch without gaps, joint side.

    `t` (K,) [s]; `motor` (K,) `theta_in/N` [rad]; `speed` (K,) of it; `sign` (K,) of the speed; `motor_torque` (K,)
    `N*Km*Ia` less the rotor's inertia torque [N*m]; `sensor_torque` (K,) or None.  `link` and `link_speed` interpolate
    the link's angle and speed over the stretch, a little beyond the rows.
    """

    t: FloatArray
    motor: FloatArray
    speed: FloatArray
    sign: FloatArray
    motor_torque: FloatArray
    sensor_torque: FloatArray | None
    link: scipy.interpolate.CubicSpline
    link_speed: scipy.interpolate.CubicSpline


@dataclass(frozen=True)
class ElasticRows:
    """Rows of one recording.

    `rate_hz` is their rate, `band_hz` the pass band of all channels, `min_velocity` the speed below which rows are left
    out [rad/s].
    """

    drive: Drive
    pieces: tuple[ElasticPiece, ...]
    rate_hz: float
    band_hz: float
    min_velocity: float

    @property
    def count(self) -> int:
        """Number of rows."""
        return sum(piece.t.size for piece in self.pieces)

    @property
    def has_sensor(self) -> bool:
        """Whether there is a torque sensor behind the spring."""
        return self.pieces[0].sensor_torque is not None


def elastic_rows(
    t: FloatArray, theta_in: FloatArray, theta_out: FloatArray, motor_torque: FloatArray, drive: Drive,
    settings: SignalSettings, *, sensor_torque: FloatArray | None = None, min_velocity: float | None = None,
    smoothing: float = 0.0, valid: BoolArray | None = None, seq: IntArray | None = None, rate_hz: float | None = None,
    spans: Sequence[tuple[float, float]] = (),
) -> ElasticRows:  # fmt: skip
    """Build rows from the channels of one joint.

    Parameters
    ----------
    t : (N,) float64
        Time [s].
    theta_in, theta_out : (N,) float64
        Motor angle on the motor side, link angle [rad].
    motor_torque : (N,) float64
        `Km*Ia`, motor side [N*m].
    drive : Drive
    settings : SignalSettings
        Cut-off, rate of the rows, and trim at the ends.
    sensor_torque : (N,) float64 or None
        Of the sensor between spring and link [N*m], where there is one.
    min_velocity : float or None
        Joint-side speed below which rows are left out [rad/s]; None for 2 % of the largest.
    smoothing : float
        `eps` of `tanh(v/eps)` in place of the sign [rad/s], joint side.
    valid, seq, rate_hz, spans
        As in `rt_core.identification.preprocess.prepare`.

    Raises
    ------
    DataError
        If the channels do not fit together or hold implausible numbers, the joint does not move or has no torque, or
        too few rows remain.
    """
    N = drive.gear_ratio
    with np.errstate(over="ignore"):
        angle = np.column_stack((theta_in / N, theta_out))
        torque = np.column_stack((N * motor_torque, np.zeros(t.size) if sensor_torque is None else sensor_torque))
    use = np.ones(t.size, dtype=bool) if valid is None else np.asarray(valid, dtype=bool)
    _check_size(angle, torque, use, sensor_torque is not None)
    signals = prepare(t, angle, torque, settings, valid=valid, seq=seq, rate_hz=rate_hz, spans=spans)
    rate = signals.rate_hz
    fastest = float(np.quantile(np.abs(np.concatenate([piece.dq[:, 0] for piece in signals.pieces])), _TOP))
    if not fastest > _NO_SPEED:
        raise DataError("the motor does not turn: record motion at several constant speeds, in both directions")
    slow = MOVING_SHARE * fastest if min_velocity is None else min_velocity
    limit = CONSTANT_SHARE * fastest * settings.cutoff_hz if drive.rotor_inertia is None else np.inf
    factor = max(1, round(rate / min(settings.row_rate_hz, rate)))
    taps = row_filter(settings, rate, factor)
    pieces = []
    for piece in signals.pieces:
        moving = (np.abs(piece.dq[:, 0]) >= slow) & (np.abs(piece.ddq[:, 0]) <= limit)
        if piece.bridged is not None:
            moving &= ~piece.bridged
        guard = int(_GUARD_PERIODS * rate / settings.cutoff_hz)
        if not moving.all():
            moving = scipy.ndimage.binary_erosion(moving, np.ones(2 * guard + 1, dtype=bool), border_value=1)
        moving &= signals.inside(piece.t, settings.trim)
        made = _reduce(piece, drive, moving, taps, factor, smoothing, sensor_torque is not None)
        if made is not None:
            pieces.append(made)
    rows = ElasticRows(drive, tuple(pieces), rate / factor, settings.cutoff_hz, slow)
    if rows.count < _MIN_ROWS:
        at = "" if drive.rotor_inertia is not None else " at constant speed; give the rotor's inertia to use all motion"
        raise DataError(
            f"only {rows.count} rows remain where the joint is faster than {slow:.3g} rad/s{at}, or record longer "
            "stretches"
        )
    return rows


def _check_size(angle: FloatArray, torque: FloatArray, use: BoolArray, sensor: bool) -> None:
    """Raise `DataError` for implausible angles and torques (N, 2), motor and link, among samples in `use` (N,)."""
    if use.size != len(angle) or not use.any():
        return  # `prepare` raises the error
    for values, unit, names in (
        (angle, "rad", ("motor angle / gear ratio", "link angle")),
        (torque, "N*m", ("motor torque * gear ratio", "sensor torque")),
    ):
        for k, name in enumerate(names):
            size = np.abs(values[use, k])
            largest = float(size.max(initial=0.0, where=~np.isnan(size)))
            if largest > _MAX:
                raise DataError(f"{name} reaches {largest:.3g} {unit}: check its unit and the figures of the drive")
            if unit == "N*m" and largest < _NO_TORQUE and (k == 0 or sensor) and not np.isnan(size).any():
                raise DataError(f"{name} is zero throughout: check channel, torque constant and unit")


def _reduce(
    piece: SignalPiece, drive: Drive, use: BoolArray, taps: FloatArray, factor: int, smoothing: float, sensor: bool
) -> ElasticPiece | None:
    """Filter a piece and keep every `factor`-th sample in `use`; None if none is left."""
    rate = (piece.t.size - 1) / (piece.t[-1] - piece.t[0])
    half = taps.size // 2
    edge = half + int(np.ceil(MAX_LAG_S * rate)) + 2
    keep = np.arange(edge, piece.t.size - edge, factor)
    keep = keep[use[keep]]
    if keep.size == 0:
        return None

    def low_pass(x: FloatArray) -> FloatArray:
        return np.asarray(scipy.signal.oaconvolve(x, taps, mode="same"))

    speed = piece.dq[:, 0]
    sign = np.tanh(speed / smoothing) if smoothing > _SHARPEST else np.sign(speed)
    inertia = 0.0 if drive.rotor_inertia is None else drive.rotor_inertia * drive.gear_ratio**2
    acceleration = central_difference(speed, 1.0 / rate)  # low-passed below
    inside = slice(half, piece.t.size - half)
    link = scipy.interpolate.CubicSpline(piece.t[inside], low_pass(piece.q[:, 1])[inside])
    motor_torque = low_pass(piece.tau[:, 0] - inertia * acceleration)[keep]
    return ElasticPiece(
        piece.t[keep], low_pass(piece.q[:, 0])[keep], low_pass(speed)[keep], low_pass(sign)[keep], motor_torque,
        low_pass(piece.tau[:, 1])[keep] if sensor else None, link, link.derivative(),
    )  # fmt: skip


def check_records(records: Sequence[ElasticRows]) -> None:
    """Raise `DataError` unless all recordings are of one drive and have the same channels."""
    if not records:
        raise DataError("no recording of the joint is given")
    if len({record.drive for record in records}) > 1 or len({record.has_sensor for record in records}) > 1:
        raise DataError("the recordings are not of one drive: gear ratio, rotor inertia or channels differ")
