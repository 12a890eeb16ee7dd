"""`[arm.guiding]`: hand guiding of an arm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from drivers.files.table import Positive, StrictTable

if TYPE_CHECKING:
    from rt_core.hand_guiding import ZeroForceSettings

Share = Annotated[float, Field(gt=0.0, le=1.0)]

#: Why arms with these drivers cannot be guided.
UNABLE = {
    "ethercat": "guiding changes drives from set positions (csp) to set torques (cst) while they are on, and the "
    "EtherCAT driver does not: it keeps the mode of operation (6060) in which they were switched on, and sends the "
    "target of that mode alone (no 6071 beside 607A)",
    "ads": "guiding needs set torques, and the function block behind ADS takes set positions only",
    "replay": "a recording has no drives",
}


class GuidingConfig(StrictTable):
    """The table `[arm.guiding]`; `rt_core.hand_guiding.ZeroForceSettings` documents its keys.

    Without the table an arm is never put into torque mode.
    """

    friction_share: float = Field(0.75, ge=0.0, le=1.0)
    damping_time_s: Positive = 0.15
    speed_share: Share = 0.25
    speed_limit: tuple[Positive, ...] | None = None  # [rad/s or m/s] of each joint
    braking_time_s: float = Field(0.005, ge=0.004, le=1.0)
    torque_share: Share = 0.9
    torque_limit: tuple[Positive, ...] | None = None  # [N*m or N] of each joint
    torque_rise_s: Positive = 0.05
    limited_s: Positive = 0.1
    wall_share: float = Field(0.05, gt=0.0, lt=0.5)
    ramp_s: float = Field(1.0, gt=0.0, le=10.0)
    alarm_ramp_s: float = Field(0.1, gt=0.0, le=1.0)
    hold_hz: float = Field(3.0, ge=0.1, le=10.0)
    residual_time_s: Positive = 4.0
    takeover_residual_s: Positive = 0.3
    takeover_watch_s: float = Field(1.0, ge=0.0)
    residual_filter_s: Positive = 0.05
    residual_floor: float = Field(0.002, ge=0.0, lt=1.0)
    missing_s: Positive = 0.005
    frozen_s: Positive = 0.02
    delay_cycles: int = Field(1, ge=0, le=3)
    observer_hz: Positive = 60.0

    def settings(self, **changes: float) -> ZeroForceSettings:
        """Return the controller's settings, with `changes` of one session."""
        from rt_core.hand_guiding import ZeroForceSettings  # here, as its kernels are needed by the acquisition alone

        return ZeroForceSettings(**self.model_dump() | changes)
