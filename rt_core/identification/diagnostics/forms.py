"""Directions of what the model has no parameters for: friction of another form, and gears that yield.

Neither has one number that could be corrected.  Their terms are freed together, and show which parameters take up what
the model lacks: a bias that is the same in every block of time, which no jackknife sees.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rt_core.identification.diagnostics.added_variables import Direction
from rt_core.identification.diagnostics.row_filter import RowFilter, sampled_torque
from rt_core.identification.preprocess import STATE_BAND, SignalPiece
from rt_core.model.base import BaseParameters
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray

FORMS = ("friction", "yielding")
#: Speeds over which friction falls, as shares of the joint's own rms: their sum is near any such law in between.
_FALLING = (0.03, 0.12)
_STEP_RAD = 1e-4


def forms(model: RobotModel, base: BaseParameters, theta: FloatArray, rows_filter: RowFilter) -> list[Direction]:
    """Return two directions a joint: terms of friction, and what its own torque winds up of position and derivatives.

    Friction may fall with speed, grow with its square and be larger in one direction.  Position and derivatives are
    apart, because a velocity may be measured on either side of the gear.
    """
    pieces, rate = rows_filter.pieces, rows_filter.rate_hz

    def rms(parts: Sequence[FloatArray]) -> FloatArray:
        return np.maximum(np.sqrt(np.mean(np.concatenate(parts) ** 2, axis=0)), 1e-100)

    speed = rms([p.dq for p in pieces])
    shapes = [lambda v, s=s: np.sign(v) * np.exp(-np.abs(v) / s) for s in _FALLING]
    shapes += [lambda v: v * np.abs(v), np.abs]
    friction = np.array([rows_filter.apply([shape(p.dq / speed) for p in pieces]) for shape in shapes])
    q, dq, ddq = [], [], []
    for piece in pieces:
        q.append(rows_filter.low_pass(sampled_torque(model, base, theta, piece), STATE_BAND))
        dq.append(np.gradient(q[-1], 1.0 / rate, axis=0))
        ddq.append(rows_filter.low_pass(np.gradient(dq[-1], 1.0 / rate, axis=0), 1.0))

    def moved(piece: SignalPiece, joint: int, **by: FloatArray) -> FloatArray:
        state = {name: getattr(piece, name) + np.where(np.arange(model.n) == joint, x, 0.0) for name, x in by.items()}
        return sampled_torque(model, base, theta, piece, **state)

    # friction shows where a velocity passes zero at a sample
    still, fast = _STEP_RAD / rms(q), rms([p.ddq for p in pieces]) / rate / rms(dq)
    found: list[Direction] = []
    for j in range(model.n):
        own = np.zeros_like(friction)
        own[:, :, j] = friction[:, :, j]
        found.append(Direction("friction", j, "", own))
        a, b = still[j], fast[j]
        wound = [
            rows_filter.apply([moved(p, j, q=a * x) - moved(p, j, q=-a * x) for p, x in zip(pieces, q, strict=True)])
            / (2.0 * a),
            rows_filter.apply([
                moved(p, j, dq=b * x, ddq=b * y) - moved(p, j, dq=-b * x, ddq=-b * y)
                for p, x, y in zip(pieces, dq, ddq, strict=True)
            ]) / (2.0 * b),
        ]  # fmt: skip
        found.append(Direction("yielding", j, "rad/(N*m)", np.stack(wound)))
    return found
