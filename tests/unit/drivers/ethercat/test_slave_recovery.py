"""`SlaveRecovery` against a slave that follows the AL state machine."""

from itertools import pairwise

import pytest

from drivers.ethercat.bus.al_status import INIT, OP, PREOP, SAFEOP, AlStatus
from drivers.ethercat.bus.slave_recovery import RecoveryStep as Step
from drivers.ethercat.bus.slave_recovery import SlaveRecovery

MS = 1_000_000
TIMEOUT = 500 * MS


class Slave:
    """Changes its state 3 ms after each request, and keeps what it was given."""

    def __init__(self, state: int, error: bool = False, present: bool = True, configured: bool = True) -> None:
        self.state, self.error, self.present = state, error, present
        self.address = present
        self.sdos = 5 if configured else 0
        self.mapped = configured
        self.refuses: set[int] = set()
        self.code = 0
        self._next: tuple[int, int] | None = None

    def al(self, now: int) -> AlStatus | None:
        if self._next is not None and now >= self._next[0]:
            target, self._next = self._next[1], None
            wrong = (target == OP and not self.mapped) or (target == SAFEOP and (self.sdos < 5 or not self.mapped))
            if wrong or target in self.refuses:
                self.error, self.code = True, 0x1D
            else:
                self.state = target
        return AlStatus(self.state, self.error, self.code) if self.present and self.address else None

    def do(self, step: Step, now: int) -> None:
        if step is Step.FIND:
            self.address = self.present
        elif step is Step.ACKNOWLEDGE:
            self.error, self.code = False, 0
        elif step is Step.TO_INIT:
            self.error, self._next = False, (now + 3 * MS, INIT)
        elif step is Step.MAILBOX:
            self._next = (now + 3 * MS, PREOP)
        elif step is Step.CONFIGURE:
            self.sdos += 1
        elif step is Step.PROCESS_DATA:
            self.mapped = True
            self._next = (now + 3 * MS, SAFEOP)
        elif step is Step.TO_OP:
            self._next = (now + 3 * MS, OP)

    def power_cycle(self) -> None:
        self.__init__(INIT, present=True, configured=False)  # type: ignore[misc]
        self.address = False


def recover(slave: Slave, limit_ms: int = 5000, events: dict[int, object] | None = None) -> list[Step]:
    """Run one step a millisecond until it is done."""
    recovery = SlaveRecovery(5, 0, TIMEOUT)
    steps = []
    for k in range(limit_ms):
        now = k * MS
        if events and k in events:
            events[k]()  # type: ignore[operator]
        if not recovery.due(now):
            continue
        step = recovery.step(slave.al(now), now)
        if step is not Step.WAIT:
            steps.append(step)
        if step is Step.DONE:
            return steps
        slave.do(step, now)
        if step is Step.CONFIGURE:
            recovery.sdo_written()
    pytest.fail(f"not recovered: {steps[-20:]}")


def test_an_error_is_acknowledged_and_op_requested() -> None:
    assert recover(Slave(SAFEOP, error=True)) == [Step.ACKNOWLEDGE, Step.TO_OP, Step.DONE]
    assert recover(Slave(OP)) == [Step.DONE]  # it never left OP


def test_a_slave_without_power_is_configured_from_the_start() -> None:
    slave = Slave(OP, present=False)
    steps = recover(slave, events={50: slave.power_cycle})
    assert set(steps[:5]) == {Step.FIND}
    assert [step for step in steps if step is not Step.FIND] == [
        Step.MAILBOX, *[Step.CONFIGURE] * 5, Step.PROCESS_DATA, Step.TO_OP, Step.DONE,
    ]  # fmt: skip


def test_a_slave_in_preop_of_unknown_configuration_starts_from_init() -> None:
    steps = recover(Slave(PREOP, configured=False))
    assert steps[0] is Step.TO_INIT
    assert steps.count(Step.CONFIGURE) == 5


def test_power_lost_again_in_the_middle() -> None:
    slave = Slave(INIT, configured=False)
    recover(slave, events={6: slave.power_cycle})
    assert slave.state == OP
    assert slave.sdos == 5


def test_a_refusal_is_retried_with_growing_pauses() -> None:
    slave = Slave(SAFEOP, error=True)
    slave.refuses.add(OP)
    steps = recover(slave, events={3000: slave.refuses.clear})
    assert steps[-1] is Step.DONE
    assert 3 < steps.count(Step.TO_OP) < 12


def test_a_refused_configuration_is_written_again() -> None:
    slave = Slave(INIT, configured=False)
    slave.refuses.add(SAFEOP)
    assert recover(slave, events={200: slave.refuses.clear}).count(Step.CONFIGURE) >= 10


def test_a_change_of_state_has_a_time_limit() -> None:
    recovery = SlaveRecovery(0, 0, TIMEOUT)
    now, steps = 0, []
    while now < TIMEOUT + 10 * MS:
        if recovery.due(now):
            steps.append(recovery.step(AlStatus(SAFEOP), now))
        now += MS
    assert steps[0] is Step.TO_OP
    assert set(steps[1:-1]) == {Step.WAIT}
    assert steps[-1] is Step.TO_INIT
    assert recovery.failures == 1


def test_failures_that_cost_other_slaves_cycles_have_long_pauses() -> None:
    recovery = SlaveRecovery(5, 0, TIMEOUT)
    now, tries = 0, []
    while now < 60_000 * MS:
        if recovery.due(now):
            if tries:
                assert recovery.step(AlStatus(PREOP), now) is Step.TO_INIT
            assert recovery.step(AlStatus(INIT), now) is Step.MAILBOX
            assert recovery.step(AlStatus(PREOP), now) is Step.CONFIGURE
            tries.append(now)
            recovery.failed(now, costly=True)
        now += MS
    pauses = [after - before for before, after in pairwise(tries)]
    assert pauses[0] >= 400 * MS
    assert all(after >= before for before, after in pairwise(pauses))
    assert len(tries) < 12
    assert pauses[-1] <= 20_000 * MS  # but not given up


def test_a_mailbox_that_does_not_answer_is_set_up_again() -> None:
    recovery = SlaveRecovery(5, 0, TIMEOUT)
    assert recovery.step(AlStatus(INIT), 0) is Step.MAILBOX
    assert recovery.step(AlStatus(PREOP), MS) is Step.CONFIGURE
    recovery.failed(MS, costly=True)
    assert not recovery.due(2 * MS)
    later = MS + SlaveRecovery.FIRST_COSTLY_PAUSE_NS
    assert recovery.due(later)
    assert recovery.step(AlStatus(PREOP), later) is Step.TO_INIT
    assert recovery.step(AlStatus(INIT), later + MS) is Step.MAILBOX
    assert recovery.step(AlStatus(PREOP), later + 2 * MS) is Step.CONFIGURE
    recovery.failed(later + 2 * MS)  # refused, so it does answer
    assert recovery.step(AlStatus(PREOP), later + 2_000 * MS) is Step.CONFIGURE


def test_a_lasting_error_is_polled() -> None:
    recovery = SlaveRecovery(0, 0, TIMEOUT)
    assert recovery.step(AlStatus(SAFEOP, True, 0x1B), 0) is Step.ACKNOWLEDGE
    assert not recovery.due(MS)
    assert recovery.due(SlaveRecovery.POLL_EVERY_NS)
