"""What a driver is, and how it fails.

A driver is opened, read until the stream ends or the caller stops, and closed.  `read` blocks until
the next frame is due; it never returns a frame twice and never invents one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeAlias, runtime_checkable

from drivers.frame import JointFrame
from rt_core.types import FloatArray

#: What drives follow: set positions (cyclic synchronous position) or set torques (cyclic synchronous torque).
Mode: TypeAlias = Literal["csp", "cst"]


class DriverError(Exception):
    """Any failure of a driver; the message says what, where, and what to do."""


class DriverConfigError(DriverError, ValueError):
    """The driver cannot be opened as configured."""


class DriverConnectionError(DriverError, ConnectionError):
    """The source is not there or went away."""


class DriverTimeoutError(DriverError, TimeoutError):
    """No frame within the given time."""


class DriverClosedError(DriverError, RuntimeError):
    """Used before `open` or after `close`."""


class CommandRefusedError(DriverError, ValueError):
    """A command that the drives must not get: not enabled, outside its limits, or too big a step."""


class EndOfStream(DriverError, EOFError):
    """The source has no more frames: the normal end of a recording or of a finished motion."""


@dataclass(frozen=True)
class DriverInfo:
    """What a driver delivers, known once it is open."""

    source: str  # "replay", "sim", "ethercat", "ads"
    joint_names: tuple[str, ...]
    channels: tuple[str, ...]  # which of drivers.frame.CHANNELS are present
    rate_hz: float  # nominal sample rate
    clock: str  # the clock of t_bus_ns: "recording", "sim", "dc", "plc"
    lossless: bool  # True if the source can wait for a slow consumer (a recording as fast as possible)
    lead_s: float = 0.0  # from a frame to the cycle that a command given for it is for, if not the next one

    @property
    def n(self) -> int:
        """Number of joints."""
        return len(self.joint_names)


@runtime_checkable
class Driver(Protocol):
    """The interface of every source of frames."""

    @property
    def info(self) -> DriverInfo:
        """What the driver delivers; raises `DriverClosedError` before `open`."""
        ...

    def open(self) -> None:
        """Connect or open the source; raises `DriverConfigError` or `DriverConnectionError`."""
        ...

    def read(self, timeout_s: float = 1.0) -> JointFrame:
        """Return the next frame; raises `EndOfStream`, `DriverTimeoutError`, `DriverClosedError`, ..."""
        ...

    def close(self) -> None:
        """Release everything; may be called more than once."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False] | None: ...


class OpenedInWith(ABC):
    """What every driver here shares: `with` opens it, and closes it at the end."""

    @abstractmethod
    def open(self) -> None:
        """See `Driver.open`."""

    @abstractmethod
    def close(self) -> None:
        """See `Driver.close`."""

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
    """A driver that also moves the arm.  None of these calls waits; `read` carries them out."""

    @property
    def enabled(self) -> bool:
        """Whether all drives are switched on and follow commands."""
        ...

    def enable(self) -> None:
        """Switch all drives on, over the next cycles; raises `DriverError` if it may not, or they still stop."""
        ...

    def disable(self) -> None:
        """Stop all drives and switch them off, over the next cycles."""
        ...

    def command(self, target: FloatArray) -> None:
        """Set the target (n,) of the next cycle in SI units, joint side; raises `DriverError` if it is refused."""
        ...


@runtime_checkable
class ModeChanging(Commandable, Protocol):
    """A driver whose drives change between following positions and following torques while they are switched on."""

    @property
    def mode(self) -> Mode:
        """What `command` sets: positions, or motor torques on the joint side as `JointFrame.tau`."""
        ...

    def change_mode(self, mode: Mode) -> None:
        """Follow the other from the next cycle on; until a command comes, drives hold where they are.

        In "cst" a command has to come in each cycle, or the drives stop by themselves; they are switched on in "csp".
        Raises `DriverError` if it may not be.
        """
        ...


@runtime_checkable
class Reporting(Protocol):
    """A driver that has more to tell than frames."""

    def report(self) -> dict[str, Any]:
        """Return plain values (numbers, texts, lists, dicts) for status messages."""
        ...
