"""What an estimate says of joints that seem to stand: see `encoder_watch`."""

from __future__ import annotations

import numpy as np

from rt_core.model.base import BaseParameters
from rt_core.model.robot import RobotModel
from rt_core.online._latest_sample import NewestSample
from rt_core.online.monitors.stuck_encoder import Standing
from rt_core.online.rls.information_matrix import triangle_inverse
from rt_core.types import BoolArray, FloatArray

#: Dry friction of a joint that stands is at most so many times that of one that slides at `_SLOW`.
_STICTION = 3.0
_SLOW = 0.1  # [rad/s or m/s]
_SURE = 4.0  # standard deviations of the estimate
_NOISE = 8.0  # standard deviations of a row
_STRUCTURE = 0.15  # share of a joint's usual torque that a model leaves unexplained


def standing(
    model: RobotModel,
    base: BaseParameters,
    theta: FloatArray,
    root: FloatArray,
    newest: NewestSample,
    rests: BoolArray,
    sigma: FloatArray,
    usual: FloatArray,
    known: BoolArray,
) -> Standing:
    """Judge the torques of joints in the `newest` sample, as if those that seem to rest, (n,) `rests`, stood.

    `theta` (p,) is the estimate and `root` (p, p) the upper triangle `R` with `R'R` its information, `sigma` (n,) the
    noise of its rows and `usual` (n,) the root mean square of the torque; of joints that are not `known` nothing is
    said.
    """
    # a velocity from another sensor than the position may say that they do not
    Y = newest.rows(model, base, np.where(rests, 0.0, newest.dq), np.where(rests, 0.0, newest.ddq))
    still, slow = np.zeros(model.n), np.full(model.n, _SLOW)
    # what depends on the square of speed is the same both ways
    forth, back = (newest.rows(model, base, v, still) @ theta for v in (slow, -slow))
    std = np.linalg.norm(Y @ triangle_inverse(root), axis=1)
    friction = 0.5 * np.abs(forth - back)
    limit = _STICTION * friction + _SURE * std + _NOISE * sigma + _STRUCTURE * usual
    return Standing(newest.tau - Y @ theta, np.where(known, limit, np.inf), _NOISE * sigma + 0.1 * _STRUCTURE * usual)
