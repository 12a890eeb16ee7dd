"""What frames at rest and a small motion tell of signs, units and order: each fault is found as what it is."""

from dataclasses import replace

import numpy as np
import pytest

from rt_core.commissioning.at_rest import at_rest, position_text, set_position_text
from rt_core.commissioning.findings import CommissioningError
from rt_core.commissioning.joint_check import (
    SmallMotion,
    check_position,
    check_torque_sign,
    check_torque_size,
    check_velocity,
)
from tests.lab.arms.commissioning import COULOMB, GRAVITY, NAMES, RATE_HZ, VISCOUS, WAY, small_motion


@pytest.mark.parametrize(("joint", "way"), [(0, WAY), (1, -WAY)])
def test_an_arm_without_faults_passes(joint: int, way: float) -> None:
    motion = small_motion(joint, way=way)
    position, velocity, sign = (check(motion, NAMES) for check in (check_position, check_velocity, check_torque_sign))
    assert [found.verdict for found in (position, velocity, sign)] == ["ok", "ok", "ok"]
    assert position.value == pytest.approx(1.0, abs=1e-3)
    assert velocity.value == pytest.approx(1.0, abs=0.02)
    mean_speed = 1.2 * abs(WAY)  # about, over the middle of the path
    assert sign.value == pytest.approx(COULOMB[joint] + VISCOUS[joint] * mean_speed, rel=0.05)
    assert position.margin > 0.0
    assert sign.margin > 0.0


def changed(
    motion: SmallMotion, channel: str, column: int, factor: float = 1.0, source: int | None = None
) -> SmallMotion:
    values = getattr(motion, channel)
    there = values.copy()
    there[:, column] = factor * values[:, column if source is None else source]
    return replace(motion, **{channel: there})


@pytest.mark.parametrize(
    ("factor", "words"),
    [(-1.0, "inverted"), (180.0 / np.pi, "degrees for radians"),
     (-180.0 / np.pi, "inverted, and it looks like degrees"), (np.pi / 180.0, "stays"), (1000.0, "millimetres"),
     (2.5, "gear ratio or the unit")],
)  # fmt: skip
def test_a_wrong_position_is_named(factor: float, words: str) -> None:
    found = check_position(changed(small_motion(1), "q", 1, factor), NAMES)
    assert (found.verdict, found.joint) == ("wrong", 1)
    assert words in found.text
    assert "elbow" in found.text


def test_swapped_positions_and_velocities_are_named_with_both_joints() -> None:
    motion = small_motion(0)
    found = check_position(replace(motion, q=motion.q[:, [2, 1, 0]]), NAMES)
    assert found.verdict == "wrong"
    assert all(word in found.text for word in ("shoulder", "wrist", "swapped"))
    velocity = check_velocity(replace(motion, dq=motion.dq[:, [1, 0, 2]]), NAMES)
    assert velocity.verdict == "wrong"
    assert "elbow" in velocity.text


@pytest.mark.parametrize(("factor", "words"), [(-1.0, "inverted"), (180.0 / np.pi, "degrees"), (0.0, "dead")])
def test_a_wrong_velocity_is_named(factor: float, words: str) -> None:
    found = check_velocity(changed(small_motion(2), "dq", 2, factor), NAMES)
    assert found.verdict == "wrong"
    assert words in found.text


@pytest.mark.parametrize("joint", [0, 1, 2])
def test_an_inverted_torque_is_found_whatever_gravity_does(joint: int) -> None:
    found = check_torque_sign(changed(small_motion(joint), "tau", joint, -1.0), NAMES)
    assert found.verdict == "wrong"
    assert "inverted" in found.text
    assert found.value < 0.0


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_torque_without_friction_tells_no_sign(sign: float) -> None:
    """Also with gravity 4 ms late, which looks like friction of either sign."""
    motion = small_motion(0)
    noise = 0.01 * np.random.default_rng(5).normal(size=motion.q.shape)
    for tau in (GRAVITY * np.cos(motion.q) + noise, np.roll(200.0 * np.sin(motion.q), 2, axis=0)):
        assert check_torque_sign(replace(motion, tau=sign * tau), NAMES).verdict == "cannot_tell"


def test_the_size_of_a_torque_is_judged_by_its_limit() -> None:
    motion = small_motion(0)
    assert check_torque_size(motion, NAMES, 60.0).verdict == "ok"
    large = check_torque_size(changed(motion, "tau", 0, 1000.0), NAMES, 60.0)
    assert large.verdict == "wrong"
    assert "N*mm" in large.text
    assert check_torque_size(changed(motion, "tau", 0, 0.01), NAMES, 60.0).verdict == "cannot_tell"
    assert check_torque_size(motion, NAMES, np.inf) is None


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_following_late_is_told_apart_from_the_other_direction(sign: float) -> None:
    motion = small_motion(0)
    late = round(0.1 * RATE_HZ)
    q = motion.q.copy()
    q[:, 0] = sign * np.concatenate((np.repeat(motion.command[:1], late), motion.command[:-late]))
    found = check_position(replace(motion, q=q), NAMES)
    assert found.verdict == ("ok" if sign > 0.0 else "wrong")
    assert found.value == pytest.approx(sign, abs=0.01)


def test_a_slide_beside_turning_joints_is_judged_by_ranges() -> None:
    """A slide of 1 m goes 10 mm; the arm beside it sways by 1.2 mrad of its 6 rad."""
    motion = small_motion(0, way=0.01)
    q = motion.q.copy()
    q[:, 1] += 0.12 * (q[:, 0] - q[0, 0])
    swaying = replace(motion, q=q)
    assert check_position(swaying, NAMES).verdict == "wrong"
    assert check_position(swaying, NAMES, np.array([1.0, 6.0, 6.0])).verdict == "ok"


def test_a_joint_without_signals_is_no_reason_not_to_judge_another() -> None:
    motion = small_motion(0)
    tau, dq = motion.tau.copy(), motion.dq.copy()
    tau[:, 2] = dq[:, 2] = np.nan
    silent = replace(motion, tau=tau, dq=dq)
    sign, velocity = check_torque_sign(silent, NAMES), check_velocity(silent, NAMES)
    assert (sign.verdict, velocity.verdict) == ("ok", "ok")


def test_swapped_torques_are_never_called_inverted() -> None:
    """For an inverted one is taken for a negative torque constant, where constants are not known."""
    for seed in range(10):
        motion = small_motion(0, seed)
        tau = motion.tau[:, [1, 0, 2]]
        tau[:, 0] = 12.0 + 0.01 * np.random.default_rng(seed + 100).normal(size=len(tau))
        found = check_torque_sign(replace(motion, tau=tau), NAMES)
        assert (found.verdict, found.kind) == ("wrong", "")
        assert "elbow" in found.text
    assert check_torque_sign(changed(small_motion(0), "tau", 0, -1.0), NAMES).kind == "inverted"


def test_what_cannot_be_judged_is_refused() -> None:
    motion = small_motion(0)
    with pytest.raises(CommissioningError, match="not commanded to move"):
        replace(motion, way=0.0)
    with pytest.raises(CommissioningError, match="samples for"):
        replace(motion, q=motion.q[:-1])
    assert check_velocity(replace(motion, dq=None), NAMES) is None
    assert check_torque_sign(replace(motion, tau=None), NAMES) is None


ALLOWED = np.full(3, 0.05)


def test_rate_noise_and_lost_cycles() -> None:
    rng = np.random.default_rng(1)
    seq = np.delete(np.arange(2000), [700, 701])
    t = seq / 500.0
    q = np.array([0.3, -0.2]) + 1e-5 * rng.normal(size=(1998, 2))
    tau = np.linspace(0.0, 3.0, 1998)[:, None] + np.array([0.5, 0.1]) * rng.normal(size=(1998, 2))
    tau[:, 1] = np.nan
    found = at_rest(t, seq, {"q": q, "tau": tau})
    assert found.rate_hz == pytest.approx(500.0)
    assert found.lost == 2
    np.testing.assert_allclose(found.mean["q"], [0.3, -0.2], atol=1e-5)
    assert found.noise["tau"][0] == pytest.approx(0.5, rel=0.05)  # of a torque that drifts by six times as much
    assert np.isnan(found.mean["tau"][1])
    assert (found.moved < 1e-4).all()


def test_frames_that_tell_nothing_are_refused() -> None:
    t, q = np.arange(100) / 500.0, np.zeros((100, 2))
    with pytest.raises(CommissioningError, match="5 frames"):
        at_rest(t[:5], np.arange(5), {"q": q[:5]})
    with pytest.raises(CommissioningError, match="do not grow"):
        at_rest(np.zeros(100), np.arange(100), {"q": q})
    with pytest.raises(CommissioningError, match="joint number 2"):
        at_rest(t, np.arange(100), {"q": np.where([True, False], q, np.nan)})


@pytest.mark.parametrize(
    ("here", "turns", "words"),
    [
        (0.5, True, ""), (-2.0 + 1e-4, True, ""), (45.0, True, "degrees"), (5000.0, True, "motor"),
        (-2.5, True, "other sign"), (3.1, True, "check unit, sign and zero"), (2000.0, False, "millimetres"),
    ],
)  # fmt: skip
def test_a_position_outside_its_limits(here: float, turns: bool, words: str) -> None:
    lower, upper = (-2.0, 3.0) if turns else (0.0, 3.0)
    text = position_text(here, lower, upper, turns=turns)
    assert bool(text) == bool(words)
    assert words in text


@pytest.mark.parametrize(
    ("q", "words"),
    [
        ([0.4, -0.7, 1.1], ""),
        ([0.4, 0.7, 1.1], "elbow is measured at 0.7 while its drive holds -0.7: the sign"),
        ([0.4 * 57.29578, -0.7, 1.1], "degrees for radians"),
        ([1.1, -0.7, 0.4], "swapped"),
        ([0.4, -0.3, 1.1], "check sign, unit, zero"),
    ],
)
def test_positions_that_do_not_agree_with_what_drives_hold(q: list[float], words: str) -> None:
    text = set_position_text(np.array(q), np.array([0.4, -0.7, 1.1]), NAMES, ALLOWED)
    assert bool(text) == bool(words)
    assert words in text
