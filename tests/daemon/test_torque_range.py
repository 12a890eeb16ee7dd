"""A torque that is larger than its measurement can show: nothing is learned from what is clipped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from drivers.driver import DriverConfigError, DriverInfo
from drivers.files.recordings.recording import RecordingMeta, RecordingWriter, read_recording
from drivers.files.robots.file import load_robot
from drivers.frame import JointFrame
from service.acquisition._torque_range import LASTS_NS, Clipped, TorqueRange
from service.acquisition.sources import check_source
from service.client import BodyMessage, Control, Subscriber
from service.config.load import parse_config
from service.supervisor.launch import LaunchError
from tests.lab.command_line import thetad
from tests.lab.daemon.daemons import await_message, await_status, config, replayed, start
from tests.lab.daemon.runs import Client, arm

TRUTH = (2.0, 1.0, 0.5, 3.0)  # viscous and Coulomb friction, offset, inertia
FRAMES, RATE_HZ = 12_000, 1000.0
MAX = 40.0  # N; peaks of the true force are at twice that


def clipped_recording(path: Path) -> int:
    """Write a motion whose force is cut off at `MAX`; returns the number of frames in which it is."""
    t = np.arange(FRAMES) / RATE_HZ
    a, b = 2.0 * np.pi * 0.7, 2.0 * np.pi * 1.1
    q = 0.5 * np.sin(a * t) + 0.4 * np.sin(b * t)
    dq = 0.5 * a * np.cos(a * t) + 0.4 * b * np.cos(b * t)
    ddq = -0.5 * a**2 * np.sin(a * t) - 0.4 * b**2 * np.sin(b * t)
    viscous, coulomb, offset, inertia = TRUTH
    tau = inertia * ddq + viscous * dq + coulomb * np.sign(dq) + offset
    tau += 0.05 * np.random.default_rng(1).standard_normal(FRAMES)
    with RecordingWriter(path, RecordingMeta("arm", ("carriage",), ("m",), RATE_HZ)) as writer:
        for k, (position, force) in enumerate(zip(q, np.clip(tau, -MAX, MAX), strict=True)):
            writer.write(JointFrame(k, round(k * 1e9 / RATE_HZ), 0, q=np.array([position]), tau=np.array([force])))
    return int(np.count_nonzero(np.abs(tau) >= MAX))


def test_nothing_is_learned_from_a_clipped_torque(tmp_path: Path) -> None:
    """Without its range the same frames make an inertia that is wrong by more than a tenth."""
    clipped = clipped_recording(tmp_path / "rec.mcap")
    assert FRAMES // 20 < clipped < FRAMES // 2
    arms = (
        replayed(tmp_path / "rec.mcap", "told", speed="max", torque_range=[MAX], recorder={"directory": "kept"}),
        replayed(tmp_path / "rec.mcap", "blind", speed="max"),
    )
    with start(config(tmp_path, *arms), tmp_path) as daemon, Control(daemon.endpoints["control"]) as control:
        await_status(
            control,
            lambda found: all(found[f"{arm}/estimator"]["info"].get("state") == "drained" for arm in ("told", "blind")),
        )
        told, blind = (control.request("snapshot", arm=arm) for arm in ("told", "blind"))
        events = [event for event in control.request("events")["events"] if event["kind"] == "torque_clipped"]
    assert (told["masked"], blind["masked"]) == (clipped, 0)
    np.testing.assert_allclose(told["theta"], TRUTH, atol=0.05)
    assert abs(blind["theta"][3] - TRUTH[3]) > 0.1 * TRUTH[3]
    assert [event["arm"] for event in events] == ["told"]  # once, not for each frame
    (event,) = events
    assert abs(event["data"]["torque"]) == event["data"]["limit"] == MAX
    assert event["data"] | {"joint": "carriage", "frames": 1} == event["data"]
    for words in ("carriage shows", "40 N, and its torque_range ends at 40: the whole frame is left out"):
        assert words in event["text"]
    (path,) = (tmp_path / "kept").glob("*.mcap")
    valid = read_recording(path).valid
    assert valid is not None
    assert np.count_nonzero(~valid) == clipped  # a batch job leaves them out too


def test_a_joint_at_its_largest_torque_is_judged_all_the_same(tmp_path: Path) -> None:
    """A following error stops the arm although every published frame says that no joint is valid."""
    jump = {"kind": "encoder_jump", "joint": "joint_1", "value": 0.4, "after_s": 1.0}
    table = arm(tmp_path, "full", jump, torque_range=[1e-12] * 3)
    with start(config(tmp_path, table), tmp_path) as daemon, Client(daemon.endpoints, "full") as client:
        client.arm()
        client.run()
        found = client.until("disarmed")
        frames = client.frames()
    assert "joint_1 is 0.4" in found["reason"]
    assert found["run"]["outcome"] == "stopped"
    assert not any(frame.valid[0] for frame in frames if frame.valid is not None)
    assert sum(frame.valid is not None for frame in frames) > 200
    behind = [frame for frame in frames if frame.q is not None and frame.setpoint is not None]
    told = next(frame for frame in behind if abs((frame.q - frame.setpoint)[0]) > 0.3)  # type: ignore[operator]
    assert told.valid is not None  # the joint that is judged is one of those


def test_a_range_for_other_joints_is_refused(tmp_path: Path) -> None:
    clipped_recording(tmp_path / "rec.mcap")
    arm = replayed(tmp_path / "rec.mcap", torque_range=[1.0, 2.0])
    with pytest.raises(LaunchError, match=r"torque_range has 2 numbers and robot 'emps' has 1 joints"):
        start(config(tmp_path, arm), tmp_path)


def test_a_range_that_is_too_small_is_told_of_as_long_as_it_mutes_the_arm(tmp_path: Path) -> None:
    """No frame is left to learn from: the status says so in the words of the configuration, and names the joint."""
    clipped_recording(tmp_path / "rec.mcap")
    arm = replayed(tmp_path / "rec.mcap", loop=True, torque_range=[1e-3])
    with start(config(tmp_path, arm), tmp_path) as daemon, Control(daemon.endpoints["control"]) as control:
        await_status(control, lambda found: found["axis/acquisition"]["info"].get("clipping") == ["carriage"])
        shown = thetad("status", "--control", daemon.endpoints["control"])
        with Subscriber(daemon.endpoints["frames"], ["axis/status"]) as stream:
            told = await_message(stream, lambda message: "clipping" in getattr(message, "body", {}))
    assert "axis: the torque of carriage is at the end of torque_range" in " ".join(shown.out.split())
    assert isinstance(told, BodyMessage)
    assert told.body["clipping"] == ["carriage"]
    assert told.body["clipped"][0] > 0


@pytest.mark.parametrize("torque_range", [None, [100.0] * 6])
def test_currents_of_motors_that_turn_several_joints_have_no_range_for_each(
    torque_range: list[float] | None,
) -> None:
    """The wrist of the TX40: a motor at its end is the end of neither joint's torque."""
    model = load_robot("staubli_tx40").model
    names = tuple(joint.name for joint in model.joints)
    settings = parse_config({"arm": [replayed(Path("x.mcap"), torque_range=torque_range)]}, "test", Path("/")).arm[0]
    currents, torques = (
        DriverInfo("replay", names, ("q_motor", channel), 1000.0, "recording", True) for channel in ("current", "tau")
    )
    check_source(settings, model, torques)
    if torque_range is None:
        check_source(settings, model, currents)
        return
    with pytest.raises(DriverConfigError, match=r"torque_range: the source gives currents, .*\(joint_6\)"):
        check_source(settings, model, currents)


def test_the_end_of_the_range_is_clipped_and_what_is_below_is_not() -> None:
    model = load_robot("space6").model
    limits = np.arange(1.0, 7.0)
    watch = TorqueRange(tuple(limits), model)
    frame = JointFrame(0, 0, 0, q=np.zeros(6), tau=0.999 * limits)
    assert watch.marked(frame) == (frame, [])
    assert frame.valid is None
    own = np.array([True, False, True, True, True, True])
    frame = JointFrame(1, 0, 0, q=np.zeros(6), tau=limits * [0, 0, 1, -1, 2, np.nan], valid=own)
    marked, first = watch.marked(frame)
    assert first == [Clipped(2, 3.0, 3.0, 1), Clipped(3, -4.0, 4.0, 1), Clipped(4, 10.0, 5.0, 1)]
    np.testing.assert_array_equal(marked.valid, [True, False, False, False, False, True])
    assert frame.valid is own  # what the driver gave, and what moves the arm has judged
    assert own[2]
    assert watch.marked(frame)[1] == []  # known by now
    np.testing.assert_array_equal(watch.counts, [0, 0, 2, 2, 2, 0])


def test_while_it_lasts_it_is_told_again_every_ten_minutes() -> None:
    watch = TorqueRange([1.0], load_robot("emps").model)
    told = []
    for second in range(0, 2400, 10):
        clipped = not 600 <= second < 1300  # in between nothing is clipped
        frame = JointFrame(second, 0, second * 1_000_000_000, q=np.zeros(1), tau=np.array([1.0 if clipped else 0.5]))
        told += [(second, one.frames) for one in watch.marked(frame)[1]]
        assert watch.lasting(frame.t_host_ns) == ([0] if clipped else [])
    assert told == [(0, 1), (1300, 61), (1900, 121)]
    assert watch.lasting(2390 * 1_000_000_000 + LASTS_NS) == []


def test_a_source_of_currents_has_its_torque_by_them() -> None:
    model = load_robot("kuka_kr300_elastic").model
    assert model.transmission is not None
    current = np.ones(6)
    torque = np.abs(model.transmission.joint_torque(model.transmission.torque_constant * current))
    watch = TorqueRange(tuple(torque), model)
    frame = JointFrame(0, 0, 0, current=0.99 * current)
    assert watch.marked(frame) == (frame, [])
    frame = JointFrame(0, 0, 0, current=1.01 * current)
    assert [one.joint for one in watch.marked(frame)[1]] == list(range(6))
