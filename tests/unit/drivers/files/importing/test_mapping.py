"""Mapping files: lookup, refusals, and units."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from drivers.files.importing._mapping import MappingError, load_mapping, parse_mapping
from drivers.files.importing.units import CHANNEL_QUANTITIES, UNITS, UnitError, find_unit

HEAD = 'format = 1\nname = "x"\n[time]\nrate_hz = 1000\n'
Q = '[q]\ncolumns = "q"\nunit = "rad"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD, "no channel: give at least one of"),
        (HEAD + Q.replace("columns", "colums"), "unknown key 'q.colums'; did you mean 'columns'?"),
        (HEAD + Q + '[tua]\ncolumns = "tau"\nunit = "Nm"', "unknown key 'tua'; did you mean 'tau'?"),
        (HEAD.replace("rate_hz", "rate"), "unknown key 'time.rate'; did you mean 'rate_hz'?"),
        (HEAD + Q + '[csv]\ndelimeter = ","', "did you mean 'delimiter'?"),
        (Q, "'format' is missing"),
        (HEAD.replace("format = 1", "format = 2") + Q, "format: Input should be 1 (given: 2)"),
        (HEAD.replace('"x"', '"a b"') + Q, "name: "),
        (HEAD.replace("1000", "-5") + Q, "time.rate_hz: Input should be greater than 0 (given: -5)"),
        (HEAD.replace("1000", "nan") + Q, "time.rate_hz: "),
        (HEAD.replace("rate_hz = 1000", 'unit = "s"') + Q, "give `column`"),
        (HEAD.replace("1000", '1000\nrate_column = "fs"') + Q, "only one of `rate_hz` and `rate_column`"),
        (HEAD.replace("1000", '1000\nunit = "h"') + Q, "unit 'h' is not known"),
        (HEAD + Q.replace("rad", "degg"), "q.unit: unit 'degg' is not known; did you mean 'deg'?"),
        (HEAD + Q.replace("rad", "Nm"), "unit 'Nm' is one of torque; here a unit of angle or length"),
        (HEAD + Q.replace('unit = "rad"', ""), "q: `unit` is missing"),
        (HEAD + Q.replace('columns = "q"', ""), "q: `columns` is missing"),
        (HEAD + Q + "sign = 2", "q.sign"),
        (HEAD + Q + 'side = "left"', "q.side: Input should be 'joint' or 'motor' (given: 'left')"),
        (HEAD + Q + 'side = "motor"', "q.side: the motor side needs [transmission]"),
        (HEAD + Q + "scale = inf", "q.scale"),
        (HEAD + Q + "[transmission]", "transmission: give either `gear_ratio`"),
        (HEAD + Q + "[transmission]\ngear_ratio = [0.0]", "cannot be inverted, or a gear ratio is 0"),
        (HEAD + Q + "[transmission]\nmatrix = [[1.0, 0.0]]", "must be square"),
        (HEAD + Q + "[transmission]\nmatrix = [[1.0, 0.0], [1.0]]", "different lengths"),
        (HEAD + Q + "[transmission]\ngear_ratio = [2.0]\noffset = [1.0, 2.0]", "`offset` has 2 values for 1 joints"),
        (HEAD + '[tau]\ncolumns = "u"\nunit = "V"', "unit 'V' needs a factor"),
        (HEAD + Q + "[tau]\nfrom_current = true", "tau.from_current: there is no [current]"),
        (HEAD + Q + "from_current = true", "leave out columns, unit"),
        (HEAD + '[current]\ncolumns = "i"\nunit = "A"\nside = "motor"', "current.side: only q, dq, tau"),
        (HEAD + Q + '[csv]\ndelimiter = ",,"', "a delimiter is one character"),
        (HEAD + Q + '[csv]\ndelimiter = ","\ndecimal = ","', "the same character"),
        (HEAD + Q + '[csv]\nencoding = "utf-88"', "encoding 'utf-88' is not known"),
        (HEAD + Q + "[csv]\nskip_rows = -1", "csv.skip_rows"),
        ('joints = ["a", "a"]\n' + HEAD + Q, "joints: the names repeat"),
        ("a =", "not valid TOML"),
        ("\x00", "not valid TOML"),
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
    [
        ("deg", "angle", 180.0, math.pi),
        ("rev", "angle", 1.0, 2.0 * math.pi),
        ("mm", "length", 5.0, 0.005),
        ("rpm", "angular velocity", 60.0, 2.0 * math.pi),
        ("deg/s", "angular velocity", 90.0, math.pi / 2.0),
        ("Nm", "torque", 2.0, 2.0),
        ("N·m", "torque", 2.0, 2.0),
        ("mN m", "torque", 2.0, 0.002),
        ("mA", "current", 1500.0, 1.5),
        ("K", "temperature", 300.0, 26.85),
        ("degF", "temperature", 212.0, 100.0),
        ("µs", "time", 3.0, 3e-6),
        ("μs", "time", 3.0, 3e-6),
    ],
)
def test_units(text: str, quantity: str, value: float, expected: float) -> None:
    unit = find_unit(text, (quantity,))
    assert unit.factor * value + unit.offset == pytest.approx(expected)


def test_unknown_unit_and_si_units_of_every_channel() -> None:
    with pytest.raises(UnitError, match="did you mean"):
        find_unit("nNm", ("torque",))
    for quantities in CHANNEL_QUANTITIES.values():
        for quantity in quantities:
            assert (1.0, 0.0) in UNITS[quantity].values()
