"""Recovery of slaves that left OP, one short step between two cycles, so that the others stay in operation.

`SlaveRecovery` takes the AL status of one slave, or that it does not answer, and returns the step to do now.  It
repeats without limit, with longer pauses after each failure.  `SlaveRecoveries` does the steps on the bus.
"""

import time
from dataclasses import dataclass
from enum import Enum

from drivers.ethercat.bus._clock import BusClock
from drivers.ethercat.bus.al_status import INIT, OP, PREOP, SAFEOP, AlStatus
from drivers.ethercat.bus.bus import Bus
from drivers.ethercat.config import EthercatConfig
from drivers.ethercat.errors import SdoError
from drivers.ethercat.pdo import SdoWrite

_REG_EEPROM_OWNER, _REG_FMMU, _REG_SYNC_MANAGER, _SYNC_MANAGER_BYTES = 0x0500, 0x0600, 0x0800, 8
_REG_DC_TIME, _REG_DC_OFFSET, _REG_DC_DELAY = 0x0910, 0x0920, 0x0928
_EEPROM_TO_DRIVE = b"\x01"
#: Share of the watchdog time that sending an SDO may take, and its answer.
_WATCHDOG_SHARE = 0.25


class RecoveryStep(Enum):
    """Next step of a recovery."""

    WAIT = "wait"
    FIND = "find"  # find it by its position, and restore its address
    ACKNOWLEDGE = "acknowledge"  # its error, in the state where it is
    TO_INIT = "to INIT"
    MAILBOX = "mailbox"  # sync managers of the mailbox, then PRE-OP
    CONFIGURE = "configure"  # the next of its SDOs
    PROCESS_DATA = "process data"  # sync managers, FMMUs, SYNC0, watchdog; then SAFE-OP
    TO_OP = "to OP"
    DONE = "done"


class SlaveRecovery:
    """Recovery of one slave, whose absence was found at `now_ns`.

    `sdos` is the number of SDOs that configure it, `state_timeout_ns` the time limit of a change of state.
    """

    FIND_EVERY_NS = 5_000_000
    POLL_EVERY_NS = 2_000_000
    FIRST_PAUSE_NS = 20_000_000
    MAX_PAUSE_NS = 1_000_000_000
    #: After a failure that cost the other slaves cycles.
    FIRST_COSTLY_PAUSE_NS = 500_000_000
    MAX_COSTLY_PAUSE_NS = 16_000_000_000

    def __init__(self, sdos: int, now_ns: int, state_timeout_ns: int) -> None:
        self.started_ns = now_ns
        self.failures = 0
        self._sdos, self._timeout_ns = sdos, state_timeout_ns
        self.next_sdo = 0  # index of the SDO for CONFIGURE
        self._configured = True  # until it is seen below SAFE-OP
        self._mailbox_works = True  # as far as is known
        self._wanted = 0  # state asked for, 0 if none
        self._asked_ns, self._not_before_ns = now_ns, now_ns
        self._costly_failures = 0

    def due(self, now_ns: int) -> bool:
        """Return whether to read the AL status and call `step`."""
        return now_ns >= self._not_before_ns

    def step(self, al: AlStatus | None, now_ns: int) -> RecoveryStep:
        """Return the next step for the AL status read now (None: no answer)."""
        self._not_before_ns = now_ns
        if al is None:
            self._wanted, self.next_sdo = 0, 0
            self._not_before_ns = now_ns + self.FIND_EVERY_NS
            return RecoveryStep.FIND
        if al.error:
            self._not_before_ns = now_ns + self.POLL_EVERY_NS
            if self._wanted:  # it refused; retry after a pause
                self.failed(now_ns)
            return RecoveryStep.ACKNOWLEDGE
        if self._wanted:
            if al.state == self._wanted:
                self._wanted = 0
            elif now_ns - self._asked_ns > self._timeout_ns:
                self.failed(now_ns)
                return RecoveryStep.TO_INIT
            else:
                self._not_before_ns = now_ns + self.POLL_EVERY_NS
                return RecoveryStep.WAIT
        return self._forward(al.state, now_ns)

    def _forward(self, state: int, now_ns: int) -> RecoveryStep:
        if state == OP:
            return RecoveryStep.DONE
        if state == SAFEOP and self._configured:
            self._ask(OP, now_ns)
            return RecoveryStep.TO_OP
        if state == PREOP and not self._configured and self._mailbox_works:
            if self.next_sdo < self._sdos:
                return RecoveryStep.CONFIGURE
            self._configured = True
            self._ask(SAFEOP, now_ns)
            return RecoveryStep.PROCESS_DATA
        if state == INIT:
            self._configured, self.next_sdo, self._mailbox_works = False, 0, True
            self._ask(PREOP, now_ns)
            return RecoveryStep.MAILBOX
        # The state of its configuration and mailbox is unknown: start from INIT.
        self._configured, self.next_sdo = False, 0
        self._ask(INIT, now_ns)
        return RecoveryStep.TO_INIT

    def _ask(self, state: int, now_ns: int) -> None:
        self._wanted, self._asked_ns = state, now_ns

    def sdo_written(self) -> None:
        """Note that SDO number `next_sdo` was written."""
        self.next_sdo += 1

    def failed(self, now_ns: int, costly: bool = False) -> None:
        """Note that a step failed: start again after a pause, longer each time.

        `costly`: the mailbox did not answer, which cost the other slaves cycles.  The pauses are long then, and the
        mailbox is set up again, because slave and master may disagree about its state.
        """
        self.failures += 1
        pause = min(self.FIRST_PAUSE_NS << min(self.failures - 1, 10), self.MAX_PAUSE_NS)
        if costly:
            pause = min(self.FIRST_COSTLY_PAUSE_NS << min(self._costly_failures, 10), self.MAX_COSTLY_PAUSE_NS)
            self._costly_failures += 1
            self._mailbox_works = False
        self._not_before_ns = now_ns + pause
        if self._wanted == SAFEOP:  # it may have refused its configuration
            self._configured = False
        self._wanted, self.next_sdo = 0, 0


@dataclass
class SlaveImage:
    """Settings to restore in a slave's controller after a power loss."""

    sync_managers: list[bytes]  # as written: status and PDI byte 0
    fmmus: list[bytes]
    dc_delay: bytes
    watchdog: list[tuple[int, bytes]]  # registers and data
    sdos: list[SdoWrite]


@dataclass(frozen=True)
class RecoveredSlave:
    """A slave that is back in OP."""

    position: int
    cause: AlStatus | None  # AL status that started the recovery; None: no answer
    duration_ns: int
    failures: int


class SlaveRecoveries:
    """All slaves that are not in OP; `images` are by position."""

    def __init__(self, bus: Bus, config: EthercatConfig, images: list[SlaveImage], clock: BusClock) -> None:
        self._bus, self._config, self._images, self._clock = bus, config, images, clock
        self._pending: dict[int, SlaveRecovery] = {}
        self._causes: dict[int, AlStatus | None] = {}
        self._confirmed: set[int] = set()
        self._turn = 0
        # No process data is sent during an SDO: it must end within the watchdog time.
        self._sdo_timeout_ms = min(config.sdo_timeout_ms, _WATCHDOG_SHARE * config.watchdog_ms)

    def __contains__(self, position: int) -> bool:
        return position in self._pending

    @property
    def positions(self) -> list[int]:
        """Positions of the slaves that are being recovered."""
        return list(self._pending)

    def begin(self, position: int, status: AlStatus | None, now_ns: int) -> None:
        """Start the recovery of a slave with this AL status; None: no answer."""
        if position not in self._pending:
            self._causes[position] = status
            timeout_ns = round(self._config.state_timeout_ms * 1e6)
            self._pending[position] = SlaveRecovery(len(self._images[position].sdos), now_ns, timeout_ns)

    def run(self, now_ns: int, complete: bool) -> tuple[int, AlStatus | None, RecoveredSlave | None] | None:
        """Do one step for the next slave that is due.

        `complete`: the last cycle had the full working counter, so a slave without a readable status is present.

        Returns position, AL status, and the result once it is back in OP; None if no step was due.
        """
        positions = list(self._pending)
        for k in range(len(positions)):
            position = positions[(self._turn + k) % len(positions)]
            recovery = self._pending[position]
            if recovery.due(now_ns):
                self._turn += k + 1
                status = self._bus.al_status(position)
                if status is None and complete:
                    return None
                step = recovery.step(status, now_ns)
                if step is RecoveryStep.DONE:
                    del self._pending[position]
                    if position not in self._confirmed:  # a wrong reading
                        return position, status, None
                    self._confirmed.discard(position)
                    duration_ns = time.monotonic_ns() - recovery.started_ns
                    back = RecoveredSlave(position, self._causes[position], duration_ns, recovery.failures)
                    return position, status, back
                self._confirmed.add(position)
                if not self._do(position, step, recovery, status):
                    recovery.failed(time.monotonic_ns())
                return position, status, None
        return None

    def _do(self, position: int, step: RecoveryStep, recovery: SlaveRecovery, status: AlStatus | None) -> bool:
        bus = self._bus
        if step is RecoveryStep.FIND:
            bus.find_again(position)  # repeated by the next steps
            return True
        if step is RecoveryStep.ACKNOWLEDGE:
            return bus.request_state(position, INIT if status is None else status.state, acknowledge=True)
        if step is RecoveryStep.TO_INIT:
            return bus.request_state(position, INIT, acknowledge=True)
        if step is RecoveryStep.MAILBOX:
            image = self._images[position]
            every = image.sync_managers
            managers, no_fmmus = b"".join(every[:2]), bytes(sum(map(len, image.fmmus)))
            # FMMUs first: on memory without a sync manager the slave would count in the working counter, with old
            # values.  Clear all sync managers, because an enabled one would keep its settings.
            return (
                bus.write_register(position, _REG_EEPROM_OWNER, _EEPROM_TO_DRIVE)
                and (not no_fmmus or bus.write_register(position, _REG_FMMU, no_fmmus))
                and bus.write_register(position, _REG_SYNC_MANAGER, bytes(_SYNC_MANAGER_BYTES * len(every)))
                and (not managers or bus.write_register(position, _REG_SYNC_MANAGER, managers))
                and bus.request_state(position, PREOP)
            )
        if step is RecoveryStep.CONFIGURE:
            self._configure(position, recovery)
            return True
        if step is RecoveryStep.PROCESS_DATA:
            return self._process_data(position) and bus.request_state(position, SAFEOP)
        if step is RecoveryStep.TO_OP:
            return bus.request_state(position, OP)
        return True

    def _configure(self, position: int, recovery: SlaveRecovery) -> None:
        write = self._images[position].sdos[recovery.next_sdo]
        try:
            self._bus.sdo_write(position, write.index, write.subindex, write.data, self._sdo_timeout_ms, forced=True)
        except SdoError as error:
            recovery.failed(time.monotonic_ns(), costly=not error.abort)  # a refusal comes at once
            return
        recovery.sdo_written()

    def _process_data(self, position: int) -> bool:
        image, bus = self._images[position], self._bus
        managers = b"".join(image.sync_managers[2:])
        done = (not managers) or bus.write_register(position, _REG_SYNC_MANAGER + 2 * _SYNC_MANAGER_BYTES, managers)
        done = done and (not image.fmmus or bus.write_register(position, _REG_FMMU, b"".join(image.fmmus)))
        done = done and all([bus.write_register(position, register, data) for register, data in image.watchdog])
        if done and self._config.dc:
            done = self._set_clock(position, image)
        return done

    def _set_clock(self, position: int, image: SlaveImage) -> bool:
        """Set a clock that restarted to the bus time, roughly (the controllers do the rest), and start SYNC0."""
        bus = self._bus
        before_ns = time.monotonic_ns()
        raw = bus.read_register(position, _REG_DC_TIME, 8)
        after_ns = time.monotonic_ns()
        old = bus.read_register(position, _REG_DC_OFFSET, 8)
        if raw is None or old is None:
            return False
        wanted = self._clock.to_slave(self._clock.to_dc((before_ns + after_ns) // 2))
        error = wanted - int.from_bytes(raw, "little")
        if abs(error) > self._clock.cycle_ns:  # otherwise it kept its time
            offset = (int.from_bytes(old, "little") + error) % (1 << 64)
            if not bus.write_register(position, _REG_DC_OFFSET, offset.to_bytes(8, "little")):
                return False
        if not bus.write_register(position, _REG_DC_DELAY, image.dc_delay):
            return False
        if position in self._config.positions:
            bus.set_sync0(position, self._config.cycle_ns, self._config.shift_ns)
        return True
