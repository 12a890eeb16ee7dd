"""Trapezoidal profiles: back and forth at constant speed (R. Paul, Robot Manipulators, MIT Press 1981, section 5.5).

A stroke goes from rest to rest.  Speed rises over the ramp time `T` as `3 x^2 - 2 x^3` with `x = s/T`, is constant, and
falls alike: position, speed and acceleration are continuous; the largest acceleration is `1.5 v/T`.
"""

import math

from rt_core.jit import jit


@jit
def stroke(s: float, length: float, speed: float, ramp: float) -> tuple[float, float, float]:
    """Return way, speed and acceleration at the time `s` within a stroke of `length / speed + ramp` seconds."""
    left = length / speed + ramp - s
    if s < ramp:
        x = s / ramp
        way = speed * ramp * x * x * x * (1.0 - 0.5 * x)
        return way, speed * x * x * (3.0 - 2.0 * x), 6.0 * speed * x * (1.0 - x) / ramp
    if left < ramp:
        x = max(left, 0.0) / ramp
        way = length - speed * ramp * x * x * x * (1.0 - 0.5 * x)
        return way, speed * x * x * (3.0 - 2.0 * x), -6.0 * speed * x * (1.0 - x) / ramp
    return speed * (s - 0.5 * ramp), speed, 0.0


@jit
def profile_at(s: float, speed: float, ramp: float, strokes: float) -> tuple[float, float, float]:
    """Return the phase and its derivatives: from 0 to 1, `strokes` times (or forever) between 1 and -1, back to 0."""
    half, whole = 1.0 / speed + ramp, 2.0 / speed + ramp
    if s < half:
        return stroke(s, 1.0, speed, ramp)
    count = math.floor((s - half) / whole)
    if count < strokes:
        p, v, a = stroke(s - half - count * whole, 2.0, speed, ramp)
        sign = 1.0 if count % 2.0 == 0.0 else -1.0
        return sign * (1.0 - p), -sign * v, -sign * a
    s -= half + strokes * whole
    if s >= half:
        return 0.0, 0.0, 0.0
    p, v, a = stroke(s, 1.0, speed, ramp)
    sign = 1.0 if strokes % 2.0 == 0.0 else -1.0
    return sign * (1.0 - p), -sign * v, -sign * a


def strokes_within(duration_s: float, speed: float, ramp: float) -> float:
    """Return the number of whole strokes within a duration, negative if it is too short to go and return."""
    if math.isinf(duration_s):
        return math.inf
    half, whole = 1.0 / speed + ramp, 2.0 / speed + ramp
    return math.floor((duration_s - 2.0 * half) / whole * (1.0 + 1e-12))
