"""A CiA 402 servo drive: state machine, cyclic modes, supervision, stops and brake.  Pure: no I/O, no clock.

In each cycle the drive takes feedback of its sensors and the objects written by the master, and returns the demand on
the motor until the next cycle.  Quantities are in units of the device: position units, per second, and per mille of
rated torque (of rated current for a drive without torque).

Enabling: the motor holds its position with the brake closed until the brake has opened, then follows its set values
(bit 12).  A stop under power ends with the brake closed before torque ends; without power the motor coasts until the
brake has closed.
"""

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass

from sim_backend.canopen.data_types import Value
from sim_backend.canopen.dictionary import AbortCode, ObjectDictionary, SdoAbort
from sim_backend.drive import _cia402 as cia402
from sim_backend.drive._cia402 import Command, State, command_of, error_register
from sim_backend.drive.modes import BRAKED, CSP, CST, CSV, OFF
from sim_backend.drive.motion import Brake, Demand, Feedback, SetValues, Stop
from sim_backend.drive.objects import NO_WINDOW, DriveObjects

#: Overspeed limit, as a multiple of the largest speed.
_OVERSPEED = 1.3
#: Bit of object 0x60FD: safe torque off is active.
_INTERLOCK = 1 << 3
_POWERED = (State.ENABLED, State.QUICK_STOP, State.FAULT_REACTION)
#: Bits of the controlword that make its command, and their value in operation.
_COMMAND_BITS, _GO_ON = 0x8F, 0x0F
#: Statusword of a drive that follows set positions.
_CRUISING = State.ENABLED.value | cia402.STATUS_VOLTAGE | cia402.STATUS_REMOTE | cia402.STATUS_FOLLOWS_COMMAND


@dataclass(frozen=True)
class DriveOptions:
    """Properties of a drive beyond its objects."""

    modes: tuple[int, ...] = (CSP, CSV, CST)  # of operation, supported
    units_per_motor_rev: float = 1048576.0  # position units; makes the speed limit 0x6080 [1/min] one in units
    power_up_s: float = 0.02  # to "Switch on disabled" after power comes
    brake_open_s: float = 0.03  # delays of the brake
    brake_close_s: float = 0.03
    warning_c: float = 90.0  # of the motor [degC]
    fault_c: float = 110.0
    safe_torque_off_faults: bool = True  # when powered; otherwise it leads to "Switch on disabled"
    extrapolated: int = 8  # cycles without a new set position bridged by extrapolation, before the drive holds


@dataclass(frozen=True)
class Emergency:
    """An emergency message: error code, error register, up to five bytes of the manufacturer's."""

    code: int
    register: int
    data: bytes = b""


class Cia402Drive:
    """A drive on its object dictionary; missing objects have default values.

    Entries of the dictionary are read and written in place, and are at hand as `objects`; `on_write` of 0x6060 is set
    to refuse unsupported modes.  The input `safe_torque_off`, and `mains` (whether the motor has power) may be set at
    any time.  `mode` is the mode of operation in force, 0 for none.
    """

    def __init__(self, dictionary: ObjectDictionary, options: DriveOptions | None = None) -> None:
        self.options = DriveOptions() if options is None else options
        self.safe_torque_off = False
        self.mains = True
        self.objects = DriveObjects(dictionary)
        self.objects.mode.on_write = self._check_mode(self.objects.mode.on_write)
        self.power_on()

    def power_on(self) -> None:
        """Restart: "Not ready to switch on", brake closed, no errors."""
        self.state = State.NOT_READY
        self.mode = 0
        self._age_s = 0.0
        self._brake = Brake(self.options.brake_open_s, self.options.brake_close_s)
        self._values = SetValues(self.objects, self.options.extrapolated)
        self._stop: Stop | None = None
        self._then: State | None = None
        self._follows = False
        self._hold: float | None = None
        self._late_s = 0.0
        self._last_controlword = 0
        self._online = False
        self._events: list[Emergency] = []
        self.objects.error_code.value = self.objects.error_register.value = 0

    def fault(self, code: int, data: bytes = b"") -> None:
        """Trip with an error code; a drive that has tripped keeps its first error."""
        if self.state in (State.FAULT, State.FAULT_REACTION):
            return
        self._raise(Emergency(code, error_register(code), data))
        option = int(self.objects.fault_option.value)
        if self.state not in _POWERED or option == 0 or not self._has_power():
            self._enter(State.FAULT)
        else:
            self.state = State.FAULT_REACTION
            self._begin_stop(option, State.FAULT, measured=True)

    def take_emergencies(self) -> list[Emergency]:
        """Remove and return the emergencies since the last call."""
        events, self._events = self._events, []
        return events

    def cycle(self, feedback: Feedback, period_s: float, online: bool = True, fresh: bool = True) -> Demand:
        """Run one cycle, of `period_s`, from the sensors at its start.

        `online`: the bus delivers process data; losing them under power is an error (option 0x6007).  `fresh`: process
        data have arrived since the last cycle.
        """
        if online and (demand := self._cruise(feedback, period_s, fresh)) is not None:
            return demand
        self._feedback = feedback
        self._age_s += period_s
        if self.state is State.NOT_READY and self._age_s >= self.options.power_up_s:
            self._enter(State.SWITCH_ON_DISABLED)
        self._supervise(period_s)
        if self._online and not online:
            self._lose_connection()
        self._online = online
        if online:
            self._obey(int(self.objects.controlword.value))
        demand = self._run(period_s, fresh)
        self._report()
        return demand

    def _cruise(self, feedback: Feedback, period_s: float, fresh: bool) -> Demand | None:
        """Run a cycle that only follows set positions, in a third of the time; None, and nothing done, in others."""
        objects, values = self.objects, self._values
        word = objects.controlword.value
        if (
            not self._follows
            or self.state is not State.ENABLED
            or word != self._last_controlword
            or self._last_controlword & _COMMAND_BITS != _GO_ON
            or self.mode != CSP
            or objects.mode.value != CSP
            or not self._online
            or self._late_s
            or self.safe_torque_off
            or not self.mains
            or feedback.temperature >= self.options.warning_c
        ):
            return None
        top, error = self._largest_speed(), round(values.wanted) - feedback.position
        if abs(feedback.velocity) > _OVERSPEED * top or abs(error) > int(objects.window.value):
            return None
        self._feedback = feedback
        self._age_s += period_s
        objects.following_error.value = error
        demand = values.next(CSP, feedback, top, period_s, fresh)
        word = _CRUISING
        if values.limited or feedback.limited:
            word |= cia402.STATUS_INTERNAL_LIMIT
        if values.speed == 0.0 and not values.limited:
            word |= cia402.STATUS_TARGET_REACHED
        objects.statusword.value, objects.mode_display.value = word, CSP
        objects.position.value, objects.velocity.value = feedback.position, round(feedback.velocity)
        objects.inputs.value = int(objects.inputs.value) & ~_INTERLOCK
        return demand

    # States

    def _has_power(self) -> bool:
        return self.mains and not self.safe_torque_off

    def _raise(self, emergency: Emergency) -> None:
        self._events.append(emergency)
        self.objects.error_code.value, self.objects.error_register.value = emergency.code, emergency.register

    def _enter(self, state: State) -> None:
        """Enter a state without power, or "Operation enabled"."""
        self.state, self._stop, self._follows = state, None, False
        self._values.limited = False
        self._hold, self._late_s = None, 0.0

    def _obey(self, controlword: int) -> None:
        """Make the transition of a controlword (IEC 61800-7-201, figure "State machine")."""
        rising = controlword & ~self._last_controlword & cia402.FAULT_RESET
        self._last_controlword = controlword
        command = command_of(controlword)
        if self.state is State.FAULT:
            if rising and self._has_power() and self._feedback.temperature < self.options.fault_c:
                self._raise(Emergency(0, 0))
                self._enter(State.SWITCH_ON_DISABLED)
        elif command is None or self.state in (State.NOT_READY, State.FAULT_REACTION):
            pass
        elif self.state is State.SWITCH_ON_DISABLED:
            if command is Command.SHUTDOWN and self._has_power():
                self._enter(State.READY)
        elif self.state in (State.READY, State.SWITCHED_ON):
            self._switch_on_or_off(command)
        elif command is Command.DISABLE_VOLTAGE:
            self._enter(State.SWITCH_ON_DISABLED)
        elif self.state is State.ENABLED:
            self._leave_operation(command)
        elif command is Command.ENABLE and self._then is None:  # transition 16
            self._enter(State.ENABLED)

    def _switch_on_or_off(self, command: Command) -> None:
        """Handle commands in "Ready to switch on" and "Switched on"; enabling passes through the latter."""
        if command in (Command.DISABLE_VOLTAGE, Command.QUICK_STOP):
            self._enter(State.SWITCH_ON_DISABLED)
        elif command is Command.SHUTDOWN:
            self._enter(State.READY)
        elif self.state is State.READY:
            self._enter(State.SWITCHED_ON)
        elif command is Command.ENABLE:
            self._enter(State.ENABLED)

    def _leave_operation(self, command: Command) -> None:
        """Handle commands in "Operation enabled" that stop the motor."""
        if command is Command.QUICK_STOP:
            option = int(self.objects.quick_stop_option.value)
            if option == 0:
                self._enter(State.SWITCH_ON_DISABLED)
            else:
                self.state = State.QUICK_STOP
                self._begin_stop((option - 1) % 4 + 1, None if option > 4 else State.SWITCH_ON_DISABLED)
        elif self._stop is None and command in (Command.SHUTDOWN, Command.SWITCH_ON):
            shutdown = command is Command.SHUTDOWN
            then = State.READY if shutdown else State.SWITCHED_ON
            option_entry = self.objects.shutdown_option if shutdown else self.objects.disable_option
            if int(option_entry.value) == 0:
                self._enter(then)
            else:
                self._begin_stop(1, then)

    def _begin_stop(self, option: int, then: State | None, measured: bool = False) -> None:
        """Start a stop by options 0x605A to 0x605E: 1 slow ramp, 2 quick ramp, 3 and 4 with full torque.

        It starts from the set values, or from the measured ones if there are none or if `measured`.
        """
        ramp = self.objects.slow_deceleration if option == 1 else self.objects.quick_deceleration
        deceleration = math.inf if option >= 3 else float(ramp.value) or math.inf
        position, velocity = float(self._feedback.position), self._feedback.velocity
        if self._brake.closed:
            velocity = 0.0
        elif self._stop is not None and not measured:
            position, velocity = self._stop.position, self._stop.velocity
        elif self._follows and self.mode == CSP and not measured:
            position, velocity = self._values.commanded, self._values.speed
        self._follows = False
        self._stop, self._then = Stop(position, velocity, deceleration), then

    def _lose_connection(self) -> None:
        option = int(self.objects.connection_option.value)
        if self.state in (State.READY, State.SWITCHED_ON) or (self.state in _POWERED and option == 2):
            self._enter(State.SWITCH_ON_DISABLED)
        elif self.state in _POWERED and option == 1:
            self.fault(cia402.CONNECTION_LOST)
        elif self.state is State.ENABLED and option == 3:
            self._leave_operation(Command.QUICK_STOP)

    # Supervision

    def _largest_speed(self) -> float:
        """Return the speed limit [units/s], infinite if none is set."""
        return int(self.objects.top_speed.value) / 60.0 * self.options.units_per_motor_rev or math.inf

    def _supervise(self, period_s: float) -> None:
        if not self._has_power():
            self._drop_power()
        if self._feedback.temperature >= self.options.fault_c:
            self.fault(cia402.OVERTEMPERATURE)
        following = self.objects.following_error
        following.value = 0
        if self.state not in _POWERED:
            return
        if abs(self._feedback.velocity) > _OVERSPEED * self._largest_speed():
            self.fault(cia402.OVERSPEED)
        if self._follows and self.mode == CSP:
            error = round(self._values.wanted) - self._feedback.position
            following.value = error
            window = int(self.objects.window.value)
            self._late_s = self._late_s + period_s if abs(error) > window and window != NO_WINDOW else 0.0
            if self._late_s > 0.0 and self._late_s >= int(self.objects.window_ms.value) * 1e-3 - 1e-9:
                reach = max(-(1 << 31), min(error, (1 << 31) - 1))
                self.fault(cia402.FOLLOWING_ERROR, struct.pack("<i", reach))

    def _drop_power(self) -> None:
        """Handle safe torque off or missing mains: torque ends at once, the brake closes."""
        if self.state in (State.READY, State.SWITCHED_ON):
            self._enter(State.SWITCH_ON_DISABLED)
        elif self.state is State.FAULT_REACTION:
            self._enter(State.FAULT)
        elif self.state in _POWERED:
            if self.safe_torque_off and not self.options.safe_torque_off_faults:
                self._enter(State.SWITCH_ON_DISABLED)
            else:
                self.fault(cia402.SAFE_TORQUE_OFF if self.safe_torque_off else cia402.UNDERVOLTAGE)

    # Motion

    def _run(self, period_s: float, fresh: bool) -> Demand:
        """Return mode, brake and set values of the next period."""
        self._select_mode()
        powered, stop = self.state in _POWERED, self._stop
        self._brake.move(not powered or (stop is not None and stop.standing and self._then is not None), period_s)
        closed = self._brake.closed
        if stop is not None and stop.standing and self._then is not None and closed:
            self._enter(self._then)
            powered = False
        if not powered:
            return Demand(BRAKED if closed else OFF, brake=closed)
        if stop is not None:
            top, limit = self._largest_speed(), self.objects.torque_limit()
            return stop.next(self._feedback, top, period_s, limit)._replace(brake=closed)
        if closed or self.mode not in self.options.modes:
            self._follows = False
            if self._hold is None:
                self._hold = float(self._feedback.position)
            return Demand(CSP, self._hold, 0.0, self.objects.torque_limit(), closed)
        if not self._follows:
            self._follows = True
            self._values.start(self._feedback)
        return self._values.next(self.mode, self._feedback, self._largest_speed(), period_s, fresh)

    def _check_mode(self, before: Callable[[Value], None] | None) -> Callable[[Value], None]:
        def check(value: Value) -> None:
            if value != 0 and value not in self.options.modes:
                raise SdoAbort(AbortCode.RANGE)
            if before is not None:
                before(value)

        return check

    def _select_mode(self) -> None:
        """Change to the requested mode if it is supported."""
        wanted = int(self.objects.mode.value)
        if wanted != self.mode and wanted in self.options.modes:
            self.mode, self._late_s = wanted, 0.0
            self._values.start(self._feedback)

    # Statusword

    def _report(self) -> None:
        word: int = self.state.value
        powered = self.state in _POWERED
        if self.mains:
            word |= cia402.STATUS_VOLTAGE
        if self.state in (State.SWITCH_ON_DISABLED, State.FAULT):
            word |= cia402.STATUS_QUICK_STOP_OFF
        if self._feedback.temperature >= self.options.warning_c:
            word |= cia402.STATUS_WARNING
        if self._online:
            word |= cia402.STATUS_REMOTE
        if powered and (self._values.limited or self._feedback.limited):
            word |= cia402.STATUS_INTERNAL_LIMIT
        if self._follows:
            word |= cia402.STATUS_FOLLOWS_COMMAND
            if self._late_s > 0.0:
                word |= cia402.STATUS_FOLLOWING_ERROR
        if powered and self._reached():
            word |= cia402.STATUS_TARGET_REACHED
        objects = self.objects
        objects.statusword.value = word
        objects.mode_display.value = self.mode
        objects.position.value, objects.velocity.value = self._feedback.position, round(self._feedback.velocity)
        inputs = int(objects.inputs.value)
        objects.inputs.value = inputs | _INTERLOCK if self.safe_torque_off else inputs & ~_INTERLOCK

    def _reached(self) -> bool:
        """Return bit 10: a stop has ended, or the set position is constant and the motor within its window."""
        if self._stop is not None:
            return self._stop.standing
        still = self._values.speed == 0.0 and not self._values.limited
        return self._follows and self.mode == CSP and still and self._late_s == 0.0
