"""A motion through cycles that a late loop misses: player, driver and drives agree where the arm is; none runs away.

Everything but the wire and the motors is the real thing: the player commands, the driver's `Arm` extrapolates what the
late frame sends, and the drives' set values extrapolate meanwhile.
"""

from __future__ import annotations

from itertools import chain, cycle, islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from drivers.frame import JointFrame
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

MODEL = random_arm(2, 4)
LIMITS = MotionLimits.of(MODEL)
PERIOD_S = 1e-3
COUNTS = 1_048_576 * 101.0 / TURN


class Loop:
    """Player, driver and two drives; what the drives tell their motors, cycle by cycle."""

    def __init__(self, bridged: int) -> None:
        given = {"candidates": 1, "amplitude": 0.9, "seed": 3, "following_error": 100.0, "base_frequency_hz": 0.5}
        self.player = MotionPlayer(MODEL, ArmMotionSettings.model_validate(given), PERIOD_S, bridged)
        here = self.player.motion.centre
        most = LIMITS.velocity.max() * 1.0001
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
    return float((np.abs(np.diff(np.array(loop.q[since:]), axis=0)) / PERIOD_S / LIMITS.velocity).max())


def test_without_gaps_drives_are_on_the_motion() -> None:
    loop = started(8)
    begin = len(loop.q)
    loop.run([], 2000)
    assert loop.off.max() < 1.1 * LIMITS.velocity.max() * PERIOD_S  # they take a set position over the next cycle
    assert fastest(loop, begin) < 1.0


@pytest.mark.parametrize("missed", [1, 3, 8])
def test_over_a_gap_the_drives_go_on_and_come_back(missed: int) -> None:
    loop = started(8)
    begin = len(loop.q)
    loop.run([0, 0, missed], 200)
    speed = np.diff(np.array(loop.q[begin:]), axis=0)
    usual = 1.1 * LIMITS.acceleration * PERIOD_S**2
    # At most the change of speed that was missed, and that of the way back.
    assert (np.abs(np.diff(speed, axis=0)) <= (missed + 1) * usual + 0.06 * LIMITS.velocity * PERIOD_S).all()
    assert loop.off.max() < 1.1 * LIMITS.velocity.max() * PERIOD_S


@pytest.mark.parametrize(("bridged", "frames"), [(8, 1), (8, 2), (8, 10), (40, 2), (40, 10)])
def test_gap_after_gap_nothing_runs_away(bridged: int, frames: int) -> None:
    """A machine that is elsewhere most of the time.

    The drives go on at the speed of what they heard last; the next frame knows better, which is a jump in one cycle.
    """
    loop = started(bridged)
    begin = len(loop.q)
    for _ in range(4000 // (frames + bridged)):
        loop.run([bridged], frames)
    assert fastest(loop, begin) < 2.0
    bent = 0.5 * LIMITS.acceleration * ((frames + 2 * bridged) * PERIOD_S) ** 2
    back = 0.1 * LIMITS.velocity * bridged * PERIOD_S
    assert (loop.off < 4.0 * (bent + back) + LIMITS.velocity * PERIOD_S).all()


@hypothesis_settings(max_examples=15)
@given(st.lists(st.integers(0, 12), min_size=20, max_size=100))
def test_any_gaps(gaps: list[int]) -> None:
    """Beyond what they bridge drives hold, and the motion waits for them."""
    loop = started(8)
    begin = len(loop.q)
    loop.run(gaps, len(gaps))
    assert fastest(loop, begin) < 2.0
    loop.run([], 500)
    assert loop.off.max() < 1.1 * LIMITS.velocity.max() * PERIOD_S
    assert np.abs(loop.sent[-1] - loop.q[-1]).max() < 1e-7


def test_a_stop_that_was_ordered_is_not_overtaken_by_a_late_frame() -> None:
    loop = started(8)
    loop.arm.disable()
    before = sent(loop.arm.images)
    np.testing.assert_array_equal(sent(loop.arm.images_at(loop.cycle + 9)), before)
