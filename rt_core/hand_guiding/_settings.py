"""Settings of zero-force control."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

#: Largest share of the model's friction that is ever compensated: the rest stops the arm, and allows for friction that
#: is lower than the model's.
MAX_SHARE = 0.85
#: Longest delay from a measurement to its torque that the torque history covers [cycles].
MAX_DELAY = 3
_POSITIVE = (
    "damping_time_s", "torque_rise_s", "limited_s", "ramp_s", "alarm_ramp_s", "residual_time_s", "takeover_residual_s",
    "residual_filter_s", "missing_s", "observer_hz",
)  # fmt: skip


@dataclass(frozen=True)
class ZeroForceSettings:
    """Settings of hand guiding.  Torque is in N*m or N, by the kind of each joint."""

    friction_share: float = 0.75  # share of the model's friction that is compensated, 0 to 1; limited to `MAX_SHARE`
    damping_time_s: float = 0.15  # damping, as the time in which it slows the smallest inertia of a joint to 1/e [s]
    speed_share: float = 0.25  # speed limit as a share of each joint's velocity limit
    # speed limit of each joint [rad/s or m/s], where it is below that of `speed_share`
    speed_limit: tuple[float, ...] | None = None
    # damping above 70 % of the speed limit, as `damping_time_s`; less where delay does not allow so much
    braking_time_s: float = 0.005
    torque_share: float = 0.9  # torque limit as a share of each joint's effort limit
    # torque limit of each joint, in place of `torque_share`; needed where a joint has no effort limit
    torque_limit: tuple[float, ...] | None = None
    torque_rise_s: float = 0.05  # minimum time of the torque from zero to its limit [s]
    limited_s: float = 0.1  # a hold is requested if a joint's torque is limited for this long [s]
    wall_share: float = 0.05  # share of a joint's range, at either end, with a spring and a damper
    ramp_s: float = 1.0  # time from hold to guiding, and from guiding to hold on request [s]
    alarm_ramp_s: float = 0.1  # time from guiding to hold after an alarm [s]
    hold_hz: float = 3.0  # natural frequency of the hold
    # time above the friction margin from which the residual shows that the model is not valid [s]
    residual_time_s: float = 4.0
    takeover_residual_s: float = 0.3  # the same while the arm is taken over and must not be pushed [s]
    # time after the ramp during which this applies [s]: an arm that moves by itself does so then
    takeover_watch_s: float = 1.0
    residual_filter_s: float = 0.05  # time constant of the torque residual [s]
    residual_floor: float = 0.002  # residual that is always allowed, as a share of the torque limit
    missing_s: float = 0.005  # a hold is requested after this time without a usable sample [s]
    # time for which measured torque may be constant to the bit in all joints [s]; infinite for drives whose torque has
    # no noise
    frozen_s: float = 0.02
    delay_cycles: int = 1  # whole cycles from a sample until its torque begins to act
    observer_hz: float = 60.0  # bandwidth of the velocity observer, where velocity is not measured

    def __post_init__(self) -> None:
        """Check the ranges; raise `ValueError`."""
        for name in _POSITIVE:
            self._check(name, 0.0 < getattr(self, name) < np.inf, "positive")
        self._check("friction_share", 0.0 <= self.friction_share <= 1.0, "a share from 0 to 1")
        for name in ("speed_share", "torque_share"):
            self._check(name, 0.0 < getattr(self, name) <= 1.0, "a share above 0, at most 1")
        self._check("takeover_watch_s", 0.0 <= self.takeover_watch_s < np.inf, "zero or positive")
        self._check("wall_share", 0.0 < self.wall_share < 0.5, "a share above 0 and below 0.5")
        self._check("residual_floor", 0.0 <= self.residual_floor < 1.0, "a share from 0 to below 1")
        self._check("frozen_s", self.frozen_s > 0.0, "positive")
        # the controller checks what the delay allows: it has the period
        self._check("braking_time_s", 0.004 <= self.braking_time_s <= 1.0, "from 0.004 to 1")
        self._check("hold_hz", 0.1 <= self.hold_hz <= 10.0, "from 0.1 to 10")
        self._check("delay_cycles", self.delay_cycles in range(MAX_DELAY + 1), f"0 to {MAX_DELAY}")
        for name in ("speed_limit", "torque_limit"):
            value = getattr(self, name)
            good = value is None or all(0.0 < v < np.inf for v in value)
            self._check(name, good, "positive and finite for each joint")

    def _check(self, name: str, good: bool, wanted: str) -> None:
        if not good:
            raise ValueError(f"{name} must be {wanted}, not {getattr(self, name)}")

    @property
    def compensated_share(self) -> float:
        """Share of the friction that is actually compensated."""
        return min(self.friction_share, MAX_SHARE)
