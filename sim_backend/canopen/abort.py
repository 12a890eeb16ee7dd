"""Abort codes of the SDO protocol (ETG.1000.6, table "SDO abort codes")."""

from enum import IntEnum

from sim_backend.errors import SimulationError


class AbortCode(IntEnum):
    """Reason of a refused service."""

    TOGGLE = 0x05030000
    TIMEOUT = 0x05040000
    COMMAND = 0x05040001
    MEMORY = 0x05040005
    UNSUPPORTED = 0x06010000
    WRITE_ONLY = 0x06010001
    READ_ONLY = 0x06010002
    SUBINDEX_ZERO_SET = 0x06010003
    NO_COMPLETE_ACCESS = 0x06010004
    NO_OBJECT = 0x06020000
    NOT_MAPPABLE = 0x06040041
    PDO_LENGTH = 0x06040042
    PARAMETER = 0x06040043
    LENGTH = 0x06070010
    LENGTH_HIGH = 0x06070012
    LENGTH_LOW = 0x06070013
    NO_SUBINDEX = 0x06090011
    RANGE = 0x06090030
    RANGE_HIGH = 0x06090031
    RANGE_LOW = 0x06090032
    STATE = 0x08000022


class SdoAbort(SimulationError):
    """A refused service on an object; the master gets `code`, one of `AbortCode` or a device's own."""

    def __init__(self, code: int) -> None:
        self.code = int(code)
        super().__init__(f"SDO abort 0x{self.code:08X}")
