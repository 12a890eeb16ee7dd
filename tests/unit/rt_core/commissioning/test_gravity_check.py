"""Gravity along small motions: a joint inverted in all its signals is never called right."""

from dataclasses import replace

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.commissioning._hysteresis import Passes
from rt_core.commissioning.findings import CommissioningError, Finding
from rt_core.commissioning.gravity_check import check_gravity, tells_scale
from rt_core.commissioning.gravity_terms import GravityMotion
from rt_core.commissioning.joint_check import SmallMotion, torque_passes
from rt_core.commissioning.mirror_images import mirror_images
from rt_core.commissioning.profiles import there_and_back
from rt_core.types import FloatArray
from tests.lab.arms.commissioning import DWELL_S, GRAVITY, LEG_S, NAMES, RATE_HZ, WAY, arm_motion, small_motion

EFFORTS = np.array([60.0, 40.0, 10.0])


def made_up(motion: SmallMotion, share: float = 1.0) -> Finding:
    return check_gravity(gravity_motion(motion, share), NAMES)


def gravity_motion(motion: SmallMotion, share: float = 1.0) -> GravityMotion:
    """Of an arm of joints that do not know of each other; its description states `share` of its gravity."""
    return GravityMotion(motion.joint, torque_passes(motion), lambda q: share * GRAVITY * np.cos(q), EFFORTS)


@pytest.mark.parametrize(
    ("share", "verdict", "kind"),
    [(1.0, "ok", ""), (0.6, "ok", ""), (-1.0, "wrong", "inverted"), (0.1, "wrong", "masses"),
     (10.0, "wrong", "masses")],
)  # fmt: skip
def test_gravity_against_that_of_the_description(share: float, verdict: str, kind: str) -> None:
    found = made_up(small_motion(0), share)
    assert (found.verdict, found.kind) == (verdict, kind)
    assert found.value == pytest.approx(1.0 / share, rel=0.1)


def scaled_motion(scale: float, way: float) -> SmallMotion:
    """Return a motion of a joint that really goes by `scale` times as much as command and position state."""
    motion = small_motion(0, way=way)
    tau = motion.tau.copy()
    true = motion.q[0, 0] + scale * (motion.command - motion.command[0])
    tau[:, 0] += GRAVITY[0] * (np.cos(true) - np.cos(motion.q[:, 0]))
    return replace(motion, tau=tau)


@pytest.mark.parametrize(("scale", "way"), [(10.0, WAY), (57.3, 0.1 * WAY)])
def test_a_scale_that_command_and_position_share_shows_in_gravity(scale: float, way: float) -> None:
    assert made_up(scaled_motion(scale, way)).verdict == "wrong"


@pytest.mark.parametrize(("scale", "shown"), [(1.0, True), (30.0, False), (180.0 / np.pi, False), (160.0, False)])
def test_a_tenth_of_the_way_tells_the_scale(scale: float, shown: bool) -> None:
    """Downwards; upwards gravity changes too little beside friction to tell."""
    for sign in (1.0, -1.0):
        motion = scaled_motion(scale, 0.1 * WAY * sign)
        assert tells_scale(gravity_motion(motion)) is (shown and sign > 0.0)


def test_places_without_a_command_are_said() -> None:
    places = torque_passes(small_motion(0))
    places.out[3, -1] = np.nan
    with pytest.raises(CommissioningError, match="command"):
        GravityMotion(0, places, lambda q: GRAVITY * np.cos(q), EFFORTS)
    few = Passes(places.place[:5], places.out[:5], places.back[:5])
    with pytest.raises(CommissioningError, match="too few"):
        GravityMotion(0, few, lambda q: GRAVITY * np.cos(q), EFFORTS)


def test_a_cable_where_gravity_is_weak_is_no_wrong_sign() -> None:
    for seed in range(10):
        motion = small_motion(2, seed)
        tau = motion.tau.copy()
        tau[:, 2] -= GRAVITY[2] * np.cos(motion.q[:, 2]) + 2.0 * (motion.q[:, 2] - 0.2)
        places = torque_passes(replace(motion, tau=tau))
        here = GravityMotion(2, places, lambda q: np.sin(q - 0.1) * [0.0, 0.0, 1.0], EFFORTS)
        assert check_gravity(here, NAMES).verdict == "cannot_tell"


def judge(robot: str, k: int, bend: float, inverted: int | None) -> Finding:
    """Move joint `k` of a shipped arm with masses of its own, one joint being inverted in all its signals."""
    names = [joint.name for joint in load_robot(robot).model.joints]
    return check_gravity(arm_motion(robot, k, bend, () if inverted is None else (inverted,)), names)


@pytest.mark.parametrize(("robot", "bend"), [("arm7", 0.1), ("space6", 0.05)])
def test_a_joint_inverted_in_all_its_signals_is_never_called_right(robot: str, bend: float) -> None:
    joints = range(load_robot(robot).model.n)
    right = [judge(robot, k, bend, None).verdict for k in joints]
    assert "wrong" not in right
    assert "ok" in right
    assert "ok" not in [judge(robot, k, bend, k).verdict for k in joints]


PLANAR_EFFORTS = np.array([60.0, 40.0])
PLANAR_NAMES = ["shoulder", "elbow"]


def planar(q: FloatArray, beside: float) -> FloatArray:
    """Gravity torque of two links that hang at zero, their centres turned by `beside` from their axes."""
    elbow = 12.0 * np.sin(q[:, 0] + q[:, 1] + beside)
    return np.column_stack((30.0 * np.sin(q[:, 0] + beside) + elbow, elbow))


def planar_motion(k: int, beside: float, share: float = 1.0) -> GravityMotion:
    """Move one joint from a bent posture; the description states `share` of its gravity."""
    rng, change = np.random.default_rng(k), np.zeros(2)
    change[k] = WAY
    rows = there_and_back(np.array([0.6, 0.5]), change, LEG_S, DWELL_S, RATE_HZ)
    q = np.vstack((np.repeat(rows[:1], 300, axis=0), rows, np.repeat(rows[-1:], 300, axis=0)))
    dq = np.gradient(q, 1.0 / RATE_HZ, axis=0)
    ddq, turning = np.gradient(dq, 1.0 / RATE_HZ, axis=0), np.where(np.abs(dq) > 1e-9, dq, 0.0)
    tau = planar(q, beside) + 2.0 * np.sign(turning) + ddq + 0.01 * rng.normal(size=q.shape)
    motion = SmallMotion(k, np.arange(len(q)) / RATE_HZ, q[:, k].copy(), WAY, q, dq, tau)
    return GravityMotion(k, torque_passes(motion), lambda at: share * planar(at, beside), PLANAR_EFFORTS)


def test_links_that_hang_at_zero_have_a_mirror_image() -> None:
    """U is even, so -g(-q) = g(q), although each joint alone is found to be right."""
    motions = [planar_motion(k, 0.0) for k in range(2)]
    assert [check_gravity(motion, PLANAR_NAMES).verdict for motion in motions] == ["ok", "ok"]
    assert mirror_images(motions, [0, 1]) == {0: (0, 1), 1: (0, 1)}
    assert mirror_images(motions, [1]) == {1: (0, 1)}
    beside = [planar_motion(k, 0.7) for k in range(2)]  # of links beside their axes there is none
    assert mirror_images(beside, [0, 1]) == {}


@pytest.mark.parametrize(("robot", "bend"), [("arm7", 0.1), ("space6", 0.05)])
def test_no_joint_of_those_that_are_inverted_is_ever_told(robot: str, bend: float) -> None:
    n = load_robot(robot).model.n
    rng = np.random.default_rng(n)
    sets = [tuple(range(n)), *(tuple(np.flatnonzero(rng.uniform(size=n) < 0.5)) for _ in range(3))]
    for inverted in sets:
        found = mirror_images([arm_motion(robot, k, bend, inverted) for k in range(n)], range(n))
        assert set(inverted) <= set(found), (inverted, found)
