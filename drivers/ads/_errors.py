"""ADS error codes and the errors of this driver."""

from drivers.driver import DriverConfigError, DriverConnectionError, DriverError

PORT_NOT_FOUND, MACHINE_NOT_FOUND = 6, 7
UNSUPPORTED, BAD_GROUP, BAD_OFFSET, BAD_SIZE = 1793, 1794, 1795, 1797
NOT_READY, SYMBOL_NOT_FOUND, VERSION_INVALID, INVALID_STATE = 1799, 1808, 1809, 1810
NOTIFICATION_INVALID, BAD_INDEX, NOT_ACTIVE, TIMED_OUT = 1812, 1825, 1826, 1861

#: A handle or an address is outdated: look all symbols up again.
MOVED = frozenset(
    {BAD_GROUP, BAD_OFFSET, BAD_SIZE, SYMBOL_NOT_FOUND, VERSION_INVALID, NOTIFICATION_INVALID, NOT_ACTIVE}
)
#: The server does not know the service.
NOT_THERE = frozenset({UNSUPPORTED, BAD_GROUP, BAD_OFFSET, BAD_SIZE, 11, 8})
#: The connection has failed; only a new one helps.
BROKEN = frozenset({-1, 1, 12, 13, 18, 20, 21, 22, 25, 26, 27, TIMED_OUT, 1864, 1872, 1876, 1877, 10060, 10061, 10065})


#: Explanation and remedy of a code.
TEXTS = {
    PORT_NOT_FOUND: (
        "no ADS server listens there: the PLC runtimes of TwinCAT 3 have ports 851, 852, ... and listen once a PLC "
        "program is loaded and TwinCAT is in run mode"
    ),
    MACHINE_NOT_FOUND: (
        "the controller does not know this Net ID: net_id must be its own (TwinCAT: About, or Router: AMS Net ID), "
        "and it needs a route to this computer"
    ),
    SYMBOL_NOT_FOUND: "there is no such symbol; `thetad ads symbols` lists those that there are",
    TIMED_OUT: "no answer in time (timeout_ms)", 1793: "the server does not know this service",
    1796: "reading or writing it is not permitted", 1797: "its size is another one",
    1799: "the PLC is not ready: is it in run mode?", 1800: "the server is busy", 1809: "an online change moved it",
    1810: "the server is in a state in which it does not answer this: is it in run mode?",
    1825: "there is no element with this index", 1826: "an online change removed it", 1827: "access is denied",
    1828: "the TwinCAT licence is missing or has run out",
}  # fmt: skip


class AdsError(DriverError):
    """An ADS request failed with ADS error `code`, 0 if none was given, `of_item` if of one part of a sum command."""

    def __init__(self, message: str, code: int = 0, of_item: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.of_item = of_item


class AdsConnectionError(AdsError, DriverConnectionError):
    """The controller does not answer or refuses the connection."""


class AdsSymbolError(AdsError, DriverConfigError):
    """The PLC has no such symbol, or its value cannot be decoded or encoded."""


class AdsReplyError(AdsError):
    """A reply of the wrong length or form."""


class LayoutMismatchError(DriverConfigError):
    """The PLC's variables are not those of `drivers.ads.layout`; the message names the field that differs."""
