"""Settings of a simulated arm and of its motion: tables of a TOML file, with joints named as in the robot file."""

import itertools
from dataclasses import fields
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from drivers.files.table import Finite, NonNegative, Positive
from sim_backend.tables import Table

Fraction = Annotated[float, Field(gt=0.0, le=1.0)]
Temperature = Annotated[float, Field(ge=-273.15, le=1000.0, allow_inf_nan=False)]
DynamicsParameter: TypeAlias = str  # a field of `rt_core.model.robot.JointDynamics`


class PieceSettings(Table):
    """One piece of a schedule; missing values are those of the motion."""

    kind: Literal["fourier", "paul", "hold"] = "fourier"
    duration_s: Positive | None = None  # length [s]; None, allowed in the last piece only, means without end
    # Of the series; None: derived from the motion's seed and the place in the schedule.
    seed: Annotated[int, Field(ge=0)] | None = None
    amplitude: Fraction | None = None
    harmonics: Annotated[int, Field(ge=1, le=20)] | None = None
    base_frequency_hz: Positive | None = None
    speed: Fraction | None = None
    ramp_s: Positive | None = None  # of a `paul` piece
    held: tuple[str, ...] = ()  # joints that stand still during this piece, in addition to the motion's


class MotionSettings(Table):
    """The set trajectory of a simulated arm."""

    kind: Literal["fourier", "paul", "hold", "schedule"] = "fourier"
    seed: Annotated[int, Field(ge=0)] = 1
    duration_s: Positive | None = None  # length [s] of a motion that is no schedule; None means without end
    # Share of the position, velocity and acceleration limits that a series uses; of `paul`, of the way to the nearer
    # position limit that it goes to both sides.
    amplitude: Fraction = 0.7
    # Share of the velocity and acceleration limits that the joint next to its own uses in `paul`: there and back at
    # constant speed, all joints together.
    speed: Fraction = 0.5
    effort_fraction: Fraction = 0.8  # of the effort limits that may be needed, where the robot's inertia is known
    harmonics: Annotated[int, Field(ge=1, le=20)] = 5
    base_frequency_hz: Positive = 0.1
    # Time over which a series fades in and out [s]; None: a quarter of its base period.  Of `paul`, the time up to
    # constant speed; None: what the acceleration allows.
    ramp_s: Positive | None = None
    acceleration: tuple[Positive, ...] | None = None  # limits [rad/s^2 or m/s^2]; None: five times velocity's a second
    centre: tuple[Finite, ...] | None = None  # posture of motion and rest; None: near mid-range, drawn by the seed
    held: tuple[str, ...] = ()  # joints that stand still throughout
    # Series drawn for each piece; the one with the smallest condition number of the regressor is kept.
    candidates: Annotated[int, Field(ge=1, le=1000)] = 8
    segments: tuple[PieceSettings, ...] = ()  # the pieces of a `schedule`, one after the other
    repeat: bool = False  # start the schedule again at its end

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
    """A change of a joint's dynamics, sudden or over a time."""

    time_s: NonNegative
    joint: str  # name of a joint, or "*" for all of them
    parameter: DynamicsParameter  # that changes
    factor: Finite | None = None  # multiplies the present value
    value: Finite | None = None  # replaces it (SI units)
    # The value goes linearly from the present to the new one over this time [s], in equal steps of at most 0.1 s;
    # None or 0: at once.
    duration_s: NonNegative | None = None

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        from rt_core.model.robot import SIGNED_DYNAMICS, JointDynamics  # with kernels: only where there are events

        known = [item.name for item in fields(JointDynamics)]
        if self.parameter not in known:
            raise ValueError(f"parameter: should be one of {', '.join(known)}, not {self.parameter!r}")
        if (self.factor is None) == (self.value is None):
            raise ValueError("give either factor or value")
        change = self.factor if self.factor is not None else self.value
        if self.parameter not in SIGNED_DYNAMICS and change is not None and change < 0.0:
            raise ValueError(f"{self.parameter} cannot become negative")
        return self


Vector = tuple[Finite, Finite, Finite]


class ForceSettings(Table):
    """A force and a moment from outside on a point of a link, in the directions of the base frame."""

    time_s: NonNegative
    duration_s: Positive | None = None  # None: without end
    ramp_s: NonNegative = 0.0  # time of rise, and of fall before the end [s], in equal steps of at most 10 ms
    link: str = "tip"  # name of the joint that moves the link, or "tip" for the flange
    point: Vector = (0.0, 0.0, 0.0)  # where it acts [m], in the frame of the link or the flange
    force: Vector = (0.0, 0.0, 0.0)  # [N]
    moment: Vector = (0.0, 0.0, 0.0)  # [N*m]

    @model_validator(mode="after")
    def _check_ramps(self) -> Self:
        if self.duration_s is not None and self.duration_s < 2.0 * self.ramp_s:
            raise ValueError(f"duration_s must leave room for both ramps: at least {2.0 * self.ramp_s:g}")
        return self


class AmbientSettings(Table):
    """Ambient temperature at a time; between two of them it changes linearly."""

    time_s: NonNegative
    ambient_c: Temperature


class DriveSettings(Table):
    """Position control in the drive."""

    position_bandwidth_hz: Positive = 5.0
    velocity_bandwidth_hz: Positive = 20.0
    integral_time_s: Positive | None = None  # reset time of the velocity controller [s]; None: no integral part
    feedforward: Literal["none", "gravity", "full"] = "full"  # from the undisturbed dynamics along the set trajectory


class SimSettings(Table):
    """How an arm is simulated and what its sensors do."""

    rate_hz: Annotated[float, Field(ge=1.0, le=20_000.0)] = 1000.0
    substeps: Annotated[int, Field(ge=1, le=1000)] | None = None  # integration steps a sample; None: of up to 0.5 ms
    seed: Annotated[int, Field(ge=0)] = 1
    encoder_bits: Annotated[int, Field(ge=8, le=40)] | None = 20  # of a revolution or a metre; None: no quantisation
    # Standard deviation: one number is a share of each joint's torque scale (its effort limit, or what motion at its
    # limits takes if that is unknown); a list is in N*m or N.
    torque_noise: NonNegative | tuple[NonNegative, ...] = 0.002
    current_noise: NonNegative | tuple[NonNegative, ...] = 0.002  # the same; one number: of its current; a list: in A
    # Where `tau` is measured: "motor", before friction; "link", of an arm with elastic joints, behind the springs.
    torque_sensor: Literal["motor", "link"] = "motor"
    # Standard deviation [rad/s or m/s] of the drive's own velocity, for all joints or each.
    velocity_noise: NonNegative | tuple[NonNegative, ...] = 1e-3
    ambient_c: Temperature = 20.0  # ambient temperature, and that of the joints at the start
    ambient: tuple[AmbientSettings, ...] = ()  # its changes in the order of time, from `ambient_c` on
    # Final rise of a joint's temperature under its torque scale held for ever, by the motor's copper loss: it grows
    # with the torque squared.
    temperature_rise_k: NonNegative = 40.0
    friction_heating_k_per_w: NonNegative = 0.0  # final rise for each watt that friction turns into heat
    thermal_time_s: Positive = 600.0  # with which a joint's temperature follows the heat and the ambient temperature
    # What the arm delivers; `current` only where the robot has a transmission, `q_motor` there or where a joint is
    # elastic.
    channels: tuple[Literal["q", "dq", "current", "tau", "q_motor", "temperature", "setpoint"], ...] = (
        "q", "dq", "current", "tau", "q_motor", "temperature", "setpoint",
    )  # fmt: skip
    drive: DriveSettings = DriveSettings()
    events: tuple[EventSettings, ...] = ()
    forces: tuple[ForceSettings, ...] = ()

    @model_validator(mode="after")
    def _check_ambient(self) -> Self:
        times = [0.0, *(point.time_s for point in self.ambient)]
        if any(after <= before for before, after in itertools.pairwise(times)):
            raise ValueError("ambient: times must increase, from above 0 (ambient_c is the temperature at 0)")
        return self


class WiringSettings(Table):
    """A channel of a joint that is wired or scaled wrongly, for as long as the arm is simulated."""

    joint: Annotated[str, Field(min_length=1)]
    channel: Literal["q", "dq", "current", "tau", "q_motor", "setpoint"]
    factor: Finite = 1.0  # -1: its sign is inverted; 57.3: degrees for radians
    # Joint whose values the channel shows instead of its own; for two that are swapped give both.
    source: Annotated[str, Field(min_length=1)] | None = None


class FaultSettings(Table):
    """What goes wrong with an arm that is commanded, once for each time that it is switched on; a `jam` stays."""

    # The drive trips; its position stays where it is, or is off by `value` from now on; something holds the joint with
    # a torque of `value`; it is `value` hot; the bus is silent for `duration_s`; the flange is pushed with `force` for
    # `duration_s`.
    kind: Literal["drive_fault", "stuck_encoder", "encoder_jump", "jam", "heat", "silence", "push"]
    after_s: NonNegative  # time in motion [s]
    joint: Annotated[str, Field(min_length=1)] | None = None
    value: Finite | None = None  # [rad or m], [N*m or N], [degC]
    duration_s: Positive | None = None
    force: Vector | None = None  # [N], in the directions of the base frame

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.joint is None) != (self.kind in ("silence", "push")):
            raise ValueError(f"{self.kind}: {'is of no joint' if self.joint else 'name the joint'}")
        if (self.value is None) == (self.kind in ("encoder_jump", "jam", "heat")):
            raise ValueError(f"{self.kind}: {'needs' if self.value is None else 'has no'} value")
        if (self.duration_s is None) == (self.kind in ("silence", "push")):
            raise ValueError(f"{self.kind}: {'needs' if self.duration_s is None else 'has no'} duration_s")
        if (self.force is None) == (self.kind == "push"):
            raise ValueError(f"{self.kind}: {'needs' if self.force is None else 'has no'} force")
        return self
