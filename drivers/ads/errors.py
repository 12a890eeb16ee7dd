"""What goes wrong over ADS, as drivers' errors, each with its remedy."""

from __future__ import annotations

from drivers.driver import DriverConfigError, DriverConnectionError, DriverError

PORT_NOT_FOUND, MACHINE_NOT_FOUND = 6, 7
UNSUPPORTED, BAD_GROUP, BAD_OFFSET, BAD_SIZE = 1793, 1794, 1795, 1797
NOT_READY, SYMBOL_NOT_FOUND, VERSION_INVALID, INVALID_STATE = 1799, 1808, 1809, 1810
NOTIFICATION_INVALID, BAD_INDEX, NOT_ACTIVE, TIMED_OUT = 1812, 1825, 1826, 1861

#: A handle or an address is no longer that of the symbol: look everything up again.
MOVED = frozenset(
    {BAD_GROUP, BAD_OFFSET, BAD_SIZE, SYMBOL_NOT_FOUND, VERSION_INVALID, NOTIFICATION_INVALID, NOT_ACTIVE}
)
#: The server does not know the service, whatever it was asked for.
NOT_THERE = frozenset({UNSUPPORTED, BAD_GROUP, BAD_OFFSET, BAD_SIZE, 11, 8})
#: The library, or the connection under it, gave up; only a new connection helps.
BROKEN = frozenset({-1, 1, 12, 13, 18, 20, 21, 22, 25, 26, 27, TIMED_OUT, 1864, 1872, 1876, 1877, 10060, 10061, 10065})


class AdsError(DriverError):
    """An ADS request failed.

    Attributes
    ----------
    code : int
        ADS error code; 0 if none was given.
    of_item : bool
        It is that of one part of a sum command, not of the command.
    """

    def __init__(self, message: str, code: int = 0, of_item: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.of_item = of_item


class AdsConnectionError(AdsError, DriverConnectionError):
    """The controller does not answer, or does not let this computer in."""


class AdsSymbolError(AdsError, DriverConfigError):
    """There is no such symbol in the PLC, or its value cannot be understood."""


class AdsReplyError(AdsError):
    """A reply that does not have the length or the form it should have."""


class LayoutMismatchError(DriverConfigError):
    """The PLC's variables are not those of `drivers.ads.layout`; the message names the field that differs."""
