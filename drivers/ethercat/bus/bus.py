"""Mailboxes, distributed clocks and process data of a master.

Only this module and `master` use pysoem, where a wrong call overwrites memory, closes unrelated files, or fails later.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import pysoem

from drivers.driver import DriverClosedError, DriverConfigError, DriverError
from drivers.ethercat.bus._frame_filter import ONE_FRAME_BYTES
from drivers.ethercat.bus.master import TRIES, Master
from drivers.ethercat.bus.network import FoundSlave
from drivers.ethercat.bus.objects import ObjectEntry, ObjectInfo
from drivers.ethercat.errors import SdoError, SdoTimeoutError, StreamingError

#: Size fixed in pysoem.
IO_MAP_BYTES = 4096
#: Largest SDO; pysoem's default is 256, and a longer object fails.
SDO_BYTES = 1 << 16
_SYNC_MANAGER_TYPES = 0x1C00
T = TypeVar("T")


def with_retries(transfer: Callable[[], T]) -> T:
    """Repeat an SDO transfer whose answer was lost; a refusal by the slave is raised at once."""
    for _ in range(TRIES - 1):
        try:
            return transfer()
        except SdoError as error:
            if error.abort:
                raise
    return transfer()


class Bus(Master):
    """A master with mailboxes, distributed clocks and process data; attributes as of `Master`.

    `warnings` are deviations of slaves that the mapping has put up with.
    """

    def __init__(self, interface: str, redundant_interface: str | None = None) -> None:
        super().__init__(interface, redundant_interface)
        self.warnings: list[str] = []
        self._mapped = False
        self._output_bytes: list[int] = []
        self._objects: dict[int, dict[int, Any]] = {}

    def close(self) -> None:
        """See `Master.close`."""
        self._mapped = False
        self._output_bytes = []
        self._objects.clear()
        super().close()

    def scan(self) -> list[FoundSlave]:
        """See `Master.scan`."""
        self._mapped = False
        self._objects.clear()
        return super().scan()

    # --- mailbox

    def sdo_read(self, position: int, index: int, subindex: int, timeout_ms: float = 500.0) -> bytes:
        """Read an object, of up to 65,536 bytes.

        Raises `StreamingError` while process data is running; `SdoError` with the abort code if the drive refuses,
        `SdoTimeoutError` if it does not answer.
        """
        slave = self._for_sdo(f"SDO {index:04X}:{subindex:02X}", position)
        self._opened().sdo_read_timeout = round(timeout_ms * 1e3)
        try:
            return bytes(slave.sdo_read(index, subindex, SDO_BYTES, release_gil=True))
        except _SDO_FAILURES as error:
            raise self._sdo_failure(error, "reading", position, index, subindex) from error

    def sdo_write(
        self, position: int, index: int, subindex: int, data: bytes, timeout_ms: float = 500.0, *, forced: bool = False
    ) -> None:
        """Write an object; errors as `sdo_read`.

        `forced` writes while process data runs, which costs some cycles: for a slave that is being recovered.  The
        time-out then applies to sending as well, for which SOEM has another one.
        """
        slave = self._for_sdo(f"SDO {index:04X}:{subindex:02X}", position, forced)
        timeout_us = round(timeout_ms * 1e3)
        self._opened().sdo_write_timeout = timeout_us
        timeouts = pysoem.settings.timeouts
        sending_us = timeouts.tx_mailbox
        if forced:
            timeouts.tx_mailbox = min(sending_us, timeout_us)
        try:
            slave.sdo_write(index, subindex, data, release_gil=True)
        except _SDO_FAILURES as error:
            raise self._sdo_failure(error, "writing", position, index, subindex) from error
        finally:
            timeouts.tx_mailbox = sending_us

    def object_indices(self, position: int) -> list[int]:
        """List the indices of the slave's object dictionary.

        Raises `StreamingError` while process data is running, `SdoError` without SDO information or an answer.
        """
        return list(self._listed(position))

    def _listed(self, position: int) -> dict[int, Any]:
        if position not in self._objects:
            slave = self._for_sdo("SDO information", position)
            try:
                self._objects[position] = {item.index: item for item in slave.od}
            except pysoem.SdoInfoError as error:
                raise SdoError(f"the slave at position {position} has no list of its objects") from error
            finally:
                self.drain()
        return self._objects[position]

    def describe(self, position: int, index: int) -> ObjectInfo:
        """Return name, type and access of an object; errors as `object_indices`, also for one that is not listed."""
        item = self._listed(position).get(index)
        if item is None:
            raise SdoError(f"the slave at position {position} has no object {index:04X}")
        self._for_sdo("SDO information", position)
        errors = self.mailbox_errors
        try:
            name, code, kind = _text(item.name), int(item.object_code), int(item.data_type)
            # pysoem's entries point into `item`: copy everything while it is alive.
            parts = [(_text(e.name), int(e.data_type), int(e.bit_length), int(e.obj_access)) for e in item.entries]
            if not parts:
                parts = [(name, kind, int(item.bit_length), int(item.obj_access))]
        except pysoem.SdoInfoError as error:
            raise SdoError(f"the slave at position {position} does not describe its object {index:04X}") from error
        finally:
            self.drain()
        # A subindex without type does not exist if the slave answered so; SOEM skips one whose answer was lost.
        if sum(not part[1] for part in parts) > self.mailbox_errors - errors:
            del self._objects[position]  # it caches the incomplete entries
            raise SdoError(f"the slave at position {position} does not describe all of its object {index:04X}")
        entries = tuple(ObjectEntry(index, k, *part) for k, part in enumerate(parts) if part[1])
        return ObjectInfo(index, name, code, entries)

    def _for_sdo(self, what: str, position: int, forced: bool = False) -> Any:
        slave = self._slave(position)
        if self.streaming and not forced:
            raise StreamingError(
                f"{what} of the slave at position {position}: refused while process data runs (it would tear gaps of "
                "5 ms and more into them): read it before the start"
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
        """Remove and count all errors from SOEM's list, which is common to all slaves."""
        for error in self._opened()._collect_mailbox_errors():
            del error
            self.mailbox_errors += 1

    def poll_mailbox(self, position: int) -> None:
        """Read one message from a slave's mailbox; without SDOs, emergencies arrive only this way."""
        slave = self._slave(position)
        try:
            slave.mbx_receive()
        except _SDO_FAILURES:
            self.mailbox_errors += 1
        self.drain()

    # --- distributed clocks

    def configure_dc(self) -> bool:
        """Measure delays and set the clocks' offsets; return False if no slave has a distributed clock."""
        return bool(self._opened().config_dc())

    def set_sync0(self, position: int, cycle_ns: int, shift_ns: int) -> None:
        """Start SYNC0 at `shift_ns` after each multiple of the cycle, 100 ms from now; cycle 0 stops it."""
        self._slave(position).dc_sync(cycle_ns > 0, cycle_ns, shift_ns)

    @property
    def dc_time_ns(self) -> int:
        """DC time at which the last frame passed the reference slave [ns since 2000-01-01]."""
        return int(self._opened().dc_time)

    # --- process data

    def map_process_data(self, expected: dict[int, tuple[int, int]]) -> None:
        """Map process data and request SAFE-OP of all slaves.

        `expected` are the lengths (bytes out, bytes in) by position; other slaves are not checked.  SOEM reads each map
        in one way or another until it has one: what fails meanwhile is a warning if the lengths agree.  Raises
        `DriverConfigError` if the image is too large, or a slave has other lengths; `SdoError` if that is because it
        did not return its mapping.
        """
        master = self._opened()
        total = sum(out + in_ for out, in_ in expected.values())
        if total > IO_MAP_BYTES:
            raise DriverConfigError(f"{total} bytes of process data do not fit into SOEM's {IO_MAP_BYTES}")
        self.warnings.clear()
        for position in expected:
            self._check_complete_access(position)
        self.drain()
        failures: dict[int, list[str]] = {}
        try:
            size = master.config_map()
        except pysoem.ConfigMapError as error:
            size = 0  # not known exactly
            for cause in error.error_list:
                self._note_map_failure(cause, failures)
        mapped = size or sum(len(slave.output) + len(slave.input) for slave in self._slaves)
        if mapped > IO_MAP_BYTES:  # memory was overwritten
            raise DriverConfigError(f"{mapped} bytes of process data overran SOEM's {IO_MAP_BYTES}")
        self._output_bytes = [len(slave.output) for slave in self._slaves]
        self._mapped = True
        for position, (out, in_) in expected.items():
            slave, failed = self._slaves[position], failures.get(position)
            if (len(slave.output), len(slave.input)) != (out, in_):
                lengths = (
                    f"the slave at position {position} has {len(slave.output)} bytes out and {len(slave.input)} in, "
                    f"configured are {out} and {in_}"
                )
                if failed:
                    raise SdoError(f"mapping the process data: {lengths}: {'; '.join(failed)}")
                raise DriverConfigError(f"{lengths}: compare rx and tx of its device with what it maps")
        for position, failed in failures.items():  # slaves that are not expected have to accept theirs in SAFE-OP
            text = f"the slave at position {position}: its map was not read at once"
            self.warnings.append(f"{text}: {'; '.join(failed)}")
        if self._sockets is not None:
            self._sockets.admit(size if 0 < size <= ONE_FRAME_BYTES else None)

    def _check_complete_access(self, position: int) -> None:
        """Keep SOEM from complete access to a slave whose subindex 0 has not 16 bits in it (ETG.1000.6, 5.6.2)."""
        slave, problem = self._for_sdo("SDO", position), ""
        try:
            raw = slave.sdo_read(_SYNC_MANAGER_TYPES, 0, SDO_BYTES, True, release_gil=True)
            if len(raw) == 2 + int.from_bytes(raw[:1], "little"):
                return
            problem = f"{len(raw)} bytes instead of {2 + int.from_bytes(raw[:1], 'little')}"
        except pysoem.PacketError:
            problem = "the answer does not fit the question"
        except _SDO_FAILURES:  # refused, as it may be
            pass
        self.drain()
        slave._disable_complete_access()
        if problem:
            where = f"the slave at position {position}: complete access to {_SYNC_MANAGER_TYPES:04X}"
            self.warnings.append(f"{where}: {problem}: its map is read entry by entry")

    def _note_map_failure(self, cause: Exception, failures: dict[int, list[str]]) -> None:
        if isinstance(cause, pysoem.SdoError):
            text = f"{cause.index:04X}:{cause.subindex:02X} refused with 0x{cause.abort_code:08X}: {cause.desc}"
        elif isinstance(cause, (pysoem.MailboxError, pysoem.PacketError)):  # SOEM does not tell the object
            text = f"1C00, 1C12, 1C13 or a PDO: {type(cause).__name__} 0x{cause.error_code:04X}"
        else:  # an emergency
            self.mailbox_errors += 1
            return
        failures.setdefault(cause.slave_pos - 1, []).append(text)

    @property
    def one_sided(self) -> bool:
        """Whether nothing arrives on one side of a ring; SOEM then waits for a whole time-out in other calls."""
        return self._sockets is not None and self._sockets.one_sided

    @property
    def stale_frames(self) -> int:
        """Answers that came after their time-out."""
        return 0 if self._sockets is None else self._sockets.stale

    @property
    def frames_filtered(self) -> bool:
        """Whether the kernel drops inconsistent frames."""
        return self._sockets is not None and self._sockets.filtered

    @property
    def expected_wkc(self) -> int:
        """Working counter of a complete cycle: 2 for each slave with outputs, 1 for each with inputs."""
        return int(self._opened().expected_wkc)

    def wkc_weight(self, position: int) -> tuple[int, int]:
        """Return what the outputs and the inputs of a slave add to the working counter."""
        slave = self._slave(position)
        return 2 * bool(len(slave.output)), int(bool(len(slave.input)))

    def set_output(self, position: int, image: bytes) -> None:
        """Set the outputs of a slave for the next exchange.

        Raises `DriverError` before the mapping (SOEM would write to address 0), or with another length than mapped (a
        longer image would overwrite the next slave's).
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
        """Return the inputs of a slave from the last exchange."""
        return bytes(self._slave(position).input)

    def send(self) -> None:
        """Send the process data."""
        master = self._opened()
        if not self._mapped or self._sockets is None:
            raise DriverError("process data is sent before it is mapped")
        self._sockets.flush()
        master.send_processdata(release_gil=True)

    def receive(self, deadline_ns: int) -> int:
        """Wait for the answer to `send`; return its working counter, or -1 without one until `deadline_ns`."""
        master = self._opened()
        if self._sockets is None:
            raise DriverClosedError(f"EtherCAT on {self.interface}: not open")
        left_us = self._sockets.wait(deadline_ns)
        # Non-blocking: what arrived may be an older frame, and SOEM would go on waiting.
        self._sockets.set_blocking(False)
        try:
            return int(master.receive_processdata(left_us, release_gil=True))
        finally:
            self._sockets.set_blocking(not self.one_sided)


def _text(raw: bytes) -> str:
    return raw.decode("latin-1").strip("\0 ")


#: What SDO and mailbox calls raise; AssertionError comes from an error of another slave.
_SDO_FAILURES = (
    pysoem.SdoError, pysoem.MailboxError, pysoem.PacketError, pysoem.WkcError, pysoem.Emergency, AssertionError,
)  # fmt: skip
