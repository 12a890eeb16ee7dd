"""Whether a controller accepts connections at all; light, without the ADS library."""

from __future__ import annotations

import socket

from drivers.ads._errors import AdsConnectionError
from drivers.ads.config import Target

TCP_PORT = 48898


def resolve(target: Target) -> str:
    """Return the controller's IPv4 address; raises `AdsConnectionError` if its name is not known.

    Where the name server does not answer this takes as long as the system's resolver waits.
    """
    name = target.address
    try:
        return socket.gethostbyname(name)
    except OSError as error:
        raise AdsConnectionError(f"ADS {target}: host {name!r} is not known ({error}); give its address") from error


def probe(target: Target, address: str = "") -> None:
    """See whether the controller accepts connections; the library itself would wait for minutes.

    Parameters
    ----------
    target : Target
    address : str, optional
        As `resolve` found it; by default it is looked up.

    Raises
    ------
    AdsConnectionError
        The name is not known, or nobody answers within the time-out of a request.
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


def silent_text(target: Target, address: str) -> str:
    """Return what to do about a controller that accepts a connection and answers nothing."""
    local = _local_address(address)
    net_id = target.local_net_id or f"{local}.1.1"
    return (
        f"ADS {target}: {address} accepts the connection but answers no request: most likely it has no route back. "
        f"Add one on the controller: AMS Net ID {net_id}, address {local}, TCP/IP; see that net_id is the controller's"
    )
