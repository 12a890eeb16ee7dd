"""Frames of the harmonic-drive joint that tell little: at rest, and at one speed under one load."""

import numpy as np

from rt_core.types import FloatArray
from tests.lab.arms.harmonic_drive import RATE, TRUTH, N, Recorded, deflection

Frames = tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]  # time, both angles, both torques
LINK_STEP, MOTOR_STEP = 2.0 * np.pi / 2**20, 2.0 * np.pi / 2**16


def standing(r: Recorded, first: int, count: int, rng: np.random.Generator) -> Frames:
    """At rest where `r` ends, from `first` frames after it on: encoders flicker by a count, torques are noise."""
    flicker = rng.integers(0, 2, (2, count))
    return (
        r.t[-1] + (1.0 + first + np.arange(count)) / RATE, r.theta_in[-1] + flicker[0] * MOTOR_STEP,
        r.theta_out[-1] + flicker[1] * LINK_STEP, rng.normal(0.0, 0.02, count), rng.normal(0.0, 1.5, count),
    )  # fmt: skip


def one_speed(r: Recorded, first: int, count: int, rng: np.random.Generator, v: float = 0.04) -> Frames:
    """Turning at `v` [rad/s] against 500 N*m, from `first` frames after the end of `r` on."""
    k = first + np.arange(count)
    q = v * k / RATE
    spring = 500.0 + TRUTH["b_out"] * v + TRUTH["b_outC"]
    d = float(deflection(np.array(spring), TRUTH["k1"], TRUTH["k2"]))
    motor = spring / N + TRUTH["b_in"] * N * v + TRUTH["b_inD"]
    return (
        r.t[-1] + (1.0 + k) / RATE, MOTOR_STEP * (np.floor(N * (q + d) / MOTOR_STEP) + 0.5),
        LINK_STEP * (np.floor(q / LINK_STEP) + 0.5), motor + rng.normal(0.0, 0.02, count),
        500.0 + rng.normal(0.0, 1.5, count),
    )  # fmt: skip
