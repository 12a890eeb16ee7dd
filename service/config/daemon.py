"""`[daemon]`: name, directories, addresses and limits of the daemon as a whole; and `[jobs]`."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from drivers.files.table import StrictTable
from service.protocol.roles import HttpRole

Port = Annotated[int, Field(ge=0, le=65535)]


def _as_sent(origin: str) -> str:
    """Raise `ValueError` for an origin that no browser sends."""
    default = ":443" if origin.startswith("https:") else ":80"
    if origin.endswith(default):
        raise ValueError(f"{origin}: browsers leave the usual port out: write {origin.removesuffix(default)}")
    return origin


Origin = Annotated[str, Field(pattern=r"^https?://[a-z0-9.-]{1,253}(:[0-9]{1,5})?$"), AfterValidator(_as_sent)]


class DaemonConfig(StrictTable):
    """The table `[daemon]`."""

    name: str = Field("thetad", pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,31}$")
    state_dir: Path | None = None  # None: below the user's state directory
    runtime_dir: Path | None = None  # private sockets; None: below the user's runtime directory
    bind: str = "127.0.0.1"  # an IPv4 address; beyond loopback only with keys
    require_keys: bool = False  # also on loopback: encrypt, and accept only clients with a key
    requests_per_s: float = Field(200.0, ge=1.0, le=1e6)  # of a client with a key; bursts of twice as many
    keys_dir: Path | None = None  # the server's key and the clients'; None: keys/ in the state directory
    frames_port: Port = 9870  # 0: any free port, printed when ready
    estimates_port: Port = 9871
    #: All topics on one port at a lower rate, for plotters; 9872 by convention; None: none.
    mirror_port: Port | None = None
    mirror_hz: float = Field(50.0, ge=1.0, le=1000.0)  # highest rate of a topic there
    control_port: Port = 9873
    http: bool | None = None  # serve HTTP; None: unless clients need a key and there is no token
    http_port: Port = 9874
    http_token_file: Path | None = None  # tokens required of HTTP clients
    http_role: HttpRole = "read"  # highest role by HTTP; without keys anybody may stop an arm
    http_origins: tuple[Origin, ...] = ()  # further origins of the dashboard's page, such as a proxy with TLS
    exit_at_end: bool = False  # stop when every source has ended and every frame is processed
    hang_s: float = Field(10.0, ge=1.0, le=600.0)  # a process silent for so long is killed and restarted
    start_s: float = Field(300.0, ge=1.0, le=3600.0)  # longest time to become ready, with compilation
    memory_mb: float = Field(1000.0, ge=100.0)  # of the gateway and the process with the control socket
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @field_validator("bind")
    @classmethod
    def _address(cls, value: str) -> str:
        try:
            return str(ipaddress.IPv4Address(value))
        except ValueError:
            raise ValueError(
                f"{value!r} is not an IPv4 address: give a loopback one (127.x.x.x), or, with keys, one of this "
                "computer's, or 0.0.0.0 for all of them"
            ) from None

    @property
    def keyed(self) -> bool:
        """Whether the public sockets are encrypted and require a client key."""
        return self.require_keys or not ipaddress.IPv4Address(self.bind).is_loopback

    @property
    def serves_http(self) -> bool:
        """Whether HTTP is served: by default if no key is needed, or HTTP clients need a token."""
        return self.http if self.http is not None else not self.keyed or self.http_token_file is not None

    @property
    def http_bind(self) -> str:
        """Address of HTTP: always loopback, because it is not encrypted."""
        return self.bind if ipaddress.IPv4Address(self.bind).is_loopback else "127.0.0.1"

    @model_validator(mode="after")
    def _consistent(self) -> DaemonConfig:
        ports = [self.frames_port, self.estimates_port, self.mirror_port, self.control_port]
        ports = [port for port in [*ports, *([self.http_port] if self.serves_http else [])] if port]
        if len(set(ports)) < len(ports):
            raise ValueError("frames_port, estimates_port, mirror_port, control_port and http_port must differ")
        if self.http and self.keyed and self.http_token_file is None:
            raise ValueError(
                "http: clients of this daemon need a key, and HTTP knows none: name a file with a token in "
                "http_token_file, or leave http out"
            )
        if self.http_origins and self.http_token_file is None:
            words = "anyone who reaches that address could look: name a file with a token in http_token_file"
            raise ValueError(f"http_origins: {words}")
        return self


class JobsConfig(StrictTable):
    """The table `[jobs]`."""

    workers: int = Field(1, ge=0, le=256)  # concurrent jobs; 0: none runs
    processors: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    """Processors that jobs run on; None: the last ones that no `[arm.realtime]` names.

    Other processes of the daemon are not kept off them.
    """
    priority: Literal["idle", "low", "normal"] = "idle"
    """Jobs get the time that nobody else wants, a small share at least, or as much as everybody."""
    time_s: float = Field(3600.0, ge=1.0, le=1e6)  # longest attempt, unless the job sets its own
    memory_mb: float = Field(4000.0, ge=500.0)  # likewise
    lease_s: float = Field(15.0, ge=1.0, le=600.0)  # a job whose holder is silent for so long is reassigned
    keep_days: float = Field(90.0, gt=0.0)  # of finished jobs and their results, and of events
    keep_jobs: int = Field(10_000, ge=1)
    least_free_mb: float = Field(500.0, ge=0.0)  # jobs wait if less disk space is free
    folders: tuple[Path, ...] | None = None
    """Clients may name files below these alone; None: any, or with keys those that the daemon has recorded."""
    backend: Literal["local", "dask"] = "local"
    scheduler: str | None = None  # of the Dask cluster, "tcp://HOST:PORT"

    @model_validator(mode="after")
    def _dask_needs_scheduler(self) -> JobsConfig:
        if (self.backend == "dask") != (self.scheduler is not None):
            raise ValueError('backend = "dask" and scheduler = "tcp://HOST:PORT" go together')
        return self
