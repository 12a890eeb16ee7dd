"""Variables of a PLC program by handle, checked against the layout."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from queue import Queue
from typing import Any

from drivers.ads._errors import NOT_THERE, VERSION_INVALID, AdsError, AdsReplyError
from drivers.ads.layout import COMMAND, HEAD, INFO, LATEST, RING, SETPOINTS, Sizes, structure
from drivers.ads.link._matching import Matched, match
from drivers.ads.link.link import SYMBOL_VERSION, VALUE_BY_HANDLE, Link
from drivers.ads.link.symbols import ABSENT

#: Index group and index offset of a value.
_Place = tuple[int, int]


@dataclass(frozen=True)
class Info:
    """`stInfo`: constants of a run of the program."""

    start: int
    channels: int
    cycle_ns: int
    heartbeat_ms: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class Head:
    """`stHead`: counts and states of the program."""

    start: int
    samples: int
    blocks: int
    time: int
    state: int
    reason: int
    underruns: int
    refused: int
    sequence: int
    exceeded: int


class PlcProgram:
    """Access to the variables of one PLC program, until `close`; raises as `_matching.match`.

    `link` is open; `variables` is the global variable list, `matched` what was found in it.  `by_address`: blocks and
    set positions are accessed by address, because the server has no symbols for elements of arrays.
    """

    def __init__(self, link: Link, variables: str) -> None:
        self._link = link
        self._variables = variables
        self._handles: list[int] = []
        self._notified = False
        self.by_address = False
        self._version = self.version()  # first, to notice any later change
        self.matched: Matched = match(link, variables)
        try:
            self._look_up()
        except BaseException:
            self.close()
            raise

    def _look_up(self) -> None:
        self.sizes: Sizes = self.matched.sizes
        self._head = structure("ST_ThetaHead", self.sizes)
        self._command = structure("ST_ThetaCommand", self.sizes)
        self._head_place = self._by_handle(HEAD)
        self._info_place = self._by_handle(INFO)
        self._command_place = self._by_handle(COMMAND)
        self._blocks = self._elements(RING, self.sizes.blocks)
        self._setpoints = self._elements(SETPOINTS, 2)
        self._block_bytes = ctypes.sizeof(structure("ST_ThetaBlock", self.sizes))
        self._head_bytes = ctypes.sizeof(self._head)
        self.info = self.read_info()

    def _by_handle(self, name: str) -> _Place:
        self._handles.append(self._link.handle(f"{self._variables}.{name}"))
        return VALUE_BY_HANDLE, self._handles[-1]

    def _elements(self, name: str, count: int) -> list[_Place]:
        """Return the places of an array's elements: by handle, or by address if the server has no such symbols."""
        first, symbol = self.matched.lower[name], self.matched.symbols[name]
        try:
            return [self._by_handle(f"{name}[{first + k}]") for k in range(count)]
        except AdsError as error:
            if error.code not in ABSENT | NOT_THERE:
                raise
            self.by_address = True
            stride = symbol.size // count
            return [(symbol.group, symbol.offset + k * stride) for k in range(count)]

    def close(self) -> None:
        """Release notifications and handles, as far as the connection allows."""
        if self._notified:
            self._notified = False
            self._link.end_notifications()
        handles, self._handles = self._handles, []
        self._link.release(*handles)

    # ------------------------------------------------------------ reading

    @property
    def versioned(self) -> bool:
        """Whether online changes can be detected."""
        return self._version is not None

    def version(self) -> int | None:
        """Read the symbol version, which changes with each online change; None if the server has none."""
        try:
            return bytes(self._link.read(SYMBOL_VERSION, 0, 1, "symbol version"))[0]
        except AdsError:
            if self._link.broken:
                raise
            return None

    def moved(self) -> bool:
        """Return whether there was an online change since the lookup of the variables."""
        return self._version is not None and self.version() != self._version

    def read_info(self) -> Info:
        """Read `stInfo`."""
        kind = structure("ST_ThetaInfo", self.sizes)
        raw: Any = kind.from_buffer_copy(bytes(self._link.read(*self._info_place, ctypes.sizeof(kind), INFO)))
        names = tuple(bytes(name).partition(b"\0")[0].decode("windows-1252", "replace") for name in _names(raw.aNames))
        return Info(raw.nStart, raw.nChannels, raw.nCycleNs, raw.nHeartbeatMs, names)

    def read(self, numbers: Sequence[int]) -> tuple[Head, list[Any]]:
        """Read `stHead` and the places of these blocks, in one request if the server supports it."""
        places = [(*self._head_place, self._head_bytes)]
        places += [(*self._blocks[number % self.sizes.blocks], self._block_bytes) for number in numbers]
        head, *blocks = self._link.sum_read(places, "samples")
        return self._parse_head(head), blocks

    def _parse_head(self, raw: Any) -> Head:
        """Parse `stHead`, which has no checksum; raises `AdsReplyError` if its counts contradict each other."""
        found: Any = self._head.from_buffer_copy(bytes(raw))
        if abs(found.nSamples // self.sizes.block_samples - found.nBlocks) > 1:
            raise AdsReplyError(
                f"ADS {self._link.target}: {self._variables}.{HEAD} is damaged: {found.nSamples} samples are not "
                f"{found.nBlocks} blocks of {self.sizes.block_samples}"
            )
        return Head(
            found.nStart, found.nSamples, found.nBlocks, found.nTime, found.nState, found.nReason, found.nUnderruns,
            found.nRefused, found.nSequence, found.nExceeded,
        )  # fmt: skip

    def notify(self, into: Queue[tuple[int, bytes]]) -> None:
        """Put each new block into `into`."""
        self._notified = True
        place = self._by_handle(LATEST)
        cycle_ms = self.info.cycle_ns * 1e-6
        self._link.notify(*place, self._block_bytes, into, cycle_ms)

    # ------------------------------------------------------------ writing

    def write(self, start: int, heartbeat: int, enable: bool, setpoints: tuple[int, bytes | bytearray] | None) -> None:
        """Write `stCommand`, and before it `setpoints`: place in `aSetpoints` and bytes of a buffer.

        Raises `AdsError`: it failed; or an online change may have moved set positions that are written by address.
        """
        if setpoints is not None and self.by_address and self.moved():
            raise AdsError(f"ADS {self._link.target}: set positions: an online change", VERSION_INVALID)
        command = self._command(nStart=start, nHeartbeat=heartbeat & 0xFFFFFFFF, nEnable=int(enable))
        items: list[tuple[int, int, bytes | bytearray]] = []
        if setpoints is not None:
            place, data = setpoints
            items.append((*self._setpoints[place], data))
        items.append((*self._command_place, bytes(command)))
        self._link.sum_write(items, "set positions" if setpoints is not None else "heartbeat")


def _names(array: Any) -> list[bytes]:
    return [bytes(memoryview(element)) if not isinstance(element, bytes) else element for element in array]
