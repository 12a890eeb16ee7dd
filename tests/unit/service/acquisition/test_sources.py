"""A source that lacks what the robot needs is refused; clipped torques, and joints that moved unseen, are invalid."""

import errno
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import structlog

from drivers.driver import DriverConfigError, DriverInfo, Notice
from drivers.files.recordings.format import RecordingError, RecordingNotFoundError
from drivers.files.robots.file import load_robot
from drivers.frame import JointFrame
from service.acquisition._notices import NoticeTeller
from service.acquisition._returned_drives import ReturnedDrives
from service.acquisition._torque_range import LASTS_NS, Clipped, TorqueRange
from service.acquisition.sources import check_source
from service.config.load import ArmConfig, parse_config
from service.io.kept_positions import PositionKeeper, load_positions
from service.io.log import get_log
from service.protocol.control import ControlError
from service.protocol.transient_errors import is_transient
from tests.lab.daemon.daemons import replayed
from tests.lab.daemon.ethercat_rig import device

TX40 = load_robot("staubli_tx40").model  # its fifth motor turns its last joint too
NAMES = tuple(joint.name for joint in TX40.joints)


def info(names: tuple[str, ...] = NAMES) -> DriverInfo:
    return DriverInfo("a bus", names, ("q", "tau"), 1000.0, "dc", lossless=False)


def ads(**changes: Any) -> ArmConfig:
    axes = [{"joint": name} for name in NAMES]
    driver = {"kind": "ads", "net_id": "1.2.3.4.1.1", "axis": axes} | changes
    return ArmConfig.model_validate({"name": "wrist", "robot": "staubli_tx40", "driver": driver})


def test_a_motor_that_turns_two_joints_needs_a_controller_that_decouples() -> None:
    with pytest.raises(DriverConfigError, match=r"more than one joint \(joint_6\).*decoupled = true") as error:
        check_source(ads(), TX40, info())
    assert "arm wrist" in str(error.value)
    check_source(ads(decoupled=True), TX40, info())


@pytest.mark.parametrize("mode", ["csp", "none"])
def test_drives_on_ethercat_cannot_be_those_of_coupled_joints(mode: str) -> None:
    drives = [{"joint": name, "device": "servo"} for name in NAMES]
    driver = {"kind": "ethercat", "interface": "eth9", "mode": mode, "drive": drives, "device": {"servo": device()}}
    arm = ArmConfig.model_validate({"name": "wrist", "robot": "staubli_tx40", "driver": driver})
    with pytest.raises(DriverConfigError, match="each drive is one joint"):
        check_source(arm, TX40, info())
    arm7 = load_robot("arm7").model
    check_source(arm, arm7, info(tuple(joint.name for joint in arm7.joints)))


@pytest.mark.parametrize(
    ("cause", "passing"),
    [
        (OSError(errno.EIO, "Input/output error"), True),
        (PermissionError(errno.EACCES, "Permission denied"), False),
        (RecordingNotFoundError("rec.mcap: no such file"), False),
        (None, False),
    ],
)
def test_what_a_later_start_may_find_in_order(cause: OSError | None, passing: bool) -> None:
    """A disk that could not be read is tried again, a file that is not there or no recording is not."""
    recording, replay = RecordingError("rec.mcap: cannot be read"), DriverConfigError("replay")
    recording.__cause__, replay.__cause__ = cause, recording
    assert is_transient(replay) is passing


@pytest.mark.parametrize("torque_range", [None, [100.0] * 6])
def test_currents_of_motors_that_turn_several_joints_have_no_range_for_each(torque_range: list[float] | None) -> None:
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


def test_a_range_for_other_joints_is_refused() -> None:
    settings = parse_config({"arm": [replayed(Path("x.mcap"), torque_range=[1.0, 2.0])]}, "test", Path("/")).arm[0]
    info = DriverInfo("replay", ("carriage",), ("q", "tau"), 1000.0, "recording", True)
    with pytest.raises(DriverConfigError, match=r"torque_range has 2 numbers and robot 'emps' has 1 joints"):
        check_source(settings, load_robot("emps").model, info)


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


def test_clipping_is_reported_every_ten_minutes() -> None:
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
    current = np.ones(6)
    torque = np.abs(model.transmission.joint_torque(model.transmission.torque_constant * current))
    watch = TorqueRange(tuple(torque), model)
    frame = JointFrame(0, 0, 0, current=0.99 * current)
    assert watch.marked(frame) == (frame, [])
    frame = JointFrame(0, 0, 0, current=1.01 * current)
    assert [one.joint for one in watch.marked(frame)[1]] == list(range(6))


@pytest.mark.parametrize(("speed", "found", "doubted"), [(0.0, 0.6, True), (0.0, 0.52, False), (0.3, 0.6, False)])
def test_a_joint_that_comes_back_elsewhere_is_doubted(speed: float, found: float, doubted: bool) -> None:
    told: list[str] = []
    drives = ReturnedDrives(TX40, lambda kind, text, **data: told.append(data["joint"]))
    times = iter(range(10**6, 10**10, 10**6))

    def counts(q: float | None, v: float = 0.0) -> bool:
        """The third joint is at `q` for 0.3 s, or its drive is away: whether its last value is valid."""
        for k, now in zip(range(300), times, strict=False):
            place = np.where(np.arange(6) == 2, 0.0 if q is None else q + v * (k - 300) * 1e-3, 1.0)
            valid = None if q is not None else np.arange(6) != 2
            valid = drives.marked(JointFrame(0, now, now, q=place, valid=valid)).valid
        return valid is None or bool(valid[2])

    assert [counts(0.5, speed), counts(None), counts(found)] == [True, False, not doubted]
    assert told == drives.names == ["joint_3"] * doubted
    if doubted:
        with pytest.raises(ControlError, match="arm: joint_3 came back elsewhere"):
            drives.guarded("arm", lambda _: {})({})
        # Another absence does not confirm it, being where it stood does.
        assert [counts(q) for q in (None, found, 0.51, None, found)] == [False, False, True, False, False]
        for wrong in (["joint_9"], None):
            with pytest.raises(ControlError, match="joints is a list of joint_1, joint_2"):
                drives.confirm({"arm": "a", "joints": wrong})
        assert drives.confirm({"arm": "a", "joints": ["joint_1"]})["confirmed"] == []
        assert (drives.confirm({"arm": "a"})["confirmed"], counts(found)) == (["joint_3"], True)
        # It first reports where it stood; and later it is moved through there.
        assert [counts(q) for q in (None, found, 0.9, 0.9, 0.9, found)] == [False, True, False, False, False, False]


def test_another_run_compares_with_where_the_joints_stood_in_the_last(tmp_path: Path) -> None:
    """The first joint moves and is not known; who was not confirmed is not; what cannot be written leaves the old."""
    path, told, log = tmp_path / "arm" / "positions.state", list[str](), get_log("test")
    keeper = PositionKeeper(path, "owner", log)

    def run(turned: float) -> list[str]:
        kept = load_positions(path, "owner", 6, log)
        drives = ReturnedDrives(TX40, lambda kind, text, **data: told.append(text[:43]), kept)
        enable = drives.guarded("enable", lambda _: {})
        for now in range(0, 3 * 10**9, 10**7):
            if kept is not None and not drives.names and now < 10**9:
                with pytest.raises(ControlError, match=r"not known yet where joints stand, try again in a second"):
                    enable({})
            drives.marked(JointFrame(0, now, now, q=np.array([now * 1e-9 + turned, 0, turned, 0, 0, 0])))
            if now % 250_000_000 == 0:
                keeper.note(drives.stood(now), now, last=now == 2_750_000_000)
        keeper._pool.submit(int).result()  # after what is being written
        assert drives.settled(now, now)
        assert drives.names or enable({}) == {}
        return drives.names

    assert run(0.0) == []
    np.testing.assert_array_equal(np.isnan(np.array(load_positions(path, "owner", 6, log))[:, 0]), [True] + [False] * 5)
    assert (run(1.0), run(1.0), told) == (["joint_3"], ["joint_3"], ["joint_3 stood at 0 rad when thetad ran last"])
    assert (run(0.0), run(1.0)) == ([], ["joint_3"])  # it has been back
    with structlog.testing.capture_logs() as logs:
        reasons = [load_positions(path, *other, log) for other in (("other", 6), ("owner", 7))]
    assert [line["event"] for line in logs] == ["positions_unknown"] * 2
    for reason in reasons:
        with pytest.raises(ControlError, match=r"positions\.state: (belongs to another|holds no positions of 7)"):
            ReturnedDrives(TX40, lambda *_: None, reason).settled(0, 0)
    assert load_positions(tmp_path / "none", "owner", 6, log) is None
    same, others = ads(enable=True), ads(decoupled=True)
    assert same.positions_sha256 == ads().positions_sha256 != others.positions_sha256
    keeper.note([(None, 1.0)] * 6, 0, last=True)
    keeper._pool.submit(int).result()
    assert run(0.0) == list(NAMES)  # nobody knows where they stood: they do not confirm themselves
    keeper.note([(0.0, 5.0)] * 6, 0, last=True)
    keeper._pool.submit(int).result()
    assert "holds no positions" in str(load_positions(path, "owner", 6, log))
    path.with_name("positions.state.new").mkdir()
    kept = path.read_bytes()
    with structlog.testing.capture_logs() as logs:
        for now in (1, 2):
            keeper.note([(None, 0.0)] * 6, now, last=True)
            keeper._pool.submit(int).result()
    keeper.close()
    assert ([line["event"] for line in logs], path.read_bytes()) == (["positions_not_kept"], kept)


def test_an_unusable_file_is_not_forgotten_by_the_next_start() -> None:
    kept: Any = "positions.state: it is damaged"
    rest = [*NAMES[:2], *NAMES[3:]]
    for wanted, away, confirmed in (([], 2, []), (list(NAMES), 2, rest), (rest, 9, []), (list(NAMES), 9, [NAMES[2]])):
        drives = ReturnedDrives(TX40, lambda *_, **__: None, kept)
        assert drives.confirm({"arm": "a"})["confirmed"] == []  # nobody has seen where they stand
        drives.marked(JointFrame(1, 1, 1, q=np.zeros(6), valid=np.arange(6) != away))
        with pytest.raises(ControlError, match=r"(is damaged|an earlier start): .* `thetad control confirm_positions`"):
            drives.settled(1, 10**9)
        assert drives.confirm({"arm": "a", "joints": wanted})["confirmed"] == confirmed
        assert not set(drives.report()["unknown"]) & set(confirmed)
        kept = np.array(drives.stood(2), np.float64)
    assert not ReturnedDrives(TX40, lambda *_, **__: None, kept).settled(1, 10**9)


def test_who_waits_for_where_joints_stand_does_not_wait_for_hours() -> None:
    drives, away = ReturnedDrives(TX40, lambda *_, **__: None, np.zeros((6, 2))), np.arange(6) != 2
    assert not drives.settled(10**15, 10**9)  # there is no frame
    drives.marked(JointFrame(0, 1, 1, q=np.zeros(6), valid=away))
    assert not drives.settled(10**9, 10**9)
    with pytest.raises(ControlError, match=r"where all joints stand was not known within 1 s"):
        drives.settled(1 + 10**9, 10**9)
    arm = drives.guarded("arm", lambda _: {})
    with pytest.raises(ControlError, match=r"try again in a second"):
        arm({})
    drives.marked(JointFrame(1, 2, 2 * 10**9, q=np.zeros(6), valid=away))  # it may be away for hours
    assert (drives.asked, arm({}), drives.asked) == (False, {}, True)


def test_what_flaps_is_told_less_and_less_often_and_the_newest_in_the_end() -> None:
    told: list[tuple[int, str]] = []
    now_ms, notices = 0, deque[Notice]()
    teller = NoticeTeller(lambda kind, text: told.append((now_ms, f"{kind} {text}")))
    for now_ms in range(0, 700_000, 50):
        if now_ms < 600_000:  # 20 changes a second
            notices.append(Notice(("lost", "back")[now_ms // 50 % 2], "slave 1", str(now_ms)))
        teller.turn(notices, now_ms * 1_000_000)
    assert told[:2] == [(0, "lost 0"), (1000, "lost 1000 (19 notices before this one are left out)")]
    assert len(told) < 20
    assert told[-1][1].startswith("back 599950")
    told.clear()
    for now_ms in range(10**6, 10**6 + 3_600_000, 10_000):
        notices.append(Notice("lost", "slave 1", "every ten seconds"))
        teller.turn(notices, now_ms * 1_000_000)
    assert len(told) < 70
