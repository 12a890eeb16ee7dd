"""Inspection of a bus in PRE-OP, after which the slaves return to the states they were in."""

import time
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from drivers.driver import DriverConnectionError
from drivers.ethercat.bus.al_status import INIT, PREOP, AlStatus
from drivers.ethercat.bus.bus import Bus, with_retries
from drivers.ethercat.bus.bus_probe import read_states, refuse_operation
from drivers.ethercat.bus.interface import refuse_other_master
from drivers.ethercat.bus.master import TRIES
from drivers.ethercat.bus.network import FoundSlave
from drivers.ethercat.bus.objects import ObjectInfo

_STATE_S = 2.0


class Inspection(Bus):
    """A bus that is only read; a context manager.  Lost answers are requested again.

    `slaves` are as scanned; `found` are their states before the inspection, by position, None without an answer; those
    `refusing` PRE-OP, and so without a mailbox, have their AL status there; `unrestored` did not go back afterwards.
    """

    def __init__(self, interface: str, redundant_interface: str | None = None) -> None:
        super().__init__(interface, redundant_interface)
        self.slaves: list[FoundSlave] = []
        self.found: list[AlStatus | None] = []
        self.refusing: dict[int, AlStatus | None] = {}
        self.unrestored: tuple[int, ...] = ()

    def __enter__(self) -> Self:
        """Open and scan.

        Raises `DriverConfigError` or `DriverConnectionError`: the interface cannot be used, no slave answers, or
        another master has the bus.
        """
        self.open()
        try:
            names = [name for name in (self.interface, self.redundant_interface) if name is not None]
            for name in names:
                refuse_other_master(name)
            self.found = read_states(names)
            refuse_operation(names, self.found)
            self.slaves = self._scan()
            self.found += [None] * (len(self.slaves) - len(self.found))
            self.refusing = self._wait_each(PREOP, range(len(self.slaves)))
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def _scan(self) -> list[FoundSlave]:
        for _ in range(TRIES - 1):
            try:
                return self.scan()
            except DriverConnectionError:
                if not self.scanned:  # none, or too many; otherwise an answer was lost
                    raise
        return self.scan()

    def _leave(self) -> None:
        """Return each slave to its state before, or to INIT if that was an error state; then close."""
        try:
            if self.scanned:
                self._restore()
        finally:
            self.close()

    def _restore(self) -> None:
        to_init = [
            position
            for position, status in enumerate(self.found)
            if status is None or status.state != PREOP or status.error
        ]
        for position in to_init:
            self.request_state(position, INIT, acknowledge=True)
        self.unrestored = tuple(self._wait_each(INIT, to_init))

    def _wait_each(self, state: int, positions: Iterable[int]) -> dict[int, AlStatus | None]:
        """Wait for slaves one at a time, so that one that refuses does not end the wait for the others."""
        until_ns = time.monotonic_ns() + round(_STATE_S * 1e9)
        left: dict[int, AlStatus | None] = {}
        for position in positions:
            left |= self.wait_state(state, range(position, position + 1), until_ns)
        return left

    def read_register(self, position: int, address: int, size: int) -> bytes | None:
        """See `Master.read_register`."""
        for _ in range(TRIES - 1):
            if (raw := super().read_register(position, address, size)) is not None:
                return raw
        return super().read_register(position, address, size)

    def sdo_read(self, position: int, index: int, subindex: int, timeout_ms: float = 500.0) -> bytes:
        """See `Bus.sdo_read`."""
        read = super().sdo_read
        return with_retries(lambda: read(position, index, subindex, timeout_ms))

    def object_indices(self, position: int) -> list[int]:
        """See `Bus.object_indices`."""
        list_ = super().object_indices
        return with_retries(lambda: list_(position))

    def describe(self, position: int, index: int) -> ObjectInfo:
        """See `Bus.describe`."""
        describe = super().describe
        return with_retries(lambda: describe(position, index))
