"""`DriveControl` against a drive written from the transitions of the standard."""

from hypothesis import given
from hypothesis import strategies as st

from drivers.ethercat.drive.cia402 import DriveControl, DriveState, Goal, state_of

STATUSWORDS = {
    DriveState.NOT_READY: 0x0000, DriveState.DISABLED: 0x0250, DriveState.READY: 0x0231, DriveState.SWITCHED_ON: 0x0233,
    DriveState.ENABLED: 0x0637, DriveState.QUICK_STOP: 0x0217, DriveState.FAULT_REACTION: 0x021F,
    DriveState.FAULT: 0x0218,
}  # fmt: skip


class Drive:
    """Transitions 2 to 16 of IEC 61800-7-201, by controlword bits; a quick stop ends after 5 cycles."""

    def __init__(self, state: DriveState = DriveState.DISABLED, resettable: bool = True) -> None:
        self.state = state
        self.resettable = resettable
        self.stopping = 0
        self.word = 0

    def cycle(self, word: int) -> int:
        s, before, self.word = self.state, self.word, word
        voltage, quick, on, enable = bool(word & 2), bool(word & 4), bool(word & 1), bool(word & 8)
        if s is DriveState.FAULT:
            if word & 0x80 and not before & 0x80 and self.resettable:
                self.state = DriveState.DISABLED
        elif s is DriveState.QUICK_STOP:
            self.stopping += 1
            if not voltage or self.stopping > 5:
                self.state = DriveState.DISABLED
        elif s is not DriveState.DISABLED and not voltage:
            self.state = DriveState.DISABLED
        elif s is DriveState.ENABLED and not quick:
            self.state, self.stopping = DriveState.QUICK_STOP, 0
        elif s is not DriveState.DISABLED and not quick:
            self.state = DriveState.DISABLED
        elif voltage and quick:
            if not on:
                self.state = DriveState.READY
            elif s is DriveState.READY:
                self.state = DriveState.SWITCHED_ON
            elif s is DriveState.SWITCHED_ON and enable:
                self.state = DriveState.ENABLED
            elif s is DriveState.ENABLED and not enable:
                self.state = DriveState.SWITCHED_ON
        return STATUSWORDS[self.state]


def run(control: DriveControl, drive: Drive, cycles: int = 20) -> list[DriveState]:
    states = []
    word = drive.word
    for _ in range(cycles):
        word = control.step(drive.cycle(word))
        states.append(drive.state)
    return states


def running() -> tuple[DriveControl, Drive]:
    """A drive that was enabled."""
    drive, control = Drive(), DriveControl()
    control.enable()
    run(control, drive)
    return control, drive


def test_state_of_a_statusword() -> None:
    for state, word in STATUSWORDS.items():
        assert state_of(word) is state
        assert state_of(word | 0xFF90 & ~0x6F) is state  # the other bits do not matter


def test_enabling_goes_through_the_states_in_order() -> None:
    drive, control = Drive(), DriveControl()
    assert set(run(control, drive)) == {DriveState.DISABLED}  # not before `enable`
    control.enable()
    seen = list(dict.fromkeys(run(control, drive)))
    assert seen == [DriveState.DISABLED, DriveState.READY, DriveState.SWITCHED_ON, DriveState.ENABLED]
    assert control.enabled


def test_the_reset_is_an_edge_that_lasts_and_is_given_again() -> None:
    control = DriveControl(reset_cycles=3)
    control.enable()
    assert [control.step(STATUSWORDS[DriveState.FAULT]) for _ in range(12)] == [0x80, 0x80, 0x80, 0, 0, 0] * 2


def test_a_drive_that_reads_every_fifth_controlword_sees_the_reset() -> None:
    drive, control = Drive(DriveState.FAULT), DriveControl(reset_cycles=20)
    assert set(run(control, drive)) == {DriveState.FAULT}  # not by itself
    control.enable()
    status = STATUSWORDS[DriveState.FAULT]
    for k in range(200):
        word = control.step(status)
        if k % 5 == 3:
            status = drive.cycle(word)
    assert control.enabled


def test_a_quick_stop_by_the_drive_itself_keeps_its_voltage_to_the_end() -> None:
    control = DriveControl(stop_cycles=100)
    control.enable()
    control.step(STATUSWORDS[DriveState.ENABLED])
    assert set([control.step(STATUSWORDS[DriveState.QUICK_STOP]) for _ in range(50)]) == {0x02}
    assert control.dropped
    assert not control.enabled
    assert control.step(STATUSWORDS[DriveState.DISABLED]) == 0
    assert control.goal is Goal.OFF


def test_enabling_lets_a_quick_stop_end_first() -> None:
    drive, control = Drive(DriveState.QUICK_STOP), DriveControl()
    control.enable()
    drive.word = 0x02
    assert run(control, drive).count(DriveState.QUICK_STOP) == 5  # its own ramp
    assert control.enabled
    control.enable()
    words = [DriveControl.step(control, STATUSWORDS[DriveState.QUICK_STOP]) for _ in range(502)]
    assert words == [0x02] * 500 + [0x00] * 2  # one that stays there is switched off


def test_a_fault_in_operation_is_not_reset_and_the_drive_stays_off() -> None:
    control, drive = running()
    drive.state = DriveState.FAULT
    run(control, drive)
    assert control.dropped
    assert control.goal is Goal.OFF
    assert drive.state is DriveState.FAULT
    control.enable()
    run(control, drive)
    assert control.enabled
    assert not control.dropped


def test_disable_brakes_first() -> None:
    control, drive = running()
    control.disable()
    assert list(dict.fromkeys(run(control, drive)))[-2:] == [DriveState.QUICK_STOP, DriveState.DISABLED]
    assert control.goal is Goal.OFF
    assert not control.dropped


def test_a_lost_drive_needs_enable_again() -> None:
    control, drive = running()
    control.lost()
    drive.state = DriveState.DISABLED
    assert set(run(control, drive)) == {DriveState.DISABLED}
    assert control.dropped


words = st.lists(st.sampled_from([*STATUSWORDS.values(), 0xFFFF, 0x1234]), max_size=50)


@given(words, st.sampled_from(["lost", "disable", "inputs_missing"]), words)
def test_nothing_enables_without_a_request(before: list[int], stop: str, after: list[int]) -> None:
    control = DriveControl(stop_cycles=10)
    assert {control.step(word) for word in before} <= {0}
    control.enable()
    for word in before:
        control.step(word)
    getattr(control, stop)()
    assert not any(control.step(word) & 0x08 for word in after)
    assert not control.enabled
