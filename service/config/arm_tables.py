"""Tables of an arm except for hand guiding: driver, motion, safety, scheduling, publishing, recording, jobs."""

from __future__ import annotations

from math import ceil
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from drivers.files.table import Positive, StrictTable
from rt_core.identification.methods import Method
from sim_backend.arm.settings import FaultSettings, MotionSettings, SimSettings, WiringSettings

Speed = Literal["max"] | Annotated[float, Field(gt=0.0, le=1000.0)]
#: One value for all joints, or one for each.
EachJoint = Positive | tuple[Positive, ...]

#: Why arms with these drivers cannot be guided.
NOT_GUIDED = {
    "ethercat": "guiding changes drives from set positions (csp) to set torques (cst) while they are on, and the "
    "EtherCAT driver does not: it keeps the mode of operation (6060) in which they were switched on, and sends the "
    "target of that mode alone (no 6071 beside 607A)",
    "ads": "guiding needs set torques, and the function block behind ADS takes set positions only",
    "replay": "a recording has no drives",
}


class ReplayConfig(StrictTable):
    """`[arm.driver]` with `kind = "replay"`: a recording."""

    kind: Literal["replay"]
    recording: Path
    speed: Speed = 1.0  # times the recorded pace
    span: str | None = None  # 0:0.6 or 0.1s:4.91s
    loop: bool = False


class SimConfig(StrictTable):
    """`[arm.driver]` with `kind = "sim"`: a simulated arm."""

    kind: Literal["sim"]
    pace: Speed = 1.0  # simulated seconds a second
    motion: MotionSettings = MotionSettings()
    settings: SimSettings = SimSettings()
    mode: Literal["csp", "cst"] | None = None  # drives that follow commands; None: they follow `motion`
    start: tuple[float, ...] | None = None  # initial posture [rad or m], with a mode; None: mid-range
    enable: bool = False  # switch the drives on at the start, with a mode
    faults: tuple[FaultSettings, ...] = ()  # injected faults, with a mode
    wiring: tuple[WiringSettings, ...] = ()  # wrongly wired or scaled channels, with a mode
    robot: str | None = None  # robot file of the simulated arm, if it differs from the arm's

    @model_validator(mode="after")
    def _commanded(self) -> SimConfig:
        if self.mode is None:
            for key in ("start", "enable", "faults", "wiring"):
                if getattr(self, key):
                    raise ValueError(f'{key}: is of drives that are commanded: set mode = "csp" or "cst"')
        elif self.motion != MotionSettings():
            raise ValueError("motion: an arm with a mode moves as it is commanded: leave motion out, or mode")
        elif self.pace == "max":
            raise ValueError('pace: an arm with a mode is commanded in time: give a number, not "max"')
        return self


class ArmMotionSettings(MotionSettings):
    """`[arm.motion]`: motion of a real arm once its drives are enabled; a superset of a simulated motion's keys."""

    approach: float = Field(0.15, gt=0.0, le=1.0)
    """Share of the velocity and acceleration limits used on the way to the start."""
    following_error: float = Field(0.2, gt=0.0)
    """Largest distance between command and position [rad or m]; beyond it the motion stops."""
    at_end: Literal["hold", "stop"] = "hold"
    """After the motion: drives stay enabled and hold, or are switched off and the stream ends."""


class PublishConfig(StrictTable):
    """`[arm.publish]`: rates of results, by the frames' own clock, and how long frames are gathered."""

    estimate_hz: float = Field(50.0, gt=0.0, le=10_000.0)
    torque_hz: float = Field(100.0, gt=0.0, le=10_000.0)
    elastic_hz: float = Field(10.0, gt=0.0, le=1000.0)  # of each joint of [[arm.elastic]]
    block_ms: float = Field(5.0, ge=0.0, le=100.0)  # frames of so long are one message among processes; 0: each is one

    @property
    def block_frames(self) -> int:
        """Most frames in a message: one a millisecond, so that queues of messages are bounded in frames, too."""
        return max(1, ceil(self.block_ms))


class StateConfig(StrictTable):
    """`[arm.state]`: saving and resuming the estimator."""

    every_s: float = Field(5.0, ge=0.1, le=3600.0)
    resume: bool = True


class RecorderConfig(StrictTable):
    """`[arm.recorder]`: if present, a recorder process is started."""

    enabled: bool = True  # record from the start; otherwise on request
    directory: Path | None = None  # None: recordings/ in the state directory
    chunk_bytes: int = Field(1 << 18, ge=1 << 10, le=1 << 26)  # a kill loses at most one chunk
    max_minutes: float = Field(10.0, gt=0.0, le=1440.0)  # of frames in one file
    max_gb: float | None = Field(None, gt=0.0)  # of all recordings of the arm; the oldest are deleted
    keep_days: float | None = Field(None, gt=0.0)  # older recordings are deleted


class SafetyConfig(StrictTable):
    """The table `[arm.safety]`."""

    velocity_fraction: float = Field(1.0, gt=0.0, le=1.0)  # share of the robot file's limit that commands may use
    acceleration: EachJoint | None = None  # [rad/s^2 or m/s^2]; None: five times the velocity limit a second
    overspeed: float = Field(1.2, ge=1.0, le=2.0)  # measured velocity, as a share of the robot file's limit
    effort_fraction: float = Field(0.95, gt=0.0, le=1.0)  # share of the robot file's limit, predicted and measured
    overload_s: float = Field(0.05, ge=0.0, le=1.0)  # longest time of a measured torque beyond the limit
    following_error: EachJoint | None = None  # between command and measured position [rad or m]; None: 0.2 rad, 0.01 m
    temperature_c: EachJoint = 80.0
    approach: float = Field(0.15, gt=0.0, le=1.0)  # share of velocity and acceleration limits on the way to the start
    permit_s: float = Field(60.0, ge=1.0, le=86_400.0)  # default lifetime of a permit
    permit_max_s: float = Field(600.0, ge=1.0, le=86_400.0)  # longest lifetime of a permit
    heartbeat_s: float = Field(1.0, ge=0.5, le=10.0)  # longest silence of a run's client
    silence_s: float = Field(0.1, ge=0.1, le=5.0)  # longest time without a frame with values of all joints

    @model_validator(mode="after")
    def _default_within(self) -> SafetyConfig:
        if self.permit_s > self.permit_max_s:
            raise ValueError(f"permit_s = {self.permit_s:g} is above permit_max_s = {self.permit_max_s:g}")
        return self


class RealtimeConfig(StrictTable):
    """`[arm.realtime]`: scheduling of the acquisition process of a source with a cycle."""

    priority: int = Field(0, ge=0, le=98)  # of SCHED_FIFO; 0: ordinary scheduling
    processors: tuple[int, ...] | None = None  # numbers of the processors it may use; None: all
    lock_memory: bool = True  # never swap out memory of the process
    stay_awake: bool = False  # keep all processors out of sleep states between cycles, while this process runs


class ElasticConfig(StrictTable):
    """One `[[arm.elastic]]`: a joint, and what its estimate starts from."""

    joint: str = Field(min_length=1)  # name in the robot file
    model: Path | None = None  # elastic.json of `thetad identify --model elastic_joint -o`; None: the active model
    forgetting: float | None = Field(None, ge=0.5, le=1.0)  # a constant factor per update; None: the variable one
    top_velocity: float | None = Field(None, gt=0.0)  # of a frame, at most [rad/s]; None: by the file and the robot

    @property
    def origin(self) -> str:
        """What the estimate starts from, in words."""
        return "the active model" if self.model is None else str(self.model)


class ReidentifyConfig(StrictTable):
    """`[arm.reidentify]`: if present, the daemon identifies the arm again by itself."""

    when: tuple[Literal["drift", "invalid"], ...] = ("drift", "invalid")  # triggers reported by the online estimator
    every_h: float | None = Field(None, gt=0.0)  # additional schedule
    min_interval_s: float = Field(1800.0, ge=1.0)  # between two, for any reason
    window_s: float = Field(60.0, ge=20.0, le=3600.0)  # of the latest frames, for identification and validation
    settle_s: float = Field(0.0, ge=0.0, le=3600.0)  # wait after the report, so that the window holds the new state
    holdout: float = Field(0.35, gt=0.05, lt=0.95)  # share at the end of the window held out for validation
    method: Method = "wls"
    promote: bool = True  # make the model active if it passes
