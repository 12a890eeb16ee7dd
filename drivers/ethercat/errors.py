"""What goes wrong on a bus, as drivers' errors."""

from __future__ import annotations

from drivers.driver import DriverConfigError, DriverConnectionError, DriverError, DriverTimeoutError


class NetworkMismatchError(DriverConfigError):
    """The slaves on the bus are not those of the configuration; the message lists each difference."""


class BusStateError(DriverConnectionError):
    """A slave refuses a state or does not reach it; the message has its AL status."""


class SdoError(DriverError):
    """An SDO transfer failed.

    Attributes
    ----------
    abort : int
        The drive's abort code; 0 if it is not the drive that refused.
    """

    def __init__(self, message: str, abort: int = 0) -> None:
        super().__init__(message)
        self.abort = abort


class SdoTimeoutError(SdoError, DriverTimeoutError):
    """The drive did not answer an SDO."""


class StreamingError(DriverError):
    """An acyclic transfer was asked for while process data runs: it would tear gaps into them."""
