"""The motion that drives follow: continuous from where the arm stands, within limits, stopped by what goes wrong."""

from __future__ import annotations

from itertools import chain, cycle, islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from drivers.files.robots.file import load_robot
from drivers.frame import JointFrame
from rt_core.types import BoolArray, FloatArray
from service.config.arm_tables import ArmMotionSettings
from service.motion.motion_player import MotionPlayer
from sim_backend.arm.trajectory import MotionLimits
from sim_backend.drive.modes import CSP
from sim_backend.drive.motion import Feedback, SetValues
from sim_backend.drive.objects import DriveObjects
from sim_backend.ethercat._communication import build_dictionary
from sim_backend.ethercat._profile import load_profile
from tests.lab.arms.simulated import random_arm
from tests.lab.ethercat.drives import ENABLED, TURN, enabled, sent, step

PERIOD_S = 0.001
MODEL = load_robot("space6").model
LIMITS = MotionLimits.of(MODEL)


def player(bridged: int = 0, **settings: object) -> MotionPlayer:
    given = {"duration_s": 4.0, "candidates": 1} | settings
    return MotionPlayer(MODEL, ArmMotionSettings.model_validate(given), PERIOD_S, bridged)


def frame(q: FloatArray, valid: BoolArray | None = None) -> JointFrame:
    return JointFrame(0, 0, 0, q=q, valid=valid)


def follow(motion: MotionPlayer, q: FloatArray, cycles: int) -> FloatArray:
    """Commands (N, n) to an arm that follows them exactly."""
    commands = []
    for _ in range(cycles):
        target = motion.step(frame(q), enabled=True)
        if target is None:
            break
        q = target.copy()
        commands.append(q)
    return np.array(commands)


def test_from_the_present_position_to_the_motion_and_to_its_end() -> None:
    motion = player()
    start = motion.motion.centre + 0.3 * np.array([1, -1, 0.5, 0, -0.7, 1])
    q = follow(motion, start, 60_000)
    assert motion.state == "ended"
    path = np.vstack((start, q))
    speed = np.diff(path, axis=0) / PERIOD_S
    acceleration = np.diff(speed, axis=0) / PERIOD_S
    approach = len(q) - 4000
    np.testing.assert_allclose(q[approach], motion.motion.centre, atol=1e-6)
    assert (np.abs(speed[:approach]) <= 0.15 * LIMITS.velocity * 1.001).all()
    assert (np.abs(speed) <= LIMITS.velocity).all()
    assert (np.abs(acceleration) <= LIMITS.acceleration).all()
    np.testing.assert_allclose(speed[0], 0.0, atol=1e-3)  # the first cycle does not jump
    np.testing.assert_allclose(q[-1], motion.motion.centre, atol=1e-6)


def test_waits_for_the_drives_and_for_all_joints_and_stops_when_a_drive_drops_out() -> None:
    motion = player()
    q = motion.motion.centre
    assert motion.step(frame(q), enabled=False) is None
    assert motion.step(frame(q, np.array([True] * 5 + [False])), enabled=True) is None
    assert motion.state == "waiting"
    assert motion.step(frame(q), enabled=True) is not None
    follow(motion, q, 700)
    assert motion.step(frame(q), enabled=False) is None
    motion.stop("by request")
    assert motion.state == "stopped"
    assert "enabled" in motion.reason  # the first reason stays
    assert motion.step(frame(q), enabled=True) is None  # not again by itself


def test_stops_at_a_large_following_error_of_a_valid_joint() -> None:
    motion = player(following_error=0.1)
    q = follow(motion, motion.motion.centre, 700)[-1]
    off = q + np.array([0, 0, 0.3, 0, 0, 0])
    blind = np.array([True, True, False, True, True, True])
    assert motion.step(frame(off, blind), enabled=True) is not None  # a joint without values is not judged
    assert motion.step(frame(off), enabled=True) is None
    assert motion.state == "stopped"
    assert "joint_3" in motion.reason


@pytest.mark.parametrize("off", [0.0, 0.01])
def test_begins_again_from_where_the_drives_hold(off: float) -> None:
    """They stand off their set position by their following error: from there, nothing jumps."""
    motion = player()
    follow(motion, motion.motion.centre, 2000)
    motion.stop("told to")
    motion.restart()
    held = motion.motion.centre + 0.2
    first = motion.step(JointFrame(0, 0, 0, q=held - off, setpoint=held if off else None), enabled=True)
    assert first is not None
    np.testing.assert_allclose(first, held, atol=1e-6)
    assert motion.state == "approach"


def test_the_following_error_is_against_the_command_of_the_frame_s_own_cycle() -> None:
    """A frame that comes late is compared with what was commanded then."""
    motion = player(following_error=0.003)
    centre = motion.motion.centre
    motion.step(frame(centre + 0.3), enabled=True)
    behind = 40  # cycles
    targets = [centre + 0.3]
    for _ in range(1500):
        then = targets[max(len(targets) - behind, 0)]
        target = motion.step(JointFrame(0, 0, 0, q=then, setpoint=then), enabled=True)
        assert target is not None, motion.reason
        targets.append(target)
    assert np.abs(targets[-1] - targets[-behind]).max() > 0.003
    off = targets[-behind] + np.array([0, 0.01, 0, 0, 0, 0])
    assert motion.step(JointFrame(0, 0, 0, q=off, setpoint=targets[-behind]), enabled=True) is None
    assert "joint_2" in motion.reason


@pytest.mark.parametrize(("lost", "on"), [(3, 4), (8, 9), (9, 8)])
def test_goes_on_over_lost_cycles_as_far_as_the_drives_do(lost: int, on: int) -> None:
    motion = player(bridged=8)
    q = motion.motion.centre
    for seq in range(2000):
        target = motion.step(JointFrame(seq, 0, 0, q=q), enabled=True)
        assert target is not None
        q = target
    before = motion.time_s
    assert motion.step(JointFrame(2000 + lost, 0, 0, q=q), enabled=True) is not None
    assert motion.time_s - before == pytest.approx(on * PERIOD_S)


# ---------------------------------------------------------------- with driver and drives
#
# Through cycles that a late loop misses, player, driver and drives agree where the arm is, and none runs away.  All but
# the wire and the motors is the real thing: the player commands, the driver's `Arm` extrapolates what the late frame
# sends, and the drives' set values extrapolate meanwhile.

ARM = random_arm(2, 4)
MOST = MotionLimits.of(ARM)
COUNTS = 1_048_576 * 101.0 / TURN


class Loop:
    """Player, driver and two drives; what the drives tell their motors, cycle by cycle."""

    def __init__(self, bridged: int) -> None:
        given = {"candidates": 1, "amplitude": 0.9, "seed": 3, "following_error": 100.0, "base_frequency_hz": 0.5}
        self.player = MotionPlayer(ARM, ArmMotionSettings.model_validate(given), PERIOD_S, bridged)
        here = self.player.motion.centre
        most = MOST.velocity.max() * 1.0001
        counts = (round(here[0] * COUNTS), round(here[1] * COUNTS))
        self.arm, self.data = enabled(bridged, velocity_max_rad_s=most, counts=counts)
        self.drives = []
        for k in range(2):
            objects = DriveObjects(build_dictionary(load_profile("generic_servo")))
            objects.target_position.value = counts[k]
            self.drives.append((objects, SetValues(objects, bridged)))
            self.drives[k][1].start(Feedback(counts[k]))
        self.q: list[np.ndarray] = []
        self.sent: list[np.ndarray] = []
        self.cycle = 0

    def turn(self, missed: int) -> None:
        """Miss some cycles, then send a frame and command the next."""
        for _ in range(missed):
            self._drive(fresh=False)
        self.cycle += 1 + missed
        images = self.arm.images_at(self.cycle)
        for k, (objects, _) in enumerate(self.drives):
            objects.target_position.value = round(sent(images)[k] * COUNTS)
        setpoint = self.arm.sent_setpoint
        assert setpoint is not None
        self.sent.append(setpoint.copy())
        self._drive(fresh=True)
        counts = tuple(round(value) for value in self.q[-1] * COUNTS)
        step(self.arm, self.data, ENABLED, counts=(counts[0], counts[1]))
        target = self.player.step(JointFrame(self.cycle, 0, 0, q=self.q[-1], setpoint=setpoint), enabled=True)
        assert target is not None, self.player.reason
        self.arm.command(target, self.cycle)

    def _drive(self, *, fresh: bool) -> None:
        commanded = [values.next(CSP, Feedback(0), 1e12, PERIOD_S, fresh).target for _, values in self.drives]
        self.q.append(np.array(commanded) / COUNTS)

    def run(self, gaps: list[int], turns: int) -> None:
        for missed in islice(chain(gaps, cycle([0])), turns):
            self.turn(missed)

    @property
    def off(self) -> np.ndarray:
        """How far the drives are off the motion at the player's present time (2,)."""
        return np.asarray(np.abs(self.q[-1] - self.player.motion.sample(self.player.time_s)[0]))


def started(bridged: int) -> Loop:
    """In the middle of the motion."""
    loop = Loop(bridged)
    while loop.player.state != "running":
        loop.turn(0)
    loop.run([], 700)
    return loop


def fastest(loop: Loop, since: int) -> float:
    """Largest speed of a drive as a share of the velocity limit."""
    return float((np.abs(np.diff(np.array(loop.q[since:]), axis=0)) / PERIOD_S / MOST.velocity).max())


@pytest.mark.parametrize(("bridged", "frames"), [(8, 1), (40, 10)])
def test_gap_after_gap_nothing_runs_away(bridged: int, frames: int) -> None:
    """A machine that is elsewhere most of the time.

    The drives go on at the speed of what they heard last; the next frame knows better, which is a jump in one cycle.
    """
    loop = started(bridged)
    begin = len(loop.q)
    for _ in range(4000 // (frames + bridged)):
        loop.run([bridged], frames)
    assert fastest(loop, begin) < 2.0
    bent = 0.5 * MOST.acceleration * ((frames + 2 * bridged) * PERIOD_S) ** 2
    back = 0.1 * MOST.velocity * bridged * PERIOD_S
    assert (loop.off < 4.0 * (bent + back) + MOST.velocity * PERIOD_S).all()


@hypothesis_settings(max_examples=8)
@given(st.lists(st.integers(0, 12), min_size=20, max_size=100))
def test_any_gaps(gaps: list[int]) -> None:
    """Beyond what they bridge drives hold, and the motion waits for them."""
    loop = started(8)
    begin = len(loop.q)
    loop.run(gaps, len(gaps))
    assert fastest(loop, begin) < 2.0
    loop.run([], 500)
    assert loop.off.max() < 1.1 * MOST.velocity.max() * PERIOD_S
    assert np.abs(loop.sent[-1] - loop.q[-1]).max() < 1e-7


def test_a_stop_that_was_ordered_is_not_overtaken_by_a_late_frame() -> None:
    loop = started(8)
    loop.arm.disable()
    before = sent(loop.arm.images)
    np.testing.assert_array_equal(sent(loop.arm.images_at(loop.cycle + 9)), before)
