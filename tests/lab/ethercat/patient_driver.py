"""The driver, opened again where the machine was elsewhere while SOEM waited its 2 ms for a reply."""

import time

from drivers.driver import DriverError
from drivers.ethercat.driver import EthercatDriver

TRIES = 3


class PatientDriver(EthercatDriver):
    """A driver whose start fails only if it fails each time."""

    def open(self) -> None:
        for _ in range(TRIES - 1):
            try:
                return super().open()
            except DriverError:
                time.sleep(0.2)
        return super().open()
