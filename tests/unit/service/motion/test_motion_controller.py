"""Runs on a simulated arm, frame by frame: what is commanded, and how each fault stops it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from drivers.frame import JointFrame
from rt_core.safety import PermitError
from tests.lab.daemon.motion_bench import (
    ACCELERATION,
    JOINTS,
    MODEL,
    PERIOD_S,
    START,
    Bench,
    N,
    series,
    trajectory,
)


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
    q = bench.setpoints()
    np.testing.assert_allclose(q[begun : begun + 6001], wanted, atol=1e-9)
    speed = np.abs(np.diff(approach, axis=0)).max(axis=0) / PERIOD_S
    assert (speed <= 0.15 * ACCELERATION / 5.0 * 1.01).all()
    np.testing.assert_allclose(approach[:100], np.tile(START, (100, 1)), atol=1e-4)
    bench.stays_off()


def test_a_run_that_holds_at_the_end_needs_another_permit_for_the_next(bench: Bench) -> None:
    bench.run(periods=1, hold=True)
    bench.until("armed")
    for _ in range(50):
        bench.turn()
    assert bench.outcome == ("completed", "")
    assert bench.driver.enabled
    with pytest.raises(PermitError, match="served for a run"):
        bench.start()
    bench.controller.arm("b", bench.now, 60.0, bench.driver)
    assert bench.phase == "armed"
    bench.token = "b"
    bench.start(periods=1)
    bench.until("disarmed")
    assert bench.outcome == ("completed", "")


def test_a_permit_that_nobody_uses_expires_and_the_drives_go_off(bench: Bench) -> None:
    bench.arm(2.0)
    assert bench.driver.enabled
    bench.until("disarmed", cycles=2200)
    assert bench.reason == "the permit has expired"
    bench.stays_off()


# ---------------------------------------------------------------- what stops a run


STOPS: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("torque", {"kind": "jam", "joint": "joint_2", "value": 900.0}, {"following_error": 3.0}, "joint_2: torque 1"),
    (
        "following error",
        {"kind": "jam", "joint": "joint_2", "value": 900.0},
        {"following_error": 0.01, "effort_fraction": 1.0},
        "joint_2 is 0.01",
    ),
    ("stuck encoder", {"kind": "stuck_encoder", "joint": "joint_1"}, {"following_error": 0.02}, "joint_1 is 0.02"),
    ("encoder jump", {"kind": "encoder_jump", "joint": "joint_4", "value": 0.5}, {}, "joint_4 is 0.5 rad from its"),
    ("temperature", {"kind": "heat", "joint": "joint_3", "value": 90.0}, {}, "joint_3: temperature 90 degC"),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "safety", "reason"), [stop[1:] for stop in STOPS], ids=[stop[0] for stop in STOPS])
@pytest.mark.parametrize("after_s", [0.3, 1.4])
def test_a_limit_that_is_not_kept_stops_the_run(
    fault: dict[str, Any], safety: dict[str, Any], reason: str, after_s: float
) -> None:
    """In the approach as in the trajectory."""
    bench = Bench(fault | {"after_s": after_s}, **safety)
    bench.arm()
    far = trajectory(series=replace(series(), q0=START + 0.1))
    bench.start(far, periods=4)
    bench.until("stopping")
    assert reason in bench.reason
    moving = np.abs(np.diff(bench.setpoints()[-2:], axis=0)).max() / PERIOD_S
    assert moving > 0.01
    bench.until("disarmed")
    assert bench.outcome[0] == "stopped"
    assert reason in bench.outcome[1]
    bench.commanded_within_limits()
    bench.stays_off()
    bench.driver.close()


def test_a_drive_that_trips_leaves_the_others_to_their_ramps() -> None:
    bench = Bench({"kind": "drive_fault", "joint": "joint_3", "after_s": 1.0})
    bench.run()
    bench.until("disarmed")
    assert bench.reason == "the drives are no longer enabled (drive of joint_3 in state 'fault')"
    assert bench.outcome == ("stopped", bench.reason)
    bench.stays_off()
    bench.driver.close()


def test_silence_disarms_and_the_drives_stop_by_themselves() -> None:
    bench = Bench({"kind": "silence", "after_s": 1.0, "duration_s": 0.5})
    bench.run()
    bench.until("disarmed")
    assert bench.reason.startswith("no frame for more than 0.1 s")
    before = len(bench.frames)
    for _ in range(2000):
        bench.turn()
    assert bench.frames[before].seq - bench.frames[before - 1].seq > 400
    assert not bench.driver.enabled
    assert np.abs(np.diff([frame.q for frame in bench.frames[before:]], axis=0)).max() < 1e-5
    assert bench.reason.startswith("no frame for")  # not another, now that the drives are off
    bench.stays_off()
    bench.driver.close()


def test_frames_that_are_lost_for_longer_than_drives_bridge_stop_the_run() -> None:
    """Drives have come to rest meanwhile: nothing goes on from the speed before."""
    bench = Bench({"kind": "silence", "after_s": 1.0, "duration_s": 0.03}, silence_s=1.0)
    bench.run()
    bench.until("disarmed")
    assert "cycles were lost, at most 0 are bridged" in bench.reason
    bench.stays_off()
    bench.driver.close()


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


def test_a_client_that_is_gone_stops_the_run() -> None:
    bench = Bench(heartbeat_s=0.7)
    bench.run(periods=5)
    bench.beats = False
    begun = bench.now
    bench.until("stopping")
    assert "the client has not been heard of for 0.7" in bench.reason
    assert bench.now - begun == pytest.approx(0.7, abs=0.01)
    bench.until("disarmed")
    bench.commanded_within_limits()
    bench.stays_off()


def test_a_permit_that_expires_stops_the_run(bench: Bench) -> None:
    bench.arm(12.0)
    bench.start(periods=4)
    bench.until("running")
    permit = bench.controller.state.permit
    assert permit is not None
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
    bench.arm()
    if phase != "armed":
        far = trajectory(series=replace(series(), q0=START + 0.2))
        bench.start(far)
        bench.until(phase)
        for _ in range(300):
            bench.turn()
    bench.controller.stop("aborted by request", bench.driver)
    bench.until("disarmed")
    assert bench.reason == "aborted by request"
    bench.commanded_within_limits()
    bench.stays_off()


def test_another_reason_during_a_stop_changes_nothing(bench: Bench) -> None:
    bench.run()
    for _ in range(400):
        bench.turn()
    bench.controller.stop("aborted by request", bench.driver)
    for _ in range(5):
        bench.turn()
    assert bench.phase == "stopping"
    bench.beats = False
    bench.controller.stop("another", bench.driver)
    bench.until("disarmed")
    assert bench.reason == "aborted by request"
    bench.commanded_within_limits()


@pytest.mark.parametrize("joint", [1, 5])
def test_a_joint_that_is_held_while_it_stops_is_not_pushed_on(joint: int) -> None:
    """A stop that takes its time must not drive the arm into what has stopped it."""
    bench = Bench(acceleration=0.5, following_error=0.05)
    bench.run(trajectory(series=series(size=0.3, f0_hz=0.05)))
    while abs(np.subtract(*(frame.setpoint[joint] for frame in bench.frames[-2:]))) < 0.29 * PERIOD_S:
        bench.turn()  # from here, 0.08 rad to rest
    bench.controller.stop("aborted by request", bench.driver)
    bench.turn()
    assert bench.phase == "stopping"
    at, read = bench.frames[-1].q, bench.driver.read
    assert at is not None

    def held(timeout_s: float) -> JointFrame:
        frame = read(timeout_s)
        assert frame.q is not None
        frame.q = np.where(np.arange(N) == joint, at, frame.q)
        return frame

    bench.driver.read = held  # type: ignore[method-assign]
    bench.until("disarmed")
    assert bench.reason.startswith(f"aborted by request; then joint {JOINTS[joint]} is 0.05")
    assert abs(bench.setpoints()[-1, joint] - at[joint]) < 0.052
    assert bench.outcome == ("stopped", bench.reason)
    for _ in range(500):
        bench.turn()
    assert not bench.driver.enabled
    bench.driver.close()


def test_a_set_position_that_is_no_number_is_never_sent(bench: Bench) -> None:
    bench.run()
    run = bench.controller.run
    assert run is not None
    run.path[run.start + 700, 2] = np.nan
    bench.until("stopping")
    assert bench.reason == "joint joint_3: nan is no value"
    bench.until("disarmed")
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
