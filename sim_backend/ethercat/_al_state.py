"""State machine of the application layer: requests, checks, delays, errors, acknowledgement (ETG.1000.6, 6.4)."""

import struct
from collections.abc import Callable

from sim_backend.ethercat import registers as reg

_ORDER = (reg.AL_INIT, reg.AL_PREOP, reg.AL_SAFEOP, reg.AL_OP)
_WAIT_NS = 1_000_000  # until a condition that is not met is checked again

#: Returns the AL status code that refuses the change (present state, requested state): 0 if it is allowed, None while
#: a condition is still missing.
Check = Callable[[int, int], int | None]
#: Called with (former state, new state).
Entered = Callable[[int, int], None]


class StateMachine:
    """AL control and status of one slave; changes up take `transition_ns` and wait `patience_ns` for conditions."""

    def __init__(
        self, view: memoryview, check: Check, entered: Entered, *, transition_ns: int, patience_ns: int = 1_000_000_000
    ) -> None:
        self._view = view
        self._check = check
        self._entered = entered
        self._transition_ns = transition_ns
        self._patience_ns = patience_ns
        self._requested = 0
        self._deadline_ns = reg.NEVER_NS
        self.due_ns = reg.NEVER_NS
        self.state = reg.AL_INIT
        self.error = False

    def power_on(self) -> None:
        """Start in INIT, without a call of `entered`."""
        self.due_ns = reg.NEVER_NS
        self.state, self.error = reg.AL_INIT, False
        self._view[reg.AL_CONTROL] = reg.AL_INIT
        self._show(reg.AL_CODE_NONE)

    def control(self, now_ns: int) -> None:
        """Handle a write of the master to AL control."""
        control = self._view[reg.AL_CONTROL]
        target = control & reg.AL_STATE_MASK
        if self.error and not control & reg.AL_ERROR and target != reg.AL_INIT:
            return  # an error has to be acknowledged first
        self.error = False
        self._show(reg.AL_CODE_NONE)
        self.due_ns = reg.NEVER_NS
        refused = self._forbidden(target)
        if refused:
            self._refuse(refused)
        elif _ORDER.index(target) <= _ORDER.index(self.state):
            self._enter(target)
        else:
            self._requested = target
            self.due_ns = now_ns + self._transition_ns
            self._deadline_ns = self.due_ns + self._patience_ns

    def tick(self, now_ns: int) -> None:
        """Make the change that is due."""
        if now_ns < self.due_ns:
            return
        code = self._check(self.state, self._requested)
        if code is None and now_ns < self._deadline_ns:
            self.due_ns = now_ns + _WAIT_NS
            return
        self.due_ns = reg.NEVER_NS
        if code == reg.AL_CODE_NONE:
            self._enter(self._requested)
        else:
            self._refuse(reg.AL_CODE_NO_OUTPUTS if code is None else code)

    def fail(self, code: int, fall_to: int) -> None:
        """Report an error and fall to a lower state; a pending request is dropped."""
        self.due_ns = reg.NEVER_NS
        if fall_to in _ORDER and _ORDER.index(fall_to) < _ORDER.index(self.state):
            self._enter(fall_to)
        self._refuse(code)

    def _forbidden(self, target: int) -> int:
        """Return the AL status code that refuses a request in any condition of the device, else 0."""
        if target == reg.AL_BOOT:
            initial = self.state == reg.AL_INIT
            return reg.AL_CODE_BOOT_NOT_SUPPORTED if initial else reg.AL_CODE_INVALID_STATE_CHANGE
        if target not in _ORDER:
            return reg.AL_CODE_UNKNOWN_STATE
        if _ORDER.index(target) > _ORDER.index(self.state) + 1:
            return reg.AL_CODE_INVALID_STATE_CHANGE
        return reg.AL_CODE_NONE

    def _enter(self, state: int) -> None:
        former, self.state = self.state, state
        if former != state:
            self._entered(former, state)
        self._show(reg.AL_CODE_NONE)

    def _refuse(self, code: int) -> None:
        self.error = True
        self._show(code)

    def _show(self, code: int) -> None:
        struct.pack_into("<H", self._view, reg.AL_STATUS, self.state | reg.AL_ERROR * self.error)
        struct.pack_into("<H", self._view, reg.AL_STATUS_CODE, code)
