"""Check whether a controller accepts connections, without the ADS library."""

import socket

from drivers.ads._errors import AdsConnectionError
from drivers.ads.config import Target

TCP_PORT = 48898


def resolve(target: Target) -> str:
    """Return the controller's IPv4 address; raises `AdsConnectionError` if its name is not known.

    It may block as long as the system's resolver waits.
    """
    name = target.address
    try:
        return socket.gethostbyname(name)
    except OSError as error:
        raise AdsConnectionError(f"ADS {target}: host {name!r} is not known ({error}); give its address") from error


def probe(target: Target, address: str = "") -> None:
    """Check that the controller accepts connections; the ADS library itself would wait for minutes.

    `address` is the result of `resolve`, which is called by default.  Raises `AdsConnectionError`: the name is not
    known, or there is no answer within the time-out of a request.
    """
    address = address or resolve(target)
    try:
        socket.create_connection((address, TCP_PORT), timeout=max(target.timeout_ms * 1e-3, 0.2)).close()
    except OSError as error:
        reason = "it refuses" if isinstance(error, ConnectionRefusedError) else error.strerror or "no answer"
        raise AdsConnectionError(
            f"ADS {target}: no connection to {address}, TCP port {TCP_PORT} ({reason}): is the controller on, is this "
            "its address (host), and does its firewall let ADS in?",
            10061,
        ) from error


def _local_address(address: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, TCP_PORT))
            return str(probe.getsockname()[0])
        except OSError:
            return "this computer's address"


def no_answer_text(target: Target, address: str) -> str:
    """Return the remedy for a controller that accepts a connection but does not answer."""
    local = _local_address(address)
    net_id = target.local_net_id or f"{local}.1.1"
    return (
        f"ADS {target}: {address} accepts the connection but answers no request: most likely it has no route back. "
        f"Add one on the controller: AMS Net ID {net_id}, address {local}, TCP/IP; see that net_id is the controller's"
    )
