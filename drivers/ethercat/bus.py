"""The one place that knows pysoem, and keeps its sharp edges in.

pysoem is a thin layer over SOEM, written in C: a wrong call overwrites memory, closes files of others, or surfaces in
an unrelated call.  `Bus` takes only calls that make sense at the moment and turns what goes wrong into drivers' errors.
What it guards against is described where it does.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import pysoem

from drivers.driver import DriverClosedError, DriverConfigError, DriverConnectionError, DriverError
from drivers.ethercat.errors import SdoError, SdoTimeoutError, StreamingError
from drivers.ethercat.hurry import hurried
from drivers.ethercat.interface import InterfaceClaim, check_link, check_name, permission_text
from drivers.ethercat.network import FoundSlave
from drivers.ethercat.recovery import AlStatus
from drivers.ethercat.sockets import FrameSockets, open_sockets

#: Sizes that are fixed in pysoem.
IO_MAP_BYTES = 4096
MAX_SLAVES = 199
#: Longest scan; so short that a start which meets its end is over within ten seconds.
SCAN_S = 3.0
#: Bytes that an SDO may have; pysoem's default is 256, and a longer object fails there.
SDO_BYTES = 1 << 16

_REG_ALIAS, _REG_AL_CONTROL, _REG_AL_STATUS = 0x0012, 0x0120, 0x0130
_SII_SERIAL = 0x000E  # word address
_ACKNOWLEDGE = 0x10
#: What SOEM's scan returns for an answer to somebody else's frame, after which it is tried again, and for too many.
_EC_OTHERFRAME, _EC_SLAVECOUNTEXCEEDED = -2, -4
_SCANS = 3
#: One try, between two cycles; and three, while nothing else waits.
_FRAME_TIMEOUT_US, _PATIENT_TIMEOUT_US = 2000, 6000


@dataclass(frozen=True)
class Emergency:
    """An emergency message of a drive."""

    position: int
    code: int
    register: int
    data: bytes
    t_host_ns: int


def al_code_text(code: int) -> str:
    """Text of an AL status code."""
    return str(pysoem.al_status_code_to_string(code))


class Bus:
    """A master on one interface, or on both ends of a ring.

    Attributes
    ----------
    emergencies : deque of Emergency
        Received and not yet taken away by the user of the class.
    mailbox_errors : int
        Errors of slaves' mailboxes that belonged to no call.
    streaming : bool
        Set while process data runs: SDOs are refused then.
    """

    def __init__(self, interface: str, redundant_interface: str | None = None) -> None:
        self.interface = interface
        self.redundant_interface = redundant_interface
        self.emergencies: deque[Emergency] = deque(maxlen=1000)
        self.mailbox_errors = 0
        self.streaming = False
        self._master: Any = None
        self._slaves: list[Any] = []
        self._mapped = False
        self._output_bytes: list[int] = []
        self._sockets: FrameSockets | None = None
        self._claims: list[InterfaceClaim] = []

    # --- opening and closing

    def open(self) -> None:
        """Open the interfaces; no frame is sent.

        Raises
        ------
        DriverConfigError
            A name that no interface can have.
        DriverConnectionError
            An interface is not there, down, without link, taken, or not permitted.
        """
        if self._master is not None:
            raise DriverError(f"EtherCAT on {self.interface}: already open")
        names = [self.interface] + ([self.redundant_interface] if self.redundant_interface else [])
        for name in names:
            check_name(name)  # SOEM copies a longer name over its stack
        for name in names:
            check_link(name)  # with the link down SOEM opens, and finds no slave
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

    def close(self) -> None:
        """Close the interfaces; may be called more than once.

        A master is closed exactly once: SOEM closes the number of the socket again, whoever has it by then, and
        that of a master that was never opened is 0.
        """
        if self._sockets is not None:
            self._sockets.close()
        self._sockets = None
        master, self._master = self._master, None
        self._slaves = []
        self._mapped = self.streaming = False
        self._output_bytes = []
        if master is not None:
            master.close()
        for claim in self._claims:
            claim.release()
        self._claims.clear()

    @property
    def is_open(self) -> bool:
        """Whether the interfaces are open."""
        return self._master is not None

    @property
    def scanned(self) -> bool:
        """Whether the slaves were found, and so taken from whatever they did before."""
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
        """Count the slaves, give them addresses, ask them for PRE-OP, and return who they are.

        Raises
        ------
        DriverConnectionError
            None answers, or more than SOEM can hold, or it does not come to an end.
        """
        master = self._opened()
        assert self._sockets is not None  # as long as the master is
        self._mapped = False
        with hurried(self._sockets, SCAN_S) as over:
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
        try:
            alias = int.from_bytes(slave._fprd(_REG_ALIAS, 2, _PATIENT_TIMEOUT_US), "little")
            serial = int.from_bytes(slave.eeprom_read(_SII_SERIAL), "little")
            name = slave.name
        except UnicodeDecodeError:
            name = ""
        except pysoem.WkcError as error:
            raise DriverConnectionError(f"the slave at position {position} went away during the scan") from error
        return FoundSlave(position, name, slave.man, slave.id, slave.rev, alias, serial)

    def al_status(self, position: int) -> AlStatus | None:
        """AL status of a slave; None if it does not answer."""
        raw = self.read_register(position, _REG_AL_STATUS, 6)
        if raw is None:
            return None
        return AlStatus(raw[0] & 0x0F, bool(raw[0] & 0x10), raw[4] | raw[5] << 8)

    def request_state(self, position: int, state: int, acknowledge: bool = False) -> bool:
        """Ask a slave for an AL state; False if it does not answer."""
        word = state | (_ACKNOWLEDGE if acknowledge else 0)
        return self.write_register(position, _REG_AL_CONTROL, word.to_bytes(2, "little"))

    def request_all(self, state: int) -> bool:
        """Ask all slaves for an AL state with one frame; False without an answer."""
        master = self._opened()
        master.state = state
        return bool(master.write_state() > 0)

    def al_statuses(self) -> list[AlStatus | None]:
        """AL status of all slaves, with one or two frames; None for those that do not answer."""
        self._opened().read_state()
        return [
            AlStatus(slave.state & 0x0F, bool(slave.state & 0x10), slave.al_status) if slave.state else None
            for slave in self._slaves
        ]

    def wait_state(self, state: int, positions: range, until_ns: int) -> dict[int, AlStatus | None]:
        """Wait until the slaves are in `state`; return those that are not, at the latest at `until_ns`."""
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
        """Read registers of a slave's controller; None if it does not answer."""
        slave = self._slave(position)  # these calls themselves do not look whether the master is open
        try:
            return bytes(slave._fprd(address, size, self._frame_timeout_us))
        except pysoem.WkcError:
            return None

    def write_register(self, position: int, address: int, data: bytes) -> bool:
        """Write registers of a slave's controller; False if it does not answer."""
        slave = self._slave(position)
        try:
            slave._fpwr(address, data, self._frame_timeout_us)
        except pysoem.WkcError:
            return False
        return True

    def find_again(self, position: int) -> bool:
        """Look for a slave at its place and give it its address back; False if it is not there, or another."""
        return bool(self._slave(position).recover(_FRAME_TIMEOUT_US) > 0)

    # --- mailbox

    def sdo_read(self, position: int, index: int, subindex: int, timeout_ms: float = 500.0) -> bytes:
        """Read an object, of up to 65,536 bytes.

        Raises
        ------
        StreamingError
            Process data is running.
        SdoError, SdoTimeoutError
            The drive refuses, with its abort code, or does not answer.
        """
        slave = self._for_sdo(position, index, subindex)
        self._opened().sdo_read_timeout = round(timeout_ms * 1e3)
        try:
            return bytes(slave.sdo_read(index, subindex, SDO_BYTES, release_gil=True))
        except _SDO_FAILURES as error:
            raise self._sdo_failure(error, "reading", position, index, subindex) from error

    def sdo_write(
        self, position: int, index: int, subindex: int, data: bytes, timeout_ms: float = 500.0, *, forced: bool = False
    ) -> None:
        """Write an object; errors as `sdo_read`.

        `forced` writes while process data runs, at the price of some cycles: for a slave on its way back.
        """
        slave = self._for_sdo(position, index, subindex, forced)
        self._opened().sdo_write_timeout = round(timeout_ms * 1e3)
        try:
            slave.sdo_write(index, subindex, data, release_gil=True)
        except _SDO_FAILURES as error:
            raise self._sdo_failure(error, "writing", position, index, subindex) from error

    def _for_sdo(self, position: int, index: int, subindex: int, forced: bool = False) -> Any:
        slave = self._slave(position)
        if self.streaming and not forced:
            raise StreamingError(
                f"SDO {index:04X}:{subindex:02X} of the slave at position {position}: refused while process data "
                "runs (it would tear gaps of 5 ms and more into them): read it before the start"
            )
        self.drain()  # an error of another slave would be raised by this call
        return slave

    def _sdo_failure(self, error: Exception, doing: str, position: int, index: int, subindex: int) -> SdoError:
        self.drain()
        where = f"{doing} {index:04X}:{subindex:02X} of the slave at position {position}"
        if isinstance(error, pysoem.SdoError):
            return SdoError(f"{where}: refused with 0x{error.abort_code:08X}: {error.desc}", error.abort_code)
        if isinstance(error, pysoem.WkcError):
            return SdoTimeoutError(f"{where}: no answer")
        if isinstance(error, pysoem.MailboxError):
            return SdoError(f"{where}: mailbox error 0x{error.error_code:04X}: {error.desc}")
        if isinstance(error, pysoem.PacketError) and error.error_code == 3:
            return SdoError(f"{where}: the object has more than {SDO_BYTES} bytes")
        return SdoError(f"{where}: the answer does not fit the question")

    def drain(self) -> None:
        """Take every error from the list that SOEM keeps for all slaves together."""
        for error in self._opened()._collect_mailbox_errors():
            del error
            self.mailbox_errors += 1

    def poll_mailbox(self, position: int) -> None:
        """Take one message from a slave's mailbox: the only way by which emergencies arrive without an SDO."""
        slave = self._slave(position)
        try:
            slave.mbx_receive()
        except _SDO_FAILURES:
            self.mailbox_errors += 1
        self.drain()

    def _on_emergency(self, message: Any) -> None:
        data = bytes([message.b1]) + message.w1.to_bytes(2, "little") + message.w2.to_bytes(2, "little")
        self.emergencies.append(
            Emergency(message.slave_pos - 1, message.error_code, message.error_reg, data, time.monotonic_ns())
        )

    # --- distributed clocks

    def configure_dc(self) -> bool:
        """Measure delays and set the clocks' offsets; False if no slave has a distributed clock."""
        return bool(self._opened().config_dc())

    def set_sync0(self, position: int, cycle_ns: int, shift_ns: int) -> None:
        """Let a slave fire SYNC0 at `shift_ns` after each multiple of the cycle, 100 ms from now; cycle 0 stops it."""
        self._slave(position).dc_sync(cycle_ns > 0, cycle_ns, shift_ns)

    @property
    def dc_time_ns(self) -> int:
        """DC time at which the last frame passed the reference slave [ns since 2000-01-01]."""
        return int(self._opened().dc_time)

    # --- process data

    def map_process_data(self, expected: dict[int, tuple[int, int]]) -> None:
        """Map process data and ask all slaves for SAFE-OP.

        Parameters
        ----------
        expected : position -> (bytes out, bytes in)
            What the slaves should have; others are not looked at.

        Raises
        ------
        DriverConfigError
            The image would not fit, or a slave has other lengths than expected.
        SdoError
            A slave refused to tell its mapping.
        """
        master = self._opened()
        total = sum(out + in_ for out, in_ in expected.values())
        if total > IO_MAP_BYTES:
            raise DriverConfigError(f"{total} bytes of process data do not fit into SOEM's {IO_MAP_BYTES}")
        self.drain()
        try:
            size = master.config_map()
        except pysoem.ConfigMapError as error:
            refusals = [self._map_failure(cause) for cause in error.error_list]
            texts = [text for text in refusals if text]
            if texts:
                raise SdoError("mapping the process data: " + "; ".join(texts)) from error
            size = 0  # emergencies only; they have been counted
        if size > IO_MAP_BYTES:  # it has been overrun: nothing after this can be trusted
            raise DriverConfigError(f"{size} bytes of process data overran SOEM's {IO_MAP_BYTES}")
        self._output_bytes = [len(slave.output) for slave in self._slaves]
        self._mapped = True
        for position, (out, in_) in expected.items():
            slave = self._slaves[position]
            if (len(slave.output), len(slave.input)) != (out, in_):
                raise DriverConfigError(
                    f"the slave at position {position} has {len(slave.output)} bytes out and {len(slave.input)} in, "
                    f"configured are {out} and {in_}: compare rx and tx of its device with what it maps"
                )

    def _map_failure(self, cause: Exception) -> str:
        if isinstance(cause, pysoem.SdoError):
            where = f"{cause.index:04X}:{cause.subindex:02X} of the slave at position {cause.slave_pos - 1}"
            return f"{where} refused with 0x{cause.abort_code:08X}: {cause.desc}"
        if isinstance(cause, (pysoem.MailboxError, pysoem.PacketError)):
            return f"mailbox error of the slave at position {cause.slave_pos - 1}"
        self.mailbox_errors += 1
        return ""

    @property
    def stale_frames(self) -> int:
        """Answers that came after they had been given up."""
        return 0 if self._sockets is None else self._sockets.stale

    @property
    def expected_wkc(self) -> int:
        """Working counter of a cycle that every slave took part in: twice the outputs, once the inputs."""
        return int(self._opened().expected_wkc)

    def wkc_weight(self, position: int) -> tuple[int, int]:
        """Return what a slave adds to the working counter by its outputs and by its inputs."""
        slave = self._slave(position)
        return 2 * bool(len(slave.output)), int(bool(len(slave.input)))

    def set_output(self, position: int, image: bytes) -> None:
        """Set what a slave gets with the next exchange.

        Raises
        ------
        DriverError
            Before the mapping (SOEM would write to address 0), or of another length than mapped (a longer one would
            go to the next slave).
        """
        slave = self._slave(position)
        if not self._mapped:
            raise DriverError(f"output of the slave at position {position} before the process data is mapped")
        if len(image) != self._output_bytes[position]:
            raise DriverError(
                f"output of {len(image)} bytes for the slave at position {position}, which has "
                f"{self._output_bytes[position]}"
            )
        slave.output = image

    def input(self, position: int) -> bytes:
        """Return what a slave sent with the last exchange."""
        return bytes(self._slave(position).input)

    def send(self) -> None:
        """Send the process data."""
        master = self._opened()
        if not self._mapped or self._sockets is None:
            raise DriverError("process data is sent before it is mapped")
        self._sockets.flush()
        master.send_processdata(release_gil=True)

    def receive(self, deadline_ns: int) -> int:
        """Wait for the answer; return its working counter, or -1 if none came until `deadline_ns`.

        Must follow each `send`.
        """
        master = self._opened()
        if self._sockets is None:
            raise DriverClosedError(f"EtherCAT on {self.interface}: not open")
        left_us = self._sockets.wait(deadline_ns)
        # Without blocking: what arrived may have been an older frame, and SOEM goes on waiting.
        self._sockets.set_blocking(False)
        wkc = master.receive_processdata(left_us, release_gil=True)
        self._sockets.set_blocking(True)
        return int(wkc)


#: What SDO and mailbox calls raise; AssertionError comes from an error of another slave.
_SDO_FAILURES = (
    pysoem.SdoError,
    pysoem.MailboxError,
    pysoem.PacketError,
    pysoem.WkcError,
    pysoem.Emergency,
    AssertionError,
)
