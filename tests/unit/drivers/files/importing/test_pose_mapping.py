"""Mapping of measured poses: units, signs, kinds of measurements, refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from drivers.files.importing._mapping import ImportFailedError, MappingError
from drivers.files.importing.pose_mapping import load_pose_mapping, read_poses
from rt_core.calibration.sample import Contacts, Distances

HEAD = 'format = 1\nname = "log"\n'
Q = '[q]\ncolumns = "q"\nunit = "deg"\nsign = [1, -1]\noffset = [0.0, 0.5]\n'
RNG = np.random.default_rng(0)
JOINTS = RNG.uniform(-90.0, 90.0, (7, 2))
POINTS = RNG.uniform(-900.0, 900.0, (7, 3))


def read(folder: Path, text: str, **arrays: object) -> tuple[object, object]:
    (folder / "m.toml").write_text(HEAD + text)
    np.savez(folder / "log.npz", **{name: np.asarray(value) for name, value in arrays.items()})
    return read_poses(folder / "log.npz", load_pose_mapping(folder / "m.toml"), 2)


def test_positions_and_orientations(tmp_path: Path) -> None:
    turns = RNG.normal(size=(7, 4))
    text = Q + '[position]\ncolumns = "p"\nunit = "mm"\n[orientation]\ncolumns = "r"\norder = "wxyz"\n'
    q, measured = read(tmp_path, text, q=JOINTS, p=POINTS, r=turns)
    np.testing.assert_allclose(q, np.radians(JOINTS) * [1.0, -1.0] + [0.0, 0.5])
    np.testing.assert_allclose(measured, np.column_stack((1e-3 * POINTS, turns[:, 1:], turns[:, 0])))


def test_deviations_are_added_with_their_sign(tmp_path: Path) -> None:
    text = Q + '[position]\ncolumns = "p"\nunit = "mm"\n[deviation]\ncolumns = "d"\nunit = "um"\nsign = -1\n'
    _, measured = read(tmp_path, text, q=JOINTS, p=POINTS, d=np.full((7, 3), 200.0))
    np.testing.assert_allclose(measured, 1e-3 * POINTS - 2e-4)


def test_distances_and_sockets(tmp_path: Path) -> None:
    centres = np.arange(7) % 3
    text = Q + '[distance]\ncolumns = "l"\nunit = "cm"\n[centre]\ncolumn = "c"\n'
    _, measured = read(tmp_path, text, q=JOINTS, l=np.arange(7) + 50.0, c=centres)
    assert isinstance(measured, Distances)
    np.testing.assert_allclose(measured.length, 0.5 + 0.01 * np.arange(7))
    np.testing.assert_array_equal(measured.centre, centres)
    _, measured = read(tmp_path, Q + '[socket]\ncolumn = "c"\n', q=JOINTS, c=centres)
    assert isinstance(measured, Contacts)
    np.testing.assert_array_equal(measured.socket, centres)
    arrays = '[q]\nunit = "rad"\n[sockets]\narrays = ["left__hole0", "left__hole1"]\n'
    q, measured = read(tmp_path, arrays, left__hole0=JOINTS[:3], left__hole1=JOINTS[3:])
    np.testing.assert_array_equal(q, JOINTS)
    assert isinstance(measured, Contacts)
    np.testing.assert_array_equal(measured.socket, [1, 1, 1, 2, 2, 2, 2])


def test_a_text_file(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("# tracker\na;b;X;Y;Z\n1,5;2;3;4;5\n2;3;4;5;6,25\n")
    (tmp_path / "m.toml").write_text(
        HEAD + '[q]\ncolumns = ["a", "b"]\nunit = "rad"\n[position]\ncolumns = ["X", "Y", "Z"]\nunit = "m"\n'
        '[csv]\ndecimal = ","\n'
    )
    q, measured = read_poses(tmp_path / "log.csv", load_pose_mapping(tmp_path / "m.toml"), 2)
    np.testing.assert_allclose(q, [[1.5, 2.0], [2.0, 3.0]])
    np.testing.assert_allclose(measured, [[3.0, 4.0, 5.0], [4.0, 5.0, 6.25]])


def test_missing_values_and_a_pattern_of_columns(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("q_a,q_b,X,Y,Z\n1,2,3,4,5\n1,2,,4,5\n1,,3,4,5\n2,3,4,5,6\n")
    text = HEAD + 'missing = "{}"\n[q]\ncolumns = "q_{{joint}}"\nunit = "rad"\n'
    text += '[position]\ncolumns = ["X", "Y", "Z"]\nunit = "m"\n'
    (tmp_path / "m.toml").write_text(text.format("mask"))
    q, measured = read_poses(tmp_path / "log.csv", load_pose_mapping(tmp_path / "m.toml"), 2, ("a", "b"))
    np.testing.assert_array_equal(q, [[1.0, 2.0], [2.0, 3.0]])
    np.testing.assert_array_equal(measured, [[3.0, 4.0, 5.0], [4.0, 5.0, 6.0]])
    (tmp_path / "m.toml").write_text(text.format("error"))
    with pytest.raises(ImportFailedError, match="line 4, column 'q_b': is empty"):
        read_poses(tmp_path / "log.csv", load_pose_mapping(tmp_path / "m.toml"), 2, ("a", "b"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (Q, r"give one of \[position\], \[distance\], \[socket\] and \[sockets\]"),
        (Q + '[socket]\ncolumn = "c"\n[position]\ncolumns = "p"\nunit = "m"\n', "give one of"),
        (Q + '[socket]\ncolumn = "c"\n[centre]\ncolumn = "c"\n', r"\[centre\] needs \[distance\]"),
        (Q + '[sockets]\narrays = ["p"]\n', "q.columns is missing, or"),
        (Q + '[position]\ncolumns = "p"\nunit = "deg"\n', "position.unit: unit 'deg' is one of angle"),
        (Q + '[position]\ncolumns = "x"\nunit = "m"\n', "position.columns names column 'x', which is absent"),
        (Q + '[position]\ncolumns = "q"\nunit = "m"\n', "position.columns: 2 columns where 3 are needed"),
        (Q + '[position]\ncolumns = "few"\nunit = "m"\n', "7 joint positions, but 2 measurements"),
        (Q + '[socket]\ncolumn = "half"\n', "no whole numbers"),
        (Q.replace("[1, -1]", "[1, 1, 1]") + '[position]\ncolumns = "p"\nunit = "m"\n', "q.sign has 3 values"),
        (Q.replace('"deg"', '"turns"') + '[position]\ncolumns = "p"\nunit = "m"\n', "q.unit: unit 'turns'"),
        (Q + "[pose]\n", "pose"),
    ],
)
def test_refusals(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ImportFailedError, match=message):
        read(tmp_path, text, q=JOINTS, p=POINTS, few=POINTS[:2], half=np.full(7, 0.5), c=np.zeros(7))


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(MappingError, match=r"none\.toml: cannot be read"):
        load_pose_mapping(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("format = ")
    with pytest.raises(MappingError, match="not valid TOML"):
        load_pose_mapping(tmp_path / "bad.toml")
