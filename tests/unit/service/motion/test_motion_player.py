"""The motion that drives follow: continuous from where the arm stands, within limits, stopped by what goes wrong."""

from dataclasses import replace

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from drivers.frame import JointFrame
from rt_core.types import BoolArray, FloatArray
from service.config.arm_tables import ArmMotionSettings
from service.motion.motion_player import MotionPlayer
from sim_backend.arm.trajectory import MotionLimits
from sim_backend.errors import MotionError

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


@pytest.mark.parametrize("off", [0.0, 0.01])
def test_begins_again_from_where_the_drives_hold(off: float) -> None:
    """They stand off their set position by their following error: from there, nothing jumps."""
    motion = player()
    follow(motion, motion.motion.centre, 2000)
    motion.stop("told to")
    motion.restart()
    held = motion.motion.centre + 0.2
    first = motion.step(JointFrame(0, 0, 0, q=held - off, setpoint=held if off else None), enabled=True)
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


@pytest.mark.parametrize("shows", [True, False], ids=["set position", "position alone"])
@pytest.mark.parametrize(("bridged", "gap", "every"), [(8, 1, 50), (8, 8, 10), (40, 40, 200), (8, 12, 60)])
def test_over_gaps_nothing_jumps_or_runs_away(shows: bool, bridged: int, gap: int, every: int) -> None:
    """Drives go on along a line as far as they bridge, then hold: from there, set positions come back to the motion."""
    motion = player(bridged, amplitude=0.9, following_error=100.0)
    here = before = motion.motion.centre
    played, seq = [], -1
    for turn in range(6000):
        missed = gap if motion.state == "running" and turn < 4000 and turn % every == 0 else 0
        seq += 1 + missed
        for k in range(missed):
            before, here = here, here + ((here - before) if k < bridged else 0.0)
            played.append(here)
        shown = here if shows or missed > bridged else None
        target = motion.step(JointFrame(seq, 0, 0, q=here, setpoint=shown), enabled=True)
        if target is None:
            break
        before, here = here, target
        played.append(here)
        if turn % every == every - 1 and every >= 50 and motion.state == "running":
            wanted = motion.motion.sample(motion.time_s)[0]
            assert np.abs(here - wanted).max() < 1e-9
    assert motion.state == "ended", motion.reason
    speed = np.diff(np.array(played), axis=0) / PERIOD_S
    assert (np.abs(speed) <= LIMITS.velocity * 1.001).all()
    if gap <= bridged:  # drives that held for longer stand still at once
        bend = (gap + 2) * LIMITS.acceleration * PERIOD_S + 0.11 * LIMITS.velocity
        assert (np.abs(np.diff(speed, axis=0)) <= bend).all()


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_the_way_back_to_a_motion_at_full_speed_keeps_the_limit_and_ends(side: float) -> None:
    motion, most = player(), LIMITS.velocity * PERIOD_S
    motion._target, motion._off = motion.motion.centre, side * most
    here = motion._target - motion._off
    for k in range(60):
        here = here - side * (most if k < 10 else 0.5 * most)  # away from where the arm is
        then, motion._target = motion._target, motion._back_to(here)
        assert (np.abs(motion._target - then) <= 1.000001 * most).all()
    assert not motion._off.any()


def test_a_joint_without_values_is_not_judged_and_an_arm_without_limits_not_moved() -> None:
    motion = player(following_error=0.1)
    off = follow(motion, motion.motion.centre, 700)[-1] + np.array([0, 0, 0.3, 0, 0, 0])
    assert motion.step(frame(off, np.arange(6) != 2), enabled=True) is not None
    assert motion.step(frame(off), enabled=True) is None
    assert "joint_3" in motion.reason
    for name in ("lower", "upper", "velocity"):
        joints = (replace(MODEL.joints[0], **{name: np.inf}), *MODEL.joints[1:])  # type: ignore[arg-type]
        with pytest.raises(MotionError, match="joint_1"):
            MotionPlayer(replace(MODEL, joints=joints), ArmMotionSettings(), PERIOD_S)
