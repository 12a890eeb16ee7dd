"""Which encoder sticks, as the watch sees it, with what an estimate would say given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from rt_core.online.monitors.stuck_encoder import AGAIN_S, CONFIRM_S, REST_S, EncoderWatch, Standing
from rt_core.types import BoolArray, FloatArray

LOOK_S = 0.02
Course = Callable[[float], list[float]]


def always(_t: float) -> bool:
    return True


@dataclass
class Scene:
    """Three joints; 0 moves, 1 sticks from 2 s on, 2 rests from `stops_s` on.

    Attributes
    ----------
    blames : callable
        Which joints the estimate does not explain at a time.
    moves : callable
        Whether joint 0 moves at a time.
    filled : callable
        Whether there is a torque at a time.
    """

    blames: Callable[[float], tuple[int, ...]]
    moves: Callable[[float], bool] = always
    filled: Callable[[float], bool] = always
    stops_s: float = -1.0
    watch: EncoderWatch = field(default_factory=lambda: EncoderWatch(3))
    told: list[tuple[float, list[int]]] = field(default_factory=list)
    back: list[tuple[float, list[int]]] = field(default_factory=list)
    asked: list[list[bool]] = field(default_factory=list)
    q: FloatArray = field(default_factory=lambda: np.zeros(3))

    def run(self, begin: float, end: float, *, stuck: bool = True) -> None:
        """Let time go on; unless it is `stuck` joint 1 moves."""
        for t in np.arange(begin, end, LOOK_S).tolist():
            if self.moves(t):
                self.q[0] = np.sin(t)
            if t < 2.0 or not stuck:
                self.q[1] = np.cos(t)
            if t < self.stops_s:
                self.q[2] = np.sin(2.0 * t)
            found = self.watch.take(t, self.q.copy(), self.torque(t), lambda rests, t=t: self.standing(t, rests))
            if found.any():
                self.told.append((t, np.flatnonzero(found).tolist()))
            if self.watch.back.any():
                self.back.append((t, np.flatnonzero(self.watch.back).tolist()))

    def torque(self, t: float) -> FloatArray | None:
        return 10.0 * np.sin(5.0 * t + np.arange(3.0)) if self.filled(t) else None

    def standing(self, t: float, rests: BoolArray) -> Standing:
        self.asked.append(rests.tolist())
        residual = np.zeros(3)
        residual[list(self.blames(t))] = 5.0
        return Standing(residual, np.ones(3), np.ones(3))


def one(t: float) -> tuple[int, ...]:
    return (1,) if t > 2.0 else ()


def both(t: float) -> tuple[int, ...]:
    """Judged at a wrong position of joint 1, joint 2, which rests, is not explained either, and at once."""
    return (1, 2) if t > 2.0 else ()


def test_it_is_told_after_a_second_of_evidence() -> None:
    scene = Scene(one)
    scene.run(0.0, 6.0)
    ((t, joints),) = scene.told
    assert joints == [1]
    assert t == pytest.approx(2.0 + REST_S + CONFIRM_S, abs=0.15)
    assert scene.watch.stands_since(scene.watch.stuck) == pytest.approx(2.0, abs=2 * LOOK_S)
    assert scene.asked[-1] == [False, True, True]


def test_a_joint_that_was_found_to_stand_is_not_blamed_beside_one_that_was_not() -> None:
    scene = Scene(both)
    scene.run(0.0, 6.0)
    assert [joints for _, joints in scene.told] == [[1]]


@pytest.mark.parametrize("stops_s", [0.6, 0.9, 1.2, 1.5, 1.8])
def test_nor_is_one_that_has_stopped_a_little_before(stops_s: float) -> None:
    """It rests already, so that what speaks against it does so before anything can be said of the other."""
    scene = Scene(both, stops_s=stops_s)
    scene.run(0.0, 6.0)
    assert [joints for _, joints in scene.told] == [[1]]


def test_nor_where_less_speaks_against_the_other() -> None:
    """Half of the time, and against the joint that rests always."""
    scene = Scene(lambda t: () if t < 2.0 else (1, 2) if t % 0.8 < 0.4 else (2,))
    scene.run(0.0, 12.0)
    assert [joints for _, joints in scene.told] == [[1]]


def test_what_was_found_to_stand_is_remembered_when_another_one_sticks_again() -> None:
    scene = Scene(both)
    scene.run(0.0, 6.0)
    scene.run(6.0, 7.0, stuck=False)
    scene.run(7.0, 11.0)
    assert [joints for _, joints in scene.told] == [[1], [1]]


def test_but_it_is_where_there_is_no_other() -> None:
    """Its encoder failed while the joint stood."""
    scene = Scene(lambda t: (2,) if t > 4.0 else ())
    scene.run(0.0, 10.0, stuck=False)
    ((t, joints),) = scene.told
    assert joints == [2]
    assert 4.0 + CONFIRM_S < t < 4.0 + 4.0 * CONFIRM_S


def test_when_one_moves_again_all_are_watched_anew() -> None:
    scene = Scene(lambda t: (1, 2) if 2.0 < t < 6.0 else (), stops_s=2.0)
    scene.run(0.0, 6.0)  # nothing has shown joint 2 to stand, so both are blamed
    assert scene.watch.stuck.tolist() == [False, True, True]
    began = len(scene.told)
    scene.q[2] = 2.0
    scene.run(6.0, 6.0 + AGAIN_S + 0.1)
    assert [joints for _, joints in scene.back] == [[2]]
    assert not scene.watch.stuck.any()
    assert not scene.watch.doubts
    scene.run(6.0 + AGAIN_S + 0.1, 9.0)
    assert len(scene.told) == began


def test_one_that_really_sticks_is_told_again() -> None:
    scene = Scene(lambda t: (1, 2) if t < 6.0 else one(t), stops_s=2.0)
    scene.run(0.0, 6.0)
    scene.q[2] = 2.0
    scene.run(6.0, 9.0)
    assert scene.told[-1][1] == [1]
    assert scene.told[-1][0] > scene.back[0][0]


def test_pauses_of_the_motion_do_not_undo_what_spoke_against_it() -> None:
    """A second of motion, and 0.4 s of rest, in turn."""
    scene = Scene(one, moves=lambda t: t % 1.0 < 0.6)
    scene.run(0.0, 10.0)
    assert [joints for _, joints in scene.told] == [[1]]


def test_nor_do_gaps_of_the_frames() -> None:
    """The filters are empty for a moment, once a second."""
    scene = Scene(one, filled=lambda t: t % 1.0 > 0.2)
    scene.run(0.0, 10.0)
    assert [joints for _, joints in scene.told] == [[1]]


def test_a_position_that_changes_does() -> None:
    scene = Scene(one)
    for begin in np.arange(2.5, 20.0, 1.0).tolist():
        scene.run(begin, begin + 1.0)
        scene.q[1] += 0.01
    assert scene.told == []


def test_another_clock_keeps_what_sticks_and_nothing_else() -> None:
    scene = Scene(one)
    scene.run(0.0, 6.0)
    scene.watch.restart()
    assert scene.watch.stuck.tolist() == [False, True, False]
    scene.run(2.0, 3.0)
    assert scene.watch.stuck.tolist() == [False, True, False]
    scene.run(3.0, 4.0, stuck=False)
    assert [joints for _, joints in scene.back] == [[1]]
    early = Scene(one)
    early.run(0.0, 3.2)
    assert early.watch.doubts
    early.watch.restart()
    assert not early.watch.doubts
