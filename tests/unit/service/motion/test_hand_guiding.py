"""Guiding a simulated arm by hand, frame by frame: takeover, hand, and how each reason brings it to a hold."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from drivers.driver import CommandRefusedError
from drivers.frame import JointFrame
from rt_core.safety import PermitError, SafetyError
from service.motion._hand_guiding import HandGuiding
from sim_backend.drive.commanded_driver import STATUS
from tests.lab.daemon.guiding_bench import PUSH, GuidingBench
from tests.lab.daemon.motion_bench import MODEL, PERIOD_S, START


def test_it_hovers_a_hand_moves_it_and_it_comes_back_to_the_hold_of_the_drives() -> None:
    bench = GuidingBench(PUSH | {"after_s": 1.5})
    bench.guide(for_s=4.0)
    while bench.frames[-1].t_bus_ns < 1.4e9:
        bench.turn()
    assert np.degrees(np.abs(bench.channel("q") - START)).max() < 0.1
    bench.until("disarmed")
    assert (bench.session.outcome, bench.session.reason) == ("completed", "the 4 s are over")
    q, dq = bench.channel("q"), bench.channel("dq")
    assert np.abs(q[-1] - q[0]).max() > 0.1
    resting = bench.modes.index("cst") + 3000
    assert np.abs(dq[resting : resting + 500]).max() < 1e-3
    assert {"csp", "cst"} == set(bench.modes)
    bench.held_softly()
    jerk = np.abs(np.diff(bench.channel("tau")[200:-200], axis=0)).max(axis=0)
    effort = np.array([joint.effort for joint in MODEL.joints])
    assert (jerk < 0.05 * effort).all()  # nothing jumps at either change of mode
    bench.turns(300)
    assert not bench.driver.enabled
    with pytest.raises(PermitError):
        bench.controller.check_permit(bench.token, bench.now)


def test_nothing_begins_before_a_heartbeat() -> None:
    bench = GuidingBench()
    bench.beats = False
    bench.prepare()
    assert bench.session.outcome == "checked"
    with pytest.raises(PermitError, match="another run"):
        bench.controller.check_permit(bench.token, bench.now)
    bench.turns(1100)
    assert bench.session.outcome == "refused"
    assert bench.session.reason == "the client has not been heard of for 1 s after the answer"
    assert set(bench.modes) == {"csp"}
    assert bench.phase == "armed"
    bench.start(periods=1)  # the permit has not been used
    bench.beats = True
    bench.until("disarmed")
    assert bench.outcome == ("completed", "")


@pytest.mark.parametrize(
    ("bad", "words"), [(2, "samples before the first usable one were none"), (20, "no sample for 5 ms")]
)
def test_the_drives_hold_until_a_sample_can_be_used(bad: int, words: str) -> None:
    bench = GuidingBench()
    bench.prepare()
    bench.controller.heartbeat(bench.token, bench.now)
    for _ in range(bad):
        frame = bench.driver.read(0.0)
        frame.valid = np.zeros(MODEL.n, dtype=bool)
        bench.controller.step(frame, bench.driver, bench.now)
        assert bench.driver.mode == "csp"
    for _ in range(1000):
        if bench.session.outcome == "stopped":
            break
        bench.turn()
        assert bench.driver.mode == "csp"
    assert (bench.session.outcome, bench.session.reason) == ("stopped", words)


def test_a_permit_has_to_last_for_the_session() -> None:
    bench = GuidingBench()
    bench.arm(5.0)
    with pytest.raises(PermitError, match="arm for longer"):
        bench.guiding.prepare(bench.token, bench.now, bench.config, 60.0)
    assert not bench.controller.busy


REASONS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "abort": ({}, {}, "aborted by request"),
    "client gone": ({}, {}, "the client has not been heard of for"),
    "permit": ({}, {}, "the permit has expired"),
    "steady push": (PUSH | {"duration_s": 9.0}, {"residual_time_s": 0.4}, "model not valid"),
    "speed": (PUSH | {"force": (0.0, 60.0, 0.0)}, {"speed_share": 0.05}, "moves at"),
    "heat": ({"kind": "heat", "after_s": 0.8, "joint": "joint_3", "value": 90.0}, {}, "joint_3: temperature 90"),
}


@pytest.mark.parametrize("what", REASONS)
def test_every_reason_leads_to_a_hold_and_off(what: str) -> None:
    fault, guiding, words = REASONS[what]
    bench = GuidingBench(*([fault] if fault else []), guiding=guiding)
    bench.arm(2.0 if what == "permit" else 60.0)
    bench.prepare()
    bench.until_phase("guiding")
    bench.turns(100)
    if what == "abort":
        bench.controller.stop(words, bench.driver)
    bench.beats = what != "client gone"
    bench.until("disarmed")
    bench.beats = True
    assert bench.session.outcome == "stopped"
    assert words in bench.session.reason
    bench.held_softly()
    bench.stays_off()


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"kind": "drive_fault", "joint": "joint_2"}, "no longer enabled (drive of joint_2 in state 'fault')"),
        ({"kind": "silence", "duration_s": 0.5}, "no frame for more than 0.1 s (no set value for 0.1 s)"),
        ({"kind": "encoder_jump", "joint": "joint_1", "value": 0.4}, "position jumps"),
    ],
)
def test_where_nothing_can_be_held_the_drives_stop_by_themselves(fault: dict[str, Any], words: str) -> None:
    bench = GuidingBench(fault | {"after_s": 0.8})
    bench.guide()
    bench.until("disarmed")
    assert bench.session.outcome == "stopped"
    assert words in bench.session.reason
    bench.turns(500)
    assert not bench.driver.enabled
    assert np.abs(np.diff(bench.channel("q")[-200:], axis=0)).max() < 1e-5


# ---------------------------------------------------------------- what is wrong during the hand-over


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


def aborted() -> GuidingBench:
    """An arm whose guiding was just aborted."""
    bench = GuidingBench()
    bench.guide()
    bench.controller.stop("aborted by request", bench.driver)
    return bench


def reported(bench: GuidingBench) -> dict[str, Any]:
    return bench.guiding.report()


def back_in_csp(bench: GuidingBench) -> int:
    """Cycle in which the drives got their first set position again."""
    return next(k for k in range(1, len(bench.modes)) if bench.modes[k - 1 : k + 1] == ["cst", "csp"])


def test_an_arm_that_is_pushed_out_of_its_hold_is_switched_off_for_it() -> None:
    bench = aborted()
    while bench.driver.mode == "cst":
        bench.turn()

    def pushed(frame: JointFrame) -> None:
        frame.q = frame.q + np.where(np.arange(MODEL.n) == 2, 0.25, 0.0)

    spoil(bench, pushed)
    bench.turn()
    assert bench.phase == "disarmed"
    assert bench.session.reason.startswith("aborted by request; then joint joint_3 is 0.25 rad")
    assert "joint_3 is 0.25 rad from its command" in reported(bench)["later"][0]


@pytest.mark.parametrize(("swings", "held"), [(600, (600, 1000)), (10_000, (1990, 2010))])
def test_the_drives_hold_until_the_arm_rests_but_not_for_ever(swings: int, held: tuple[int, int]) -> None:
    bench, count = aborted(), [0]

    def swinging(frame: JointFrame) -> None:
        if bench.driver.mode == "csp" and count[0] < swings:
            count[0] += 1
            frame.q = frame.q + 0.05 * np.sin(2.0 * np.pi * 2.0 * PERIOD_S * count[0])

    spoil(bench, swinging)
    bench.until("disarmed")
    assert held[0] < len(bench.modes) - back_in_csp(bench) < held[1]
    told = [later for later in reported(bench)["later"] if "not come to rest in its hold within 2 s" in later]
    assert len(told) == (swings > 2000)


def test_what_is_found_in_the_slow_end_makes_it_a_quick_one() -> None:
    bench = GuidingBench(guiding={"ramp_s": 3.0, "takeover_watch_s": 0.0})
    bench.guide(for_s=3.1)
    while bench.phase == "guiding":
        bench.turn()
    bench.turns(50)
    bench.beats = False
    began = len(bench.modes)
    bench.until("disarmed")
    assert bench.session.outcome == "stopped"
    assert "the client has not been heard of for" in bench.session.reason
    assert back_in_csp(bench) - began < 1250  # 3 s otherwise; the client has 1 s
    report = reported(bench)
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
        own, upper=np.where(here & (dq > 0.0), limit, own.upper), lower=np.where(here & (dq < 0.0), limit, own.lower)
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
    assert (np.abs(bench.channel("dq")[-1]) > 0.02).sum() > 1
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
    np.testing.assert_allclose(settings.speed_limit, 0.1 * VELOCITY)
    np.testing.assert_allclose(settings.torque_limit, 0.5 * EFFORT)
    asked = GuidingBench(guiding={"speed_limit": tuple(0.2 * VELOCITY)})
    asked.prepare(speed_share=0.02)
    np.testing.assert_allclose(asked.session.settings.speed_limit, 0.02 * VELOCITY)
    limits, state = bench.controller.limits, bench.controller.state
    for name, value in (("speed_limit", 2.0 * VELOCITY), ("torque_limit", 2.0 * EFFORT)):
        with pytest.raises(SafetyError, match=f"guiding: {name} of joint_1 is .*: at most .* of the robot file"):
            HandGuiding(MODEL, limits, state, replace(bench.config, **{name: tuple(value)}), PERIOD_S)
