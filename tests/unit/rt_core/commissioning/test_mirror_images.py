"""Several joints inverted in all their signals: what may be a mirror image of the arm is never called told."""

from __future__ import annotations

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.commissioning.gravity_check import check_gravity
from rt_core.commissioning.gravity_terms import GravityMotion
from rt_core.commissioning.joint_check import SmallMotion, torque_passes
from rt_core.commissioning.mirror_images import mirror_images
from rt_core.commissioning.profiles import there_and_back
from rt_core.types import FloatArray
from tests.lab.arms.commissioning import DWELL_S, LEG_S, RATE_HZ, WAY, arm_motion

EFFORTS = np.array([60.0, 40.0])
NAMES = ["shoulder", "elbow"]


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
    return GravityMotion(k, torque_passes(motion), lambda at: share * planar(at, beside), EFFORTS)


def test_links_that_hang_at_zero_have_a_mirror_image() -> None:
    """U is even, so -g(-q) = g(q), although each joint alone is found to be right."""
    motions = [planar_motion(k, 0.0) for k in range(2)]
    assert [check_gravity(motion, NAMES).verdict for motion in motions] == ["ok", "ok"]
    assert mirror_images(motions, [0, 1]) == {0: (0, 1), 1: (0, 1)}
    assert mirror_images(motions, [1]) == {1: (0, 1)}


def test_links_beside_their_axes_have_none() -> None:
    assert mirror_images([planar_motion(k, 0.7) for k in range(2)], [0, 1]) == {}


def test_what_the_description_does_not_explain_excludes_nothing() -> None:
    motions = [planar_motion(k, 0.7, share=0.05) for k in range(2)]
    assert set(mirror_images(motions, [0, 1])) == {0, 1}
    assert mirror_images([], [1]) == {1: (1,)}


@pytest.mark.parametrize(("robot", "bend"), [("arm7", 0.1), ("space6", 0.1), ("space6", 0.05)])
def test_no_joint_of_those_that_are_inverted_is_ever_told(robot: str, bend: float) -> None:
    n = load_robot(robot).model.n
    rng = np.random.default_rng(n)
    sets = [tuple(range(n)), tuple(range(0, n, 2)), tuple(range(1, n, 2))]
    sets += [tuple(np.flatnonzero(rng.uniform(size=n) < 0.5)) for _ in range(3)]
    for inverted in sets:
        found = mirror_images([arm_motion(robot, k, bend, inverted) for k in range(n)], range(n))
        assert set(inverted) <= set(found), (inverted, found)


def test_an_upright_arm_that_leans_to_the_other_side_tells_the_same() -> None:
    """The links of this arm lie about in its plane: with both its pitching joints inverted it is half a turn away."""
    found = mirror_images([arm_motion("arm7", k, 0.1, ()) for k in range(7)], [0, 1, 3])
    assert found == {0: (0,), 1: (1, 3), 3: (1, 3)}
