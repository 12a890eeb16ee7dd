"""First check of an arm's hardware, light enough for the supervisor: nothing here imports the numerics."""

from __future__ import annotations

from drivers.ads.config import AdsConfig
from drivers.ads.link.port_probe import probe
from drivers.ethercat.bus.interface import check_free
from drivers.ethercat.config import EthercatConfig
from service.config.load import ArmConfig


def check_reachable(arm: ArmConfig) -> None:
    """Check that an arm's hardware can be opened, before processes are started that take seconds to find out.

    Raises `DriverError` with the reason and the remedy.
    """
    if isinstance(arm.driver, EthercatConfig):
        check_free(arm.driver.interfaces)
    elif isinstance(arm.driver, AdsConfig):
        probe(arm.driver.target)
