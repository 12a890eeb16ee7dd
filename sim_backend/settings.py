"""Settings of a simulated arm and of its motion, as they stand in a daemon's TOML file.

Unknown keys and values out of range raise pydantic's `ValidationError`, which names the field.
Joints are named as in the robot file.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(gt=0.0, le=1.0)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


DynamicsParameter = Literal[
    "armature",
    "viscous",
    "coulomb",
    "offset",
    "breakaway",
    "stribeck_velocity",
    "quadratic_friction",
    "cubic_friction",
    "load_friction",
    "tanh_torque",
    "tanh_velocity",
    "decaying_viscous",
    "decay_velocity",
    "cyclic_sine",
    "cyclic_cosine",
]
"""What can change in an arm: the fields of `rt_core.model.robot.JointDynamics`."""
#: Those of them that may be negative.
SIGNED_DYNAMICS = (
    "offset",
    "quadratic_friction",
    "cubic_friction",
    "tanh_torque",
    "decaying_viscous",
    "cyclic_sine",
    "cyclic_cosine",
)


class Table(BaseModel):
    """A table of a TOML file: what it does not know it refuses."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SegmentSettings(Table):
    """One piece of a schedule; what is not given is taken from the motion."""

    kind: Literal["fourier", "hold"] = "fourier"
    duration_s: Positive | None = None
    """Length [s]; None, allowed in the last piece only, means without end."""
    seed: Annotated[int, Field(ge=0)] | None = None
    """Draws the series; None: derived from the motion's seed and the place in the schedule."""
    amplitude: Fraction | None = None
    harmonics: Annotated[int, Field(ge=1, le=20)] | None = None
    base_frequency_hz: Positive | None = None
    held: tuple[str, ...] = ()
    """Joints that stand still during this piece, in addition to the motion's."""


class MotionSettings(Table):
    """The set trajectory of a simulated arm."""

    kind: Literal["fourier", "hold", "schedule"] = "fourier"
    seed: Annotated[int, Field(ge=0)] = 1
    duration_s: Positive | None = None
    """Length [s] of a `fourier` or `hold` motion; None means without end."""
    amplitude: Fraction = 0.7
    """Share of the position, velocity and acceleration limits that the motion uses."""
    effort_fraction: Fraction = 0.8
    """Share of the joints' effort limits that the motion may need, where the robot's inertia is known."""
    harmonics: Annotated[int, Field(ge=1, le=20)] = 5
    base_frequency_hz: Positive = 0.1
    ramp_s: Positive | None = None
    """Time over which a series fades in and out [s]; None: a quarter of its base period."""
    acceleration: tuple[Positive, ...] | None = None
    """Acceleration limit per joint [rad/s^2 or m/s^2]; None: five times the velocity limit per second."""
    centre: tuple[Finite, ...] | None = None
    """Posture about which the joints move and in which they rest; None: near mid-range, drawn by the seed."""
    held: tuple[str, ...] = ()
    """Joints that stand still throughout."""
    candidates: Annotated[int, Field(ge=1, le=1000)] = 8
    """Series drawn for each piece; the one with the smallest condition number of the regressor is kept."""
    segments: tuple[SegmentSettings, ...] = ()
    """The pieces of a `schedule`, one after the other."""
    repeat: bool = False
    """Start the schedule again at its end."""

    @model_validator(mode="after")
    def _check_schedule(self) -> Self:
        if self.kind != "schedule":
            if self.segments or self.repeat:
                raise ValueError(f"segments and repeat belong to kind = 'schedule', not to '{self.kind}'")
            return self
        if not self.segments:
            raise ValueError("kind = 'schedule' needs at least one entry in segments")
        if self.duration_s is not None:
            raise ValueError("a schedule's length is that of its segments: leave out duration_s")
        endless = [i for i, segment in enumerate(self.segments) if segment.duration_s is None]
        if endless and (endless != [len(self.segments) - 1] or self.repeat):
            raise ValueError(f"segments[{endless[0]}] needs duration_s: only the last one of a motion may be endless")
        return self


class EventSettings(Table):
    """A sudden change of one joint's dynamics."""

    time_s: NonNegative
    joint: str
    parameter: DynamicsParameter
    factor: Finite | None = None
    """Multiplies the present value."""
    value: Finite | None = None
    """Replaces it (SI units)."""

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        if (self.factor is None) == (self.value is None):
            raise ValueError("give either factor or value")
        change = self.factor if self.factor is not None else self.value
        if self.parameter not in SIGNED_DYNAMICS and change is not None and change < 0.0:
            raise ValueError(f"{self.parameter} cannot become negative")
        return self


class DriveSettings(Table):
    """Position control in the drive."""

    position_bandwidth_hz: Positive = 5.0
    velocity_bandwidth_hz: Positive = 20.0
    integral_time_s: Positive | None = None
    """Reset time of the velocity controller [s]; None: no integral part."""
    feedforward: Literal["none", "gravity", "full"] = "full"
    """Torque fed forward from the arm's undisturbed dynamics along the set trajectory."""


class SimSettings(Table):
    """How an arm is simulated and what its sensors do."""

    rate_hz: Annotated[float, Field(ge=1.0, le=20_000.0)] = 1000.0
    substeps: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Integration steps a sample; None: as many as keep a step at or under 0.5 ms."""
    seed: Annotated[int, Field(ge=0)] = 1
    encoder_bits: Annotated[int, Field(ge=8, le=40)] | None = 20
    """Counts a revolution or a metre, as a power of two; None: no quantisation."""
    torque_noise: NonNegative | tuple[NonNegative, ...] = 0.002
    """Standard deviation: one number is a share of each joint's torque scale (its effort limit, or what motion
    at its limits takes if that is unknown); a list is in N*m or N."""
    current_noise: NonNegative | tuple[NonNegative, ...] = 0.002
    """Standard deviation: one number is a share of the current at the torque scale; a list is in A."""
    velocity_noise: NonNegative | tuple[NonNegative, ...] = 1e-3
    """Standard deviation [rad/s or m/s] of the drive's own velocity, for all joints or each."""
    ambient_c: Finite = 20.0
    temperature_rise_k: NonNegative = 40.0
    """Final rise of a joint's temperature under its torque scale held for ever; it grows with the torque squared."""
    thermal_time_s: Positive = 600.0
    channels: tuple[Literal["q", "dq", "current", "tau", "q_motor", "temperature", "setpoint"], ...] = (
        "q",
        "dq",
        "current",
        "tau",
        "q_motor",
        "temperature",
        "setpoint",
    )
    """What the arm delivers; `current` and `q_motor` only where the robot has a transmission."""
    drive: DriveSettings = DriveSettings()
    events: tuple[EventSettings, ...] = ()
