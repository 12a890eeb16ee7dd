"""Memory of an EtherCAT slave controller, little-endian: addresses, bits, AL states and status codes.

Source: Beckhoff EtherCAT slave controller data sheet, section II (register description); ETG.1000.4 and ETG.1000.6.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

#: Memory of one slave controller (MEMORY_SIZE,), or of a segment's (N, MEMORY_SIZE).
UInt8Array: TypeAlias = NDArray[np.uint8]

#: Registers and RAM of one slave [bytes]; accesses beyond are not acknowledged.
MEMORY_SIZE = 0x3000
RAM_START = 0x1000

# Identification of the slave controller.
TYPE = 0x0000
BUILD = 0x0002
FMMU_COUNT_REGISTER = 0x0004
SM_COUNT_REGISTER = 0x0005
RAM_SIZE = 0x0006  # in KiB
PORT_DESCRIPTOR = 0x0007  # two bits a port
FEATURES = 0x0008
FEATURE_DC = 0x0004
FEATURE_DC_64_BIT = 0x0008
PORT_MII = 3

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

PDI_CONTROL = 0x0140
ESC_CONFIGURATION = 0x0141

# Counters; a write clears them.
RX_ERROR_COUNTER = 0x0300  # two bytes a port: invalid frames, errors within frames
PROCESSING_ERROR_COUNTER = 0x030C
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
WATCHDOG_CLOCK_NS = 40

# Slave information interface (EEPROM).
SII_CONTROL = 0x0502
SII_ADDRESS = 0x0504  # in words
SII_DATA = 0x0508
SII_WRITE_ENABLE = 0x0001
SII_READ_8_BYTES = 0x0040
SII_TWO_BYTE_ADDRESS = 0x0080
SII_COMMAND_READ = 0x0100
SII_COMMAND_WRITE = 0x0200
SII_COMMAND_RELOAD = 0x0400
SII_COMMAND_MASK = 0x0700
SII_CHECKSUM_ERROR = 0x0800
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
DC_RECEIVE_TIME_PORT = (0x0900, 0x0904, 0x0908, 0x090C)  # a write to the first latches all
DC_SYSTEM_TIME = 0x0910
DC_RECEIVE_TIME_UNIT = 0x0918
DC_SYSTEM_TIME_OFFSET = 0x0920
DC_SYSTEM_TIME_DELAY = 0x0928
DC_SYSTEM_TIME_DIFFERENCE = 0x092C  # bit 31: own copy of the system time is behind the received one; rest: size
DC_SPEED_COUNTER_START = 0x0930
DC_DIFFERENCE_FILTER_DEPTH = 0x0934
DC_SPEED_FILTER_DEPTH = 0x0935
DC_CYCLIC_UNIT_CONTROL = 0x0980
DC_ACTIVATION = 0x0981
DC_ACTIVATE_CYCLIC, DC_ACTIVATE_SYNC0, DC_ACTIVATE_SYNC1 = 0x01, 0x02, 0x04
DC_SYNC0_START = 0x0990
DC_SYNC0_CYCLE = 0x09A0
DC_UNIT_END = 0x09B0
DC_SPEED_COUNTER_START_DEFAULT = 0x1000
DC_DIFFERENCE_FILTER_DEPTH_DEFAULT = 4
DC_SPEED_FILTER_DEPTH_DEFAULT = 12

# Events: accesses of the master, in the order in which a frame's events reach a controller.
EVENT_CLOCK = 0  # receive times latched, or offset, delay or control of the system time written
EVENT_DC_CHANGED = 1  # sync unit written
EVENT_SM_CHANGED = 2  # activate byte of a sync manager written
EVENT_SII = 3  # SII command written
EVENT_MAILBOX_OUT = 4  # the master has read SM1: its buffer is empty
EVENT_MAILBOX_IN = 5  # the master has written SM0: its buffer is full
EVENT_OUTPUTS = 6  # the master has written a buffered sync manager to its end
EVENT_AL_CONTROL = 7
EVENT_COUNT = 8

#: Time that `tick` returns when nothing is due [ns].
NEVER_NS = 2**62

AL_CODE_NONE = 0x0000
AL_CODE_INVALID_STATE_CHANGE = 0x0011
AL_CODE_UNKNOWN_STATE = 0x0012
AL_CODE_BOOT_NOT_SUPPORTED = 0x0013
AL_CODE_INVALID_MAILBOX_PREOP = 0x0016
AL_CODE_NO_OUTPUTS = 0x0019
AL_CODE_WATCHDOG = 0x001B
AL_CODE_INVALID_OUTPUTS = 0x001D
AL_CODE_INVALID_INPUTS = 0x001E
AL_CODE_FATAL_SYNC = 0x002C
AL_CODE_NO_SYNC = 0x002D
AL_CODE_INVALID_DC = 0x0030
AL_CODE_DC_CYCLE = 0x0035
