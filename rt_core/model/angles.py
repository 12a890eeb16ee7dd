"""Angles as robot files write them: right angles rounded to some decimals."""

import math

#: Fewer decimals than these are no rounding of a right angle: 2 rad is an angle of its own.
_MIN_DECIMALS = 2
#: A right angle written so exactly makes no difference.
EXACT = 1e-7


def right_angle(angle: float) -> float:
    """Return the multiple of a right angle that `angle` [rad] is the rounding of; otherwise `angle` itself.

    `1.5708` and `-3.14` are right angles to the decimals that are written, `1.5713` is not.  The rounding matters: two
    axes that are meant to be parallel, and are not by 4e-6 rad, split a base parameter in two that no data can tell
    apart.
    """
    nearest = round(angle / (0.5 * math.pi)) * 0.5 * math.pi
    if nearest == 0.0 or angle == nearest:
        return angle
    mantissa, _, exponent = repr(float(angle)).partition("e")
    decimals = len(mantissa.partition(".")[2]) - int(exponent or 0)
    if decimals < _MIN_DECIMALS or decimals > 15:
        return angle
    return nearest if abs(angle - nearest) <= 0.5 * 10.0**-decimals * (1.0 + 1e-9) else angle
