"""Directions of what the model has no parameters for: friction of another form or time, and gears that yield.

Neither has one number that could be corrected.  Their terms are freed together, and show which parameters take up what
the model lacks: a bias that is the same in every block of time, which no jackknife sees.
"""

from collections.abc import Sequence

import numpy as np

from rt_core.identification.diagnostics.added_variables import Direction
from rt_core.identification.diagnostics.row_filter import RowFilter, sampled_torque
from rt_core.identification.preprocess import STATE_BAND
from rt_core.model.base import BaseParameters
from rt_core.model.robot import RobotModel
from rt_core.types import BoolArray, FloatArray

FORMS = ("friction", "reversal", "yielding")
#: Speeds over which friction falls, as shares of the joint's own rms: their sum is near any such law in between.
_FALLING = (0.03, 0.12)
_STEP_RAD = 1e-4


def forms(model: RobotModel, base: BaseParameters, theta: FloatArray, rows_filter: RowFilter) -> list[Direction]:
    """Return three directions a joint: terms of friction, its `reversals`, and what torque winds up of the gear.

    Friction may fall with speed, grow with its square and be larger in one direction.  Position and derivatives are
    apart, because a velocity may be measured on either side of the gear.
    """
    pieces, rate = rows_filter.pieces, rows_filter.rate_hz

    def rms(parts: Sequence[FloatArray]) -> FloatArray:
        return np.asarray(np.maximum(np.sqrt(np.mean(np.concatenate(parts) ** 2, axis=0)), 1e-100))

    speed = rms([p.dq for p in pieces])
    v = [p.dq / speed for p in pieces]
    shapes = [[np.sign(x) * np.exp(-np.abs(x) / s) for x in v] for s in _FALLING]
    shapes += [[x * np.abs(x) for x in v], [np.abs(x) for x in v]]
    friction = np.array([rows_filter.apply(shape) for shape in shapes])
    wound = [rows_filter.low_pass(sampled_torque(model, base, theta, p), STATE_BAND) for p in pieces]
    fast = [np.gradient(x, 1.0 / rate, axis=0) for x in wound]
    faster = [rows_filter.low_pass(np.gradient(x, 1.0 / rate, axis=0), 1.0) for x in fast]

    def derivative(own: BoolArray, steps: FloatArray, **by: Sequence[FloatArray]) -> FloatArray:
        def torque(k: int, sign: float) -> FloatArray:
            state = {name: getattr(pieces[k], name) + sign * own * steps * x[k] for name, x in by.items()}
            return sampled_torque(model, base, theta, pieces[k], **state)

        change = [torque(k, 1.0) - torque(k, -1.0) for k in range(len(pieces))]
        return rows_filter.apply(change) / (2.0 * float(steps @ own))

    # friction shows where a velocity passes zero at a sample
    slight, brisk = _STEP_RAD / rms(wound), rms([p.ddq for p in pieces]) / rate / rms(fast)
    found: list[Direction] = []
    for j, own in enumerate(np.eye(model.n, dtype=bool)):
        found.append(Direction("friction", j, "", friction * own))
        yielding = derivative(own, slight, q=wound), derivative(own, brisk, dq=fast, ddq=faster)
        found.append(Direction("yielding", j, "rad/(N*m)", np.stack(yielding)))
    return found + reversals(model, rows_filter)


def reversals(model: RobotModel, rows_filter: RowFilter) -> list[Direction]:
    """Return an impulse at each reversal, a joint each: friction turns before the velocity, or after it if negative.

    It turns early where a joint sticks for a moment, late by bristles and oil.
    """
    impulses = rows_filter.apply([np.gradient(np.sign(p.dq), axis=0) for p in rows_filter.pieces])
    return [Direction("reversal", j, "", (impulses * own)[None]) for j, own in enumerate(np.eye(model.n, dtype=bool))]
