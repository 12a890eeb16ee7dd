"""An EtherCAT master on an interface: opening, closing, scan, AL states, registers; `Bus` adds the rest."""

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pysoem

from drivers.driver import DriverClosedError, DriverConnectionError, DriverError
from drivers.ethercat.bus._sockets import FrameSockets, open_sockets
from drivers.ethercat.bus.al_status import AlStatus
from drivers.ethercat.bus.interface import InterfaceClaim, check_link, permission_text
from drivers.ethercat.bus.network import FoundSlave

_TIMEOUTS = ("ret", "safe", "eeprom", "tx_mailbox", "rx_mailbox", "state")
_NEXT_TO_NOTHING_US = 1


@contextmanager
def soem_deadline(sockets: FrameSockets, after_s: float) -> Iterator[threading.Event]:
    """Set every time-out inside SOEM to almost zero when the block takes longer than `after_s`.

    Otherwise a scan of drives that went away takes minutes and cannot be interrupted.  Yields an event, set once the
    time is over: the result of SOEM is then invalid, and `sockets` are non-blocking.
    """
    timeouts = pysoem.settings.timeouts
    before = {name: getattr(timeouts, name) for name in _TIMEOUTS}
    over = threading.Event()
    done = threading.Event()

    def watch() -> None:
        if done.wait(after_s):
            return
        over.set()
        for name in _TIMEOUTS:
            setattr(timeouts, name, _NEXT_TO_NOTHING_US)
        sockets.set_blocking(False)

    watcher = threading.Thread(target=watch, name="soem-deadline", daemon=True)
    watcher.start()
    try:
        yield over
    finally:
        done.set()
        watcher.join()
        for name, value in before.items():
            setattr(timeouts, name, value)


#: Size fixed in pysoem.
MAX_SLAVES = 199
#: Longest scan; a start with such a scan still ends within ten seconds.
SCAN_S = 3.0
#: Attempts for a transfer whose answer is lost, outside of cyclic operation.
TRIES = 3

_REG_ALIAS, _REG_AL_CONTROL, _REG_AL_STATUS = 0x0012, 0x0120, 0x0130
_SII_SERIAL = 0x000E  # word address
_ACKNOWLEDGE = 0x10
#: Results of SOEM's scan: answer to an unrelated frame (the scan is repeated), and too many slaves.
_EC_OTHERFRAME, _EC_SLAVECOUNTEXCEEDED = -2, -4
_SCANS = 3
#: Time-outs of one attempt, between two cycles, and of three, outside of cyclic operation.
_FRAME_TIMEOUT_US, _PATIENT_TIMEOUT_US = 2000, 6000


@dataclass(frozen=True)
class Emergency:
    """An emergency message of a drive."""

    position: int
    code: int
    register: int
    data: bytes
    t_host_ns: int


def status_text(status: AlStatus | None) -> str:
    """Return a slave's AL status as text; None: no answer."""
    return "not answering" if status is None else status.text(pysoem.al_status_code_to_string)


class Master:
    """A master on one interface, or on both ends of a ring.

    The user of the class removes the received `emergencies`; `mailbox_errors` counts those that belonged to no call;
    while process data is `streaming`, SDOs are refused.
    """

    def __init__(self, interface: str, redundant_interface: str | None = None) -> None:
        self.interface, self.redundant_interface = interface, redundant_interface
        self.emergencies: deque[Emergency] = deque(maxlen=1000)
        self.mailbox_errors = 0
        self.streaming = False
        self._master: Any = None
        self._slaves: list[Any] = []
        self._sockets: FrameSockets | None = None
        self._claims: list[InterfaceClaim] = []

    # --- opening and closing

    @property
    def _names(self) -> list[str]:
        return [self.interface] + ([self.redundant_interface] if self.redundant_interface else [])

    def open(self) -> None:
        """Open the interfaces, without sending a frame.

        Raises `DriverConfigError` for an invalid name, `DriverConnectionError` for an interface that is missing, down,
        without link, in use, or not permitted.
        """
        if self._master is not None:
            raise DriverError(f"EtherCAT on {self.interface}: already open")
        names = self._names
        for name in names:  # SOEM copies a longer name over its stack, and finds no slave without a link
            check_link(name)
        try:
            for name in names:
                self._claims.append(InterfaceClaim(name))
            self._open_master(names)
        except DriverError:
            self.close()
            raise

    def _open_master(self, names: list[str]) -> None:
        before = open_sockets()
        master = pysoem.Master()
        try:
            master.open(*names)
        except ConnectionError as error:
            master.close()  # SOEM leaves the socket open
            raise DriverConnectionError(permission_text(" and ".join(names))) from error
        self._master = master
        self._sockets = FrameSockets(before)
        if len(self._sockets) != len(names):
            raise DriverConnectionError(f"EtherCAT on {self.interface}: {len(self._sockets)} sockets were opened")
        self._sockets.admit()
        self._sockets.flush()  # frames from before the filter

    def close(self) -> None:
        """Close the interfaces; may be called more than once.

        A master is closed exactly once: SOEM would close the same file descriptor again, or 0 if it was never opened.
        """
        if self._sockets is not None:
            self._sockets.close()
        self._sockets = None
        master, self._master = self._master, None
        self._slaves = []
        self.streaming = False
        if master is not None:
            master.close()
        for claim in self._claims:
            claim.release()
        self._claims.clear()

    def interface_problem(self) -> str:
        """Return what is wrong with the interfaces now, empty if frames can go out on one: a ring runs on either.

        Raises `DriverConnectionError` if one was removed (a USB adapter, a driver that was loaded again) and is there
        again, with a link.
        """
        problems = []
        for name in self._names:
            try:
                check_link(name)
            except DriverConnectionError as error:
                problems.append(str(error))
        if not problems and self._sockets is not None and self._sockets.dead:
            raise DriverConnectionError(
                f"EtherCAT on {self.interface}: the interface was removed and is there again: it has to be reopened"
            )
        return problems[0] if len(problems) == len(self._names) else ""

    @property
    def is_open(self) -> bool:
        """Whether the interfaces are open."""
        return self._master is not None

    @property
    def scanned(self) -> bool:
        """Whether a scan has found, and so reset, the slaves."""
        return bool(self._slaves)

    def _opened(self) -> Any:
        if self._master is None:
            raise DriverClosedError(f"EtherCAT on {self.interface}: not open")
        return self._master

    @property
    def _frame_timeout_us(self) -> int:
        return _FRAME_TIMEOUT_US if self.streaming else _PATIENT_TIMEOUT_US

    def _slave(self, position: int) -> Any:
        self._opened()
        if not 0 <= position < len(self._slaves):
            raise DriverError(
                f"EtherCAT on {self.interface}: no slave at position {position}; {len(self._slaves)} were found"
            )
        return self._slaves[position]

    # --- the slaves

    def scan(self) -> list[FoundSlave]:
        """Find the slaves, assign addresses, request PRE-OP, and return their identities.

        Raises `DriverConnectionError`: no slave answers, more than SOEM can hold, or the scan does not end.
        """
        master = self._opened()
        assert self._sockets is not None  # set while open
        self._slaves = []  # a new scan invalidates SOEM's slaves
        with soem_deadline(self._sockets, SCAN_S) as over:
            for _ in range(_SCANS):
                found = master.config_init(release_gil=True)
                if found != _EC_OTHERFRAME:
                    break
        if over.is_set():
            raise DriverConnectionError(
                f"the scan of {self.interface} does not end within {SCAN_S:g} s: slaves went away meanwhile; look at "
                "the cable and the drives' power"
            )
        if found <= 0 or not master.slaves:
            raise DriverConnectionError(
                f"no slave answers on {self.interface}: is it the right interface, and are the drives powered?"
                if found != _EC_SLAVECOUNTEXCEEDED
                else f"more than {MAX_SLAVES} slaves on {self.interface}"
            )
        self._slaves = list(master.slaves)
        for slave in self._slaves:
            slave.add_emergency_callback(self._on_emergency)
        return [self._identity(position, slave) for position, slave in enumerate(self._slaves)]

    def _identity(self, position: int, slave: Any) -> FoundSlave:
        alias = int.from_bytes(self.registers(position, _REG_ALIAS, 2), "little")
        serial = int.from_bytes(slave.eeprom_read(_SII_SERIAL), "little")
        try:
            name = slave.name
        except UnicodeDecodeError:
            name = ""
        return FoundSlave(position, name, slave.man, slave.id, slave.rev, alias, serial)

    def _on_emergency(self, message: Any) -> None:
        data = bytes([message.b1]) + message.w1.to_bytes(2, "little") + message.w2.to_bytes(2, "little")
        self.emergencies.append(
            Emergency(message.slave_pos - 1, message.error_code, message.error_reg, data, time.monotonic_ns())
        )

    def al_status(self, position: int) -> AlStatus | None:
        """Return the AL status of a slave; None without an answer."""
        raw = self.read_register(position, _REG_AL_STATUS, 6)
        if raw is None:
            return None
        return AlStatus(raw[0] & 0x0F, bool(raw[0] & 0x10), raw[4] | raw[5] << 8)

    def request_state(self, position: int, state: int, acknowledge: bool = False) -> bool:
        """Request an AL state of a slave; return False without an answer."""
        word = state | (_ACKNOWLEDGE if acknowledge else 0)
        return self.write_register(position, _REG_AL_CONTROL, word.to_bytes(2, "little"))

    def request_all(self, state: int) -> bool:
        """Request an AL state of all slaves with one frame; return False without an answer."""
        master = self._opened()
        master.state = state
        return bool(master.write_state() > 0)

    def al_statuses(self) -> list[AlStatus | None]:
        """Return the AL status of all slaves, with one or two frames; None for those without an answer."""
        self._opened().read_state()
        return [
            AlStatus(slave.state & 0x0F, bool(slave.state & 0x10), slave.al_status) if slave.state else None
            for slave in self._slaves
        ]

    def wait_state(self, state: int, positions: range, until_ns: int) -> dict[int, AlStatus | None]:
        """Wait for `state` until `until_ns` or a refusal; return the slaves that are not in it."""
        left: dict[int, AlStatus | None] = dict.fromkeys(positions)
        while True:
            for position in list(left):
                status = self.al_status(position)
                if status is not None and status.state == state and not status.error:
                    del left[position]
                else:
                    left[position] = status
            refused = any(status is not None and status.error for status in left.values())
            if not left or refused or time.monotonic_ns() > until_ns:
                return left
            time.sleep(0.002)

    def read_register(self, position: int, address: int, size: int) -> bytes | None:
        """Read registers of a slave's controller; return None without an answer."""
        slave = self._slave(position)  # pysoem's calls do not check that the master is open
        try:
            return bytes(slave._fprd(address, size, self._frame_timeout_us))
        except pysoem.WkcError:
            return None

    def registers(self, position: int, address: int, size: int) -> bytes:
        """Read registers with several attempts; raises `DriverConnectionError` without an answer."""
        for _ in range(TRIES):
            raw = self.read_register(position, address, size)
            if raw is not None:
                return raw
        raise DriverConnectionError(f"the slave at position {position} went away: it does not answer any more")

    def write_register(self, position: int, address: int, data: bytes) -> bool:
        """Write registers of a slave's controller; return False without an answer."""
        slave = self._slave(position)
        try:
            slave._fpwr(address, data, self._frame_timeout_us)
        except pysoem.WkcError:
            return False
        return True

    def find_again(self, position: int) -> bool:
        """Find a slave by its position and restore its address; return False if it is missing or another one."""
        return bool(self._slave(position).recover(_FRAME_TIMEOUT_US) > 0)
