"""Bad input: exit code 2, one line that says what, where and what to do, and nothing left behind.

Each kind of configuration, robot file, mapping and log that is refused: see the tests of what reads it.
"""

import re
from pathlib import Path

import numpy as np
import pytest

from drivers.files.recordings.recording import Recording, read_recording
from drivers.files.robots.file import load_robot
from rt_core.model.robot import RobotModel
from tests.lab.command_line import ROOT, rewrite, thetad, write_recording

BAD_URDF = (
    '<robot name="r"><link name="a"/><link name="b"/>'
    '<joint name="j1" type="revolute"><parent link="a"/><child link="b"/><axis xyz="0 0 0"/>'
    '<limit lower="-3" upper="3" velocity="2" effort="9"/></joint></robot>'
)
DEGREES = 180.0 / np.pi
ARM7 = (ROOT / "configs/robots/arm7.toml").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def recording(arm7_recording: Path) -> Recording:
    return read_recording(arm7_recording)


@pytest.fixture(scope="module")
def model() -> RobotModel:
    return load_robot("arm7").model


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("bad.urdf", BAD_URDF, ("j1", "axis")),
        ("bad.urdf", "<robot>", ("XML",)),
        ("mine.toml", ARM7.replace('gravity = "floor"', 'gravity = "flor"'), ("gravity", "flor")),
        ("mine.toml", ARM7.replace("d = 0.36", "d = nan", 1), ("joint_1", "d")),
    ],
)
def test_robot_file(name: str, text: str, words: tuple[str, ...], arm7_recording: Path, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    out = tmp_path / "m.yaml"
    thetad("identify", arm7_recording, "--robot", tmp_path / name, "-o", out).refused(name, *words)
    assert not out.exists()


def test_absent_files(arm7_recording: Path, tmp_path: Path) -> None:
    none = tmp_path / "none"
    for arguments, *words in (
        (("identify", arm7_recording, "--robot", "arm8"), "arm8", 'did you mean "arm'),
        (("identify", arm7_recording, "--robot", f"{none}.toml"), "none.toml", "no such file"),
        (("identify", f"{none}.mcap", "--robot", "arm7"), "none.mcap"),
        (("identify", tmp_path, "--robot", "arm7"), str(tmp_path)),
        (("validate", f"{none}.yaml", arm7_recording), "none.yaml", "no such file"),
        (("import", f"{none}.csv", "-m", "emps", "-o", tmp_path / "o.mcap"), "none.csv"),
    ):
        thetad(*arguments).refused(*words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("channel", "factor", "words"),
    [("q", DEGREES, ("joint joint_1 reaches", "far outside its limits", "57.3")),
     ("q", 1.0 / DEGREES, ("joint joint_1", "57.3", "units differ")),
     ("dq", DEGREES, ("joint joint_1", "57.3", "units differ")), ("tau", DEGREES, ("shows a torque", "effort limit"))],
)  # fmt: skip
def test_wrong_units_are_noticed_at_identify(
    channel: str, factor: float, words: tuple[str, ...], recording: Recording, model: RobotModel, tmp_path: Path
) -> None:
    """A log imported without a robot, and without the checks, meets its robot here."""
    path = rewrite(recording, tmp_path / "r.mcap", model, **{channel: factor * recording.channels[channel]})
    out = tmp_path / "m.yaml"
    thetad("identify", path, "--robot", "arm7", "-o", out).refused("r.mcap", *words)
    assert not out.exists()


def test_degrees_of_a_robot_without_limits(
    arm7_recording: Path, recording: Recording, model: RobotModel, tmp_path: Path
) -> None:
    robot = tmp_path / "unlimited.toml"
    robot.write_text(re.sub(r"(?m)^(lower|upper|velocity|effort) = .*$", "", ARM7))
    channels = {"q": DEGREES * recording.channels["q"], "tau": recording.channels["tau"]}
    path = write_recording(tmp_path / "r.mcap", model, recording.t, channels)
    thetad("identify", path, "--robot", robot).refused("joint joint_1 turns by", "degrees")
    thetad("identify", arm7_recording, "--robot", robot, "--span", "0:0.4", "--json").ok()


def test_recording_of_another_robot(
    space6_recording: Path, arm7_recording: Path, space6_model: Path, tmp_path: Path
) -> None:
    line = thetad("identify", arm7_recording, "--robot", "space6").refused("arm7.mcap", "7 joints")
    assert "space6 has 6" in line
    thetad("validate", space6_model, arm7_recording).refused("arm7.mcap", "7 joints", "space6 has 6")
    (tmp_path / "sliding.toml").write_text(ARM7.replace("[[joint]]", '[[joint]]\nkind = "prismatic"', 1))
    thetad("identify", arm7_recording, "--robot", tmp_path / "sliding.toml").refused("rad, rad", "m, rad")


def test_recording_that_was_cut_off(arm7_recording: Path, tmp_path: Path, space6_model: Path) -> None:
    whole, path = arm7_recording.read_bytes(), tmp_path / "r.mcap"
    for content, words in (
        (whole[: len(whole) // 2], "recordings recover"), (whole[:-5], "recordings recover"), (whole[:3], "r.mcap"),
        (b"", "r.mcap"), (b"\x89MCAP0\r\n" + b"\x00" * 999, "r.mcap"),
    ):  # fmt: skip
        path.write_bytes(content)
        thetad("identify", path, "--robot", "arm7").refused("r.mcap", words)
    thetad("validate", space6_model, path).refused("r.mcap")


def test_recording_of_nothing(recording: Recording, model: RobotModel, tmp_path: Path) -> None:
    still = {"q": np.zeros((5000, 7)), "tau": np.full((5000, 7), 0.5)}
    bare = {"q": recording.channels["q"]}
    for name, count, channels, words in (
        ("rest.mcap", 5000, still, ("no motion",)),
        ("short.mcap", 100, still, ("short.mcap",)),
        ("bare.mcap", 5000, bare, ("no channel tau", "[tau]")),
    ):
        cut = {channel: values[:count] for channel, values in channels.items()}
        path = write_recording(tmp_path / name, model, recording.t[:count], cut)
        thetad("identify", path, "--robot", "arm7").refused(name, *words)


@pytest.mark.parametrize(
    "options",
    [
        ("--cutoff", "fast"), ("--cutoff", "0"), ("--cutoff", "nan"), ("--cutoff", "0.01"), ("--rate", "inf"),
        ("--trim", "-1"), ("--trim", "11.99"), ("--min-velocity", "-1"), ("--min-velocity", "1", "2", "3"),
        ("--min-velocity", "nan"), ("--method", "magic"), ("--colour", "red"), ("--span", "0.6"), ("--span", "1:0"),
        ("--span", "100s:200s"),
    ],
)  # fmt: skip
def test_options(options: tuple[str, ...], arm7_recording: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.yaml"
    thetad("identify", arm7_recording, "--robot", "arm7", "-o", out, *options).refused()
    assert not out.exists()


@pytest.mark.slow
@pytest.mark.parametrize(("option", "target"), [("-o", "."), ("-o", "file/m.yaml"), ("--plot", "file/m.png")])
def test_output_that_cannot_be_written(option: str, target: str, arm7_recording: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    done = thetad("identify", arm7_recording, "--robot", "arm7", "--span", "0:0.4", option, tmp_path / target)
    done.refused(str(tmp_path / target))
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
