"""The daemon's configuration: a TOML file, every key checked, the path of the key in every error.

`docs/daemon.md` describes the keys.  Relative paths are relative to the configuration file.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, field_validator, model_validator
from pydantic_core import ErrorDetails

from drivers.ads.config import AdsConfig, AxisTable
from drivers.ethercat.config import DeviceTable, DriveTable, EthercatConfig
from service.realtime import RealtimeConfig
from service.wire import WireError, check_arm_name
from sim_backend.settings import DriveSettings, EventSettings, MotionSettings, SegmentSettings, SimSettings

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

#: Drivers that a real arm's drives are behind.
BusConfig = EthercatConfig | AdsConfig
#: Longest path of a socket in the file system that Linux accepts.
MAX_SOCKET_PATH = 107


class ConfigError(ValueError):
    """A configuration that cannot be used: the file, the key and what to do are in the message."""


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


Port = Annotated[int, Field(ge=0, le=65535)]
Speed = Literal["max"] | Annotated[float, Field(gt=0.0, le=1000.0)]


class DaemonConfig(_Table):
    """The table `[daemon]`."""

    name: str = Field("thetad", pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,31}$")
    state_dir: Path | None = None  # None: below the user's state directory
    runtime_dir: Path | None = None  # private sockets; None: below the user's runtime directory
    bind: str = "127.0.0.1"
    frames_port: Port = 9870  # 0: any free port, printed when ready
    estimates_port: Port = 9871
    control_port: Port = 9873
    exit_at_end: bool = False  # stop when every source has ended and every frame is worked off
    hang_s: float = Field(10.0, ge=1.0, le=600.0)  # a process silent for so long is killed and restarted
    start_s: float = Field(300.0, ge=1.0, le=3600.0)  # longest time to become ready, with compilation
    memory_mb: float = Field(1000.0, ge=100.0)  # of what clients talk to: the gateway, and the control socket
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @field_validator("bind")
    @classmethod
    def _loopback(cls, value: str) -> str:
        parts = value.split(".")
        loopback = len(parts) == 4 and parts[0] == "127" and all(p.isdecimal() and int(p) < 256 for p in parts)
        if not loopback:
            raise ValueError(
                f"{value!r} is not a loopback address (127.x.x.x); other addresses are refused "
                "because the sockets have no encryption or authentication"
            )
        return value

    @model_validator(mode="after")
    def _distinct_ports(self) -> DaemonConfig:
        ports = [port for port in (self.frames_port, self.estimates_port, self.control_port) if port]
        if len(set(ports)) < len(ports):
            raise ValueError("frames_port, estimates_port and control_port must differ")
        return self


class ReplayConfig(_Table):
    """`[arm.driver]` with `kind = "replay"`: a recording."""

    kind: Literal["replay"]
    recording: Path
    speed: Speed = 1.0  # times the recorded pace
    span: str | None = None  # 0:0.6 or 0.1s:4.91s
    loop: bool = False


class SimConfig(_Table):
    """`[arm.driver]` with `kind = "sim"`: a simulated arm."""

    kind: Literal["sim"]
    pace: Speed = 1.0  # simulated seconds a second
    motion: MotionSettings = MotionSettings()
    settings: SimSettings = SimSettings()


class ArmMotionSettings(MotionSettings):
    """`[arm.motion]`: what a real arm does once its drives are enabled; it has more keys than a simulated motion."""

    approach: float = Field(0.15, gt=0.0, le=1.0)
    """Share of the velocity and acceleration limits used on the way to the start."""
    following_error: float = Field(0.2, gt=0.0)
    """Largest distance between command and position [rad or m]; beyond it the motion stops."""
    at_end: Literal["hold", "stop"] = "hold"
    """After the motion: drives stay enabled and hold, or are switched off and the stream ends."""


class PublishConfig(_Table):
    """`[arm.publish]`: how often results are sent, by the frames' own clock."""

    estimate_hz: float = Field(50.0, gt=0.0, le=10_000.0)
    torque_hz: float = Field(100.0, gt=0.0, le=10_000.0)


class StateConfig(_Table):
    """`[arm.state]`: saving and resuming the estimator."""

    every_s: float = Field(5.0, ge=0.1, le=3600.0)
    resume: bool = True


class RecorderConfig(_Table):
    """`[arm.recorder]`: its presence starts a recorder process."""

    enabled: bool = True  # record from the start; otherwise when told to
    directory: Path | None = None  # None: recordings/ in the state directory
    chunk_bytes: int = Field(1 << 18, ge=1 << 10, le=1 << 26)  # a kill loses at most one chunk
    max_minutes: float = Field(10.0, gt=0.0, le=1440.0)  # of frames in one file; the next frame begins another


class ArmConfig(_Table):
    """One `[[arm]]`."""

    name: str
    robot: str  # name of a robot file, or its path
    driver: Annotated[ReplayConfig | SimConfig | EthercatConfig | AdsConfig, Field(discriminator="kind")]
    motion: ArmMotionSettings | None = None  # what the drives of a real arm follow once they are enabled
    realtime: RealtimeConfig | None = None  # None: as it is, or its defaults for a source with a cycle to keep
    estimator: dict[str, Any] = Field(default_factory=dict)  # keys of rt_core.online.OnlineSettings
    publish: PublishConfig = PublishConfig()
    state: StateConfig = StateConfig()
    recorder: RecorderConfig | None = None
    model: Path | None = None  # model file that predicts the torque; None: the running estimate
    hold: bool = False  # wait for the control verb `start` before the first frame

    @model_validator(mode="after")
    def _motion_needs_drives(self) -> ArmConfig:
        if self.motion is not None and not (isinstance(self.driver, BusConfig) and self.driver.mode == "csp"):
            raise ValueError(
                'motion: only drives in mode "csp" follow it; a simulated arm has its motion in [arm.driver.motion]'
            )
        return self

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        try:
            return check_arm_name(value)
        except WireError as error:
            raise ValueError(str(error)) from error


class Config(_Table):
    """A whole configuration file, its paths resolved."""

    daemon: DaemonConfig = DaemonConfig()
    arm: tuple[ArmConfig, ...] = ()
    base: Path = Path()  # directory that relative paths start from

    @model_validator(mode="after")
    def _unique(self) -> Config:
        if not self.arm:
            raise ValueError("there is no [[arm]]; describe at least one")
        names = [arm.name for arm in self.arm]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two arms are named {name!r}; names start topics and must differ")
        controllers: dict[str, str] = {}
        for arm in self.arm:
            if isinstance(arm.driver, AdsConfig):
                other = controllers.setdefault(arm.driver.target.address, arm.name)
                if other != arm.name:
                    raise ValueError(
                        f"arms {other!r} and {arm.name!r} are on one controller, {arm.driver.target.address}: its ADS "
                        "router keeps one connection to a computer, so each would cut off the other"
                    )
        return self

    def find(self, arm: str) -> ArmConfig:
        """Return the arm named `arm`; `ConfigError` if there is none."""
        for candidate in self.arm:
            if candidate.name == arm:
                return candidate
        raise ConfigError(f"no arm {arm!r}; there are: {', '.join(candidate.name for candidate in self.arm)}")

    @property
    def state_dir(self) -> Path:
        """Directory of everything that outlives the daemon."""
        if self.daemon.state_dir is not None:
            return self.daemon.state_dir
        home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
        return Path(home) / "thetad" / self.daemon.name

    def recording_dir(self, arm: ArmConfig) -> Path:
        """Directory that recordings of `arm` go to."""
        if arm.recorder is not None and arm.recorder.directory is not None:
            return arm.recorder.directory
        return self.state_dir / arm.name / "recordings"


#: The tables by their place in the file, to suggest keys for a misspelt one.
_TABLES: dict[tuple[str, ...], type[BaseModel]] = {
    (): Config,
    ("daemon",): DaemonConfig,
    ("arm",): ArmConfig,
    ("arm", "publish"): PublishConfig,
    ("arm", "state"): StateConfig,
    ("arm", "recorder"): RecorderConfig,
    ("arm", "driver", "replay"): ReplayConfig,
    ("arm", "motion"): ArmMotionSettings,
    ("arm", "motion", "segments"): SegmentSettings,
    ("arm", "realtime"): RealtimeConfig,
    ("arm", "driver", "ads"): AdsConfig,
    ("arm", "driver", "ads", "axis"): AxisTable,
    ("arm", "driver", "ethercat"): EthercatConfig,
    ("arm", "driver", "ethercat", "drive"): DriveTable,
    ("arm", "driver", "ethercat", "device", "*"): DeviceTable,
    ("arm", "driver", "sim"): SimConfig,
    ("arm", "driver", "sim", "motion"): MotionSettings,
    ("arm", "driver", "sim", "motion", "segments"): SegmentSettings,
    ("arm", "driver", "sim", "settings"): SimSettings,
    ("arm", "driver", "sim", "settings", "drive"): DriveSettings,
    ("arm", "driver", "sim", "settings", "events"): EventSettings,
}


def load_config(path: Path) -> Config:
    """Read a configuration file, TOML or (ending in .json) JSON.

    Raises
    ------
    ConfigError
        The file cannot be read, a key is unknown, or a value has the wrong type or is out of range.
    """
    try:
        text = path.read_text(encoding="utf-8")
        table = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
    return parse_config(table, str(path), path.resolve().parent)


def parse_config(table: object, origin: str, base: Path) -> Config:
    """Check a configuration given as a table; `origin` names it in errors, `base` is what paths are relative to."""
    if not isinstance(table, dict):
        raise ConfigError(f"{origin}: expected a table with [daemon] and [[arm]]")
    if "base" in table:
        raise ConfigError(f"{origin}: base: unknown key")
    try:
        text = json.dumps(table)
    except TypeError as error:
        raise ConfigError(f"{origin}: dates and times are not used here: {error}") from error
    try:
        config = Config.model_validate_json(text)
    except ValidationError as error:
        raise ConfigError(f"{origin}: {describe(error)}") from error
    return _resolve(config, base)


def check_settings(kind: type[T], table: Mapping[str, Any], where: str) -> T:
    """Build the settings dataclass `kind` from a table of the configuration; `where` is the table's place in it.

    Raises
    ------
    ConfigError
        A key is unknown, or a value has the wrong type or is out of range.
    """
    hints = get_type_hints(kind)
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
        fields[field.name] = (hints[field.name], ... if default is dataclasses.MISSING else default)
    config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)
    model = create_model(kind.__name__, __config__=config, **fields)
    try:
        checked = model.model_validate_json(json.dumps(table))
        return kind(**{name: getattr(checked, name) for name in model.model_fields})
    except ValidationError as error:
        raise ConfigError(describe(error, where, tuple(fields))) from error
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where}: {error}") from error


def describe(error: ValidationError, where: str = "", names: Sequence[str] = ()) -> str:
    """Say in one line what is wrong with each key, with its path and, for a misspelt one, the likely meaning."""
    return "; ".join(_describe_one(item, where, names) for item in error.errors(include_url=False))


def _describe_one(item: ErrorDetails, where: str, names: Sequence[str]) -> str:
    keys = item["loc"]
    tagged = [str(key) for key in keys if not isinstance(key, int)]
    shown: list[str | int] = [key for key in keys]
    if tagged[:2] == ["arm", "driver"] and len(shown) > 3:
        del shown[3]  # the discriminator's value, which is not a key
        if tagged[3:4] in (["speed"], ["pace"]):
            del shown[4:]  # the branch of the union
    path = where
    for key in shown:
        path += f"[{key}]" if isinstance(key, int) else f".{key}" if path else str(key)
    message = item["msg"].removeprefix("Value error, ")
    if item["type"] == "extra_forbidden" or item["type"] == "unexpected_keyword_argument":
        if tagged[3:4] == ["device"] and len(tagged) == 6:
            tagged[4] = "*"  # the name of a device is the user's
        known: Iterable[str] = names or [
            name for name in getattr(_TABLES.get(tuple(tagged[:-1])), "model_fields", ()) if name != "base"
        ]
        close = difflib.get_close_matches(tagged[-1], list(known), 1)
        message = "unknown key" + (f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}")
    elif item["type"] == "missing" or item["type"] == "missing_argument":
        message = "is missing"
    elif not isinstance(item["input"], (dict, list)):
        message += f" (is {item['input']!r})"
    return f"{path}: {message}" if path else message


def _resolve(config: Config, base: Path) -> Config:
    def absolute(path: Path | None) -> Path | None:
        return None if path is None else (base / path.expanduser()).resolve()

    arms = []
    for arm in config.arm:
        update: dict[str, Any] = {"model": absolute(arm.model)}
        if isinstance(arm.driver, ReplayConfig):
            update["driver"] = arm.driver.model_copy(update={"recording": absolute(arm.driver.recording)})
        if arm.recorder is not None:
            update["recorder"] = arm.recorder.model_copy(update={"directory": absolute(arm.recorder.directory)})
        arms.append(arm.model_copy(update=update))
    daemon = config.daemon.model_copy(
        update={"state_dir": absolute(config.daemon.state_dir), "runtime_dir": absolute(config.daemon.runtime_dir)}
    )
    return config.model_copy(update={"daemon": daemon, "arm": tuple(arms), "base": base})
