"""The simulated arm that follows commands: enabling and disabling, following, refusals, faults."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from drivers import driver as contract
from drivers.files.robots.file import load_robot
from drivers.frame import JointFrame
from rt_core.types import FloatArray
from sim_backend.arm.settings import FaultSettings, SimSettings
from sim_backend.arm.trajectory import motor_torque
from sim_backend.drive.commanded_driver import STATUS, CommandedDriver

MODEL = load_robot("arm7").model
N = MODEL.n
PERIOD_S = 0.001
VELOCITY = np.array([joint.velocity for joint in MODEL.joints])
START = np.array([0.2, 0.4, -0.3, 0.8, 0.1, 0.5, -0.2])
PACE = 1e6  # as fast as the samples are computed


def driver(*faults: dict[str, Any], **changes: Any) -> CommandedDriver:
    settings = SimSettings(torque_noise=0.0, velocity_noise=0.0)
    given = {"settings": settings, "pace": PACE, "start": START} | changes
    return CommandedDriver(MODEL, **given, faults=[FaultSettings.model_validate(fault) for fault in faults])


def switched_on(arm: CommandedDriver) -> JointFrame:
    arm.enable()
    for _ in range(1000):
        frame = arm.read()
        if arm.enabled:
            return frame
    pytest.fail("not enabled within a second")


def wave(k: int) -> FloatArray:
    return START + 0.2 * (1.0 - np.cos(2.0 * np.pi * 0.5 * k * PERIOD_S))


def follow(arm: CommandedDriver, cycles: int, until: Callable[[], bool] = lambda: False) -> list[JointFrame]:
    frames = []
    for k in range(1, cycles + 1):
        arm.command(wave(k))
        frames.append(arm.read())
        if until():
            break
    return frames


def stacked(frames: list[JointFrame], channel: str) -> FloatArray:
    return np.array([getattr(frame, channel) for frame in frames])


def test_it_fulfils_the_protocols() -> None:
    with driver() as arm:
        for protocol in (contract.Driver, contract.Commandable, contract.Reporting, contract.ModeChanging):
            assert isinstance(arm, protocol)
    for call in (arm.read, arm.enable, arm.disable, arm.report, lambda: arm.command(START)):
        with pytest.raises(contract.DriverClosedError):
            call()


def test_it_is_off_until_it_is_switched_on_and_then_holds() -> None:
    with driver() as arm:
        frames = [arm.read() for _ in range(300)]
        assert not arm.enabled
        arm.disable()  # drives that are off stay so
        with pytest.raises(contract.CommandRefusedError, match="'off'"):
            arm.command(START)
        assert (frames[-1].status_word == STATUS["off"]).all()
        np.testing.assert_allclose(stacked(frames, "q"), np.tile(START, (300, 1)), atol=1e-5)
        switched_on(arm)
        held = [arm.read() for _ in range(500)]
        np.testing.assert_allclose(stacked(held, "q"), np.tile(START, (500, 1)), atol=2e-3)
        assert (stacked(held, "status_word") == STATUS["enabled"]).all()


def test_it_follows_commands() -> None:
    with driver() as arm:
        switched_on(arm)
        frames = follow(arm, 2000)
        commands = np.array([wave(k) for k in range(1, 2001)])
        np.testing.assert_allclose(stacked(frames, "setpoint"), commands, atol=1e-12)
        error = np.abs(stacked(frames, "q") - commands)
        print(f"\nlargest following error {error.max():.2e} rad")
        assert error.max() < 0.02
        assert np.diff([frame.seq for frame in frames]).tolist() == [1] * 1999
        held = [arm.read() for _ in range(300)]  # no more commands: it stays at the last one
        assert (stacked(held, "setpoint") == stacked(held, "setpoint")[0]).all()
        assert arm.enabled


def test_disable_stops_along_a_ramp_and_nothing_goes_on() -> None:
    with driver() as arm:
        switched_on(arm)
        moved = follow(arm, 500)
        arm.disable()
        assert not arm.enabled
        stopping = []
        for _ in range(3):  # requested, then under way
            with pytest.raises(contract.CommandRefusedError, match="still stopping"):
                arm.enable()
            stopping.append(arm.read())
        stopping += [arm.read() for _ in range(600)]
        setpoint = stacked(moved[-2:] + stopping, "setpoint")
        power = stacked(stopping, "status_word")[:, 0]
        ramp = setpoint[: int(np.argmax(power == STATUS["off"]))]
        change = np.diff(ramp, 2, axis=0) / PERIOD_S**2
        assert (np.abs(change) <= 10.0 * VELOCITY * 1.0001).all()
        assert np.diff(ramp, axis=0)[-1] == pytest.approx(0.0, abs=1e-12)
        assert np.abs(np.diff(stacked(stopping, "q")[-100:], axis=0)).max() < 1e-5
        with pytest.raises(contract.CommandRefusedError):
            arm.command(START)
        assert not arm.enabled
        np.testing.assert_allclose(switched_on(arm).setpoint, stacked(stopping, "q")[-1], atol=1e-5)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (START * np.nan, "finite"),
        (START[:3], "7 finite"),
        (START + np.array([0, 3.0, 0, 0, 0, 0, 0]), "joint_2' to 3.4 is outside"),
        (START + 2.0 * VELOCITY * PERIOD_S, "joint_1' by 0.0042 in a cycle exceeds its velocity limit"),
    ],
)
def test_commands_that_are_refused(wanted: FloatArray, words: str) -> None:
    with driver() as arm:
        switched_on(arm)
        with pytest.raises(contract.CommandRefusedError, match=words):
            arm.command(wanted)
        assert arm.enabled


def test_a_drive_that_trips_stops_all_and_is_reset_by_enable() -> None:
    with driver({"kind": "drive_fault", "after_s": 0.5, "joint": "joint_3"}) as arm:
        for _ in range(2):  # it comes again at the same place
            switched_on(arm)
            for _ in range(400):  # waiting is no motion
                arm.read()
            frames = []
            here = arm.read().setpoint
            for k in range(1, 1000):
                arm.command(here + wave(k) - START)
                frames.append(arm.read())
                if not arm.enabled:
                    break
            assert len(frames) == pytest.approx(501, abs=3)
            after = [arm.read() for _ in range(500)]
            report = arm.report()
            assert [drive["dropped_out"] for drive in report["drives"]] == [k == 2 for k in range(N)]
            assert "joint_3" in report["enable_failure"]
            assert not report["enabled"]
            assert np.abs(np.diff(stacked(after, "q")[-50:], axis=0)).max() < 1e-5


def test_sensor_faults() -> None:
    faults = [
        {"kind": "stuck_encoder", "after_s": 0.3, "joint": "joint_1"},
        {"kind": "encoder_jump", "after_s": 0.4, "joint": "joint_2", "value": 0.3},
        {"kind": "heat", "after_s": 0.5, "joint": "joint_4", "value": 95.0},
    ]
    with driver(*faults) as arm:
        switched_on(arm)
        frames = follow(arm, 800)
    error = stacked(frames, "q") - stacked(frames, "setpoint")
    assert (np.diff(stacked(frames, "q")[310:, 0]) == 0.0).all()
    assert np.abs(error[700:, 0]).min() > 0.1
    assert np.abs(error[:395, 1]).max() < 0.02
    np.testing.assert_allclose(error[410:, 1], 0.3, atol=0.02)
    hot = stacked(frames, "temperature")
    assert hot[495].max() < 60.0
    assert (hot[510:, 3] == 95.0).all()
    assert hot[510:, :3].max() < 60.0


def test_silence_is_a_gap_and_the_watchdogs_stop_the_drives() -> None:
    with driver({"kind": "silence", "after_s": 0.5, "duration_s": 0.4}, pace=20.0) as arm:
        switched_on(arm)
        frames, refused = [], 0
        for k in range(1, 601):
            try:
                arm.command(wave(k))
            except contract.CommandRefusedError:
                refused += 1
            try:
                frames.append(arm.read(0.005))
            except contract.DriverTimeoutError:
                break
        assert arm.report()["state"] == "no answer"
        with pytest.raises(contract.CommandRefusedError, match="no slave answers"):
            arm.enable()
        for _ in range(1000):
            try:
                frames.append(arm.read(0.005))
                break
            except contract.DriverTimeoutError:
                continue
        assert np.diff([frame.seq for frame in frames])[-1] == pytest.approx(400, abs=2)
        assert not arm.enabled
        assert "no set value" in arm.report()["enable_failure"]
        assert np.abs(np.diff(stacked([arm.read() for _ in range(100)], "q"), axis=0)).max() < 1e-5
        switched_on(arm)


def test_torques_are_followed_and_have_to_come() -> None:
    with driver(mode="cst") as arm:
        frame = switched_on(arm)
        held = [arm.read() for _ in range(200)]
        np.testing.assert_allclose(stacked(held, "q"), np.tile(START, (200, 1)), atol=2e-3)
        frames = []
        for _ in range(500):  # what holds the arm, and a push on the last joint
            zero = np.zeros((1, N))
            tau = motor_torque(MODEL, MODEL.inertial, frame.q[None], zero, zero)[0]
            tau[-1] += 6.0
            arm.command(tau)
            frame = arm.read()
            np.testing.assert_allclose(frame.tau, tau, atol=1e-9)
            frames.append(frame)
        assert stacked(frames, "q")[-1, -1] - START[-1] > 0.05
        np.testing.assert_allclose(stacked(frames, "q")[-1, :5], START[:5], atol=0.02)
        after = [arm.read() for _ in range(600)]
        assert not arm.enabled
        assert "no set value for 0.1 s" in arm.report()["enable_failure"]
        assert np.abs(np.diff(stacked(after, "q")[-50:], axis=0)).max() < 1e-5


def test_what_cannot_be_simulated_is_refused() -> None:
    settings = SimSettings.model_validate({"drive": {"position_bandwidth_hz": 10.0}})
    for arm, message in (
        (driver({"kind": "drive_fault", "after_s": 1.0, "joint": "joint_9"}), "'joint_9' is not a joint"),
        (driver(pace=0.0), "pace"), (driver(start=[0.0]), "start"), (driver(settings=settings), "feedforward"),
    ):  # fmt: skip
        with pytest.raises(contract.DriverConfigError, match=message):
            arm.open()
    with driver() as arm, pytest.raises(contract.DriverConfigError, match="already open"):
        arm.open()


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"kind": "drive_fault", "after_s": 1.0}, "name the joint"),
        ({"kind": "silence", "after_s": 1.0}, "needs duration_s"),
        ({"kind": "silence", "after_s": 1.0, "duration_s": 1.0, "joint": "joint_1"}, "is of no joint"),
        ({"kind": "heat", "after_s": 1.0, "joint": "joint_1"}, "needs value"),
        ({"kind": "stuck_encoder", "after_s": 1.0, "joint": "joint_1", "value": 1.0}, "has no value"),
        ({"kind": "push", "after_s": 1.0, "duration_s": 1.0}, "needs force"),
        ({"kind": "silence", "after_s": 1.0, "duration_s": 1.0, "force": [1.0, 0.0, 0.0]}, "has no force"),
    ],
)
def test_incomplete_faults_are_refused(fault: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        FaultSettings.model_validate(fault)


def test_drives_change_between_positions_and_torques_while_they_are_on() -> None:
    with driver() as arm:
        with pytest.raises(contract.CommandRefusedError, match="mode cst refused: the drives are in state 'off'"):
            arm.change_mode("cst")
        frames = [switched_on(arm)]
        arm.change_mode("cst")
        frames += [arm.read() for _ in range(150)]  # until the first torque they hold, and no watchdog runs
        assert arm.enabled
        tau = np.array(frames[-1].tau)
        for _ in range(300):
            arm.command(tau)
            frames.append(arm.read())
        arm.command(tau + np.array([30.0, *np.zeros(N - 1)]))  # for one sample
        frames.append(arm.read())
        arm.change_mode("csp")
        here = np.array(frames[-1].q)
        frames += [arm.read() for _ in range(300)]  # without a command they hold where they are
        assert arm.enabled
        np.testing.assert_allclose(frames[-1].q, here, atol=1e-3)
        assert np.abs(np.diff(stacked(frames, "q"), axis=0)).max() < 1e-3
        arm.change_mode("cst")
        arm.command(tau)
        frames = [arm.read() for _ in range(150)]
        assert not arm.enabled  # a torque that is older than 0.1 s
        assert "no set value for 0.1 s" in arm.report()["enable_failure"]
        frames = [arm.read() for _ in range(500)]
        switched_on(arm)
        assert arm.mode == "csp"
