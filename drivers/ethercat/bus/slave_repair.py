"""Carries out the steps of `SlaveRecovery` on the bus, one between two cycles."""

from __future__ import annotations

import time
from dataclasses import dataclass

from drivers.ethercat.bus._clock import BusClock
from drivers.ethercat.bus.bus import Bus
from drivers.ethercat.bus.slave_recovery import INIT, OP, PREOP, SAFEOP, AlStatus, SlaveRecovery, Step
from drivers.ethercat.bus.startup import SlaveImage
from drivers.ethercat.config import EthercatConfig
from drivers.ethercat.errors import SdoError

_REG_EEPROM_OWNER, _REG_FMMU, _REG_SYNC_MANAGER, _SYNC_MANAGER_BYTES = 0x0500, 0x0600, 0x0800, 8
_REG_WATCHDOG_TIME = 0x0420
_REG_DC_TIME, _REG_DC_OFFSET, _REG_DC_DELAY = 0x0910, 0x0920, 0x0928
_EEPROM_TO_DRIVE = b"\x01"
#: Of the watchdogs' time, how long the sending of an SDO may take, and its answer.
_WATCHDOG_SHARE = 0.25


@dataclass(frozen=True)
class Repaired:
    """A slave that is back in OP."""

    position: int
    cause: AlStatus | None  # with which it was missed; None: it did not answer
    duration_ns: int
    failures: int


class Repair:
    """All slaves that are not in OP.

    Parameters
    ----------
    bus : Bus
    config : EthercatConfig
    images : list of SlaveImage
        By position.
    clock : BusClock
        Tells the DC time to a slave whose clock started again.
    """

    def __init__(self, bus: Bus, config: EthercatConfig, images: list[SlaveImage], clock: BusClock) -> None:
        self._bus = bus
        self._config = config
        self._images = images
        self._clock = clock
        self._pending: dict[int, SlaveRecovery] = {}
        self._causes: dict[int, AlStatus | None] = {}
        self._away: set[int] = set()
        self._turn = 0
        # While it waits nobody gets process data: the others' watchdogs must not notice.
        self._sdo_timeout_ms = min(config.sdo_timeout_ms, _WATCHDOG_SHARE * config.watchdog_ms)

    def __contains__(self, position: int) -> bool:
        return position in self._pending

    @property
    def positions(self) -> list[int]:
        """Slaves under repair."""
        return list(self._pending)

    def begin(self, position: int, status: AlStatus | None, now_ns: int) -> None:
        """Take on a slave that left OP, with the AL status that said so; None: it does not answer."""
        if position not in self._pending:
            self._causes[position] = status
            timeout_ns = round(self._config.state_timeout_ms * 1e6)
            self._pending[position] = SlaveRecovery(len(self._images[position].sdos), now_ns, timeout_ns)

    def run(self, now_ns: int, everyone_took_part: bool) -> tuple[int, AlStatus | None, Repaired | None] | None:
        """Do one step for one slave whose turn it is.

        Parameters
        ----------
        now_ns : int
        everyone_took_part : bool
            By the working counter of the last cycle: then a slave whose status cannot be read is there all the same.

        Returns
        -------
        position, its AL status, and what came of it once it is back; None if no step was due
        """
        positions = list(self._pending)
        for k in range(len(positions)):
            position = positions[(self._turn + k) % len(positions)]
            recovery = self._pending[position]
            if recovery.due(now_ns):
                self._turn += k + 1
                status = self._bus.al_status(position)
                if status is None and everyone_took_part:
                    return None
                step = recovery.step(status, now_ns)
                if step is Step.DONE:
                    del self._pending[position]
                    if position not in self._away:  # a reading that was wrong
                        return position, status, None
                    self._away.discard(position)
                    duration_ns = time.monotonic_ns() - recovery.started_ns
                    return position, status, Repaired(position, self._causes[position], duration_ns, recovery.failures)
                self._away.add(position)
                if not self._do(position, step, recovery, status):
                    recovery.failed(time.monotonic_ns())
                return position, status, None
        return None

    def _do(self, position: int, step: Step, recovery: SlaveRecovery, status: AlStatus | None) -> bool:
        bus = self._bus
        if step is Step.FIND:
            bus.find_again(position)  # asked again by and by
            return True
        if step is Step.ACKNOWLEDGE:
            return bus.request_state(position, INIT if status is None else status.state, acknowledge=True)
        if step is Step.TO_INIT:
            return bus.request_state(position, INIT, acknowledge=True)
        if step is Step.MAILBOX:
            image = self._images[position]
            every = image.sync_managers
            managers, no_fmmus = b"".join(every[:2]), bytes(sum(map(len, image.fmmus)))
            # FMMUs first: on memory that no sync manager guards the slave would count in the working counter, with
            # values of before.  An enabled sync manager would keep its settings: all are cleared.
            return (
                bus.write_register(position, _REG_EEPROM_OWNER, _EEPROM_TO_DRIVE)
                and (not no_fmmus or bus.write_register(position, _REG_FMMU, no_fmmus))
                and bus.write_register(position, _REG_SYNC_MANAGER, bytes(_SYNC_MANAGER_BYTES * len(every)))
                and (not managers or bus.write_register(position, _REG_SYNC_MANAGER, managers))
                and bus.request_state(position, PREOP)
            )
        if step is Step.CONFIGURE:
            self._configure(position, recovery)
            return True
        if step is Step.PROCESS_DATA:
            return self._process_data(position) and bus.request_state(position, SAFEOP)
        if step is Step.TO_OP:
            return bus.request_state(position, OP)
        return True

    def _configure(self, position: int, recovery: SlaveRecovery) -> None:
        write = self._images[position].sdos[recovery.next_sdo]
        try:
            self._bus.sdo_write(position, write.index, write.subindex, write.data, self._sdo_timeout_ms, forced=True)
        except SdoError as error:
            recovery.failed(time.monotonic_ns(), dear=not error.abort)  # a refusal comes at once
            return
        recovery.sdo_written()

    def _process_data(self, position: int) -> bool:
        image, bus = self._images[position], self._bus
        managers = b"".join(image.sync_managers[2:])
        done = (not managers) or bus.write_register(position, _REG_SYNC_MANAGER + 2 * _SYNC_MANAGER_BYTES, managers)
        done = done and (not image.fmmus or bus.write_register(position, _REG_FMMU, b"".join(image.fmmus)))
        done = done and bus.write_register(position, _REG_WATCHDOG_TIME, image.watchdog)
        if done and self._config.dc:
            done = self._set_clock(position, image)
        return done

    def _set_clock(self, position: int, image: SlaveImage) -> bool:
        """Put a clock that started again on the bus's time, and start SYNC0.

        The reading is good to about the jitter of the process; the drift compensation of the controllers does the rest.
        """
        bus = self._bus
        before_ns = time.monotonic_ns()
        raw = bus.read_register(position, _REG_DC_TIME, 8)
        after_ns = time.monotonic_ns()
        old = bus.read_register(position, _REG_DC_OFFSET, 8)
        if raw is None or old is None:
            return False
        wanted = self._clock.to_slave(self._clock.to_dc((before_ns + after_ns) // 2))
        error = wanted - int.from_bytes(raw, "little")
        if abs(error) > self._clock.cycle_ns:  # else it kept its time
            offset = (int.from_bytes(old, "little") + error) % (1 << 64)
            if not bus.write_register(position, _REG_DC_OFFSET, offset.to_bytes(8, "little")):
                return False
        if not bus.write_register(position, _REG_DC_DELAY, image.dc_delay):
            return False
        if position in self._config.positions:
            bus.set_sync0(position, self._config.cycle_ns, self._config.shift_ns)
        return True
