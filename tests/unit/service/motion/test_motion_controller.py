"""Runs on a simulated arm, frame by frame: what is commanded, and how each fault stops it."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from drivers.frame import JointFrame
from tests.lab.daemon.motion_bench import ACCELERATION, JOINTS, MODEL, PERIOD_S, START, Bench, N, series, trajectory


@pytest.fixture
def bench() -> Iterator[Bench]:
    one = Bench()
    yield one
    one.driver.close()


def test_a_run_from_the_present_position_to_its_end(bench: Bench) -> None:
    bench.run(periods=3)
    begun = len(bench.frames)
    approach = bench.setpoints()
    bench.until("disarmed")
    assert bench.outcome == ("completed", "")
    assert bench.reason == "the run is complete"
    bench.commanded_within_limits()
    wanted = series().sample(np.arange(6001) * PERIOD_S)[0]
    np.testing.assert_allclose(bench.setpoints()[begun : begun + 6001], wanted, atol=1e-9)
    speed = np.abs(np.diff(approach, axis=0)).max(axis=0) / PERIOD_S
    assert (speed <= 0.15 * ACCELERATION / 5.0 * 1.01).all()
    np.testing.assert_allclose(approach[:100], np.tile(START, (100, 1)), atol=1e-4)
    bench.stays_off()


# ---------------------------------------------------------------- what stops a run


JAM = {"kind": "jam", "joint": "joint_2", "value": 900.0}
STOPS: list[tuple[str, dict[str, Any], float, dict[str, Any], str]] = [
    ("torque", JAM, 0.3, {"following_error": 3.0}, "joint_2: torque 1"),
    ("following error", JAM, 1.4, {"following_error": 0.01, "effort_fraction": 1.0}, "joint_2 is 0.01"),
    ("stuck encoder", {"kind": "stuck_encoder", "joint": "joint_1"}, 0.3, {"following_error": 0.02}, "joint_1 is 0.02"),
    ("jump", {"kind": "encoder_jump", "joint": "joint_4", "value": 0.5}, 1.4, {}, "joint_4 is 0.5 rad from its"),
    ("heat", {"kind": "heat", "joint": "joint_3", "value": 90.0}, 1.4, {}, "joint_3: temperature 90 degC"),
]


@pytest.mark.parametrize(("fault", "after_s", "safety", "words"), [s[1:] for s in STOPS], ids=[s[0] for s in STOPS])
def test_a_limit_that_is_not_kept_stops_the_run(
    fault: dict[str, Any], after_s: float, safety: dict[str, Any], words: str
) -> None:
    """In the approach, 0.3 s after the start, as in the trajectory."""
    bench = Bench(fault | {"after_s": after_s}, **safety)
    bench.arm()
    bench.start(trajectory(series=replace(series(), q0=START + 0.1)), periods=4)
    bench.until("stopping")
    assert words in bench.reason
    assert np.abs(np.diff(bench.setpoints()[-2:], axis=0)).max() / PERIOD_S > 0.01  # while it moved
    bench.stops(words)


@pytest.mark.parametrize(
    ("fault", "silence_s", "words"),
    [
        ({"kind": "drive_fault", "joint": "joint_3"}, 0.1, "no longer enabled (drive of joint_3 in state 'fault')"),
        # Drives have come to rest meanwhile: nothing goes on from the speed before.
        ({"kind": "silence", "duration_s": 0.03}, 1.0, "cycles were lost, at most 0 are bridged"),
    ],
)
def test_drives_that_follow_no_longer_are_left_to_their_ramps(
    fault: dict[str, Any], silence_s: float, words: str
) -> None:
    bench = Bench(fault | {"after_s": 1.0}, silence_s=silence_s)
    bench.run()
    bench.stops(words, commanded=False)


def test_what_ends_a_stop_is_said(bench: Bench) -> None:
    bench.run()
    bench.turns(300)
    bench.controller.stop("aborted by request", bench.driver)
    bench.driver.disable()
    bench.stops("aborted by request; then the drives are no longer enabled", commanded=False)


def test_silence_disarms_and_the_drives_stop_by_themselves() -> None:
    bench = Bench({"kind": "silence", "after_s": 1.0, "duration_s": 0.5})
    bench.run()
    bench.until("disarmed")
    assert bench.reason.startswith("no frame for more than 0.1 s")
    before = len(bench.frames)
    bench.turns(2000)
    assert bench.frames[before].seq - bench.frames[before - 1].seq > 400
    assert not bench.driver.enabled
    assert np.abs(np.diff([frame.q for frame in bench.frames[before:]], axis=0)).max() < 1e-5
    assert bench.reason.startswith("no frame for")  # not another, now that the drives are off
    bench.stays_off()


def test_a_joint_without_values_stops_the_run(bench: Bench) -> None:
    bench.run()
    driver, valid = bench.driver, np.array([True] * (N - 1) + [False])
    for _ in range(300):
        frame = driver.read(0.0)
        frame.valid = valid
        frame.q = np.where(valid, frame.q, np.nan)
        bench.now = 100.0 + frame.t_bus_ns * 1e-9
        bench.frames.append(frame)
        bench.controller.state.heartbeat("a", bench.now)
        bench.controller.step(frame, driver, bench.now)
        if bench.phase != "running":
            break
    assert "no frame with values of all joints for 0.1" in bench.reason
    bench.until("disarmed")
    bench.commanded_within_limits()


def test_a_permit_that_expires_stops_the_run(bench: Bench) -> None:
    bench.arm(12.0)
    bench.start(periods=4)
    bench.until("running")
    permit = bench.controller.state.permit
    late = permit.expires_s - bench.now - 0.5  # frames come slower than they should
    for _ in range(3000):
        frame = bench.driver.read(0.0)
        bench.frames.append(frame)
        now = 100.0 + frame.t_bus_ns * 1e-9 + late
        bench.controller.state.heartbeat("a", now)
        bench.controller.step(frame, bench.driver, now)
        if bench.phase == "disarmed":
            break
    assert bench.outcome == ("stopped", "the permit has expired")
    bench.commanded_within_limits()


@pytest.mark.parametrize("phase", ["armed", "approach", "running"])
def test_abort_from_any_phase(bench: Bench, phase: str) -> None:
    """Another reason during the stop changes nothing."""
    bench.arm()
    if phase != "armed":
        bench.start(trajectory(series=replace(series(), q0=START + 0.2)))
        bench.until(phase)
        bench.turns(300)
    bench.controller.stop("aborted by request", bench.driver)
    bench.turn()
    assert bench.phase == ("disarmed" if phase == "armed" else "stopping")
    bench.beats = False
    bench.controller.stop("another", bench.driver)
    bench.until("disarmed")
    assert bench.reason == "aborted by request"
    bench.commanded_within_limits()
    bench.beats = True
    bench.stays_off()


@pytest.mark.slow
def test_a_joint_that_is_held_while_it_stops_is_not_pushed_on() -> None:
    """A stop that takes its time must not drive the arm into what has stopped it."""
    bench, joint = Bench(acceleration=0.5, following_error=0.05), 5
    bench.run(trajectory(series=series(size=0.3, f0_hz=0.05)))
    while abs(np.subtract(*(frame.setpoint[joint] for frame in bench.frames[-2:]))) < 0.29 * PERIOD_S:
        bench.turn()  # from here, 0.08 rad to rest
    bench.controller.stop("aborted by request", bench.driver)
    bench.turn()
    assert bench.phase == "stopping"
    at, read = bench.frames[-1].q, bench.driver.read

    def held(timeout_s: float) -> JointFrame:
        frame = read(timeout_s)
        frame.q = np.where(np.arange(N) == joint, at, frame.q)
        return frame

    bench.driver.read = held  # type: ignore[method-assign]
    bench.until("disarmed")
    assert bench.reason.startswith(f"aborted by request; then joint {JOINTS[joint]} is 0.05")
    assert abs(bench.setpoints()[-1, joint] - at[joint]) < 0.052
    assert bench.outcome == ("stopped", bench.reason)
    bench.turns(500)
    assert not bench.driver.enabled


def test_a_set_position_that_is_no_number_is_never_sent(bench: Bench) -> None:
    bench.run()
    run = bench.controller.run
    run.path[run.start + 700, 2] = np.nan
    bench.until("disarmed")
    assert bench.reason == "joint joint_3: nan is not a number"
    assert np.isfinite(bench.setpoints()).all()
    bench.commanded_within_limits()
    bench.stays_off()


def test_a_command_that_the_driver_refuses_stops_the_run(bench: Bench) -> None:
    """As drives do whose own limits are narrower than the robot file's."""
    bench.run()
    bench.driver._model = replace(MODEL, joints=tuple(replace(joint, velocity=0.2) for joint in MODEL.joints))
    bench.until("disarmed")
    assert "exceeds its velocity limit 0.2" in bench.reason
    bench.commanded_within_limits()
