"""Bringing a slave back that left OPERATIONAL: one short step between two cycles, so that the others go on.

`SlaveRecovery` is fed with what the slave's AL status register says, or that it does not answer, and returns the one
step to take now.  It gives up never, but waits longer after each failure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

INIT, PREOP, BOOT, SAFEOP, OP = 1, 2, 3, 4, 8
STATE_NAMES = {0: "not there", INIT: "INIT", PREOP: "PRE-OP", BOOT: "BOOT", SAFEOP: "SAFE-OP", OP: "OP"}


@dataclass(frozen=True)
class AlStatus:
    """AL status of a slave that answers."""

    state: int
    error: bool = False
    code: int = 0

    def text(self, code_text: Callable[[int], str]) -> str:
        """State and error, readable."""
        name = STATE_NAMES.get(self.state, f"state {self.state}")
        if not self.error and not self.code:
            return name
        return f"{name}, AL status 0x{self.code:04X} ({code_text(self.code)})"


class Step(Enum):
    """What to do with the slave now."""

    WAIT = "wait"
    FIND = "find"  # look for it on its place, and give it its address again
    ACKNOWLEDGE = "acknowledge"  # its error, in the state where it is
    TO_INIT = "to INIT"
    MAILBOX = "mailbox"  # sync managers of the mailbox, then PRE-OP
    CONFIGURE = "configure"  # the next of its SDOs
    PROCESS_DATA = "process data"  # sync managers, FMMUs, SYNC0, watchdog; then SAFE-OP
    TO_OP = "to OP"
    DONE = "done"


class SlaveRecovery:
    """Recovery of one slave.

    Parameters
    ----------
    sdos : int
        How many SDOs configure it.
    now_ns : int
        When it was found to be gone.
    state_timeout_ns : int
        How long a change of state may take.
    """

    FIND_EVERY_NS = 5_000_000
    POLL_EVERY_NS = 2_000_000
    FIRST_PAUSE_NS = 20_000_000
    MAX_PAUSE_NS = 1_000_000_000
    #: After a failure that cost the others cycles.
    FIRST_DEAR_PAUSE_NS = 500_000_000
    MAX_DEAR_PAUSE_NS = 16_000_000_000

    def __init__(self, sdos: int, now_ns: int, state_timeout_ns: int) -> None:
        self.started_ns = now_ns
        self.failures = 0
        self._sdos = sdos
        self._timeout_ns = state_timeout_ns
        self._next_sdo = 0
        self._configured = True  # until it is seen below SAFE-OP
        self._mailbox_works = True  # as far as is known
        self._wanted = 0  # state asked for, 0 if none
        self._asked_ns = now_ns
        self._not_before_ns = now_ns
        self._dear_failures = 0

    @property
    def next_sdo(self) -> int:
        """Number of the SDO that CONFIGURE is about."""
        return self._next_sdo

    def due(self, now_ns: int) -> bool:
        """Whether it is time to read the AL status and ask for the next step."""
        return now_ns >= self._not_before_ns

    def step(self, al: AlStatus | None, now_ns: int) -> Step:
        """Take the AL status read now (None: no answer); return what to do."""
        self._not_before_ns = now_ns
        if al is None:
            self._wanted, self._next_sdo = 0, 0
            self._not_before_ns = now_ns + self.FIND_EVERY_NS
            return Step.FIND
        if al.error:
            self._not_before_ns = now_ns + self.POLL_EVERY_NS
            if self._wanted:  # it refused; tried again after a while
                self.failed(now_ns)
            return Step.ACKNOWLEDGE
        if self._wanted:
            if al.state == self._wanted:
                self._wanted = 0
            elif now_ns - self._asked_ns > self._timeout_ns:
                self.failed(now_ns)
                return Step.TO_INIT
            else:
                self._not_before_ns = now_ns + self.POLL_EVERY_NS
                return Step.WAIT
        return self._forward(al.state, now_ns)

    def _forward(self, state: int, now_ns: int) -> Step:
        if state == OP:
            return Step.DONE
        if state == SAFEOP and self._configured:
            self._ask(OP, now_ns)
            return Step.TO_OP
        if state == PREOP and not self._configured and self._mailbox_works:
            if self._next_sdo < self._sdos:
                return Step.CONFIGURE
            self._configured = True
            self._ask(SAFEOP, now_ns)
            return Step.PROCESS_DATA
        if state == INIT:
            self._configured, self._next_sdo, self._mailbox_works = False, 0, True
            self._ask(PREOP, now_ns)
            return Step.MAILBOX
        # Neither its configuration nor its mailbox is known to be as we left it: from the start.
        self._configured, self._next_sdo = False, 0
        self._ask(INIT, now_ns)
        return Step.TO_INIT

    def _ask(self, state: int, now_ns: int) -> None:
        self._wanted, self._asked_ns = state, now_ns

    def sdo_written(self) -> None:
        """Take note that SDO number `next_sdo` was written."""
        self._next_sdo += 1

    def failed(self, now_ns: int, dear: bool = False) -> None:
        """Take note that a step did not succeed: wait, longer each time, and begin again.

        `dear` says that the mailbox did not answer, which cost the others cycles: the pauses are such that they lose
        few, and the mailbox is set up anew, as what slave and master take for its state may differ.
        """
        self.failures += 1
        pause = min(self.FIRST_PAUSE_NS << min(self.failures - 1, 10), self.MAX_PAUSE_NS)
        if dear:
            pause = min(self.FIRST_DEAR_PAUSE_NS << min(self._dear_failures, 10), self.MAX_DEAR_PAUSE_NS)
            self._dear_failures += 1
            self._mailbox_works = False
        self._not_before_ns = now_ns + pause
        if self._wanted == SAFEOP:  # the configuration itself may be what was refused
            self._configured = False
        self._wanted, self._next_sdo = 0, 0
