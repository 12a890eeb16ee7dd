"""Constants of CiA 402 (IEC 61800-7-201): states, commands, statusword bits, error codes."""

from enum import Enum


class State(Enum):
    """States of the power drive system; the value is the statusword's pattern."""

    NOT_READY = 0x00
    SWITCH_ON_DISABLED = 0x40
    READY = 0x21
    SWITCHED_ON = 0x23
    ENABLED = 0x27
    QUICK_STOP = 0x07
    FAULT_REACTION = 0x0F
    FAULT = 0x08


class Command(Enum):
    DISABLE_VOLTAGE = "disable voltage"
    QUICK_STOP = "quick stop"
    SHUTDOWN = "shutdown"
    SWITCH_ON = "switch on"
    ENABLE = "enable operation"


# Bits of the statusword beside the state's; plain integers for speed.
STATUS_VOLTAGE = 1 << 4
STATUS_QUICK_STOP_OFF = 1 << 5
STATUS_WARNING = 1 << 7
STATUS_REMOTE = 1 << 9
STATUS_TARGET_REACHED = 1 << 10
STATUS_INTERNAL_LIMIT = 1 << 11
STATUS_FOLLOWS_COMMAND = 1 << 12
STATUS_FOLLOWING_ERROR = 1 << 13

FAULT_RESET = 0x80
"""Bit of the controlword whose rising edge resets a fault."""


def command_of(controlword: int) -> Command | None:
    """Return the command of a controlword; None while its fault-reset bit is set."""
    if controlword & FAULT_RESET:
        return None
    if not controlword & 0x02:
        return Command.DISABLE_VOLTAGE
    if not controlword & 0x04:
        return Command.QUICK_STOP
    if not controlword & 0x01:
        return Command.SHUTDOWN
    return Command.ENABLE if controlword & 0x08 else Command.SWITCH_ON


# Error codes (object 0x603F, IEC 61800-7-201 table "Error codes").
UNDERVOLTAGE = 0x3220
OVERTEMPERATURE = 0x4310
SAFE_TORQUE_OFF = 0x5441
CONNECTION_LOST = 0x7500
OVERSPEED = 0x8400
FOLLOWING_ERROR = 0x8611

_REGISTER = {0x2: 0x02, 0x3: 0x04, 0x4: 0x08, 0x8: 0x20}


def error_register(code: int) -> int:
    """Return object 0x1001 for an error code: generic, and the bit of its kind."""
    if code == 0:
        return 0
    if code >> 8 in (0x75, 0x81):
        return 0x11
    return 0x01 | _REGISTER.get(code >> 12, 0x80 if code >= 0xFF00 else 0)
