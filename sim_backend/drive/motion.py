"""Set values within limits, stops and brake of a drive, in position units, units per second, per mille of torque."""

import math
from typing import NamedTuple

from sim_backend.drive.modes import CSP, CST, CSV
from sim_backend.drive.objects import DriveObjects

#: Speed below which a motor is at standstill, as a share of its largest.
_STANDSTILL = 0.002
#: Longest wait for standstill once the set speed is zero [s].
_STOP_TIMEOUT_S = 0.5


class Feedback(NamedTuple):
    """Measured position [units], speed [units/s], active torque limit, temperature [degC]."""

    position: int
    velocity: float = 0.0
    limited: bool = False
    temperature: float = 25.0


class Demand(NamedTuple):
    """Demand on the motor until the next cycle."""

    mode: int  # of `sim_backend.drive.modes`
    target: float = 0.0  # at the end of the cycle, in the mode's unit
    torque_offset: float = 0.0  # per mille, as the limit
    torque_limit: float = math.inf
    brake: bool = True  # whether it is closed


class Brake:
    """A holding brake, initially closed, with delays of opening and closing."""

    def __init__(self, open_s: float, close_s: float) -> None:
        self._delays = {True: close_s, False: open_s}
        self._elapsed_s = 0.0
        self.closed = True

    def move(self, closed: bool, period_s: float) -> None:
        """Move towards a position for one period."""
        if closed == self.closed:
            self._elapsed_s = 0.0
        elif self._elapsed_s >= self._delays[closed] - 1e-9:
            self.closed, self._elapsed_s = closed, 0.0
        else:
            self._elapsed_s += period_s


class SetValues:
    """Set values of the cyclic modes, from the objects and within speed and position limits.

    A missing set position is extrapolated, at the speed of the last ones, for `extrapolated` cycles; then the motor
    holds.  `wanted` is the set position of the master, interpolated over the interpolation period; `commanded` and
    `speed` are the position, and velocity if any, demanded of the motor; `limited`: that differs from `wanted`.
    """

    def __init__(self, objects: DriveObjects, extrapolated: int = 0) -> None:
        self._objects = objects
        self._extrapolated = extrapolated
        self._steps_left = 0
        self._step = 0.0  # of the way to the set position, in a cycle
        self._last: float | None = None  # set position, taken so many cycles ago, and the speed up to it
        self._since = 0
        self._pace = 0.0
        self._missed = 0
        self.wanted = self.commanded = self.speed = 0.0
        self.limited = False

    def start(self, feedback: Feedback) -> None:
        """Start from the state of the motor."""
        self.wanted = self.commanded = float(feedback.position)
        self.speed = feedback.velocity
        self._steps_left = 0
        self._step, self._pace, self._last, self._since, self._missed = 0.0, 0.0, None, 0, 0

    def next(self, mode: int, feedback: Feedback, top_speed: float, period_s: float, fresh: bool = True) -> Demand:
        """Return the demand in a cyclic mode, without the brake; `fresh`: set values have arrived."""
        objects = self._objects
        limit, offset = objects.torque_limit(), float(objects.torque_offset.value)
        if mode == CSP:
            return Demand(CSP, self._next_position(top_speed, period_s, fresh), offset, limit, False)
        if mode == CSV:
            return Demand(CSV, self._next_velocity(feedback, top_speed), offset, limit, False)
        wanted = float(objects.target_torque.value)
        self.limited = abs(wanted) > limit
        return Demand(CST, min(max(wanted, -limit), limit), offset, limit, False)

    def _next_position(self, top_speed: float, period_s: float, fresh: bool) -> float:
        self._since += 1
        if fresh:
            target = float(self._objects.target_position.value)
            if self._steps_left <= 0 or target != self._last:
                self._take_target(target, period_s)
        if self._steps_left > 0 and self._last is not None:
            self._missed = 0
            self._step = (self._last - self.wanted) / self._steps_left
            self._steps_left -= 1
        else:
            self._missed += 1
            self._step = self._pace if self._missed <= self._extrapolated else 0.0
        self.wanted += self._step
        lower, upper = self._objects.position_limits()
        before, here = self.commanded, self.wanted
        if not lower <= here <= upper:
            here = lower if here < lower else upper
        step = top_speed * period_s
        if abs(here - before) > step:
            here = before + math.copysign(step, here - before)
        self.speed = (here - before) / period_s
        self.limited = here != self.wanted
        self.commanded = here
        return here

    def _take_target(self, target: float, period_s: float) -> None:
        """Start towards a new set position, over a whole interpolation period even if it came early."""
        steps = self._objects.interpolation_steps(period_s)
        if self._last is not None:
            self._pace = (target - self._last) / max(steps, self._since)
        self._last, self._since, self._steps_left = target, 0, steps

    def _next_velocity(self, feedback: Feedback, top_speed: float) -> float:
        """Return the set velocity; at a position limit only away from it."""
        wanted = float(self._objects.target_velocity.value) + float(self._objects.velocity_offset.value)
        self.speed = min(max(wanted, -top_speed), top_speed)
        lower, upper = self._objects.position_limits()
        if (feedback.position >= upper and wanted > 0.0) or (feedback.position <= lower and wanted < 0.0):
            self.speed = 0.0
        self.limited = self.speed != wanted
        return self.speed


class Stop:
    """A stop under power: along a ramp, or with full torque if the deceleration is infinite.

    `position` and `velocity` are the ramp's; `standing`: the motor is at standstill.
    """

    def __init__(self, position: float, velocity: float, deceleration: float) -> None:
        self.position, self.velocity = position, velocity
        self._deceleration = deceleration
        self._waited_s = 0.0
        self.standing = False

    def next(self, feedback: Feedback, top_speed: float, period_s: float, torque_limit: float) -> Demand:
        """Return the demand, without the brake."""
        after = math.copysign(max(abs(self.velocity) - self._deceleration * period_s, 0.0), self.velocity)
        self.position += 0.5 * (self.velocity + after) * period_s
        self.velocity = after
        if after == 0.0 and not self.standing:
            self._waited_s += period_s
            slow = abs(feedback.velocity) <= _STANDSTILL * top_speed
            if slow or self._waited_s > _STOP_TIMEOUT_S:
                self.standing = True
                if math.isinf(self._deceleration):
                    self.position = float(feedback.position)
        if math.isinf(self._deceleration) and not self.standing:
            return Demand(CSV, 0.0, 0.0, torque_limit, False)
        return Demand(CSP, self.position, 0.0, torque_limit, False)
