"""Filter of existing rows, applied to other signals of the same recording.

An extra column of the regression has to pass the same mask, low-pass and decimation as the torque.  The mask is that of
the rows: a shifted signal must not move it.
"""

from collections.abc import Sequence

import numpy as np
import scipy

from rt_core.identification.preprocess import SignalPiece, Signals, SignalSettings, zero_phase
from rt_core.identification.rows import Rows, row_filter, standing_velocity
from rt_core.model.base import BaseParameters, link_torque
from rt_core.model.regressor import regressor
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray

#: Rate at which derivatives of the torque are evaluated, in cut-off frequencies: several times the bands of position,
#: velocity and acceleration, so that nothing of a smooth torque folds into the band of the rows.
_RATE = 25.0


class RowFilter:
    """The filter, mask and decimation that made `rows` from `signals`.

    With `coarse`, of signals at a lower rate, which holds whatever is smooth; `pieces` and `rate_hz` are theirs.
    """

    def __init__(
        self, model: RobotModel, rows: Rows, signals: Signals, settings: SignalSettings, *, coarse: bool = False
    ) -> None:
        self.rows = rows
        self._settings = settings
        factor = max(1, round(signals.rate_hz / rows.rate_hz))
        most = signals.rate_hz / (_RATE * settings.cutoff_hz) if coarse else 1.0
        stride = max(k for k in range(1, factor + 1) if factor % k == 0 and k <= max(most, 1.0))
        self.rate_hz = signals.rate_hz / stride
        self._taps = row_filter(settings, self.rate_hz, factor // stride)[:, None]
        standing = standing_velocity(model, settings, slow=rows.slow)
        inside = [np.flatnonzero(rows.piece == k) for k in range(len(signals.pieces))]
        samples = [
            np.rint((rows.t[k] - piece.t[0]) * signals.rate_hz).astype(np.int64)
            for k, piece in zip(inside, signals.pieces, strict=True)
        ]
        first = [int(k[0]) % stride if k.size else 0 for k in samples]  # all rows of a piece are on its coarse grid
        self.pieces = tuple(_thinned(p, k, stride) for p, k in zip(signals.pieces, first, strict=True))
        self._inside = inside
        self._centres = [k // stride for k in samples]
        self._masks = [np.abs(piece.row_velocity) >= standing for piece in self.pieces]

    @property
    def power_gain(self) -> float:
        """Variance of filtered white noise, as a share of its own."""
        return float(np.sum(self._taps**2))

    def low_pass(self, x: FloatArray, band: float) -> FloatArray:
        """Return `x` (N, ...) at the rate of `pieces`, low-passed as signals are at `band` cut-off frequencies."""
        cutoff = band * self._settings.cutoff_hz
        return x if cutoff >= 0.45 * self.rate_hz else zero_phase(x, cutoff, self.rate_hz, self._settings.filter_order)

    def apply(self, values: Sequence[FloatArray], *, masked_as: int | None = None) -> FloatArray:
        """Return the rows (K, n) of `values`, one array (N, n) for each of `pieces`.

        Column `j` is masked where joint `j` stands, or every column where joint `masked_as` stands; rows that are not
        in use are zero.
        """
        out = np.zeros((self.rows.t.size, values[0].shape[1]))
        for x, mask, inside, centres in zip(values, self._masks, self._inside, self._centres, strict=True):
            if inside.size:
                kept = mask if masked_as is None else mask[:, masked_as, None]
                out[inside] = scipy.signal.oaconvolve(kept * x, self._taps, mode="same", axes=0)[centres]
        use = self.rows.use if masked_as is None else self.rows.use[:, masked_as, None]
        return np.where(use, out, 0.0)


def _thinned(piece: SignalPiece, first: int, stride: int) -> SignalPiece:
    if stride == 1:
        return piece
    kept = slice(first, None, stride)
    return SignalPiece(
        piece.t[kept], piece.q[kept], piece.dq[kept], piece.ddq[kept], piece.tau[kept],
        None if piece.bridged is None else piece.bridged[kept],
        None if piece.temperature is None else piece.temperature[kept],
    )  # fmt: skip


def sampled_torque(
    model: RobotModel, base: BaseParameters, theta: FloatArray, piece: SignalPiece, *, q: FloatArray | None = None,
    dq: FloatArray | None = None, ddq: FloatArray | None = None,
) -> FloatArray:  # fmt: skip
    """Return the torque (N, n) of base parameters `theta` (p,) at every sample of `piece`.

    `q`, `dq`, `ddq` (N, n) replace those of the piece.  The load that friction depends on is the links' torque at the
    state of the piece itself.
    """
    state = (piece.q if q is None else q, piece.dq if dq is None else dq, piece.ddq if ddq is None else ddq)
    links = link_torque(model, base, theta, *state)
    effects = np.flatnonzero(~np.asarray(base.layout.is_link))
    if not effects.size:
        return links
    layout = base.layout.take(effects)
    load = link_torque(model, base, theta, piece.q, piece.dq, piece.ddq) if layout.has_load else None
    temperature = piece.temperature if layout.has_temperature else None
    return links + regressor(model, layout, *state, load=load, temperature=temperature) @ theta[effects]
