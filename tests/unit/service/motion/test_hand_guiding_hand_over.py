"""Guiding by hand: from the hold of the drives into torque mode and back, when something is wrong just then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from drivers.driver import CommandRefusedError
from drivers.frame import JointFrame
from rt_core.safety import SafetyError
from service.config.hand_guiding import GuidingConfig
from service.motion._hand_guiding import HandGuiding
from sim_backend.drive.commanded_driver import STATUS
from tests.lab.daemon.guiding_bench import PUSH, GuidingBench
from tests.lab.daemon.motion_bench import MODEL, PERIOD_S, START

VELOCITY = np.array([joint.velocity for joint in MODEL.joints])
EFFORT = np.array([joint.effort for joint in MODEL.joints])


def spoil(bench: GuidingBench, change: Callable[[JointFrame], None]) -> None:
    """Let every frame be changed on its way."""
    read = bench.driver.read

    def spoiled(timeout_s: float) -> JointFrame:
        frame = read(timeout_s)
        change(frame)
        return frame

    bench.driver.read = spoiled  # type: ignore[assignment,method-assign]


def back_in_csp(bench: GuidingBench) -> int:
    """Cycle in which the drives got their first set position again."""
    return next(k for k in range(1, len(bench.modes)) if bench.modes[k - 1 : k + 1] == ["cst", "csp"])


@pytest.mark.parametrize("bad", [1, 3, 10])
def test_a_bad_first_frame_leaves_the_drives_in_their_hold(bad: int) -> None:
    bench = GuidingBench()
    left = [bad]

    def change(frame: JointFrame) -> None:
        if bench.guiding.session is not None and left[0] > 0:
            left[0] -= 1
            frame.valid = np.arange(MODEL.n) != 1

    bench.prepare()
    spoil(bench, change)
    bench.until("disarmed")
    assert bench.session.outcome == "stopped"
    assert set(bench.modes) == {"csp"}
    assert np.abs(bench.channel("q") - START).max() < 1e-3
    bench.stays_off()


def test_an_arm_that_is_pushed_out_of_its_hold_is_switched_off_for_it() -> None:
    bench = GuidingBench()
    bench.guide()
    bench.controller.stop("aborted by request", bench.driver)
    while bench.driver.mode == "cst":
        bench.turn()

    def pushed(frame: JointFrame) -> None:
        assert frame.q is not None
        frame.q = frame.q + np.where(np.arange(MODEL.n) == 2, 0.25, 0.0)

    spoil(bench, pushed)
    bench.turn()
    assert bench.phase == "disarmed"
    assert bench.session.reason == "aborted by request"
    report = bench.guiding.report()
    assert report is not None
    assert "joint_3 is 0.25 rad from its command" in report["later"][0]


@pytest.mark.parametrize(("swings", "held"), [(600, (600, 1000)), (10_000, (1990, 2010))])
def test_the_drives_hold_until_the_arm_rests_but_not_for_ever(swings: int, held: tuple[int, int]) -> None:
    bench = GuidingBench()
    bench.guide()
    bench.controller.stop("aborted by request", bench.driver)
    count = [0]

    def swinging(frame: JointFrame) -> None:
        if bench.driver.mode == "csp" and count[0] < swings:
            count[0] += 1
            assert frame.q is not None
            frame.q = frame.q + 0.05 * np.sin(2.0 * np.pi * 2.0 * PERIOD_S * count[0])

    spoil(bench, swinging)
    bench.until("disarmed")
    assert held[0] < len(bench.modes) - back_in_csp(bench) < held[1]
    report = bench.guiding.report()
    assert report is not None
    told = [later for later in report["later"] if "not come to rest in its hold within 2 s" in later]
    assert len(told) == (swings > 2000)


ENDS: list[tuple[Callable[[GuidingBench], None], str]] = [
    (lambda bench: bench.controller.stop("aborted by request", bench.driver), "aborted by request"),
    (lambda bench: setattr(bench, "beats", False), "the client has not been heard of for"),
    (
        lambda bench: spoil(bench, lambda frame: setattr(frame, "temperature", np.full(MODEL.n, 90.0))),
        "joint_1: temperature 90",
    ),
]


@pytest.mark.parametrize(("act", "words"), ENDS, ids=["abort", "client gone", "heat"])
def test_what_is_found_in_the_slow_end_makes_it_a_quick_one(act: Callable[[GuidingBench], None], words: str) -> None:
    bench = GuidingBench(guiding={"ramp_s": 3.0, "takeover_watch_s": 0.0})
    bench.guide(for_s=3.1)
    while bench.phase == "guiding":
        bench.turn()
    bench.turns(50)
    act(bench)
    began = len(bench.modes)
    bench.until("disarmed")
    assert bench.session.outcome == "stopped"
    assert words in bench.session.reason
    assert back_in_csp(bench) - began < 1250  # 3 s otherwise; the client has 1 s
    report = bench.guiding.report()
    assert report is not None
    assert report["stopped_ns"] < report["at_once_ns"]
    assert report["later"] == []
    bench.held_softly()


def test_values_that_are_old_are_no_place_to_hold() -> None:
    bench = GuidingBench(PUSH | {"duration_s": 3.0}, guiding={"frozen_s": 0.02, "residual_time_s": 9.0})
    noise = np.random.default_rng(1)
    last: list[JointFrame] = []

    def change(frame: JointFrame) -> None:
        if last and bench.driver.mode == "cst":
            frame.q, frame.dq, frame.tau = last[0].q, last[0].dq, last[0].tau
        elif frame.tau is not None:
            frame.tau = frame.tau + noise.normal(0.0, 1e-6, MODEL.n)

    spoil(bench, change)
    bench.guide()
    while np.abs(bench.channel("dq")[-1]).max() < 0.3:
        bench.turn()
    last.append(bench.frames[-1])
    bench.until("disarmed")
    assert "measured torque stands still in all joints" in bench.session.reason
    assert bench.modes[-1] == "cst"  # never a set position from where the arm was
    bench.turns(500)
    assert not bench.driver.enabled


def refuse_torque(bench: GuidingBench) -> None:
    """Let the driver refuse the next torque, so that its drives have to hold at once."""
    command, refusals = bench.driver.command, [1]

    def refusing(target: Any) -> None:
        if bench.driver.mode == "cst" and refusals:
            refusals.pop()
            raise CommandRefusedError("command refused: too much")
        command(target)

    bench.driver.command = refusing  # type: ignore[method-assign]


def test_a_torque_that_the_driver_refuses_is_the_reason_of_the_hold() -> None:
    bench = GuidingBench()
    bench.guide()
    refuse_torque(bench)
    bench.turn()
    assert (bench.session.outcome, bench.guiding.phase, bench.driver.mode) == ("stopping", "hold", "csp")
    assert bench.session.stopped_ns == bench.session.at_once_ns == bench.frames[-1].t_bus_ns
    bench.until("disarmed")
    assert (bench.session.outcome, bench.session.reason) == ("stopped", "command refused: too much")
    bench.held_softly()


def limited(bench: GuidingBench, room: float) -> int:
    """Guide until a joint is pushed at speed, `room` before a position limit of its own from now on; returns it."""
    bench.guide()
    while np.abs(bench.channel("dq")[-1]).max() < 0.3:
        bench.turn()
    q, dq = bench.channel("q")[-1], bench.channel("dq")[-1]
    fast = int(np.argmax(np.abs(dq)))
    here, own = np.arange(MODEL.n) == fast, bench.controller.limits
    limit = q + room * np.sign(dq)
    bench.guiding._limits = replace(
        own,
        upper=np.where(here & (dq > 0.0), limit, own.upper),
        lower=np.where(here & (dq < 0.0), limit, own.lower),
    )
    return fast


def test_before_a_position_limit_the_arm_comes_to_rest_before_brakes_close() -> None:
    bench = GuidingBench(PUSH)
    fast = limited(bench, 0.003)
    q, dq = bench.channel("q")[-1], bench.channel("dq")[-1]
    refuse_torque(bench)
    bench.until("disarmed")
    assert bench.session.reason == "command refused: too much"
    back = back_in_csp(bench)
    assert len(bench.modes) - back > 200  # the drives held until the arm was at rest
    assert np.abs(bench.channel("dq")[-1]).max() < 0.01
    after = bench.setpoints()[back + 2 :, fast]
    assert (np.sign(dq[fast]) * (after - q[fast]) <= 0.003 + 1e-9).all()


def test_beyond_a_position_limit_drives_brake_all_joints_along_their_own_ramps() -> None:
    """No set position may be told there; to hold at once would stop the other joints dead, too."""
    bench = GuidingBench(PUSH)
    limited(bench, -0.05)
    before = bench.channel("dq")[-1]
    assert (np.abs(before) > 0.02).sum() > 1
    refuse_torque(bench)
    bench.until("disarmed")
    assert bench.session.reason == "command refused: too much"
    assert (bench.session.outcome, bench.modes[-1]) == ("stopped", "cst")  # never a hold without set positions
    bench.turns(800)
    assert not bench.driver.enabled
    words = np.array([frame.status_word for frame in bench.frames])
    stopping = (words == STATUS["stopping"]).all(axis=1)
    after = bench.setpoints()[stopping]
    assert len(after) > 20
    ramp = np.abs(np.diff(after, 2, axis=0)).max(axis=0) / PERIOD_S**2
    assert (ramp <= bench.driver._quick_stop * (1.0 + 1e-5)).all()
    assert np.abs(bench.channel("dq")[-1]).max() < 1e-3


def test_no_limit_is_above_what_runs_of_the_arm_keep() -> None:
    bench = GuidingBench(
        guiding={"speed_limit": tuple(0.2 * VELOCITY), "torque_share": 1.0}, velocity_fraction=0.1, effort_fraction=0.5
    )
    bench.prepare()
    settings = bench.session.settings
    assert settings.speed_limit is not None
    assert settings.torque_limit is not None
    np.testing.assert_allclose(settings.speed_limit, 0.1 * VELOCITY)
    np.testing.assert_allclose(settings.torque_limit, 0.5 * EFFORT)
    asked = GuidingBench(guiding={"speed_limit": tuple(0.2 * VELOCITY)})
    asked.prepare(speed_share=0.02)
    slower = asked.session.settings.speed_limit
    assert slower is not None
    np.testing.assert_allclose(slower, 0.02 * VELOCITY)
    limits, state = bench.controller.limits, bench.controller.state
    for name, value in (("speed_limit", 2.0 * VELOCITY), ("torque_limit", 2.0 * EFFORT)):
        with pytest.raises(SafetyError, match=f"guiding: {name} of joint_1 is .*: at most .* of the robot file"):
            HandGuiding(MODEL, limits, state, GuidingConfig.model_validate({name: tuple(value)}), PERIOD_S)
