"""Who may move the arm: only with a permit that is good, as long as it is, and never by itself after a stop."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rt_core.safety import SafetyError, SafetyState

HEARTBEAT_S, SILENCE_S = 1.0, 0.1


def running(now: float = 0.0, for_s: float = 60.0) -> SafetyState:
    state = SafetyState(HEARTBEAT_S, SILENCE_S)
    state.arm("a", now, for_s)
    state.on()
    state.begin("a", now, 10.0)
    state.arrived()
    assert state.phase == "running"
    return state


def test_from_disarmed_to_the_end_of_a_run() -> None:
    state = SafetyState(HEARTBEAT_S, SILENCE_S)
    assert state.phase == "disarmed"
    with pytest.raises(SafetyError, match="arm it first"):
        state.begin("a", 0.0, 1.0)
    permit = state.arm("a", 0.0, 60.0)
    assert (permit.expires_s, permit.left_s(50.0), permit.left_s(70.0)) == (60.0, 10.0, 0.0)
    with pytest.raises(SafetyError, match="'arming'"):
        state.begin("a", 0.0, 1.0)
    state.on()
    with pytest.raises(SafetyError, match="not the permit"):
        state.begin("b", 1.0, 1.0)
    with pytest.raises(SafetyError, match=r"takes 59.5 s and the permit is good for 59.0 s"):
        state.begin("a", 1.0, 59.5)
    state.begin("a", 1.0, 58.0)
    assert state.phase == "approach"
    state.arrived()
    state.finished()
    assert (state.phase, state.reason) == ("armed", "")
    with pytest.raises(SafetyError, match="served for a run"):
        state.begin("a", 2.0, 1.0)
    state.arm("c", 3.0, 60.0)
    assert state.phase == "armed"  # the drives are on
    state.begin("c", 3.0, 1.0)


def test_a_permit_expires_also_where_nobody_moves() -> None:
    state = SafetyState(HEARTBEAT_S, SILENCE_S)
    state.arm("a", 0.0, 60.0)
    state.on()
    assert state.overdue(59.9, 59.9) == ""
    assert state.overdue(60.0, 60.0) == "the permit has expired"
    with pytest.raises(SafetyError, match="expired"):
        state.begin("a", 60.0, 1.0)
    state.stop("the permit has expired")
    assert state.phase == "disarmed"


def test_time_stops_a_run() -> None:
    state = running()
    state.heartbeat("a", 5.0)
    assert state.overdue(6.0, 5.95) == ""
    assert "no frame" in state.overdue(6.0, 5.89)
    assert "client has not been heard of for 1.01 s" in state.overdue(6.01, 6.0)
    state.heartbeat("a", 4.0)  # late news are no news
    assert "client" in state.overdue(6.01, 6.0)
    with pytest.raises(SafetyError):
        state.heartbeat("b", 6.0)
    state.heartbeat("a", 59.5)
    assert state.overdue(60.0, 60.0) == "the permit has expired"


def test_the_first_reason_stays_and_a_stop_disarms() -> None:
    state = running()
    state.stop("torque")
    state.stop("client gone")
    assert (state.phase, state.reason, state.permit) == ("stopping", "torque", None)
    assert state.overdue(1e6, 0.0) == ""
    with pytest.raises(SafetyError, match="stopping"):
        state.arm("b", 0.0, 60.0)
    state.off("torque")
    assert (state.phase, state.reason) == ("disarmed", "torque")
    state.stop("again")
    assert state.reason == "torque"
    with pytest.raises(SafetyError, match=r"'disarmed' \(torque\)"):
        state.begin("a", 0.0, 1.0)


def test_in_a_stop_only_its_own_client_is_heard() -> None:
    state = running()
    state.stop("too slow")
    with pytest.raises(SafetyError, match="not the permit"):
        state.heartbeat("b", 5.0)
    assert "client" in state.overdue(5.0, 5.0, stopping=True)
    state.heartbeat("a", 5.0)
    assert state.overdue(5.0, 5.0, stopping=True) == ""


class Story(RuleBasedStateMachine):
    """Whatever happens in whatever order, motion needs a fresh permit since the last stop."""

    def __init__(self) -> None:
        super().__init__()
        self.state = SafetyState(HEARTBEAT_S, SILENCE_S)
        self.now = 0.0
        self.unused: dict[str, float] = {}  # permits that may start a run, and until when
        self.granted = 0
        self.on = False
        self.moves = False

    @rule(dt=st.floats(0.0, 20.0))
    def wait(self, dt: float) -> None:
        self.now += dt

    @rule(for_s=st.floats(0.1, 60.0))
    def arm(self, for_s: float) -> None:
        self.granted += 1
        try:
            self.state.arm(str(self.granted), self.now, for_s)
        except SafetyError:
            assert self.moves
            return
        assert not self.moves
        self.unused = {str(self.granted): self.now + for_s}

    @rule()
    def drives_on(self) -> None:
        self.state.on()
        self.on = self.on or bool(self.unused)

    @rule(back=st.integers(0, 2), duration=st.floats(0.0, 30.0))
    def begin(self, back: int, duration: float) -> None:
        token = str(self.granted - back)
        good = self.on and not self.moves and self.unused.get(token, -1.0) >= self.now + duration
        try:
            self.state.begin(token, self.now, duration)
        except SafetyError:
            assert not good or self.unused[token] - self.now <= duration + 1e-6
            return
        assert good or abs(self.unused[token] - self.now - duration) < 1e-6
        self.unused, self.moves = {}, True

    @rule()
    def stop(self) -> None:
        self.state.stop("told to")
        self.unused = {}
        self.on = self.on and self.moves

    @rule()
    def off(self) -> None:
        self.state.off("drives went off")
        self.unused, self.moves, self.on = {}, False, False

    @rule()
    def finish(self) -> None:
        self.state.arrived()
        self.state.finished()
        self.moves = self.state.phase == "stopping"

    @invariant()
    def moves_only_as_permitted(self) -> None:
        assert self.state.moving == self.moves
        assert (self.state.phase == "armed") <= self.on
        if self.state.phase == "disarmed":
            assert self.state.reason
            assert self.state.permit is None


TestStory = Story.TestCase
