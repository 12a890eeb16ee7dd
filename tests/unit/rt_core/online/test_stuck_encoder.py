"""Which encoder sticks, as the watch sees it, with what an estimate would say given."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from rt_core.online.monitors.stuck_encoder import AGAIN_S, CONFIRM_S, REST_S, StationaryTorque, StuckEncoderMonitor
from rt_core.types import BoolArray, FloatArray

LOOK_S = 0.02
Course = Callable[[float], list[float]]


def always(_t: float) -> bool:
    return True


@dataclass
class Scene:
    """Three joints; 0 `moves`, 1 sticks from 2 s on, 2 rests from `stops_s` on; `blames` is what is not explained."""

    blames: Callable[[float], tuple[int, ...]]
    moves: Callable[[float], bool] = always
    filled: Callable[[float], bool] = always
    stops_s: float = -1.0
    watch: StuckEncoderMonitor = field(default_factory=lambda: StuckEncoderMonitor(3))
    found_at: list[tuple[float, list[int]]] = field(default_factory=list)
    recovered: list[tuple[float, list[int]]] = field(default_factory=list)
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
            found = self.watch.take(
                t, self.q.copy(), self.torque(t), lambda rests, t=t: self.stationary_torque(t, rests)
            )
            if found.any():
                self.found_at.append((t, np.flatnonzero(found).tolist()))
            if self.watch.recovered.any():
                self.recovered.append((t, np.flatnonzero(self.watch.recovered).tolist()))

    def torque(self, t: float) -> FloatArray | None:
        return 10.0 * np.sin(5.0 * t + np.arange(3.0)) if self.filled(t) else None

    def stationary_torque(self, t: float, rests: BoolArray) -> StationaryTorque:
        self.asked.append(rests.tolist())
        residual = np.zeros(3)
        residual[list(self.blames(t))] = 5.0
        return StationaryTorque(residual, np.ones(3), np.ones(3))


def one(t: float) -> tuple[int, ...]:
    return (1,) if t > 2.0 else ()


def both(t: float) -> tuple[int, ...]:
    """Judged at a wrong position of joint 1, joint 2, which rests, is not explained either, and at once."""
    return (1, 2) if t > 2.0 else ()


def test_it_is_found_after_a_second_of_evidence() -> None:
    scene = Scene(one)
    scene.run(0.0, 6.0)
    ((t, joints),) = scene.found_at
    assert joints == [1]
    assert t == pytest.approx(2.0 + REST_S + CONFIRM_S, abs=0.15)
    assert scene.watch.stopped_at(scene.watch.stuck) == pytest.approx(2.0, abs=2 * LOOK_S)
    assert scene.asked[-1] == [False, True, True]


@pytest.mark.parametrize(
    ("scene", "end_s"),
    [
        pytest.param(Scene(both), 6.0, id="the other one was found to stand"),
        # It rests already, so that evidence against it comes before anything is known of the other.
        pytest.param(Scene(both, stops_s=1.2), 6.0, id="the other one stopped shortly before"),
        pytest.param(
            Scene(lambda t: () if t < 2.0 else (1, 2) if t % 0.8 < 0.4 else (2,)), 12.0, id="half of the evidence"
        ),
        pytest.param(Scene(one, moves=lambda t: t % 1.0 < 0.6), 10.0, id="pauses of the motion"),
        pytest.param(Scene(one, filled=lambda t: t % 1.0 > 0.2), 10.0, id="gaps of the frames"),
    ],
)
def test_only_the_stuck_one_is_found(scene: Scene, end_s: float) -> None:
    scene.run(0.0, end_s)
    assert [joints for _, joints in scene.found_at] == [[1]]


def test_when_one_moves_again_all_are_watched_anew() -> None:
    scene = Scene(lambda t: (1, 2) if 2.0 < t < 6.0 else (), stops_s=2.0)
    scene.run(0.0, 6.0)  # nothing has shown joint 2 to stand, so both are blamed
    assert scene.watch.stuck.tolist() == [False, True, True]
    began = len(scene.found_at)
    scene.q[2] = 2.0
    scene.run(6.0, 6.0 + AGAIN_S + 0.1)
    assert [joints for _, joints in scene.recovered] == [[2]]
    assert not scene.watch.stuck.any()
    assert not scene.watch.suspicious
    scene.run(6.0 + AGAIN_S + 0.1, 9.0)
    assert len(scene.found_at) == began


def test_another_clock_keeps_what_sticks_and_nothing_else() -> None:
    scene = Scene(one)
    scene.run(0.0, 6.0)
    scene.watch.restart()
    assert scene.watch.stuck.tolist() == [False, True, False]
    scene.run(2.0, 3.0)
    assert scene.watch.stuck.tolist() == [False, True, False]
    scene.run(3.0, 4.0, stuck=False)
    assert [joints for _, joints in scene.recovered] == [[1]]
    early = Scene(one)
    early.run(0.0, 3.2)
    assert early.watch.suspicious
    early.watch.restart()
    assert not early.watch.suspicious
