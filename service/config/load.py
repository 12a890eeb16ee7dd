"""Configuration of the daemon: read a TOML file and check every key; errors name the path of the key.

`docs/daemon.md` describes the keys. Relative paths are relative to the configuration file.
"""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError, model_validator

from drivers.ads.config import AdsConfig
from drivers.ethercat.config import EthercatConfig
from drivers.files.table import Positive, StrictTable, describe
from rt_core.settings import Bounded, ZeroForceSettings
from service.config import arm_tables as tables
from service.config.daemon import DaemonConfig, JobsConfig
from service.protocol.messages import check_arm_name
from service.security.files import SecretFileError
from service.security.keys import server_pair

T = TypeVar("T", bound=Bounded)

#: Drivers of real arms.
BusConfig = EthercatConfig | AdsConfig
#: Longest path of a UNIX socket on Linux.
MAX_SOCKET_PATH = 107


class ConfigError(ValueError):
    """A configuration that cannot be used; the message names file, key and remedy."""


class ArmConfig(StrictTable):
    """One `[[arm]]`."""

    name: Annotated[str, AfterValidator(check_arm_name)]
    robot: str  # name of a robot file, or its path
    driver: Annotated[tables.ReplayConfig | tables.SimConfig | EthercatConfig | AdsConfig, Field(discriminator="kind")]
    motion: tables.ArmMotionSettings | None = None  # motion of a real arm's drives once they are enabled
    safety: tables.SafetyConfig = tables.SafetyConfig()
    guiding: ZeroForceSettings | None = None  # None: no hand guiding
    realtime: tables.RealtimeConfig | None = None  # None: unchanged, or the defaults for a source with a cycle
    torque_range: tuple[Positive, ...] | None = None  # of each joint, see service.acquisition._torque_range
    estimator: dict[str, Any] = Field(default_factory=dict)  # keys of rt_core.online.OnlineSettings
    elastic: tuple[tables.ElasticConfig, ...] = ()  # joints whose stiffness is estimated in addition
    publish: tables.PublishConfig = tables.PublishConfig()
    state: tables.StateConfig = tables.StateConfig()
    recorder: tables.RecorderConfig | None = None
    reidentify: tables.ReidentifyConfig | None = None  # None: only on request
    model: Path | None = None  # model file that predicts the torque; None: the running estimate
    window_s: float = Field(120.0, ge=0.0, le=3600.0)  # length of the frame buffer for `set_aside`
    hold: bool = False  # wait for the control verb `start` before the first frame

    @property
    def driver_sha256(self) -> str:
        """Hash of the non-default keys of `[arm.driver]`, to detect changes."""
        return hashlib.sha256(self.driver.model_dump_json(exclude_defaults=True).encode()).hexdigest()

    @property
    def positions_sha256(self) -> str:
        """Hash of the keys of `[arm.driver]` that say which drives they are, and what their positions mean."""
        keys = {"drive", "device", "net_id", "port", "variables", "decoupled", "axis"}
        return hashlib.sha256(self.driver.model_dump_json(include=keys, exclude_defaults=True).encode()).hexdigest()

    @model_validator(mode="after")
    def _consistent(self) -> ArmConfig:
        if self.motion is not None and getattr(self.driver, "mode", None) != "csp":
            words = 'only drives in mode "csp" follow it; a simulated arm has its motion in [arm.driver.motion]'
            raise ValueError(f"motion: {words}")
        if self.guiding is not None:
            if self.driver.kind in tables.NOT_GUIDED:
                raise ValueError(f"guiding: {tables.NOT_GUIDED[self.driver.kind]}; take the table out")
            if getattr(self.driver, "mode", None) != "csp":
                raise ValueError('guiding: begins and ends in a hold by the drives: set mode = "csp" in [arm.driver]')
            if self.motion is not None:
                raise ValueError("guiding: [arm.motion] moves this arm: take one of the two tables out")
        joints = [spring.joint for spring in self.elastic]
        twice = sorted({joint for joint in joints if joints.count(joint) > 1})
        if twice:
            raise ValueError(f"elastic: two tables are of joint {', '.join(twice)}; keep one")
        if self.reidentify is not None and self.reidentify.promote and not all(s.model for s in self.elastic):
            raise ValueError("reidentify: promotes rigid joints; name a file in `model` of [[arm.elastic]]")
        return self


class Config(StrictTable):
    """A whole configuration file, with absolute paths, resolved except for `keys_dir`."""

    daemon: DaemonConfig = DaemonConfig()
    jobs: JobsConfig = JobsConfig()
    arm: tuple[ArmConfig, ...] = ()
    base: Path = Path()  # base of relative paths
    not_keys: ClassVar[tuple[str, ...]] = ("base",)

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
        """Directory of all files that outlive the daemon."""
        if self.daemon.state_dir is not None:
            return self.daemon.state_dir
        # Resolved like a configured one, because jobs identify their inputs by path.
        return self._usual_state_dir().resolve()

    def _usual_state_dir(self) -> Path:
        home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
        return Path(home) / "thetad" / self.daemon.name

    @property
    def keys_dir(self) -> Path:
        """Directory of the server's key and the client registry; not resolved, because links are checked, too."""
        return self.daemon.keys_dir or (self.daemon.state_dir or self._usual_state_dir()) / "keys"

    def recording_dir(self, arm: ArmConfig) -> Path:
        """Return the directory for recordings of `arm`."""
        if arm.recorder is not None and arm.recorder.directory is not None:
            return arm.recorder.directory
        return self.state_dir / arm.name / "recordings"


def load_config(path: Path, *, needs_key: bool = True) -> Config:
    """Read a configuration file, TOML or (ending in .json) JSON; without `needs_key` the server's key may be missing.

    Raises `ConfigError`: the file cannot be read, a key is unknown, or a value has the wrong type or is out of range.
    """
    try:
        text = path.read_text(encoding="utf-8")
        table = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
    return parse_config(table, str(path), path.resolve().parent, needs_key=needs_key)


def parse_config(table: object, origin: str, base: Path, *, needs_key: bool = True) -> Config:
    """Check a configuration given as a table; `origin` names it in errors, `base` is the base of relative paths."""
    if not isinstance(table, dict):
        raise ConfigError(f"{origin}: expected a table with [daemon] and [[arm]]")
    if "base" in table:
        raise ConfigError(f"{origin}: base: unknown key")
    try:
        text = json.dumps(table)
    except TypeError as error:
        raise ConfigError(f"{origin}: dates and times are not used here: {error}") from error
    if needs_key:
        _check_server_key(table, origin, base)
    try:
        config = Config.model_validate_json(text)
    except ValidationError as error:
        raise ConfigError(f"{origin}: {describe(error, Config)}") from error
    return _resolve(config, base)


def _check_server_key(table: Mapping[str, Any], origin: str, base: Path) -> None:
    """Raise `ConfigError` if public sockets or `require_keys` lack a key of the server."""
    try:
        daemon = DaemonConfig.model_validate_json(json.dumps(table.get("daemon", {})))
    except ValidationError:
        return  # reported with the other errors
    if not daemon.keyed:
        return
    try:
        server_pair(_resolve(Config.model_construct(daemon=daemon), base).keys_dir)
    except SecretFileError as error:
        why = "daemon.require_keys" if daemon.require_keys else f"daemon.bind: {daemon.bind} is not a loopback address"
        raise ConfigError(f"{origin}: {why}, and this needs a key of the server: {error}") from error


def check_settings(kind: type[T], table: Mapping[str, Any], where: str) -> T:
    """Build the settings dataclass `kind` from a table of the configuration; `where` is the table's path.

    Raises `ConfigError`: a key is unknown, or a value has the wrong type or is out of range.
    """
    try:
        return TypeAdapter(kind).validate_json(json.dumps(table))
    except ValidationError as error:
        raise ConfigError(describe(error, kind, where)) from error


def _resolve(config: Config, base: Path) -> Config:
    def absolute(path: Path | None) -> Path | None:
        return None if path is None else (base / path.expanduser()).resolve()

    arms = []
    for arm in config.arm:
        update: dict[str, Any] = {"model": absolute(arm.model)}
        if arm.elastic:
            update["elastic"] = tuple(s.model_copy(update={"model": absolute(s.model)}) for s in arm.elastic)
        if isinstance(arm.driver, tables.ReplayConfig):
            update["driver"] = arm.driver.model_copy(update={"recording": absolute(arm.driver.recording)})
        elif isinstance(arm.driver, tables.SimConfig) and (arm.driver.robot or "").endswith((".toml", ".urdf")):
            update["driver"] = arm.driver.model_copy(update={"robot": str(absolute(Path(str(arm.driver.robot))))})
        if arm.recorder is not None:
            update["recorder"] = arm.recorder.model_copy(update={"directory": absolute(arm.recorder.directory)})
        arms.append(arm.model_copy(update=update))
    places = {key: absolute(getattr(config.daemon, key)) for key in ("state_dir", "runtime_dir", "http_token_file")}
    keys_dir = config.daemon.keys_dir
    if keys_dir is None and config.daemon.state_dir is not None:
        keys_dir = config.daemon.state_dir / "keys"
    # Not resolved: links are checked.
    places["keys_dir"] = None if keys_dir is None else (base / keys_dir.expanduser()).absolute()
    daemon = config.daemon.model_copy(update=places)
    folders = None if config.jobs.folders is None else tuple(absolute(folder) for folder in config.jobs.folders)
    jobs = config.jobs.model_copy(update={"folders": folders})
    return config.model_copy(update={"daemon": daemon, "jobs": jobs, "arm": tuple(arms), "base": base})
