"""Gravity along small motions: a joint inverted in all its signals is never called right."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import scipy.linalg as la

from drivers.files.robots.file import load_robot
from rt_core.commissioning._hysteresis import Passes
from rt_core.commissioning.errors import CommissioningError
from rt_core.commissioning.findings import Finding
from rt_core.commissioning.gravity_check import check_gravity, tells_scale
from rt_core.commissioning.gravity_terms import GravityMotion
from rt_core.commissioning.joint_check import SmallMotion, torque_passes
from tests.lab.arms.commissioning import GRAVITY, NAMES, WAY, arm_motion, second_try_only, small_motion

EFFORTS = np.array([60.0, 40.0, 10.0])


def made_up(motion: SmallMotion, share: float = 1.0) -> Finding:
    """Judge an arm of joints that do not know of each other; its description states `share` of its gravity."""
    return check_gravity(gravity_motion(motion, share), NAMES)


def gravity_motion(motion: SmallMotion, share: float = 1.0) -> GravityMotion:
    return GravityMotion(motion.joint, torque_passes(motion), lambda q: share * GRAVITY * np.cos(q), EFFORTS)


@pytest.mark.parametrize(
    ("share", "verdict", "kind"),
    [
        (1.0, "ok", ""),
        (0.6, "ok", ""),
        (-1.0, "wrong", "inverted"),
        (0.1, "wrong", "masses"),
        (10.0, "wrong", "masses"),
    ],
)
def test_gravity_against_that_of_the_description(share: float, verdict: str, kind: str) -> None:
    found = made_up(small_motion(0), share)
    assert (found.verdict, found.kind) == (verdict, kind)
    assert found.value == pytest.approx(1.0 / share, rel=0.1)


@pytest.mark.parametrize("factor", [0.01, 0.001, 57.3])
def test_torque_of_another_unit_is_found(factor: float) -> None:
    motion = small_motion(0)
    assert motion.tau is not None
    assert made_up(replace(motion, tau=factor * motion.tau)).verdict == "wrong"


@pytest.mark.parametrize(("scale", "way"), [(10.0, WAY), (57.3, 0.1 * WAY)])
def test_a_scale_that_command_and_position_share_shows_in_gravity(scale: float, way: float) -> None:
    """The joint really goes by `scale` times as much as command and position say."""
    motion = small_motion(0, way=way)
    assert motion.tau is not None
    tau = motion.tau.copy()
    true = motion.q[0, 0] + scale * (motion.command - motion.command[0])
    tau[:, 0] += GRAVITY[0] * (np.cos(true) - np.cos(motion.q[:, 0]))
    assert made_up(replace(motion, tau=tau)).verdict == "wrong"


@pytest.mark.parametrize(("scale", "told"), [(1.0, True), (30.0, False), (180.0 / np.pi, False), (160.0, False)])
def test_a_tenth_of_the_way_tells_the_scale(scale: float, told: bool) -> None:
    """The joint really goes by `scale` times as much as command and position say.

    Downwards; upwards gravity changes too little beside friction to tell.
    """
    for sign in (1.0, -1.0):
        motion = small_motion(0, way=0.1 * WAY * sign)
        assert motion.tau is not None
        tau = motion.tau.copy()
        true = motion.q[0, 0] + scale * (motion.command - motion.command[0])
        tau[:, 0] += GRAVITY[0] * (np.cos(true) - np.cos(motion.q[:, 0]))
        assert tells_scale(gravity_motion(replace(motion, tau=tau))) is (told and sign > 0.0)


def test_no_scale_is_told_where_gravity_does_not_show() -> None:
    """Of a vertical axis, and of a torque without gravity in it."""
    motion = small_motion(0, way=0.1 * WAY)
    assert motion.tau is not None
    tau = motion.tau.copy()
    tau[:, 0] -= GRAVITY[0] * np.cos(motion.q[:, 0])
    bare = replace(motion, tau=tau)
    assert not tells_scale(gravity_motion(bare, 0.0))
    assert not tells_scale(gravity_motion(bare))


def test_it_does_not_depend_on_how_svd_converges(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = made_up(small_motion(0))
    for name in ("svd", "lstsq"):
        monkeypatch.setattr(np.linalg, name, partial(second_try_only, getattr(np.linalg, name)))
        monkeypatch.setattr(la, name, partial(second_try_only, getattr(la, name)))
    found = made_up(small_motion(0))
    assert (found.verdict, found.text) == (wanted.verdict, wanted.text)


def test_places_without_a_command_are_said() -> None:
    places = torque_passes(small_motion(0))
    places.out[3, -1] = np.nan
    with pytest.raises(CommissioningError, match="command"):
        GravityMotion(0, places, lambda q: GRAVITY * np.cos(q), EFFORTS)
    few = Passes(places.place[:5], places.out[:5], places.back[:5])
    with pytest.raises(CommissioningError, match="too few"):
        GravityMotion(0, few, lambda q: GRAVITY * np.cos(q), EFFORTS)


def test_a_cable_where_gravity_is_weak_is_no_wrong_sign() -> None:
    for seed in range(20):
        motion = small_motion(2, seed)
        assert motion.tau is not None
        tau = motion.tau.copy()
        tau[:, 2] -= GRAVITY[2] * np.cos(motion.q[:, 2]) + 2.0 * (motion.q[:, 2] - 0.2)
        places = torque_passes(replace(motion, tau=tau))
        here = GravityMotion(2, places, lambda q: np.sin(q - 0.1) * [0.0, 0.0, 1.0], EFFORTS)
        found = check_gravity(here, NAMES)
        assert found.verdict == "cannot_tell"


def judge(robot: str, k: int, bend: float, inverted: int | None) -> Finding:
    """Move joint `k` of a shipped arm with masses of its own, one joint being inverted in all its signals."""
    names = [joint.name for joint in load_robot(robot).model.joints]
    return check_gravity(arm_motion(robot, k, bend, () if inverted is None else (inverted,)), names)


@pytest.mark.parametrize("robot", ["arm7", "space6"])
@pytest.mark.parametrize("bend", [0.1, 0.05])
def test_a_joint_inverted_in_all_its_signals_is_never_called_right(robot: str, bend: float) -> None:
    joints = range(load_robot(robot).model.n)
    right = [judge(robot, k, bend, None).verdict for k in joints]
    assert "wrong" not in right
    assert "ok" in right
    assert "ok" not in [judge(robot, k, bend, k).verdict for k in joints]


def test_the_joint_that_is_inverted_is_named() -> None:
    found = judge("space6", 1, 0.1, 1)
    assert (found.verdict, found.kind) == ("wrong", "inverted")
    assert "joint_2 were inverted in all signals" in found.text or "joint_2 or" in found.text
