"""`[[arm.elastic]]`: joints whose springs are estimated while the arm works."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field


class ElasticConfig(BaseModel):
    """One `[[arm.elastic]]`: a joint, and what is known of it off-line."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    joint: str = Field(min_length=1)  # as the robot file calls it
    model: Path  # elastic.json of `thetad identify --model elastic_joint -o`
    forgetting: float | None = Field(None, ge=0.5, le=1.0)  # a constant factor per update; None: the variable one
    top_velocity: float | None = Field(None, gt=0.0)  # no frame is faster [rad/s]; None: by the file and the robot
