"""Layout of the variables that PLC and driver exchange, the source of the driver's structures and the PLC's types.

The PLC program appends one `Sample` each cycle.  `block_samples` of them make a `Block`; blocks fill a ring of
`blocks`, block number `k` at place `k % blocks`.  `Head` has the counts so far, `Info` the constants of a run.  Set
positions go to the PLC in two alternating buffers, `Command` carries the heartbeat.

Every field is aligned to its own size and every structure is a multiple of eight bytes long, so that the layout does
not depend on the PLC's packing.  Numbers are little-endian.
"""

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

#: Version of this layout, in `stInfo.nVersion` of the PLC.
VERSION = 1
NAME_CHARS = 31  # of an axis; STRING(31) takes one byte more
#: Symbols of the global variable list, in the order in which they are declared.
INFO, HEAD, RING, LATEST, COMMAND, SETPOINTS = "stInfo", "stHead", "aRing", "stLatest", "stCommand", "aSetpoints"

#: Bits of `Info.nChannels`, by channel of a frame.
CHANNEL_BITS = {"q": 0, "dq": 1, "tau": 2, "current": 3, "q_motor": 4, "temperature": 5, "setpoint": 6}
#: Bits of `Axis.nStatus`; its upper 16 bits are the drive's own status word.
AXIS_VALID, AXIS_ENABLED, AXIS_FAULT = 0x1, 0x2, 0x4
#: Values of `Head.nState`.
OFF, ENABLING, ENABLED, STOPPING, FAULT = range(5)
STATES = {OFF: "off", ENABLING: "enabling", ENABLED: "enabled", STOPPING: "stopping", FAULT: "fault"}
#: Values of `Head.nReason`: why the axes were last switched off.
REASONS = {
    0: "", 1: "by command", 2: "the heartbeat stopped", 3: "no set positions in time",
    4: "a set position is too far from the one before", 5: "an axis reports a fault",
    6: "the axes were not on in time", 7: "the PLC stood still",
}  # fmt: skip

Structure: TypeAlias = type[ctypes.LittleEndianStructure]


@dataclass(frozen=True)
class Field:
    """A field of a structure."""

    name: str  # as in the PLC
    kind: str  # IEC type (`ULINT`, `LREAL`, ...), `STRING`, or the name of another structure
    lengths: tuple[int | str, ...]  # of an array, outermost first: a number, or a constant (`AXES`); empty: no array
    text: str  # meaning and unit


def _field(name: str, kind: str, text: str, *lengths: int | str) -> Field:
    return Field(name, kind, lengths, text)


#: IEC types by size and ctypes type.
IEC: dict[str, Any] = {
    "UDINT": ctypes.c_uint32, "ULINT": ctypes.c_uint64, "LINT": ctypes.c_int64, "REAL": ctypes.c_float,
    "LREAL": ctypes.c_double,
}  # fmt: skip

#: Structures, each after those that it contains.
STRUCTURES: dict[str, tuple[Field, ...]] = {
    "ST_ThetaAxis": (
        _field("fPosition", "LREAL", "actual position, in the axis' unit"),
        _field("fVelocity", "LREAL", "actual velocity, in that unit a second"),
        _field("fMotorPosition", "LREAL", "second encoder, on the motor side"),
        _field("fSetpoint", "LREAL", "set position of this cycle"), _field("fTorque", "REAL", "actual torque"),
        _field("fCurrent", "REAL", "actual current"), _field("fTemperature", "REAL", "of the drive or motor [degC]"),
        _field("nStatus", "UDINT", "bit 0 values are valid, 1 enabled, 2 fault; bits 16..31 the drive's status word"),
    ),
    "ST_ThetaSample": (
        _field("nCounter", "ULINT", "cycles since the program started, from 0"),
        _field("nTime", "ULINT", "PLC time of the cycle [100 ns since 1601-01-01 UTC]"),
        _field("nDcTime", "LINT", "distributed-clock time of the cycle [ns since 2000-01-01 UTC]; 0: none"),
        _field("aAxis", "ST_ThetaAxis", "in the order of stInfo.aNames", "AXES"), _field("nReserved", "UDINT", "0"),
        _field("nChecksum", "UDINT", "over all bytes before it"),
    ),
    "ST_ThetaBlock": (
        _field("nBlock", "ULINT", "number of the block, from 0; written before the samples"),
        _field("aSample", "ST_ThetaSample", "in order", "BLOCK_SAMPLES"),
        _field("nBlockEnd", "ULINT", "the same number; written after the samples"),
    ),
    "ST_ThetaInfo": (
        _field("nStart", "ULINT", "PLC time at which the program started: names this run [100 ns since 1601]"),
        _field("nVersion", "UDINT", "of this layout"), _field("nAxes", "UDINT", "number of axes"),
        _field("nBlockSamples", "UDINT", "samples a block"), _field("nBlocks", "UDINT", "blocks in the ring"),
        _field("nSetpoints", "UDINT", "points a buffer of set positions"),
        _field("nChannels", "UDINT", "bit k is set: measured; q, dq, tau, current, q_motor, temperature, setpoint"),
        _field("nCycleNs", "UDINT", "cycle of the task [ns]"),
        _field("nHeartbeatMs", "UDINT", "without a heartbeat for so long, axes are stopped"),
        _field("aNames", "STRING", "names of the axes", "AXES"),
    ),
    "ST_ThetaHead": (
        _field("nStart", "ULINT", "as stInfo.nStart"), _field("nSamples", "ULINT", "samples written since the start"),
        _field("nBlocks", "ULINT", "complete blocks since the start"),
        _field("nTime", "ULINT", "PLC time of the last cycle [100 ns since 1601]"),
        _field("nState", "UDINT", "of the axes: 0 off, 1 enabling, 2 enabled, 3 stopping, 4 fault"),
        _field("nReason", "UDINT", "why they were switched off the last time"),
        _field("nUnderruns", "UDINT", "cycles without a set position while enabled and moving"),
        _field("nRefused", "UDINT", "buffers of set positions that were not taken: wrong checksum, run or cycle"),
        _field("nSequence", "UDINT", "highest number of a buffer that was seen in this run, taken or not"),
        _field("nExceeded", "UDINT", "cycles that took longer than the cycle"),
    ),
    "ST_ThetaCommand": (
        _field("nStart", "ULINT", "run that the command is for; of another one it is ignored"),
        _field("nHeartbeat", "UDINT", "changes with each write"),
        _field("nEnable", "UDINT", "1: axes shall be enabled, 0: stopped and switched off"),
    ),
    "ST_ThetaSetpoints": (
        _field("nStart", "ULINT", "run that the points are for"),
        _field("nFirst", "ULINT", "cycle (nCounter) of the first point"),
        _field("nSequence", "UDINT", "counts the buffers from 1; buffer nSequence MOD 2 is written"),
        _field("nCount", "UDINT", "points used"),
        _field("aPoint", "LREAL", "set positions, in the axes' units", "SETPOINTS", "AXES"),
        _field("nReserved", "UDINT", "0"), _field("nChecksum", "UDINT", "over all bytes before it"),
    ),
}  # fmt: skip

#: The variables of the global list: name -> structure and array length.
VARIABLES: dict[str, tuple[str, tuple[int | str, ...]]] = {
    INFO: ("ST_ThetaInfo", ()), HEAD: ("ST_ThetaHead", ()), RING: ("ST_ThetaBlock", ("BLOCKS",)),
    LATEST: ("ST_ThetaBlock", ()), COMMAND: ("ST_ThetaCommand", ()), SETPOINTS: ("ST_ThetaSetpoints", (2,)),
}  # fmt: skip


@dataclass(frozen=True)
class Sizes:
    """Constants of a PLC program."""

    axes: int
    block_samples: int = 10  # samples in a block
    blocks: int = 64  # blocks in the ring
    setpoints: int = 400  # points in a buffer of set positions

    def length(self, given: int | str) -> int:
        """Return the length of an array dimension."""
        named = {
            "AXES": self.axes, "BLOCK_SAMPLES": self.block_samples, "BLOCKS": self.blocks,
            "SETPOINTS": self.setpoints,
        }  # fmt: skip
        return named[given] if isinstance(given, str) else given


@cache
def structure(name: str, sizes: Sizes) -> Structure:
    """Return the ctypes structure of `STRUCTURES[name]`."""
    fields = []
    for field in STRUCTURES[name]:
        if field.kind == "STRING":
            kind: Any = ctypes.c_char * (NAME_CHARS + 1)
        else:
            kind = IEC[field.kind] if field.kind in IEC else structure(field.kind, sizes)
        for length in reversed(field.lengths):
            kind = kind * sizes.length(length)
        fields.append((field.name, kind))
    # There is no padding by construction; _pack_ ensures it.
    return type(name, (ctypes.LittleEndianStructure,), {"_pack_": 1, "_fields_": fields})


def fields(name: str, sizes: Sizes) -> Iterator[tuple[Field, int, int]]:
    """Yield each field of a structure with its offset and its size in bytes."""
    kind = structure(name, sizes)
    for field in STRUCTURES[name]:
        place = getattr(kind, field.name)
        yield field, place.offset, place.size


def checksum(data: bytes | bytearray | memoryview) -> int:
    """Return the checksum of a structure without its last four bytes.

    Over the 32-bit words `w[0..n-1]`, modulo 2**32: the exclusive or of their sum and of the sum of `(n - k) * w[k]`,
    rotated by half a word, which detects swapped words and pairs of the same bit.  The PLC adds word after word:
    `a := a + w; b := b + a`, then `a XOR ROL(b, 16)`.
    """
    a = b = 0
    for word in memoryview(data)[:-4].cast("I"):
        a = a + word & 0xFFFFFFFF
        b = b + a & 0xFFFFFFFF
    return a ^ (b << 16 & 0xFFFFFFFF | b >> 16)
