"""One joint that sticks and slips under a position controller: as plain as can be, apart from the product's own."""

from dataclasses import dataclass
from math import copysign, exp, pi, sin

import numpy as np

from rt_core.types import FloatArray

RATE = 1000.0
FB, FC, LOAD = 20.0, 15.0, 5.0
STIFFNESS = 1000.0
_SUBSTEPS = 4


@dataclass(frozen=True)
class Strokes:
    """What was recorded: `t`, `x` and `tau` (N,), and the times at which the joint broke loose [s]."""

    t: FloatArray
    x: FloatArray
    tau: FloatArray
    broke: tuple[float, ...]


def strokes(seconds: float, *, seed: int = 0, noise: float = 0.05, jump: float = 0.0) -> Strokes:
    """There and back, a stroke every two seconds, and rest between.

    `jump` [N*m] is fed forward with the sign of the set velocity, all at once.
    """
    rng, dt = np.random.default_rng(seed), 1.0 / (RATE * _SUBSTEPS)
    count = round(seconds * RATE)
    x = v = way_set = integral = 0.0
    stuck, broke = True, []
    out = np.empty((count, 2))
    for k in range(count):
        for s in range(_SUBSTEPS):
            t = (k * _SUBSTEPS + s) * dt
            phase, way = t % 2.0, 1.0 if int(t / 2.0) % 2 == 0 else -1.0
            v_set = way * 0.2 * sin(pi * (phase - 1.0) / 0.6) if 1.0 <= phase < 1.6 else 0.0
            way_set += v_set * dt
            error = way_set - x
            integral += STIFFNESS * error * dt
            tau = STIFFNESS * (error + (v_set - v) / 15.0) + integral + LOAD
            tau += jump * copysign(1.0, v_set) if v_set else 0.0
            push = tau - LOAD
            if stuck and abs(push) > FB:
                stuck = False
                broke.append(t)
            if stuck:
                continue
            side = copysign(1.0, v if v else push)
            rubs = (FC + (FB - FC) * exp(-((v / 0.01) ** 2))) * side + 8.0 * v
            after = v + (push - rubs) / 3.0 * dt
            stuck = v * after < 0.0 and abs(push) <= FB
            v = 0.0 if stuck else after
            x += v * dt
        out[k] = x, tau
    step = 2.0 * pi / 2**20
    t = np.arange(1, count + 1) / RATE
    return Strokes(t, np.round(out[:, 0] / step) * step, out[:, 1] + noise * rng.standard_normal(count), tuple(broke))
