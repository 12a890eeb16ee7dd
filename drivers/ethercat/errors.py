"""Errors of an EtherCAT bus."""

from drivers.driver import DriverConfigError, DriverConnectionError, DriverError, DriverTimeoutError


class NetworkMismatchError(DriverConfigError):
    """The slaves on the bus are not those of the configuration; the message lists each difference."""


class BusStateError(DriverConnectionError):
    """A slave refuses a state or does not reach it; the message has its AL status."""


class SdoError(DriverError):
    """An SDO transfer failed; `abort` is the drive's abort code, 0 if the drive did not refuse it."""

    def __init__(self, message: str, abort: int = 0) -> None:
        super().__init__(message)
        self.abort = abort


class SdoTimeoutError(SdoError, DriverTimeoutError):
    """The drive did not answer an SDO."""


class StreamingError(DriverError):
    """An acyclic transfer was requested while process data runs; it would leave gaps in it."""
