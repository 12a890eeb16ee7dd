"""A first look at an arm's hardware, light enough for the supervisor: nothing here imports the numerics."""

from __future__ import annotations

import socket

from drivers.ads.config import AdsConfig
from drivers.driver import DriverConnectionError
from drivers.ethercat.config import EthercatConfig
from drivers.ethercat.interface import check_free
from service.config import ArmConfig

_ADS_PORT = 48898
_CONNECT_S = 2.0


def check_reachable(arm: ArmConfig) -> None:
    """Look whether an arm's hardware can be opened now, before processes are started that need seconds to find out.

    Raises
    ------
    DriverError
        It cannot: the reason, and the remedy.
    """
    if isinstance(arm.driver, EthercatConfig):
        check_free(arm.driver.interfaces)
    elif isinstance(arm.driver, AdsConfig):
        _check_controller(arm.driver.target.address)


def _check_controller(address: str) -> None:
    try:
        socket.create_connection((address, _ADS_PORT), _CONNECT_S).close()
    except OSError as error:
        reason = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
        raise DriverConnectionError(
            f"no ADS router at {address}, TCP port {_ADS_PORT} ({reason}): is the controller on, the address right, "
            "and the port open in its firewall?"
        ) from error
