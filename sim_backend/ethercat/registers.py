"""Memory of an EtherCAT slave controller: addresses, bits, AL states and status codes.

Source: Beckhoff EtherCAT slave controller data sheet, section II (register description); ETG.1000.4 and
ETG.1000.6; the texts of the AL status codes are those of ETG.1020.
All values of more than one byte are little-endian.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

#: Memory of one slave controller (MEMORY_SIZE,), or of a segment's (N, MEMORY_SIZE).
UInt8Array: TypeAlias = NDArray[np.uint8]

#: Registers and RAM of one slave [bytes]; an access beyond is not acknowledged.
MEMORY_SIZE = 0x3000
RAM_START = 0x1000

# What the slave controller is.
TYPE = 0x0000
REVISION = 0x0001
BUILD = 0x0002
FMMU_COUNT_REGISTER = 0x0004
SM_COUNT_REGISTER = 0x0005
RAM_SIZE = 0x0006  # in KiB
PORT_DESCRIPTOR = 0x0007  # two bits a port
FEATURES = 0x0008
FEATURE_NO_BIT_FMMU = 0x0001
FEATURE_DC = 0x0004
FEATURE_DC_64_BIT = 0x0008
PORT_NOT_IMPLEMENTED, PORT_NOT_CONFIGURED, PORT_EBUS, PORT_MII = range(4)

# Addressing and data link.
STATION_ADDRESS = 0x0010
STATION_ALIAS = 0x0012
DL_CONTROL = 0x0100
DL_CONTROL_ALIAS = 0x0103  # the byte with the bit below
DL_CONTROL_ALIAS_ENABLE = 0x01
DL_STATUS = 0x0110
DL_PDI_OPERATIONAL = 0x0001
DL_LINK = (0x0010, 0x0020, 0x0040, 0x0080)  # a cable with a peer at port 0, 1, 2, 3
DL_LOOP_CLOSED = (0x0100, 0x0400, 0x1000, 0x4000)
DL_COMMUNICATION = (0x0200, 0x0800, 0x2000, 0x8000)

# Application layer.
AL_CONTROL = 0x0120
AL_STATUS = 0x0130
AL_STATUS_CODE = 0x0134
AL_INIT, AL_PREOP, AL_BOOT, AL_SAFEOP, AL_OP = 1, 2, 3, 4, 8
AL_STATE_MASK = 0x0F
AL_ERROR = 0x10  # in AL status: error; in AL control: acknowledge it
AL_STATE_NAMES = {AL_INIT: "INIT", AL_PREOP: "PREOP", AL_BOOT: "BOOT", AL_SAFEOP: "SAFEOP", AL_OP: "OP"}

PDI_CONTROL = 0x0140
ESC_CONFIGURATION = 0x0141
ECAT_EVENT_MASK = 0x0200
AL_EVENT_MASK = 0x0204
ECAT_EVENT_REQUEST = 0x0210
AL_EVENT_REQUEST = 0x0220

# Counters; a write clears them.
RX_ERROR_COUNTER = 0x0300  # two bytes a port: invalid frames, errors within frames
FORWARDED_ERROR_COUNTER = 0x0308
PROCESSING_ERROR_COUNTER = 0x030C
PDI_ERROR_COUNTER = 0x030D
LOST_LINK_COUNTER = 0x0310  # one byte a port
COUNTERS_END = 0x0314

# Watchdogs.
WATCHDOG_DIVIDER = 0x0400  # (divider + 2) * 40 ns is the unit of the times below
WATCHDOG_DIVIDER_DEFAULT = 0x09C2  # 100 us
WATCHDOG_PDI_TIME = 0x0410
WATCHDOG_PROCESS_DATA_TIME = 0x0420
WATCHDOG_TIME_DEFAULT = 1000
WATCHDOG_STATUS = 0x0440  # bit 0: process data watchdog has not expired
WATCHDOG_PROCESS_DATA_COUNTER = 0x0442
WATCHDOG_PDI_COUNTER = 0x0443
WATCHDOG_CLOCK_NS = 40

# Slave information interface (EEPROM).
SII_CONFIGURATION = 0x0500
SII_PDI_ACCESS = 0x0501
SII_CONTROL = 0x0502
SII_ADDRESS = 0x0504  # in words
SII_DATA = 0x0508
SII_END = 0x0510
SII_WRITE_ENABLE = 0x0001
SII_READ_8_BYTES = 0x0040
SII_TWO_BYTE_ADDRESS = 0x0080
SII_COMMAND_READ = 0x0100
SII_COMMAND_WRITE = 0x0200
SII_COMMAND_RELOAD = 0x0400
SII_COMMAND_MASK = 0x0700
SII_CHECKSUM_ERROR = 0x0800
SII_NOT_LOADED = 0x1000
SII_ACKNOWLEDGE_ERROR = 0x2000
SII_WRITE_ENABLE_ERROR = 0x4000
SII_BUSY = 0x8000

# Fieldbus memory management units: FMMU + k * FMMU_SIZE + offset.
FMMU = 0x0600
FMMU_SIZE = 16
FMMU_COUNT = 8
FMMU_LOGICAL_START = 0
FMMU_LENGTH = 4  # bytes, counting those that are covered in part
FMMU_LOGICAL_START_BIT = 6
FMMU_LOGICAL_STOP_BIT = 7
FMMU_PHYSICAL_START = 8
FMMU_PHYSICAL_START_BIT = 10
FMMU_TYPE = 11
FMMU_ACTIVATE = 12
FMMU_TYPE_READ = 0x01
FMMU_TYPE_WRITE = 0x02

# Sync managers: SM + k * SM_SIZE + offset.
SM = 0x0800
SM_SIZE = 8
SM_COUNT = 8
SM_START = 0
SM_LENGTH = 2
SM_CONTROL = 4
SM_STATUS = 5
SM_ACTIVATE = 6
SM_PDI_CONTROL = 7
SM_CONTROL_MODE_MASK = 0x03
SM_MODE_BUFFERED, SM_MODE_MAILBOX = 0x00, 0x02
SM_CONTROL_DIRECTION_MASK = 0x0C
SM_DIRECTION_READ, SM_DIRECTION_WRITE = 0x00, 0x04  # as the master sees it
SM_CONTROL_WATCHDOG = 0x40
SM_STATUS_WRITTEN = 0x01
SM_STATUS_READ = 0x02
SM_STATUS_FULL = 0x08  # of a mailbox
SM_ACTIVATE_ENABLE = 0x01
SM_ACTIVATE_REPEAT = 0x02  # toggled by the master: send the last mailbox message again
SM_PDI_DEACTIVATE = 0x01
SM_PDI_REPEAT_ACKNOWLEDGE = 0x02  # follows SM_ACTIVATE_REPEAT once the message is there again
SM_MAILBOX_OUT, SM_MAILBOX_IN, SM_OUTPUTS, SM_INPUTS = range(4)  # numbers; out and in as the master sees it

# Distributed clocks.
DC_RECEIVE_TIME_PORT = (
    0x0900,
    0x0904,
    0x0908,
    0x090C,
)  # a write to the first latches all
DC_SYSTEM_TIME = 0x0910
DC_RECEIVE_TIME_UNIT = 0x0918
DC_SYSTEM_TIME_OFFSET = 0x0920
DC_SYSTEM_TIME_DELAY = 0x0928
DC_SYSTEM_TIME_DIFFERENCE = 0x092C  # bit 31: own copy of the system time is behind the received one; rest: size
DC_SPEED_COUNTER_START = 0x0930
DC_SPEED_COUNTER_DIFFERENCE = 0x0932
DC_DIFFERENCE_FILTER_DEPTH = 0x0934
DC_SPEED_FILTER_DEPTH = 0x0935
DC_CYCLIC_UNIT_CONTROL = 0x0980
DC_ACTIVATION = 0x0981
DC_ACTIVATE_CYCLIC, DC_ACTIVATE_SYNC0, DC_ACTIVATE_SYNC1 = 0x01, 0x02, 0x04
DC_PULSE_LENGTH = 0x0982
DC_ACTIVATION_STATUS = 0x0984
DC_SYNC0_START = 0x0990
DC_SYNC0_CYCLE = 0x09A0
DC_SYNC1_CYCLE = 0x09A4
DC_UNIT_END = 0x09B0
DC_SPEED_COUNTER_START_DEFAULT = 0x1000
DC_DIFFERENCE_FILTER_DEPTH_DEFAULT = 4
DC_SPEED_FILTER_DEPTH_DEFAULT = 12

# What an access by the master means for the device.  A frame's events reach a controller in this order.
EVENT_CLOCK = 0  # receive times latched, or offset, delay or control of the system time written
EVENT_DC_CHANGED = 1  # sync unit written
EVENT_SM_CHANGED = 2  # activate byte of a sync manager written
EVENT_SII = 3  # SII command written
EVENT_MAILBOX_OUT = 4  # the master has read SM1: its buffer is empty
EVENT_MAILBOX_IN = 5  # the master has written SM0: its buffer is full
EVENT_OUTPUTS = 6  # the master has written a buffered sync manager to its end
EVENT_AL_CONTROL = 7
EVENT_COUNT = 8

#: `tick` returns this time when nothing is due [ns].
NEVER_NS = 2**62

AL_CODE_NONE = 0x0000
AL_CODE_UNSPECIFIED = 0x0001
AL_CODE_INVALID_STATE_CHANGE = 0x0011
AL_CODE_UNKNOWN_STATE = 0x0012
AL_CODE_BOOT_NOT_SUPPORTED = 0x0013
AL_CODE_INVALID_MAILBOX_BOOT = 0x0015
AL_CODE_INVALID_MAILBOX_PREOP = 0x0016
AL_CODE_INVALID_SM = 0x0017
AL_CODE_NO_INPUTS = 0x0018
AL_CODE_NO_OUTPUTS = 0x0019
AL_CODE_SYNC_ERROR = 0x001A
AL_CODE_WATCHDOG = 0x001B
AL_CODE_INVALID_SM_TYPES = 0x001C
AL_CODE_INVALID_OUTPUTS = 0x001D
AL_CODE_INVALID_INPUTS = 0x001E
AL_CODE_INVALID_WATCHDOG = 0x001F
AL_CODE_FATAL_SYNC = 0x002C
AL_CODE_NO_SYNC = 0x002D
AL_CODE_INVALID_DC = 0x0030
AL_CODE_INVALID_DC_LATCH = 0x0031
AL_CODE_PLL = 0x0032
AL_CODE_DC_SYNC_IO = 0x0033
AL_CODE_DC_SYNC_TIMEOUT = 0x0034
AL_CODE_DC_CYCLE = 0x0035

#: Texts of AL status codes (ETG.1020, table 11).
AL_STATUS_TEXTS = {
    0x0000: "no error",
    0x0001: "unspecified error",
    0x0002: "no memory",
    0x0003: "invalid device setup",
    0x0004: "invalid revision",
    0x0006: "SII and EEPROM information do not match the firmware",
    0x0007: "firmware update not successful, old firmware still running",
    0x000E: "license error",
    0x0011: "invalid requested state change",
    0x0012: "unknown requested state",
    0x0013: "bootstrap not supported",
    0x0014: "no valid firmware",
    0x0015: "invalid mailbox configuration (bootstrap)",
    0x0016: "invalid mailbox configuration (pre-operational)",
    0x0017: "invalid sync manager configuration",
    0x0018: "no valid inputs available",
    0x0019: "no valid outputs received",
    0x001A: "synchronisation error",
    0x001B: "sync manager watchdog",
    0x001C: "invalid sync manager types",
    0x001D: "invalid output configuration",
    0x001E: "invalid input configuration",
    0x001F: "invalid watchdog configuration",
    0x0020: "slave needs a cold start",
    0x0021: "slave needs INIT",
    0x0022: "slave needs PREOP",
    0x0023: "slave needs SAFEOP",
    0x0024: "invalid input mapping",
    0x0025: "invalid output mapping",
    0x0026: "inconsistent settings",
    0x0027: "free run not supported",
    0x0028: "synchronisation not supported",
    0x0029: "free run needs three-buffer mode",
    0x002A: "background watchdog",
    0x002B: "no valid inputs and outputs",
    0x002C: "fatal synchronisation error",
    0x002D: "no synchronisation signal",
    0x002E: "cycle time too small",
    0x0030: "invalid DC SYNC configuration",
    0x0031: "invalid DC latch configuration",
    0x0032: "PLL error",
    0x0033: "DC synchronisation input/output error",
    0x0034: "DC synchronisation time-out",
    0x0035: "invalid DC SYNC0 cycle time",
    0x0036: "DC SYNC0 cycle time",
    0x0037: "DC SYNC1 cycle time",
    0x0041: "mailbox AoE",
    0x0042: "mailbox EoE",
    0x0043: "mailbox CoE",
    0x0044: "mailbox FoE",
    0x0045: "mailbox SoE",
    0x004F: "mailbox VoE",
    0x0050: "EEPROM no access",
    0x0051: "EEPROM error",
    0x0060: "slave restarted locally",
    0x0061: "device identification value updated",
    0x00F0: "application controller available",
}
