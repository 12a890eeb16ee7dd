"""Mapping files of logs and of measured poses: lookup, refusals, and units."""

import math
from pathlib import Path

import numpy as np
import pytest

from drivers.files.importing._mapping import ImportFailedError, MappingError, load_mapping, parse_mapping
from drivers.files.importing.pose_mapping import load_pose_mapping, read_poses
from drivers.files.importing.units import CHANNEL_QUANTITIES, UNITS, UnitError, find_unit

HEAD = 'format = 1\nname = "x"\n[time]\nrate_hz = 1000\n'
Q = '[q]\ncolumns = "q"\nunit = "rad"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD, "no channel: give at least one of"),
        (HEAD + Q.replace("columns", "colums"), "q.colums: unknown key; did you mean 'columns'?"),
        (HEAD.replace("rate_hz", "rate"), "time.rate: unknown key; did you mean 'rate_hz'?"),
        (Q, "format: is missing"),
        (HEAD.replace("format = 1", "format = 2") + Q, "format: Input should be 1 (is 2)"),
        (HEAD.replace('"x"', '"a b"') + Q, "name: "),
        (HEAD.replace("rate_hz = 1000", 'unit = "s"') + Q, "give `column`"),
        (HEAD + Q.replace("rad", "degg"), "q.unit: unit 'degg' is not known; did you mean 'deg'?"),
        (HEAD + Q.replace("rad", "Nm"), "unit 'Nm' is one of torque; here a unit of angle or length"),
        (HEAD + Q.replace('unit = "rad"', ""), "q: `unit` is missing"),
        (HEAD + Q + 'side = "motor"', "q.side: the motor side needs [transmission]"),
        (HEAD + Q + "[transmission]", "transmission: give either `gear_ratio`"),
        (HEAD + Q + "[transmission]\ngear_ratio = [0.0]", "cannot be inverted, or a gear ratio is 0"),
        (HEAD + '[tau]\ncolumns = "u"\nunit = "V"', "unit 'V' needs a factor"),
        (HEAD + Q + "[tau]\nfrom_current = true", "tau.from_current: there is no [current]"),
        (HEAD + Q + "from_current = true", "leave out columns, unit"),
        (HEAD + '[current]\ncolumns = "i"\nunit = "A"\nside = "motor"', "current.side: only q, dq, tau"),
        (HEAD + Q + '[csv]\nencoding = "utf-88"', "encoding 'utf-88' is not known"),
        ("a =", "not valid TOML"),
    ],
)
def test_refusals(text: str, message: str) -> None:
    with pytest.raises(MappingError) as caught:
        parse_mapping(text.encode())
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_paths_and_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(HEAD + Q)
    assert load_mapping("mine.toml").content.name == "x"
    assert load_mapping(tmp_path / "mine.toml").path == tmp_path / "mine.toml"
    assert load_mapping("staubli_tx40").content.name == "staubli_tx40"
    (tmp_path / "configs/mappings").mkdir(parents=True)
    (tmp_path / "configs/mappings/emps.toml").write_text(HEAD + Q)
    assert load_mapping("emps").content.name == "x"
    with pytest.raises(MappingError, match=r"did you mean 'franka_panda'\?"):
        load_mapping("franka_pnada")
    with pytest.raises(MappingError, match=r"absent\.toml: no such mapping file"):
        load_mapping("absent.toml")
    (tmp_path / "bad.toml").write_text(HEAD)
    with pytest.raises(MappingError, match=str(tmp_path / "bad.toml")):
        load_mapping(tmp_path / "bad.toml")


@pytest.mark.parametrize(
    ("text", "quantity", "value", "expected"),
    [("deg", "angle", 180.0, math.pi), ("mm", "length", 5.0, 0.005), ("rpm", "angular velocity", 60.0, 2.0 * math.pi),
     ("mN m", "torque", 2.0, 0.002), ("mA", "current", 1500.0, 1.5), ("K", "temperature", 300.0, 26.85),
     ("µs", "time", 3.0, 3e-6)],
)  # fmt: skip
def test_units(text: str, quantity: str, value: float, expected: float) -> None:
    unit = find_unit(text, (quantity,))
    assert unit.factor * value + unit.offset == pytest.approx(expected)


def test_unknown_unit_and_si_units_of_every_channel() -> None:
    with pytest.raises(UnitError, match="did you mean"):
        find_unit("nNm", ("torque",))
    for quantities in CHANNEL_QUANTITIES.values():
        for quantity in quantities:
            assert (1.0, 0.0) in UNITS[quantity].values()


POSE_HEAD = 'format = 1\nname = "log"\n'
POSE_Q = '[q]\ncolumns = "q"\nunit = "deg"\nsign = [1, -1]\noffset = [0.0, 0.5]\n'
RNG = np.random.default_rng(0)
JOINTS = RNG.uniform(-90.0, 90.0, (7, 2))
POINTS = RNG.uniform(-900.0, 900.0, (7, 3))


def read(folder: Path, text: str, **arrays: object) -> tuple[object, object]:
    (folder / "m.toml").write_text(POSE_HEAD + text)
    np.savez(folder / "log.npz", **{name: np.asarray(value) for name, value in arrays.items()})
    return read_poses(folder / "log.npz", load_pose_mapping(folder / "m.toml"), 2)


def test_positions_and_orientations(tmp_path: Path) -> None:
    turns = RNG.normal(size=(7, 4))
    text = POSE_Q + '[position]\ncolumns = "p"\nunit = "mm"\n[orientation]\ncolumns = "r"\norder = "wxyz"\n'
    q, measured = read(tmp_path, text, q=JOINTS, p=POINTS, r=turns)
    np.testing.assert_allclose(q, np.radians(JOINTS) * [1.0, -1.0] + [0.0, 0.5])
    np.testing.assert_allclose(measured, np.column_stack((1e-3 * POINTS, turns[:, 1:], turns[:, 0])))


def test_deviations_are_added_with_their_sign(tmp_path: Path) -> None:
    text = POSE_Q + '[position]\ncolumns = "p"\nunit = "mm"\n[deviation]\ncolumns = "d"\nunit = "um"\nsign = -1\n'
    _, measured = read(tmp_path, text, q=JOINTS, p=POINTS, d=np.full((7, 3), 200.0))
    np.testing.assert_allclose(measured, 1e-3 * POINTS - 2e-4)


def test_distances_and_sockets(tmp_path: Path) -> None:
    centres = np.arange(7) % 3
    text = POSE_Q + '[distance]\ncolumns = "l"\nunit = "cm"\n[centre]\ncolumn = "c"\n'
    _, measured = read(tmp_path, text, q=JOINTS, l=np.arange(7) + 50.0, c=centres)
    np.testing.assert_allclose(measured.length, 0.5 + 0.01 * np.arange(7))
    np.testing.assert_array_equal(measured.centre, centres)
    _, measured = read(tmp_path, POSE_Q + '[socket]\ncolumn = "c"\n', q=JOINTS, c=centres)
    np.testing.assert_array_equal(measured.socket, centres)
    arrays = '[q]\nunit = "rad"\n[sockets]\narrays = ["left__hole0", "left__hole1"]\n'
    q, measured = read(tmp_path, arrays, left__hole0=JOINTS[:3], left__hole1=JOINTS[3:])
    np.testing.assert_array_equal(q, JOINTS)
    np.testing.assert_array_equal(measured.socket, [1, 1, 1, 2, 2, 2, 2])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (POSE_Q, r"give one of \[position\], \[distance\], \[socket\] and \[sockets\]"),
        (POSE_Q + '[socket]\ncolumn = "c"\n[centre]\ncolumn = "c"\n', r"\[centre\] needs \[distance\]"),
        (POSE_Q + '[sockets]\narrays = ["p"]\n', "q.columns is missing, or"),
        (POSE_Q + '[position]\ncolumns = "x"\nunit = "m"\n', "position.columns names column 'x', which is absent"),
        (POSE_Q + '[position]\ncolumns = "q"\nunit = "m"\n', "position.columns: 2 columns where 3 are needed"),
        (POSE_Q + '[position]\ncolumns = "few"\nunit = "m"\n', "7 joint positions, but 2 measurements"),
        (POSE_Q + '[socket]\ncolumn = "half"\n', "no whole numbers"),
        (POSE_Q.replace("[1, -1]", "[1, 1, 1]") + '[position]\ncolumns = "p"\nunit = "m"\n', "q.sign has 3 values"),
    ],
)
def test_refusals_of_pose_mappings(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ImportFailedError, match=message):
        read(tmp_path, text, q=JOINTS, p=POINTS, few=POINTS[:2], half=np.full(7, 0.5), c=np.zeros(7))


def test_missing_values_and_a_pattern_of_columns_of_poses(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("q_a,q_b,X,Y,Z\n1,2,3,4,5\n1,2,,4,5\n1,,3,4,5\n2,3,4,5,6\n")
    text = 'format = 1\nname = "x"\nmissing = "{}"\n[q]\ncolumns = "q_{{joint}}"\nunit = "rad"\n'
    text += '[position]\ncolumns = ["X", "Y", "Z"]\nunit = "m"\n'
    (tmp_path / "m.toml").write_text(text.format("mask"))
    q, measured = read_poses(tmp_path / "log.csv", load_pose_mapping(tmp_path / "m.toml"), 2, ("a", "b"))
    np.testing.assert_array_equal(q, [[1.0, 2.0], [2.0, 3.0]])
    np.testing.assert_array_equal(measured, [[3.0, 4.0, 5.0], [4.0, 5.0, 6.0]])
    (tmp_path / "m.toml").write_text(text.format("error"))
    with pytest.raises(ImportFailedError, match="line 4, column 'q_b': is empty"):
        read_poses(tmp_path / "log.csv", load_pose_mapping(tmp_path / "m.toml"), 2, ("a", "b"))
