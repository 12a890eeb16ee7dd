"""The course of a session: taking over, ramps, limits, samples that do not come, refusals."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from drivers.frame import JointFrame
from rt_core.hand_guiding import GuidingState, ZeroForceController, ZeroForceSettings
from rt_core.model.robot import RobotModel
from tests.lab.arms.simulated import single_joint
from tests.lab.hand_guiding.frames import MS, frame, guiding_model, limited
from tests.lab.hand_guiding.rig import exact, robot

HELD = 9.81  # 2 kg at 0.5 m


def model() -> RobotModel:
    """A pendulum about +y with its weight along x: held by -9.81 N*m at q = 0."""
    return limited(single_joint("revolute", 3.0, 1.0), lower=-2.0, upper=2.0, velocity=2.0, effort=100.0)


def controller(**settings: Any) -> ZeroForceController:
    return ZeroForceController(guiding_model(model()), replace(ZeroForceSettings(), **settings))


def guiding(**settings: Any) -> tuple[ZeroForceController, int]:
    """A controller that guides, and the number of the next frame."""
    c = controller(ramp_s=0.02, takeover_watch_s=0.0, **settings)
    for k in range(30):
        c.step(frame(k, 0.0))
    assert c.state is GuidingState.GUIDING
    return c, 30


def test_the_torque_of_the_drives_is_taken_over_without_a_jump() -> None:
    c = controller(takeover_watch_s=0.1)
    held = np.array([-HELD + 2.0])  # static friction carries 2 N*m
    tau = np.array([c.step(frame(k, 0.0, tau=held))[0] for k in range(1200)])
    assert tau[0] == pytest.approx(held[0], abs=1e-3)
    assert np.abs(np.diff(tau)).max() < 0.005
    assert tau[-1] == pytest.approx(-HELD)
    assert c.state is GuidingState.GUIDING
    assert c.status.reason == ""


def test_states_follow_the_ramps() -> None:
    c = controller(ramp_s=0.1, takeover_watch_s=0.05)
    seen = []
    for k in range(500):
        c.step(frame(k, 0.0))
        if k == 300:
            c.stop("asked to")
        seen.append(c.state)
    assert seen.index(GuidingState.GUIDING) == pytest.approx(150, abs=2)
    assert seen[301] is GuidingState.RAMPING
    assert seen.index(GuidingState.HOLD_REQUESTED) == pytest.approx(400, abs=2)
    assert c.status.reason == "asked to"
    assert c.status.share == 0.0
    held = c.step(frame(500, 0.005))[0]  # pulled back to where it was, and still carried
    assert held == pytest.approx(-HELD - 0.5 * (2.0 * np.pi * 3.0) ** 2 * 0.005, abs=1e-3)
    c.end()
    assert not c.step(frame(501, 0.0)).any()
    assert c.state is GuidingState.ENDED


def test_torque_and_its_rate_keep_to_their_limits() -> None:
    c, k = guiding(torque_limit=(12.0,), torque_rise_s=0.02, limited_s=0.05, speed_share=1.0, speed_limit=(1.5,))
    tau = [c.step(frame(k + i, -1.4e-3 * i, -1.4))[0] for i in range(300)]
    assert np.abs(tau).max() <= 12.0
    assert max(tau) == pytest.approx(12.0)
    assert np.abs(np.diff([-HELD, *tau])).max() <= 12.0 / 20.0 + 1e-9
    assert c.status.reason == "only needs more torque than it may have: 12 of 12 N*m"
    assert c.status.joint == "only"
    assert c.state is GuidingState.HOLD_REQUESTED


def test_too_fast_a_joint_asks_for_a_hold() -> None:
    c, k = guiding(speed_limit=(0.4,), torque_rise_s=0.005)
    for i in range(200):
        tau = c.step(frame(k + i, 0.0, 0.41))
        if i == 0:
            assert c.state is GuidingState.ALARM
            assert tau[0] < -HELD - 5.0
    assert c.state is GuidingState.HOLD_REQUESTED
    assert c.status.reason == "only moves at 0.41 rad/s, its limit is 0.4"
    assert (c.status.value, c.status.limit) == (0.41, 0.4)


@pytest.mark.parametrize("q", [-2.001, 2.001])
def test_beyond_a_position_limit_it_asks_for_a_hold(q: float) -> None:
    c = controller()
    assert not c.step(frame(0, q)).any()
    assert c.state is GuidingState.HOLD_REQUESTED
    assert c.status.reason == f"only is at {q:g} rad, beyond its limit of {np.sign(q) * 2:g}"


@pytest.mark.parametrize("how", ["none", "nan", "invalid", "no q", "still", "jump"])
def test_missing_samples_fade_what_depends_on_velocity_and_then_ask_for_a_hold(how: str) -> None:
    c, k = guiding(damping_time_s=0.02)
    for i in range(10):
        before = c.step(frame(k + i, 0.0, 0.2))[0]
    assert before < -HELD - 1.0
    bad = {
        "none": None, "nan": frame(k + 10, 0.0, np.nan), "invalid": frame(k + 10, 0.0, 0.2, valid=np.array([False])),
        "no q": JointFrame(k + 10, (k + 10) * MS, 0), "still": frame(k + 9, 0.0, 0.2), "jump": frame(k + 10, 1.0, 0.2),
    }[how]  # fmt: skip
    tau = []
    for i in range(8):
        tau.append(c.step(bad)[0])
        assert c.state is (GuidingState.GUIDING if i < 4 else GuidingState.HOLD_REQUESTED)
    assert np.all(np.diff([before, *tau[:5]]) > 0.05)
    assert tau[4] == pytest.approx(-HELD)
    assert tau[-1] == tau[4]
    assert "for 5 ms" in c.status.reason
    back = c.step(frame(k + 30, 0.001, 0.0))
    assert c.state is GuidingState.HOLD_REQUESTED
    assert back[0] == pytest.approx(-HELD, rel=0.1)
    assert "for 5 ms" in c.status.reason


def test_a_late_sample_asks_for_a_hold() -> None:
    c, k = guiding()
    tau = c.step(frame(k + 6, 0.0))
    assert c.state is GuidingState.ALARM
    assert c.status.reason == "no sample for 7 ms"
    assert tau[0] == pytest.approx(-HELD, rel=0.05)


def test_a_session_without_any_sample_asks_for_a_hold() -> None:
    c = controller()
    assert not c.step(None).any()
    assert c.state is GuidingState.WAITING
    for _ in range(5):
        assert not c.step(None).any()
    assert c.state is GuidingState.HOLD_REQUESTED
    for k in range(5):  # the drives have never been in torque mode
        assert not c.step(frame(k, 0.0)).any()
    assert c.status.reason == "no sample for 5 ms"
    stopped = controller()
    stopped.stop()
    assert stopped.state is GuidingState.HOLD_REQUESTED
    assert not stopped.step(frame(0, 0.0)).any()


def test_a_first_sample_that_comes_late_is_not_taken_over() -> None:
    """Up to then the torque was zero: what carries the arm would be a step."""
    c = controller()
    assert not c.step(None).any()
    assert not c.step(frame(1, 0.0)).any()
    assert c.state is GuidingState.HOLD_REQUESTED
    assert c.status.reason == "samples before the first usable one were none"
    assert not c.holds


def test_a_position_is_one_to_be_held_only_if_samples_can_be_believed() -> None:
    for wrong, believed in (
        (lambda k: None, True),
        (lambda k: frame(k, np.nan), True),
        (lambda k: frame(29, 0.0), False),  # time does not go on
        (lambda k: frame(k, 0.0, tau=np.array([1e5])), False),
        (lambda k: frame(k, 1.0), False),
    ):
        c, k = guiding()
        for i in range(5):
            c.step(wrong(k + i))
        assert c.state is GuidingState.HOLD_REQUESTED
        assert c.holds == believed
    c, k = guiding()
    c.step(frame(k, 1.0))
    assert not c.holds
    c.step(frame(k + 1, 0.0))  # one jump alone is forgotten
    assert c.holds


def test_a_speed_limit_is_the_lower_of_its_list_and_its_share() -> None:
    for share, listed, limit in ((0.5, 0.3, 0.3), (0.1, 0.3, 0.2)):
        c, k = guiding(speed_share=share, speed_limit=(listed,))
        for i in range(40):
            c.step(frame(k + i, 9e-4 * i, 0.9))
        assert f"its limit is {limit}" in c.status.reason


@pytest.mark.parametrize(("torque", "valid"), [(-HELD + 2.9, True), (-HELD - 2.9, True), (-HELD + 4.1, False)])
def test_a_torque_that_friction_cannot_explain_is_not_taken_over(torque: float, valid: bool) -> None:
    c = controller(ramp_s=2.0)
    given = np.array([c.step(frame(k, 0.0, tau=np.array([torque])))[0] for k in range(500)])
    assert (c.state is GuidingState.RAMPING) == valid
    if not valid:
        assert c.state is GuidingState.HOLD_REQUESTED
        assert not given.any()
        assert "the torque residual of only was above its friction margin, at last 4.1 against" in c.status.reason


@pytest.mark.parametrize(("torque", "limit"), [(1e4, None), (95.0, None), (HELD, None), (np.nan, None), (-HELD, 6.0)])
def test_a_first_torque_that_cannot_be_right_is_never_given(torque: float, limit: float | None) -> None:
    c = controller(torque_limit=None if limit is None else (limit,))
    for k in range(60):
        assert not c.step(frame(k, 0.0, tau=np.array([torque]))).any()
    assert c.state is GuidingState.HOLD_REQUESTED
    c = controller(torque_limit=(6.0,))  # nor is a weight that is above the limit
    assert not c.step(frame(0, 0.0)).any()
    assert c.status.reason == "only needs more torque than it may have: -6 of 6 N*m"


def test_bad_use_is_refused() -> None:
    c = controller()
    with pytest.raises(ValueError, match=r"channel of shape \(2,\), the model has 1 joints"):
        c.step(frame(0, np.zeros(2)))
    with pytest.raises(ValueError, match="zero-force control of single needs position limits, missing for only"):
        ZeroForceController(guiding_model(single_joint("revolute")))
    open_ = limited(model(), effort=np.inf)
    with pytest.raises(ValueError, match="needs torque_limit, missing for only"):
        ZeroForceController(guiding_model(open_))
    ZeroForceController(guiding_model(open_), ZeroForceSettings(torque_limit=(30.0,)))
    with pytest.raises(ValueError, match="speed_limit has 2 values, arm9 has 9 joints"):
        ZeroForceController(exact(), ZeroForceSettings(speed_limit=(1.0, 1.0)))
    with pytest.raises(ValueError, match=r"period_s must be positive and at most half of braking_time_s, not 0\.004"):
        ZeroForceController(exact(), period_s=0.004)
    assert robot().n == 9


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("friction_share", 1.1), ("friction_share", -0.1), ("speed_share", 0.0), ("torque_share", 1.5),
        ("ramp_s", 0.0), ("missing_s", np.nan), ("wall_share", 0.5), ("braking_time_s", 0.001), ("hold_hz", 50.0),
        ("delay_cycles", 9), ("torque_limit", (0.0,)), ("residual_floor", 1.0), ("delay_cycles", 1.5),
        ("damping_time_s", None),
    ],
)  # fmt: skip
def test_settings_out_of_range_are_refused(name: str, value: Any) -> None:
    settings: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match=f"^{name} must be "):
        ZeroForceSettings(**settings)


def test_a_measured_velocity_of_the_wrong_sign_is_found_and_not_used_any_more() -> None:
    c, k = guiding()
    v = 0.2
    for i in range(150):
        c.step(frame(k + i, v * i * 1e-3, -v))
        if i == 30:
            assert c.state is GuidingState.ALARM
    assert c.status.reason.startswith("measured velocity of only is not that of its position: -0.2 and ")
    assert c.status.reason.endswith("check its sign and scale")
    assert c.status.velocity[0] == pytest.approx(v, rel=0.01)
    assert c.state is GuidingState.HOLD_REQUESTED
    late, k = guiding()  # 3 ms late and 2 % off: as drives are
    for i in range(400):
        t = i * 1e-3
        late.step(frame(k + i, 0.05 * np.sin(5.0 * t), 1.02 * 0.25 * np.cos(5.0 * (t - 0.003))))
    assert late.state is GuidingState.GUIDING


def test_a_drive_that_gives_another_torque_than_it_was_told_gets_none() -> None:
    c = controller()
    tau, given = np.array([-HELD]), []
    for k in range(60):
        tau = c.step(frame(k, 0.0, tau=-tau if k > 3 else tau))
        given.append(tau[0])
    assert c.state is GuidingState.HOLD_REQUESTED
    assert "only gives 9.8" in c.status.reason
    assert "check the sign and scale of its torque" in c.status.reason
    assert np.all(np.diff(given[30:]) >= 0.0)
    assert np.abs(np.diff(given)).max() <= 90.0 / 50.0 + 1e-9
    assert given[-1] == 0.0
    assert c.step(frame(60, 0.01, -0.2, tau=-tau))[0] == 0.0  # nothing of velocity or position
