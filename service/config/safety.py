"""`[arm.safety]`: what an arm may do while it is commanded, and how closely that is watched."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

Positive = Annotated[float, Field(gt=0.0)]
#: One value for all joints, or one for each.
EachJoint = Positive | tuple[Positive, ...]


class SafetyConfig(BaseModel):
    """The table `[arm.safety]`."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    velocity_fraction: float = Field(1.0, gt=0.0, le=1.0)  # of the robot file's limit that commands may use
    acceleration: EachJoint | None = None  # [rad/s^2 or m/s^2]; None: five times the velocity limit a second
    overspeed: float = Field(1.2, ge=1.0, le=2.0)  # of the robot file's velocity limit that may be measured
    effort_fraction: float = Field(0.95, gt=0.0, le=1.0)  # of the robot file's limit, predicted and measured
    overload_s: float = Field(0.05, ge=0.0, le=1.0)  # longest time that a measured torque may be beyond
    following_error: EachJoint | None = None  # of command and measured position [rad or m]; None: 0.2 rad, 0.01 m
    temperature_c: EachJoint = 80.0
    approach: float = Field(0.15, gt=0.0, le=1.0)  # share of velocity and acceleration limits on the way to the start
    permit_s: float = Field(60.0, ge=1.0, le=86_400.0)  # that a permit is good for, where nobody says otherwise
    permit_max_s: float = Field(600.0, ge=1.0, le=86_400.0)  # longest that may be asked for
    heartbeat_s: float = Field(1.0, ge=0.5, le=10.0)  # longest silence of the client of a run
    silence_s: float = Field(0.1, ge=0.1, le=5.0)  # longest time without a frame with values of all joints

    @model_validator(mode="after")
    def _default_within(self) -> SafetyConfig:
        if self.permit_s > self.permit_max_s:
            raise ValueError(f"permit_s = {self.permit_s:g} is above permit_max_s = {self.permit_max_s:g}")
        return self
