"""Frames that are lost while an arm moves, on drives that hold, extrapolate, or are sent set positions ahead."""

import struct
from collections import deque
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivers.driver import CommandRefusedError
from drivers.frame import JointFrame
from rt_core.model.robot import RobotModel
from rt_core.safety import stopping_distance
from rt_core.types import FloatArray
from service.config.arm_tables import SafetyConfig
from service.motion._motion_controller import MotionController
from service.motion._safety_limits import CommandBounds, safety_limits
from service.motion.trajectory_run import Run
from tests.lab.daemon.motion_bench import ACCELERATION, MODEL, PERIOD_S, ROBOT, START, N, trajectory
from tests.lab.ethercat.configs import make_config
from tests.lab.ethercat.drives import DISABLED, ENABLED, READY, SWITCHED_ON, controlwords, group_of, sent

#: Speed from which a joint brakes within a cycle, or within what counts as reached: a share of 1e-5 of its range.
RANGE = np.array([joint.upper - joint.lower for joint in MODEL.joints])
REST = np.maximum(ACCELERATION * PERIOD_S, np.sqrt(2.0 * ACCELERATION * 1e-5 * RANGE)) + ACCELERATION * PERIOD_S


class Drives:
    """Drives that reach each set position, and go on by themselves for `bridged` cycles without a new one."""

    def __init__(self, bridged: int, lead: int, bounds: CommandBounds | None) -> None:
        self.low, self.high = (-np.inf, np.inf) if bounds is None else bounds[:2]
        self.played: list[FloatArray] = [START.copy()]
        self.enabled = False
        self.rested = False  # as they were switched off
        self.stated = True  # the set position, in frames
        self._bridged, self._lead = bridged, lead
        self._queue: deque[FloatArray] = deque()
        self.target: FloatArray | None = None
        self._last = START.copy()  # target of the last frame that had one

    def enable(self) -> None:
        self.enabled = True

    def disable(self) -> None:
        if self.enabled:
            speed = np.abs(self.played[-1] - self.played[-2]) / PERIOD_S
            self.rested = bool((speed <= REST).all())
        self.enabled = False

    def command(self, target: FloatArray) -> None:
        if (target != np.clip(target, self.low, self.high)).any():
            raise CommandRefusedError("beyond a bound")
        self.target = target.copy()

    def cycle(self, seq: int, late: int) -> JointFrame:
        """`late` cycles without a frame, and one with."""
        if self._lead:
            self._ahead(late)
        else:
            self._by_themselves(late)
        self.target = None
        frame = JointFrame(seq, 0, 0)
        frame.q = self.played[-1].copy()
        frame.setpoint = frame.q.copy() if self.stated else None
        return frame

    def _by_themselves(self, late: int) -> None:
        here = self.played[-1]
        target = here if self.target is None else self.target
        ahead = [target + min(k, self._bridged) * (target - here) for k in range(late + 1)]
        self.played += list(np.clip(ahead, self.low, self.high))

    def _ahead(self, late: int) -> None:
        """Points lie on a line between the last target and the one of the frame that is `late` cycles after."""
        target = self._last if self.target is None else self.target
        count = self._gap + 1
        self._queue.extend(self._last + (target - self._last) * k / count for k in range(1, count + 1))
        self._last, self._gap = target.copy(), late
        for _ in range(late + 1):
            full = len(self._queue) > max(self._lead - late, 0)
            self.played.append(self._queue.popleft() if full else self.played[-1])

    _gap = 0


class Rig:
    """Drives, the runs of an arm on them, and a clock."""

    def __init__(
        self, bridged: int = 0, lead: int = 0, model: RobotModel = MODEL, bounds: CommandBounds | None = None,
        **safety: float | tuple[float, ...],
    ) -> None:  # fmt: skip
        self.drives = Drives(bridged, lead, bounds)
        config = SafetyConfig.model_validate({"following_error": 9.0} | safety)
        lead_s = lead * PERIOD_S
        self.controller = MotionController(model, ROBOT.sha256, config, PERIOD_S, bridged, lead_s, bounds=bounds)
        self.now, self._seq = 100.0, -1

    @property
    def phase(self) -> str:
        return self.controller.state.phase

    @property
    def current(self) -> Run:
        return self.controller.run

    def turn(self, late: int = 0) -> None:
        self.now += PERIOD_S * (1 + late)
        self._seq += 1 + late
        run = self.controller.run
        if run is not None and run.outcome in ("checked", "moving", "stopping"):
            self.controller.heartbeat("a", self.now)
        self.controller.step(self.drives.cycle(self._seq, late), self.drives, self.now)

    def run(self, into: int = 300) -> None:
        """Arm and run until so many cycles into the trajectory."""
        self.controller.arm("a", self.now, 60.0, self.drives)
        while self.phase == "arming":
            self.turn()
        self.turn()
        self.controller.start(trajectory(), "a", self.now, periods=1, hold=False, name="x", changed=False)
        run = self.current
        while run.outcome != "refused" and (self.phase == "armed" or run.cycle < run.start + into):
            self.turn()
        self.begun = len(self.drives.played)

    def finish(self) -> None:
        for _ in range(10_000):
            if self.phase == "disarmed":
                return
            self.turn()
        pytest.fail(f"{self.phase}: {self.controller.state.reason}")

    def accelerations(self) -> FloatArray:
        """Largest share of the limit in each cycle since shortly before the stop."""
        q = np.array(self.drives.played[self.begun - 5 :])
        return np.asarray((np.abs(np.diff(q, 2, axis=0)) / PERIOD_S**2 / ACCELERATION).max(axis=1))

    def stop(self) -> None:
        self.controller.stop("aborted by request", self.drives)


@pytest.mark.parametrize(
    ("bridged", "lead", "turns", "late"), [(5, 0, 2, 1), (5, 0, 2, 5), (5, 0, 0, 5), (0, 100, 1, 4), (0, 100, 1, 10)]
)
def test_a_stop_keeps_the_limit_over_lost_cycles(bridged: int, lead: int, turns: int, late: int) -> None:
    """It goes on from where the drives extrapolated to, or where set positions that are sent ahead lead."""
    rig = Rig(bridged, lead)
    rig.run()
    rig.stop()
    for _ in range(turns):
        rig.turn()
    rig.turn(late)
    rig.finish()
    assert rig.accelerations().max() <= 1.0 + 1e-6
    assert rig.drives.rested


@pytest.mark.parametrize(("late", "into"), [(1, 300), (5, 300), (5, 1940)])
def test_a_run_goes_on_over_cycles_that_drives_bridge_and_comes_back_to_its_trajectory(late: int, into: int) -> None:
    """Also where they are lost shortly before its end, which waits until set positions rest on the trajectory."""
    rig = Rig(bridged=5)
    rig.run(into)
    run = rig.current
    before = run.cycle
    rig.turn(late)
    assert run.cycle == before + 1 + late
    apart = []
    for _ in range(min(1500, 1990 - into)):
        rig.turn()
        wanted = trajectory().positions(np.array([(run.cycle - 1 - run.start) * PERIOD_S]))[0]
        apart.append(float(np.abs(rig.drives.played[-1] - wanted).max()))
    assert apart[0] > 1e-7  # drives did leave it
    assert max(apart) < 1e-3
    assert apart[-1] < 1e-7 or into > 500
    rig.finish()
    assert run.outcome == "completed"
    assert rig.accelerations().max() <= 1.0 + 1e-6
    np.testing.assert_allclose(rig.drives.played[-1], trajectory().positions(np.zeros(1))[0], atol=1e-8)


def limited(low: FloatArray, high: FloatArray) -> RobotModel:
    joints = (
        replace(joint, lower=float(a), upper=float(b)) for joint, a, b in zip(MODEL.joints, low, high, strict=True)
    )
    return replace(MODEL, joints=tuple(joints))


EXTREMES = trajectory().positions(np.arange(0.0, 2.0, PERIOD_S))
LOW, HIGH = EXTREMES.min(axis=0), EXTREMES.max(axis=0)


def refused(rig: Rig, spare: float) -> bool:
    """Whether the run was refused, and nothing moved; else finish it: `spare` beyond its extremes is a limit."""
    if rig.current.outcome == "refused":
        assert "a stop begun at" in rig.current.reason
        assert (np.array(rig.drives.played) == START).all()
        return True
    rig.finish()
    assert rig.accelerations().max() <= 1.0 + 1e-6
    played = np.array(rig.drives.played)
    assert (played >= LOW - spare - 1e-9).all()
    assert (played <= HIGH + spare + 1e-9).all()
    return False


@pytest.mark.parametrize("spare", [1e-4, 0.05])
def test_drives_that_go_on_by_themselves_beside_a_limit_are_stopped_before_it(spare: float) -> None:
    """Cycles are lost where a joint heads for its limit; or there is no room for that, and nothing moves."""
    speed = np.diff(EXTREMES, axis=0) / PERIOD_S
    left = np.where(speed > 0.0, HIGH - EXTREMES[1:], EXTREMES[1:] - LOW) / np.maximum(np.abs(speed), 1e-3)
    outcomes = set()
    for into in sorted({int(np.argmin(np.abs(left[:, j] - 0.02))) for j in range(N)}):  # 20 ms before, at this speed
        rig = Rig(bridged=20, model=limited(LOW - spare, HIGH + spare))
        rig.run(into)
        if rig.current.outcome != "refused":
            rig.turn(20)
        outcomes.add(refused(rig, spare))
    assert outcomes == {spare < 1e-3}


@pytest.mark.parametrize(
    ("bridged", "lead", "steps", "stated"),
    [(20, 0, -5.5, True), (20, 0, -5.5, False), (20, 0, 0.5, True), (0, 100, 0.5, True)],
)
def test_a_stop_without_room_ends_at_a_bound(bridged: int, lead: int, steps: float, stated: bool) -> None:
    """Gap after gap leaves a stop no room: where drives or the next set position would pass a bound, a joint stops."""
    upper, joint = HIGH + 9.0, 0
    for bounded in (False, True):
        rig = Rig(bridged, lead, bounds=CommandBounds(LOW - 9.0, upper, np.full(N, np.inf)))
        rig.drives.stated = stated
        rig.run(700)
        rig.stop()
        sent: list[tuple[float, int, float]] = []
        while rig.phase == "stopping":
            rig.turn(bridged or 10)
            here = rig.drives.played[-1] if bridged else rig.drives._last
            step = np.zeros(N) if rig.drives.target is None else rig.drives.target - here
            sent += [(here[j] - HIGH[j], j, (here + steps * step)[j]) for j in np.flatnonzero(step > 1e-4)]
        if not bounded:
            _, joint, upper[joint] = max(sent)
    assert rig.drives.played[-1][joint] == upper[joint]
    assert rig.controller.state.reason == "aborted by request"
    assert rig.drives.rested


@pytest.mark.parametrize("spare", [1e-5, 0.05])
def test_a_stop_of_set_positions_that_are_sent_ahead_ends_before_a_limit_whatever_is_lost(spare: float) -> None:
    """Set positions of a gap lie on a line: a stop that begins with one changes its speed once in all of that."""
    lost = 10
    v = np.diff(EXTREMES, axis=0) / PERIOD_S
    limits = safety_limits(MODEL, SafetyConfig())
    rest = EXTREMES[1:] + lost * PERIOD_S * v + stopping_distance(limits, PERIOD_S, v)
    beyond = np.maximum(rest - HIGH, LOW - rest)
    outcomes = set()
    for into in sorted({int(np.argmax(beyond[:, j])) + 1 for j in range(N)}):
        rig = Rig(lead=100, model=limited(LOW - spare, HIGH + spare))
        rig.run(into)
        if rig.current.outcome != "refused":
            rig.stop()
            rig.turn(lost)
        outcomes.add(refused(rig, spare))
    assert outcomes == {spare <= beyond.max()}


@pytest.mark.parametrize("word", ["position", "velocity"])
def test_what_the_driver_would_refuse_is_refused_ahead(word: str) -> None:
    joint = int(np.argmax(HIGH - EXTREMES[0]))
    upper, velocity = HIGH + 1.0, np.full(N, np.inf)
    if word == "position":
        upper[joint] = HIGH[joint] - 0.02
    else:
        velocity[joint] = 0.1
    rig = Rig(bounds=CommandBounds(LOW - 1.0, upper, velocity))
    rig.run()
    assert rig.current.outcome == "refused"
    assert word in rig.current.reason
    assert (np.array(rig.drives.played) == START).all()


@pytest.mark.parametrize("into", [100, 500])
def test_a_way_back_that_is_too_fast_is_a_reason_to_stop(into: int) -> None:
    calm = Rig(bridged=5)
    calm.run()
    calm.finish()
    peak = (np.abs(np.diff(np.array(calm.drives.played[calm.begun :]), 2, axis=0)) / PERIOD_S**2).max(axis=0)
    limit = 1.002 * peak  # so that what is added to the trajectory's own acceleration may be too much
    rig = Rig(bridged=5, acceleration=tuple(limit.tolist()))
    rig.run(into)
    rig.turn(5)
    rig.finish()
    run = rig.current
    assert (run.outcome == "completed") or "acceleration" in rig.controller.state.reason
    q = np.array(rig.drives.played[rig.begun - 5 :])
    assert (np.abs(np.diff(q, 2, axis=0)) / PERIOD_S**2 <= limit * (1.0 + 1e-5)).all()


@pytest.mark.parametrize(("bridged", "late", "stops"), [(0, 1, False), (5, 6, False), (0, 3, True)])
def test_drives_that_have_held_are_not_set_off_again(bridged: int, late: int, stops: bool) -> None:
    """Neither at full speed nor along a stop that was under way."""
    rig = Rig(bridged)
    rig.run()
    if stops:
        rig.stop()
        rig.turn()
    rig.turn(late)
    rig.finish()
    assert stops or f"{late} cycles were lost, at most {bridged} are bridged" in rig.controller.state.reason
    for _ in range(100):
        rig.turn()
    held = np.array(rig.drives.played[rig.begun + late + stops :])
    np.testing.assert_array_equal(held, np.tile(held[0], (len(held), 1)))


def test_axes_that_set_positions_are_sent_ahead_to_are_switched_off_when_many_are_lost() -> None:
    """What they hold still is not known well enough to turn it into a stop."""
    rig = Rig(lead=100)
    rig.run()
    rig.turn(20)
    assert rig.phase == "disarmed"
    assert not rig.drives.enabled
    assert "20 cycles were lost, at most 10" in rig.controller.state.reason
    assert rig.drives.target is None


@pytest.mark.parametrize(("lead", "what"), [(100, "end"), (1300, "end"), (1300, "abort"), (1300, "abort at its end")])
def test_axes_come_to_rest_before_they_are_switched_off(lead: int, what: str) -> None:
    rig = Rig(lead=lead)
    rig.run(1999 if what == "abort at its end" else 600)
    if what != "end":
        rig.stop()
    rig.finish()
    assert rig.drives.rested
    assert rig.current.outcome == ("completed" if what == "end" else "stopped")


@pytest.mark.parametrize(("lead", "phase"), [(0, "stopping"), (150, "stopping"), (300, "disarmed")])
def test_with_a_long_lead_what_is_measured_switches_off_at_once(lead: int, phase: str) -> None:
    """A stop by command would begin so much later."""
    rig = Rig(lead=lead)
    rig.run(600)
    rig.now += PERIOD_S
    rig._seq += 1
    frame = rig.drives.cycle(rig._seq, 0)
    frame.temperature = np.full(N, 100.0)
    rig.controller.step(frame, rig.drives, rig.now)
    assert rig.phase == phase
    assert rig.drives.enabled is (phase == "stopping")
    assert "temperature" in rig.controller.state.reason


#: Drives of `GroupedDrives`: a count [rad], and the statusword after a controlword.
UNIT, WALK = 2.0 * np.pi / (1_048_576 * 101.0), {0x06: READY, 0x07: SWITCHED_ON, 0x0F: ENABLED}


class GroupedDrives(Drives):
    """Drives behind a `DriveGroup`; they go on by themselves at the speed of the last two set positions.

    `fates` are those of the cycles before the next frame: the loop is "late" and sends none, or one is lost on its way
    "out" to the drives or "back".
    """

    def __init__(self, bridged: int) -> None:
        super().__init__(bridged, 0, None)
        self._group, self._data = group_of(make_config(N, bridge_cycles=bridged))
        self._pace, self._since = np.zeros(N), 0
        self._words = [DISABLED] * N
        self.fates: list[str] = []

    def enable(self) -> None:
        self._group.enable(0)

    def disable(self) -> None:
        super().disable()
        self._group.disable()

    def command(self, target: FloatArray) -> None:
        self._group.command(target, self._index)

    def cycle(self, seq: int, late: int) -> JointFrame:
        for index, fate in enumerate([*self.fates, ""], seq - late):
            images = [] if fate == "late" else self._group.images_at(index)
            arrives = fate in ("", "back")
            if arrives:
                self._words = [WALK.get(word, DISABLED) for word in controlwords(images)]
            self._play(sent(images) if arrives else None)
        self.fates, self._index, frame = [], seq, JointFrame(seq, 0, 0)
        frame.setpoint = self._group.sent_setpoint
        counts = np.rint(self.played[-1] / UNIT).astype(int)
        rows = zip(self._words, counts, strict=True)
        frame.q = self._data.decode([struct.pack("<HiihhH", word, at, 0, 0, 0, 0) for word, at in rows])["q"]
        self._group.step(0, None)
        self.enabled = self._group.enabled
        return frame

    def _play(self, target: FloatArray | None) -> None:
        self._since += 1
        if target is None:
            go_on = self._since <= self._bridged
            self.played.append(self.played[-1] + (self._pace if go_on else 0.0))
        else:
            self._pace, self._since, self._last = (target - self._last) / self._since, 0, target
            self.played.append(target)


@pytest.mark.parametrize(
    ("fates", "most", "bridged"), [(("late",), 1.06, 8), (("late", "out", "back"), 2.06, 8), (("out", "back"), 2.06, 1)]
)
@settings(max_examples=6)
@given(st.integers(0, 2**32 - 1))
def test_every_stop_keeps_the_limits_at_the_drives(
    fates: tuple[str, ...], most: float, bridged: int, seed: int
) -> None:
    """On the approach, in a run, on the way back to it, at its end, or asked for twice; what is late or lost is apart.

    Nobody knows which frames without an answer have arrived: of many in a stop some add the limit once more.
    """
    rng = np.random.default_rng(seed)
    rig, drives, apart = Rig(bridged=bridged), GroupedDrives(bridged), 0
    rig.drives = drives
    rig.run(int(rng.integers(-400, 1999)))
    for turn in range(10_000):
        apart += 1
        if apart > 3 and rng.random() < 0.15:
            fate, apart = rng.choice(fates), 0
            drives.fates = ["late"] * int(rng.integers(1, 9)) if fate == "late" else [fate]
        rig.turn(len(drives.fates))
        if rng.random() > 0.98 and turn > 3:
            rig.stop()
        if rig.phase == "disarmed":
            break
    assert rig.phase == "disarmed"
    assert drives.rested
    assert rig.accelerations().max() <= most  # drives count in whole numbers


@pytest.mark.parametrize("late", [1, 3, 8])
def test_a_stop_of_a_loop_that_is_always_late_comes_to_rest(late: int) -> None:
    """It brakes once for each frame, so it takes as many times its room."""
    rig, drives = Rig(bridged=8), GroupedDrives(8)
    rig.drives = drives
    rig.run(700)
    here, speed = drives.played[-1], (drives.played[-1] - drives.played[-2]) / PERIOD_S
    rig.stop()
    while rig.phase == "stopping":
        drives.fates = ["late"] * late
        rig.turn(late)
    room = np.abs(stopping_distance(rig.controller.limits, PERIOD_S, speed)) + late * PERIOD_S * np.abs(speed)
    assert drives.rested
    assert (np.abs(drives.played[-1] - here) <= 1.6 * (1 + late) * room + 1e-4).all()
    assert rig.accelerations().max() <= 1.06 * (1 + late)


@pytest.mark.parametrize("fate", ["late", "back"])
def test_a_run_goes_on_although_every_third_cycle_is_late(fate: str) -> None:
    rig, drives = Rig(bridged=8), GroupedDrives(8)
    rig.drives = drives
    rig.run(10)
    for turn in range(1000):
        drives.fates = [fate] * (turn % 2)
        rig.turn(turn % 2)
        assert np.abs(drives.played[-1] - rig.current.row(rig.current.cycle)).max() < 0.02
    assert rig.phase == "running"
