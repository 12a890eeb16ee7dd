"""Constants of the ADS protocol (Beckhoff, "TC1000 TwinCAT 3 ADS", and `AdsDef.h` of their open ADS library)."""

from enum import IntEnum


class Command(IntEnum):
    """Command of an AMS packet."""

    DEVICE_INFO = 1
    READ = 2
    WRITE = 3
    STATE = 4
    WRITE_CONTROL = 5
    ADD_NOTIFICATION = 6
    DELETE_NOTIFICATION = 7
    NOTIFICATION = 8
    READ_WRITE = 9


class Group(IntEnum):
    """Index group."""

    MEMORY = 0x4020  # %M
    DATA = 0x4040  # the variables, by their offset
    HANDLE_BY_NAME = 0xF003
    VALUE_BY_NAME = 0xF004
    VALUE_BY_HANDLE = 0xF005
    RELEASE_HANDLE = 0xF006
    INFO_BY_NAME = 0xF007
    VERSION = 0xF008
    INFO_BY_NAME_EX = 0xF009
    UPLOAD = 0xF00B
    UPLOAD_INFO = 0xF00C
    TYPE_UPLOAD = 0xF00E
    UPLOAD_INFO_2 = 0xF00F
    TYPE_BY_NAME = 0xF011
    SUM_READ = 0xF080
    SUM_WRITE = 0xF081
    SUM_READ_WRITE = 0xF082
    SUM_READ_EX = 0xF083
    SUM_READ_EX_2 = 0xF084
    SUM_ADD_NOTIFICATION = 0xF085
    SUM_DELETE_NOTIFICATION = 0xF086
    DEVICE_DATA = 0xF100


class State(IntEnum):
    RESET = 2
    RUN = 5
    STOP = 6
    CONFIG = 15
    RECONFIG = 16


class Mode(IntEnum):
    """Transmission mode of a notification."""

    CYCLIC = 3
    ON_CHANGE = 4
    CYCLIC_IN_CONTEXT = 5
    ON_CHANGE_IN_CONTEXT = 6


class Code(IntEnum):
    """Error code; below 0x700 from the router."""

    NONE = 0
    PORT_NOT_FOUND = 6
    MACHINE_NOT_FOUND = 7
    SERVICE_NOT_SUPPORTED = 0x701
    INVALID_GROUP = 0x702
    INVALID_OFFSET = 0x703
    INVALID_ACCESS = 0x704
    INVALID_SIZE = 0x705
    INVALID_PARAMETER = 0x70B
    SYMBOL_NOT_FOUND = 0x710
    SYMBOL_VERSION = 0x711
    TRANSMISSION_MODE = 0x713
    NOTIFICATION_HANDLE = 0x714
    NO_MORE_HANDLES = 0x716
    INVALID_WATCH_SIZE = 0x717


class Kind(IntEnum):
    """ADST number of a data type."""

    VOID = 0
    INT16 = 2
    INT32 = 3
    REAL32 = 4
    REAL64 = 5
    INT8 = 16
    UINT8 = 17
    UINT16 = 18
    UINT32 = 19
    INT64 = 20
    UINT64 = 21
    STRING = 30
    WSTRING = 31
    BIT = 33
    STRUCTURE = 65


class AdsError(Exception):
    """A request answered with an error code."""

    def __init__(self, code: Code) -> None:
        super().__init__(f"ADS error 0x{code:X}, {code.name}")
        self.code = code
