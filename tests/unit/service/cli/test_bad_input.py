"""Bad input: exit code 2, one line that says what, where and what to do, and nothing left behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from drivers.files.recordings.recording import read_recording
from drivers.files.robots.file import load_robot
from rt_core.model.robot import RobotModel
from tests.lab.command_line import ROOT, rewrite, simulate, thetad, thetad_process, write_recording

# Configuration -------------------------------------------------------------------------------------

CONFIG = """
[daemon]
name = "lab"
estimates_port = 9871
[[arm]]
name = "a"
robot = "space6"
[arm.driver]
kind = "sim"
[arm.driver.settings]
rate_hz = 1000.0
[arm.publish]
estimate_hz = 50.0
"""


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("estimate_hz", "estimate_hertz", ("arm[0].publish.estimate_hertz", "did you mean 'estimate_hz'")),
        ("estimates_port", "estimate_port", ("daemon.estimate_port", "did you mean 'estimates_port'")),
        ("robot =", "robott =", ("arm[0].robott", "did you mean 'robot'")),
        ("rate_hz", "rate", ("arm[0].driver.settings.rate", "unknown key")),
        ("= 9871", "= 98710", ("daemon.estimates_port", "65535", "98710")),
        ("= 50.0", "= -50.0", ("arm[0].publish.estimate_hz", "greater than 0", "-50")),
        ("= 1000.0", "= 1e9", ("arm[0].driver.settings.rate_hz", "20000")),
        ("= 50.0", '= "fast"', ("arm[0].publish.estimate_hz", "fast")),
        ("= 50.0", "= nan", ("arm[0].publish.estimate_hz",)),
        ('"space6"', '"space7"', ("space7", 'did you mean "space6"')),
        ('"sim"', '"sum"', ("arm[0].driver", "sum")),
        ('name = "a"', 'name = "a b/c"', ("arm[0].name",)),
        ("[arm.publish]", "[arm.publish", ("line 12",)),
    ],
)
def test_configuration(old: str, new: str, words: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "daemon.toml"
    path.write_text(CONFIG)
    assert thetad("serve", "-c", path, "--check").code == 0
    assert CONFIG.count(old) == 1
    path.write_text(CONFIG.replace(old, new))
    thetad("serve", "-c", path, "--check").refused(*words)
    assert [p.name for p in tmp_path.iterdir()] == ["daemon.toml"]


# Robot files ---------------------------------------------------------------------------------------

LINK = '<link name="{0}"/>'
JOINT = (
    '<joint name="{0}" type="revolute"><parent link="{1}"/><child link="{2}"/><axis xyz="{3}"/>'
    '<limit lower="-3" upper="3" velocity="2" effort="9"/></joint>'
)


def urdf(*joints: tuple[str, str, str, str], links: str = "abc") -> str:
    return (
        f'<robot name="r">{"".join(LINK.format(x) for x in links)}{"".join(JOINT.format(*j) for j in joints)}</robot>'
    )


URDFS = {
    "missing joint": (urdf(("j1", "a", "b", "0 0 1")), ("c",)),
    "missing link": (urdf(("j1", "a", "b", "0 0 1"), ("j2", "b", "d", "0 1 0")), ("j2", "d")),
    "zero axis": (urdf(("j1", "a", "b", "0 0 1"), ("j2", "b", "c", "0 0 0")), ("j2", "axis")),
    "branch": (urdf(("j1", "a", "b", "0 0 1"), ("j2", "a", "c", "0 1 0")), ("tip_link",)),
    "loop": (urdf(("j1", "a", "b", "0 0 1"), ("j2", "b", "a", "0 1 0"), links="ab"), ("",)),
    "no joint": (urdf(links="a"), ("joint",)),
    "not XML": ("<robot>", ("XML",)),
    "empty": ("", ("XML",)),
}


@pytest.mark.parametrize("name", URDFS)
def test_urdf(name: str, tmp_path: Path, arm7_recording: Path) -> None:
    text, words = URDFS[name]
    path = tmp_path / "bad.urdf"
    path.write_text(text)
    out = tmp_path / "m.yaml"
    thetad("identify", arm7_recording, "--robot", path, "-o", out).refused("bad.urdf", *words)
    assert not out.exists()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('gravity = "floor"', 'gravity = "flor"', ("gravity", "flor")),
        ("format = 1", "format = 1\ngravitation = 9.81", ("gravitation", "unknown key")),
        ("d = 0.36", 'd = "long"', ("joint", "joint_1", "d")),
        ("d = 0.36", "d = nan", ("joint_1", "d")),
        (
            "upper = 2.9\nvelocity = 2.1\neffort = 120",
            "upper = -3.9\nvelocity = 2.1\neffort = 120",
            ("joint_1", "lower"),
        ),
        ("[[joint]]", "[joint]", ("",)),
    ],
)
def test_robot_file(old: str, new: str, words: tuple[str, ...], tmp_path: Path, arm7_recording: Path) -> None:
    text = (ROOT / "configs/robots/arm7.toml").read_text()
    assert old in text
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(old, new, 1))
    thetad("identify", arm7_recording, "--robot", path).refused("mine.toml", *words)


def test_absent_files(arm7_recording: Path, tmp_path: Path) -> None:
    thetad("identify", arm7_recording, "--robot", "arm8").refused("arm8", 'did you mean "arm')
    thetad("identify", arm7_recording, "--robot", tmp_path / "no.toml").refused("no.toml", "no such file")
    thetad("identify", tmp_path / "no.mcap", "--robot", "arm7").refused("no.mcap")
    thetad("validate", tmp_path / "no.yaml", arm7_recording).refused("no.yaml", "no such file")
    thetad("identify", tmp_path, "--robot", "arm7").refused(str(tmp_path))
    thetad("import", tmp_path / "no.csv", "-m", "emps", "-o", tmp_path / "o.mcap").refused("no.csv")


# Logs ----------------------------------------------------------------------------------------------

MAPPING = """
format = 1
name = "two"
{robot}
[time]
column = "t"
[q]
columns = ["q1", "q2"]
unit = "rad"
[dq]
columns = ["dq1", "dq2"]
unit = "rad/s"
[tau]
columns = ["tau1", "tau2"]
unit = "N*m"
"""
ROBOT = """
format = 1
name = "two"
kinematics = "mdh"
gravity = "-y"
[[joint]]
name = "a"
{limits}
mass = 3.0
com = [0.2, 0.01, 0.0]
inertia = [0.02, 0.0, 0.05, 0.0, 0.0, 0.05]
viscous = 1.5
coulomb = 1.0
[[joint]]
name = "b"
a = 0.4
{limits}
mass = 2.0
com = [0.15, 0.0, 0.01]
inertia = [0.01, 0.0, 0.03, 0.0, 0.0, 0.03]
viscous = 0.8
coulomb = 0.6
"""
LIMITS = "lower = -2.5\nupper = 2.5\nvelocity = 2.0\neffort = 40.0"
HEADER = "t,q1,q2,dq1,dq2,tau1,tau2"


@pytest.fixture(scope="module")
def lab(work: Path) -> Path:
    """Folder with a two-joint robot, with and without limits, and a recording of it."""
    folder = work / "lab"
    folder.mkdir()
    (folder / "two.toml").write_text(ROBOT.format(limits=LIMITS))
    (folder / "unlimited.toml").write_text(ROBOT.format(limits=""))
    simulate(folder / "two.mcap", folder / "two.toml", seed=7, seconds=15.0)
    return folder


@pytest.fixture(scope="module")
def table(lab: Path) -> np.ndarray:
    """The recording as a log: time, positions, velocities, torques."""
    recording = read_recording(lab / "two.mcap")
    c = recording.channels
    return np.column_stack((recording.t, c["q"], c["dq"], c["tau"]))


def check_import(folder: Path, lab: Path, text: str, *words: str, mapping: str = MAPPING) -> None:
    """Check that a log is refused, and nothing is left behind."""
    (folder / "log.csv").write_text(text)
    (folder / "map.toml").write_text(mapping.format(robot=f'robot = "{lab / "two.toml"}"'))
    out = folder / "r.mcap"
    thetad("import", folder / "log.csv", "-m", folder / "map.toml", "-o", out).refused(*words)
    assert not out.exists()
    assert not list(folder.glob(".*"))


def csv(table: np.ndarray, header: str = HEADER) -> str:
    return header + "\n" + "\n".join(",".join(f"{v:.10g}" for v in row) for row in table) + "\n"


def repeat_times(table: np.ndarray) -> None:
    table[500:505, 0] = table[499, 0]


DEGREES = 180.0 / np.pi


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda x: x.__setitem__((700, 2), np.nan), ("q", "NaN", "700")),
        (lambda x: x.__setitem__((700, 6), np.inf), ("tau", "700")),
        (lambda x: x.__setitem__((slice(None), slice(1, 3)), DEGREES * x[:, 1:3]), ("joint a", "q.unit", "deg")),
        (lambda x: x.__setitem__((slice(None), slice(1, 3)), x[:, 1:3] / DEGREES), ("joint a", "57.3")),
        (lambda x: x.__setitem__((slice(None), slice(3, 5)), DEGREES * x[:, 3:5]), ("joint a", "dq.unit")),
        (lambda x: x.__setitem__((slice(None), slice(5, 7)), DEGREES * x[:, 5:7]), ("joint a", "tau.unit")),
        (np.random.default_rng(0).shuffle, ("time stamps go backwards", "sort")),
        (repeat_times, ("repeat the time stamp",)),
    ],
    ids=["NaN", "infinite", "q deg", "q rad as deg", "dq deg", "tau 57", "shuffled", "repeated"],
)
def test_log(
    edit: Callable[[np.ndarray], object], words: tuple[str, ...], lab: Path, table: np.ndarray, tmp_path: Path
) -> None:
    changed = table.copy()
    edit(changed)
    check_import(tmp_path, lab, csv(changed), "log.csv", *words)


def test_log_that_was_cut_off_or_lacks_a_column(lab: Path, table: np.ndarray, tmp_path: Path) -> None:
    text = csv(table)
    check_import(tmp_path, lab, text[: text.rindex(",") - 3], "log.csv", "columns")
    check_import(tmp_path, lab, text.replace("tau2", "tau_2", 1), "'tau2'", "tau_2")
    check_import(tmp_path, lab, csv(table[:, :-1], HEADER.replace(",tau2", "")), "'tau2'")
    check_import(tmp_path, lab, text, "'q7'", "absent", mapping=MAPPING.replace('"q2"', '"q7"'))
    check_import(tmp_path, lab, text, "map.toml", "units", mapping=MAPPING.replace("unit =", "units =", 1))
    check_import(tmp_path, lab, "", "log.csv")


# Recordings ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("channel", "factor", "words"),
    [
        ("q", DEGREES, ("joint a reaches", "far outside its limits", "57.3")),
        ("q", 1.0 / DEGREES, ("joint a", "57.3", "units differ")),
        ("dq", DEGREES, ("joint a", "57.3", "units differ")),
        ("dq", 1.0 / DEGREES, ("joint a", "units differ")),
        ("tau", DEGREES, ("joint a shows a torque", "effort limit")),
    ],
)
def test_wrong_units_are_noticed_at_identify(
    channel: str, factor: float, words: tuple[str, ...], lab: Path, tmp_path: Path
) -> None:
    """A log imported without a robot, and without the checks, meets its robot here."""
    recording = read_recording(lab / "two.mcap")
    model = load_robot(lab / "two.toml").model
    path = rewrite(recording, tmp_path / "r.mcap", model, **{channel: factor * recording.channels[channel]})
    out = tmp_path / "m.yaml"
    thetad("identify", path, "--robot", lab / "two.toml", "-o", out).refused("r.mcap", *words)
    assert not out.exists()


def test_degrees_of_a_robot_without_limits(lab: Path, tmp_path: Path) -> None:
    recording = read_recording(lab / "two.mcap")
    model = load_robot(lab / "two.toml").model
    channels = {"q": DEGREES * recording.channels["q"], "tau": recording.channels["tau"]}
    path = write_recording(tmp_path / "r.mcap", model, recording.t, channels)
    out = tmp_path / "m.yaml"
    thetad("identify", path, "--robot", lab / "unlimited.toml", "-o", out).refused("joint a turns by", "degrees")
    assert not out.exists()


def test_the_right_units_pass(lab: Path, tmp_path: Path) -> None:
    for robot in ("two", "unlimited"):
        done = thetad("identify", lab / "two.mcap", "--robot", lab / f"{robot}.toml", "--json")
        assert done.code == 0, done


def test_recording_of_another_robot(
    lab: Path, space6_recording: Path, arm7_recording: Path, space6_model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "m.yaml"
    line = thetad("identify", arm7_recording, "--robot", "space6", "-o", out).refused("arm7.mcap", "7 joints")
    assert "space6 has 6" in line
    thetad("validate", space6_model, arm7_recording).refused("arm7.mcap", "7 joints", "space6 has 6")
    sliding = (lab / "two.toml").read_text().replace('name = "b"', 'name = "b"\nkind = "prismatic"')
    (tmp_path / "sliding.toml").write_text(sliding)
    thetad("identify", lab / "two.mcap", "--robot", tmp_path / "sliding.toml").refused("rad, rad", "rad, m")
    assert not out.exists()


def test_recording_without_torque(lab: Path, tmp_path: Path) -> None:
    recording = read_recording(lab / "two.mcap")
    model = load_robot(lab / "two.toml").model
    path = write_recording(tmp_path / "r.mcap", model, recording.t, {"q": recording.channels["q"]})
    thetad("identify", path, "--robot", lab / "two.toml").refused("r.mcap", "no channel tau", "[tau]")


def test_recording_that_was_cut_off(lab: Path, tmp_path: Path, space6_model: Path) -> None:
    whole = (lab / "two.mcap").read_bytes()
    path = tmp_path / "r.mcap"
    for size, words in ((len(whole) // 2, "recordings recover"), (len(whole) - 5, "recordings recover"), (3, "r.mcap")):
        path.write_bytes(whole[:size])
        thetad("identify", path, "--robot", lab / "two.toml").refused("r.mcap", words)
    for content in (b"", np.random.default_rng(1).bytes(5000), b"\x89MCAP0\r\n" + b"\x00" * 999):
        path.write_bytes(content)
        thetad("identify", path, "--robot", lab / "two.toml").refused("r.mcap")
    thetad("validate", space6_model, path).refused("r.mcap")


def resting(model: RobotModel, t: np.ndarray) -> dict[str, np.ndarray]:
    return {"q": np.zeros((t.size, model.n)), "tau": np.full((t.size, model.n), 0.5)}


def test_recording_of_nothing(lab: Path, tmp_path: Path) -> None:
    model = load_robot(lab / "two.toml").model
    t = np.arange(5000) * 2e-3
    write_recording(tmp_path / "rest.mcap", model, t, resting(model, t))
    thetad("identify", tmp_path / "rest.mcap", "--robot", lab / "two.toml").refused("rest.mcap", "no motion")
    write_recording(tmp_path / "short.mcap", model, t[:100], resting(model, t[:100]))
    thetad("identify", tmp_path / "short.mcap", "--robot", lab / "two.toml").refused("short.mcap")


@pytest.mark.parametrize(
    "span", ["0.6", "1:0", "0.9:0.1", "a:b", "0:60", "100s:200s", "-1:1", "0.5:0.5", "", "nan:1", "0s:0.5"]
)
def test_span(span: str, lab: Path) -> None:
    line = thetad("identify", lab / "two.mcap", "--robot", lab / "two.toml", f"--span={span}").refused("span")
    assert len(line) < 400


@pytest.mark.parametrize(
    "options",
    [
        ("--cutoff", "fast"), ("--cutoff", "0"), ("--cutoff", "-3"), ("--cutoff", "nan"), ("--rate", "inf"),
        ("--trim", "-1"), ("--trim", "nan"), ("--trim", "1e9"), ("--trim", "7.49"), ("--min-velocity", "-1"),
        ("--min-velocity", "1", "2", "3"), ("--min-velocity", "nan"), ("--min-velocity", "x"), ("--method", "magic"),
        ("--cutoff", "0.01"), ("--min-velocity", "1e6"), ("--colour", "red"),
    ],
)  # fmt: skip
def test_options(options: tuple[str, ...], lab: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.yaml"
    done = thetad("identify", lab / "two.mcap", "--robot", lab / "two.toml", "-o", out, *options)
    if options == ("--min-velocity", "1e6"):
        assert done.code in (1, 2)
    else:
        done.refused()
    assert not out.exists()


@pytest.mark.parametrize("option", ["-o", "--report", "--plot"])
def test_output_that_cannot_be_written(option: str, lab: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for target in (tmp_path / "file" / "below.out", tmp_path):
        thetad("identify", lab / "two.mcap", "--robot", lab / "two.toml", option, target).refused(str(target))
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_nothing_hangs_and_no_traceback_in_a_process(tmp_path: Path) -> None:
    (tmp_path / "bad.urdf").write_text(URDFS["zero axis"][0])
    done = thetad_process("identify", tmp_path / "r.mcap", "--robot", tmp_path / "bad.urdf", "--json", cwd=tmp_path)
    done.refused("bad.urdf", "axis")
