"""Checks of the measured values of a cycle."""

import numpy as np

from rt_core.safety._limits import Quantity, SafetyLimits, Violation
from rt_core.types import BoolArray, FloatArray

#: Share of the time that a torque may exceed its limit for ever: the smallest cyclic duration factor that IEC 60034-1
#: (duty type S3) recommends for motors that rest between loads.
_DUTY = 0.15


def check_feedback(
    limits: SafetyLimits, command: FloatArray, q: FloatArray | None, dq: FloatArray | None = None,
    tau: FloatArray | None = None, temperature: FloatArray | None = None, valid: BoolArray | None = None,
) -> Violation | None:  # fmt: skip
    """Check one cycle: following error, velocity, torque, temperature; arrays are (n,).

    `command` is the set position of the cycle in which the others were measured, `valid` the joints to check, None for
    all.  NaN is a violation, except for the temperature, which many drives report less often.
    """
    checks: tuple[tuple[Quantity, FloatArray | None, FloatArray], ...] = (
        ("following error", None if q is None else q - command, limits.following_error),
        ("velocity", dq, limits.overspeed),
        ("torque", tau, limits.effort),
    )
    for what, values, most in checks:
        if values is None:
            continue
        bad = ~(np.abs(values) <= most)
        if valid is not None:
            bad &= valid
        if bad.any():
            joint = int(np.argmax(bad))
            reached = abs(float(values[joint]))
            return limits.violation(what if np.isfinite(reached) else "value", joint, reached, most[joint])
    if temperature is not None:
        bad = temperature > limits.temperature
        if valid is not None:
            bad &= valid
        if bad.any():
            joint = int(np.argmax(bad))
            return limits.violation("temperature", joint, temperature[joint], limits.temperature[joint])
    return None


class FeedbackWatch:
    """Check of successive cycles by `check_feedback`, with a time limit for torques above their limit.

    After a late set position a drive jerks, and its torque reaches the limit for some milliseconds; an obstacle keeps
    it there.  `overload_s` is the longest time that the torque of a joint may exceed its limit, at once or in parts:
    the time above it is forgotten so slowly that a joint above it for more than `_DUTY` of the time is overloaded.
    """

    def __init__(self, limits: SafetyLimits, overload_s: float) -> None:
        self._limits, self._overload_s = limits, overload_s
        self._beyond_s = np.zeros(limits.n)

    def check(
        self, passed_s: float, command: FloatArray, q: FloatArray | None, dq: FloatArray | None = None,
        tau: FloatArray | None = None, temperature: FloatArray | None = None, valid: BoolArray | None = None,
    ) -> Violation | None:  # fmt: skip
        """Check one cycle, `passed_s` after the one before; other parameters as for `check_feedback`."""
        if tau is not None:
            beyond = np.abs(tau) > self._limits.effort  # not where it is no number
            if valid is not None:
                beyond &= valid
            rested_s = np.maximum(self._beyond_s - _DUTY / (1.0 - _DUTY) * passed_s, 0.0)
            # Bounded, so that what follows a long overload does not depend on how long that was.
            self._beyond_s = np.where(beyond, np.minimum(self._beyond_s, self._overload_s) + passed_s, rested_s)
            briefly = np.isfinite(tau) & (self._beyond_s <= self._overload_s)
            tau = np.where(briefly, 0.0, tau)
        return check_feedback(self._limits, command, q, dq, tau, temperature, valid)
