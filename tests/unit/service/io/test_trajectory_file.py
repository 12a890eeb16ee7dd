"""Trajectories from files: what a design writes is read to the bit, and everything else is named."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rt_core.excitation.fourier import FourierSeries
from service.io.trajectory_file import Trajectory, TrajectoryError, read_trajectory, series_digest
from service.jobs.kinds.excite_files import trajectory_table
from service.protocol.messages import MAX_REQUEST, pack_map, unpack_map

JOINTS = ("shoulder", "slide")
UNITS = ("rad", "m")
SERIES = FourierSeries(
    0.25, np.array([0.1, 0.2]), np.array([[0.2, -0.3, 0.1], [0.02, -0.02, 0.0]]),
    np.array([[0.3, 0.0, -0.1], [0.0] * 3]),
)  # fmt: skip


def document(**changes: Any) -> dict[str, Any]:
    robot = {"name": "arm2", "sha256": "ab" * 32}
    head = {"format": "thetad-excitation/1", "robot": robot, "joints": list(JOINTS), "units": list(UNITS)}
    return head | SERIES.as_dict() | changes


def table(rate_hz: float = 50.0) -> list[str]:
    return trajectory_table(SERIES, rate_hz, JOINTS, UNITS).splitlines()


def written(path: Path, content: object) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_a_design_is_read_to_the_bit_and_survives_the_wire(tmp_path: Path) -> None:
    found = read_trajectory(written(tmp_path / "trajectory.json", document()))
    assert (found.joints, found.units, found.robot, found.robot_sha256) == (JOINTS, UNITS, "arm2", "ab" * 32)
    assert found.period_s == 4.0
    t = np.linspace(0.0, 4.0, 77)
    np.testing.assert_array_equal(found.positions(t), SERIES.sample(t)[0])
    again = Trajectory.from_message(unpack_map(pack_map(found.as_message(), MAX_REQUEST), MAX_REQUEST))
    np.testing.assert_array_equal(again.positions(t), SERIES.sample(t)[0])
    assert (again.joints, again.robot_sha256) == (JOINTS, "ab" * 32)
    for message in (None, [], {"joints": ["a"], "units": ["rad"], "q": [[1.0], ["x"], [2.0]], "rate_hz": 1}):
        with pytest.raises(TrajectoryError):
            Trajectory.from_message(message)


def test_a_table_of_a_design_is_read_and_joined_smoothly(tmp_path: Path) -> None:
    found = read_trajectory(written(tmp_path / "trajectory.csv", "\n".join(table())))
    assert (found.joints, found.units, found.rate_hz, found.period_s) == (JOINTS, UNITS, 50.0, 4.0)
    t = np.arange(201) / 50.0
    np.testing.assert_allclose(found.positions(t), SERIES.sample(t)[0], atol=1e-14)
    fine = np.linspace(0.0, 4.0, 4001)
    np.testing.assert_allclose(found.positions(fine), SERIES.sample(fine)[0], atol=1e-6)
    again = Trajectory.from_message(unpack_map(pack_map(found.as_message(), MAX_REQUEST), MAX_REQUEST))
    np.testing.assert_array_equal(again.positions(fine), found.positions(fine))


Change = Callable[[list[str]], list[str]]


def cell(line: int, column: int, value: str) -> Change:
    def change(lines: list[str]) -> list[str]:
        cells = lines[line].split(",")
        cells[column] = value
        return [*lines[:line], ",".join(cells), *lines[line + 1 :]]

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (cell(0, 0, "t"), "first column is 't'"), (cell(0, 1, "q1"), "column 2 is 'q1'"),
        (cell(0, 1, "shoulder q [°]"), "joint shoulder is in degrees"),
        (cell(0, 2, "shoulder q [rad]"), "different names"),
        (cell(7, 1, "nan"), "joint shoulder: nan is not a position, at 0.12 s"),
        (cell(7, 1, "half"), "line 8: could not convert"), (cell(7, 0, "nan"), "line 8: nan is not a time"),
        (cell(7, 0, "0.125"), "equidistant"), (cell(1, 0, "0.01"), "begin at 0"), (lambda lines: lines[:3], "2 rows"),
        (lambda lines: [*lines[:9], lines[9] + ",1.0", *lines[10:]], "line 10 has 8 values"),
        (lambda lines: [line.split(",")[0] for line in lines], "no column holds positions"),
        (cell(3, 1, 200_000 * "1"), "not a table of comma-separated values"),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_used(tmp_path: Path, change: Change, words: str) -> None:
    path = written(tmp_path / "t.csv", "\n".join(change(table())))
    with pytest.raises(TrajectoryError) as error:
        read_trajectory(path)
    assert str(error.value).startswith(f"{path}: ")
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (document(format="thetad-excitation/9"), "its format is 'thetad-excitation/9'"),
        ("{", "is not JSON"),
        (document(joints=["shoulder"]), "2 units for 1 joints"),
        (document(joints=None), "joints: expected a list"),
        (document(units=["deg", "m"]), "joint shoulder is in degrees"),
        (document(a=[[0.1, float("nan"), 0.0]] * 2), "must be finite"),
        (document(q0=[0.0]), "q0 must be"),
        (document(a=[[0.0] * 101] * 2, b=[[0.0] * 101] * 2), "at most 100 can be run"),
        (document(f0_hz="slow"), "not numbers"),
        (document(q0=[0.1, 0.3], series_sha256=series_digest(document())), "it was edited or damaged"),
        ({k: v for k, v in document().items() if k != "b"}, "needs b"),
        (document(joints=["a"], units=["rad"]), "coefficients of 2 joints, and names of 1"),
    ],
)
def test_a_document_that_cannot_be_used(tmp_path: Path, content: object, words: str) -> None:
    with pytest.raises(TrajectoryError, match=words):
        read_trajectory(written(tmp_path / "t.json", content))


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(TrajectoryError, match="cannot be read"):
        read_trajectory(tmp_path / "none.json")
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TrajectoryError, match="is not text"):
        read_trajectory(tmp_path / "b.csv")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"joints": JOINTS[::-1], "units": UNITS[::-1]}, "in another order: it has slide, shoulder"),
        ({"joints": ("a", "b")}, "others"),
        ({"units": ("m", "m")}, "joint shoulder is in m in the trajectory, and in rad on the arm"),
        ({"robot": "arm3"}, "for robot 'arm3', the arm is a 'arm2'"),
        ({"robot_sha256": "cd" * 32}, "another version of the description"),
    ],
)
def test_another_arm_is_refused(change: dict[str, Any], words: str) -> None:
    mine = Trajectory(JOINTS, UNITS, "arm2", "ab" * 32, SERIES)
    mine.check_arm(JOINTS, UNITS, "arm2", "ab" * 32, changed=False)
    replace(mine, robot="", robot_sha256="").check_arm(JOINTS, UNITS, "whatever", "", changed=False)
    other = replace(mine, **change)
    with pytest.raises(TrajectoryError, match=words):
        other.check_arm(JOINTS, UNITS, "arm2", "ab" * 32, changed=False)
    if "robot_sha256" in change:
        other.check_arm(JOINTS, UNITS, "arm2", "ab" * 32, changed=True)


def test_a_period_has_a_whole_number_of_cycles() -> None:
    mine = Trajectory(JOINTS, UNITS, series=SERIES)
    assert mine.cycles(0.001) == 4000
    with pytest.raises(TrajectoryError, match=r"a whole number of cycles of 3 ms: choose a period such as 3\.999 s"):
        mine.cycles(0.003)
    with pytest.raises(TrajectoryError, match="can be run"):
        mine.cycles(1e-5)
    fine = Trajectory(JOINTS, UNITS, rate_hz=2000.0, table=np.zeros((4001, 2)))
    with pytest.raises(TrajectoryError, match="2000 rows a second, and the arm 1000 cycles"):
        fine.cycles(0.001)
    slow = Trajectory(JOINTS, UNITS, rate_hz=5e-324, table=np.zeros((5, 2)))
    for endless in (slow, replace(mine, series=replace(SERIES, f0_hz=5e-324))):
        with pytest.raises(TrajectoryError, match="2 to 200000 can be run"):
            endless.cycles(0.001)


def test_a_table_that_no_request_holds() -> None:
    with pytest.raises(TrajectoryError, match="fewer rows a second"):
        Trajectory(JOINTS, UNITS, rate_hz=1000.0, table=np.zeros((20_000, 2))).as_message()
    largest = Trajectory(JOINTS, UNITS, rate_hz=1000.0, table=np.full((4_000, 2), np.pi)).as_message()
    assert len(pack_map({"args": largest}, MAX_REQUEST)) < MAX_REQUEST
    Trajectory.from_message(largest)
    with pytest.raises(TrajectoryError, match="4001 rows of 2 positions"):
        Trajectory.from_message(largest | {"q": [*largest["q"], [0.0, 0.0]]})
