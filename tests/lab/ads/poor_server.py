"""A server that lacks services, as other ADS servers do."""

from sim_backend.plc._codes import AdsError, Code
from sim_backend.plc._notifications import Notifications
from sim_backend.plc._plc import SimulatedPlc
from sim_backend.plc._services import Services

SUMS = frozenset(range(0xF080, 0xF087))
TYPES = frozenset({0xF00E, 0xF011})
VERSION = frozenset({0xF008})


class PoorServices(Services):
    lacking: frozenset[int] = frozenset()
    refusal = Code.INVALID_GROUP
    elements = True  # symbols of members and elements can be asked for

    def read(self, group: int, offset: int, length: int) -> bytes:
        self._check(group)
        return super().read(group, offset, length)

    def read_write(self, group: int, offset: int, length: int, data: bytes, client: Notifications) -> bytes:
        self._check(group)
        if not self.elements and group in (0xF003, 0xF007, 0xF009) and b"[" in data:
            raise AdsError(Code.SYMBOL_NOT_FOUND)
        return super().read_write(group, offset, length, data, client)

    def _check(self, group: int) -> None:
        if group in self.lacking:
            raise AdsError(self.refusal)


def impoverish(plc: SimulatedPlc, lacking: frozenset[int], elements: bool = True) -> None:
    """Take services (index groups) away."""
    services = plc.services
    services.__class__ = PoorServices
    assert isinstance(services, PoorServices)
    services.lacking, services.elements = lacking, elements
