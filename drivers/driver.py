"""Interface of drivers, and their errors.

A driver is opened, read until the stream ends or the caller stops, and closed.  `read` blocks until the next frame is
due; it returns each frame once.
"""

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeAlias, runtime_checkable

from drivers.frame import JointFrame
from rt_core.types import FloatArray

#: Mode of drives: set positions (cyclic synchronous position) or set torques (cyclic synchronous torque).
Mode: TypeAlias = Literal["csp", "cst"]


class DriverError(Exception):
    """Failure of a driver; the message has the problem, its place, and the remedy."""


class DriverConfigError(DriverError, ValueError):
    """The driver cannot be opened as configured."""


class DriverConnectionError(DriverError, ConnectionError):
    """The source is missing or was lost."""


class DriverTimeoutError(DriverError, TimeoutError):
    """No frame within the given time."""


class DriverClosedError(DriverError, RuntimeError):
    """Used before `open` or after `close`."""


class CommandRefusedError(DriverError, ValueError):
    """A refused command: drives not enabled, target beyond a limit, or too large a step."""


class EndOfStream(DriverError, EOFError):
    """The source has no more frames: the normal end of a recording or of a finished motion."""


@dataclass(frozen=True)
class DriverInfo:
    """Properties of an open source."""

    source: str  # "replay", "sim", "ethercat", "ads"
    joint_names: tuple[str, ...]
    channels: tuple[str, ...]  # which of drivers.frame.CHANNELS are present
    rate_hz: float  # nominal sample rate
    clock: str  # the clock of t_bus_ns: "recording", "sim", "dc", "plc"
    lossless: bool  # True if the source can wait for a slow consumer (a recording as fast as possible)
    lead_s: float = 0.0  # from a frame to the cycle of its command, if not the next one

    @property
    def n(self) -> int:
        """Number of joints."""
        return len(self.joint_names)


@dataclass(frozen=True)
class Notice:
    """What a driver has to tell people: an event of `kind` concerning `subject`, of which the newest one counts."""

    kind: str  # "bus_lost", "slave_recovered", ...
    subject: str
    text: str


@runtime_checkable
class Driver(Protocol):
    """Interface of every source of frames."""

    @property
    def info(self) -> DriverInfo:
        """Properties of the source; raises `DriverClosedError` unless open."""

    def open(self) -> None:
        """Connect or open the source; raises `DriverConfigError` or `DriverConnectionError`."""

    def read(self, timeout_s: float = 1.0) -> JointFrame:
        """Return the next frame; raises `EndOfStream`, `DriverTimeoutError`, `DriverClosedError`, ..."""

    def close(self) -> None:
        """Release everything; may be called more than once."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False] | None: ...


class OpenedInWith(ABC):
    """Base of drivers: context manager, `info`, which is set while the driver is open, and notices."""

    _label = "driver"  # name in messages
    _info: DriverInfo | None = None

    @cached_property
    def notices(self) -> deque[Notice]:
        """Notices, oldest first, which the user of the driver removes."""
        return deque(maxlen=1000)

    def _notice(self, kind: str, subject: str, text: str) -> None:
        self.notices.append(Notice(kind, subject, f"{self._label}: {text}"))

    @abstractmethod
    def open(self) -> None:
        """See `Driver.open`."""

    @abstractmethod
    def close(self) -> None:
        """See `Driver.close`."""

    @property
    def info(self) -> DriverInfo:
        """See `Driver.info`."""
        return self._require_open()

    def _require_open(self, doing: str = "") -> DriverInfo:
        if self._info is None:
            raise DriverClosedError(f"{self._label}: {doing and f'{doing} while it is '}not open")
        return self._info

    def _require_closed(self) -> None:
        if self._info is not None:
            raise DriverError(f"{self._label}: already open")

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        self.close()
        return False


@runtime_checkable
class Commandable(Protocol):
    """A driver that also moves the arm.  No call waits; `read` does the work."""

    @property
    def enabled(self) -> bool:
        """Whether all drives are switched on and follow commands."""

    def enable(self) -> None:
        """Switch all drives on, over the next cycles; raises `DriverError` if not allowed, or while they stop."""

    def disable(self) -> None:
        """Stop all drives and switch them off, over the next cycles."""

    def command(self, target: FloatArray) -> None:
        """Set the target (n,) of the next cycle in SI units, joint side; raises `DriverError` if refused."""


@runtime_checkable
class ModeChanging(Commandable, Protocol):
    """A driver that can change between position and torque mode while its drives are enabled."""

    @property
    def mode(self) -> Mode:
        """Kind of targets: positions, or motor torques on the joint side as `JointFrame.tau`."""

    def change_mode(self, mode: Mode) -> None:
        """Change the mode from the next cycle on; drives hold their position until a command.

        In "cst" a command is needed in each cycle, or the drives stop; they are enabled in "csp".  Raises `DriverError`
        if not allowed.
        """


@runtime_checkable
class Reporting(Protocol):
    """A driver with status data beside frames."""

    def report(self) -> dict[str, Any]:
        """Return plain values (numbers, texts, lists, dicts) for status messages."""
