"""Importing logs: formats, conversion, and every kind of bad data that must be refused."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drivers.data_source import DataError, DataNotFoundError
from drivers.importing import ImportFailedError, import_recording, load_data
from drivers.mapping import Mapping, MappingError, parse_mapping
from drivers.recording import Recording, RecordingError, read_recording

N = 400
T = np.arange(N) * 1e-3 * 5.0
Q = np.stack([0.8 * np.sin(3.0 * T), 0.5 * np.cos(2.0 * T)], axis=1)
DQ = np.stack([2.4 * np.cos(3.0 * T), -1.0 * np.sin(2.0 * T)], axis=1)
TAU = np.stack([10.0 * np.sin(T), 5.0 + np.cos(7.0 * T)], axis=1)

NPZ = """
format = 1
name = "lab"
[time]
column = "t"
[q]
columns = "q"
unit = "rad"
[dq]
columns = "dq"
unit = "rad/s"
[tau]
columns = "tau"
unit = "N*m"
"""

CSV = """
format = 1
name = "lab"
[time]
column = "time"
[q]
columns = "q_{joint}"
unit = "rad"
[tau]
columns = ["tau_1", "tau_2"]
unit = "N*m"
"""

ROBOT = """
format = 1
name = "two"
kinematics = "mdh"
[[joint]]
name = "a"
lower = -1.0
upper = 1.0
velocity = 3.0
effort = 20.0
[[joint]]
name = "b"
alpha_deg = 90
lower = -1.0
upper = 1.0
velocity = 3.0
effort = 20.0
"""


def mapping(text: str, *changes: tuple[str, str]) -> Mapping:
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return parse_mapping(text.encode())


def npz(folder: Path, **changes: object) -> Path:
    arrays = {"t": T, "q": Q, "dq": DQ, "tau": TAU} | changes
    np.savez(folder / "log.npz", **{k: v for k, v in arrays.items() if v is not None})  # type: ignore[arg-type]
    return folder / "log.npz"


def csv_text(separator: str = ",", decimal: str = ".", header: bool = True, rows: int = N) -> str:
    table = np.column_stack([T, Q, TAU])[:rows]
    lines = [separator.join(["time", "q_1", "q_2", "tau_1", "tau_2"])] if header else []
    lines += [separator.join(repr(float(v)).replace(".", decimal) for v in row) for row in table]
    return "\n".join(lines) + "\n"


def same(recording: Recording) -> None:
    np.testing.assert_allclose(recording.t, T, atol=1e-9)
    np.testing.assert_array_equal(recording.channels["q"], Q)
    np.testing.assert_array_equal(recording.channels["tau"], TAU)


# Formats -------------------------------------------------------------------------------------------


def test_npz_to_a_file(tmp_path: Path) -> None:
    fractions: list[float] = []
    out = tmp_path / "out.mcap"
    result = import_recording(npz(tmp_path), mapping(NPZ), out, progress=fractions.append)
    recording = read_recording(out)
    same(recording)
    assert recording.sha256 == result.sha256
    assert recording.robot == "lab"
    assert recording.joint_names == ("joint1", "joint2")
    assert recording.units == ("rad", "rad")
    assert recording.rate_hz == pytest.approx(200.0)
    assert recording.meta.source == "log.npz"
    assert recording.meta.mapping == "lab"
    assert (result.rows, result.frames, result.dropped, result.masked) == (N, N, 0, 0)
    assert result.warnings == ()
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["log.npz", "out.mcap"]


@pytest.mark.parametrize("separator", [",", ";", "\t", " "])
@pytest.mark.parametrize("suffix", [".csv", ".txt"])
def test_text_formats(tmp_path: Path, separator: str, suffix: str) -> None:
    path = tmp_path / f"log{suffix}"
    path.write_text(csv_text(separator))
    same(load_data(path, mapping(CSV))[0])


def numbered(text: str) -> str:
    return (
        text.replace('"time"', "0").replace('"q_{joint}"', "[1, 2]").replace('["tau_1", "tau_2"]', "[3, 4]")
    )  # fmt: skip


@pytest.mark.parametrize(
    ("content", "mapping_text"),
    [
        (csv_text(header=False), numbered(CSV)),
        (csv_text(), numbered(CSV)),
        ("\ufeff" + csv_text(), CSV),
        (csv_text().replace("\n", "\r\n"), CSV),
        ("# made by us\n# " + csv_text(), CSV),
        ("% " + csv_text(" "), CSV),
        (csv_text(";", ","), CSV + '[csv]\ndecimal = ","\n'),
        ("junk\nmore junk, here\n" + csv_text(), CSV + "[csv]\nskip_rows = 2\n"),
        (csv_text().replace("tau_2\n", "tau_2\ns,rad,rad,Nm,Nm\n"), CSV),
        (csv_text().replace("tau_2\n", "tau_2\n1,2,3,4,5\n"), CSV + "[csv]\nheader = true\nskip_after_header = 1\n"),
        (csv_text().replace("time", '"time"').replace("tau_2\n", ' "tau_2"\n'), CSV),
        (csv_text().replace("\n", "\n\n"), CSV),
        (csv_text().replace("\n", ",\n"), CSV),
    ],
    ids=[
        "no header", "by number", "byte order mark", "crlf", "commented header", "percent header", "decimal comma",
        "preamble", "row of units", "row of numbers under the header", "quoted", "blank lines", "trailing delimiter",
    ],
)  # fmt: skip
def test_layouts_of_text(tmp_path: Path, content: str, mapping_text: str) -> None:
    path = tmp_path / "log.csv"
    path.write_text(content, encoding="utf-8", newline="")
    same(load_data(path, mapping(mapping_text))[0])


def test_latin_1(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(csv_text().replace("tau_1", "tau_1 [°]"), encoding="latin-1")
    text = CSV.replace('"tau_1"', '"tau_1 [°]"')
    with pytest.raises(DataError, match=r"csv\.encoding"):
        load_data(path, mapping(text))
    same(load_data(path, mapping(text + '[csv]\nencoding = "latin-1"\n'))[0])


def test_npy_mat_and_our_own(tmp_path: Path) -> None:
    np.save(tmp_path / "log.npy", np.column_stack([T, Q, TAU]))
    same(load_data(tmp_path / "log.npy", mapping(numbered(CSV)))[0])
    dtype = [("t", float), ("q", float, 2), ("dq", float, 2), ("tau", float, 2)]
    table = np.zeros(N, dtype=dtype)
    table["t"], table["q"], table["dq"], table["tau"] = T, Q, DQ, TAU
    np.save(tmp_path / "fields.npy", table)
    same(load_data(tmp_path / "fields.npy", mapping(NPZ))[0])
    scipy.io.savemat(tmp_path / "log.mat", {"log": {"t": T[:, None], "q": Q, "dq": DQ, "tau": TAU}})
    in_mat = [(f'"{name}"', f'"log.{name}"') for name in ("t", "q", "dq", "tau")]
    same(load_data(tmp_path / "log.mat", mapping(NPZ, *in_mat))[0])
    import_recording(npz(tmp_path), mapping(NPZ), tmp_path / "first.mcap")
    same(load_data(tmp_path / "first.mcap", mapping(NPZ))[0])


def test_columns_of_arrays_and_transposed(tmp_path: Path) -> None:
    path = npz(tmp_path, q=Q.T, tau=np.column_stack([TAU, TAU]))
    text = [('"q"\nunit', '"q"\ntranspose = true\nunit'), ('"tau"\n', '["tau[2]", "tau[3]"]\n')]
    same(load_data(path, mapping(NPZ, *text))[0])


# Conversion ----------------------------------------------------------------------------------------


def test_units_scale_sign_offset(tmp_path: Path) -> None:
    raw = np.degrees((Q - [0.1, -0.2]) * [1.0, -1.0])
    path = npz(tmp_path, q=raw, dq=None, tau=TAU / [2.0, 4.0] * 1e3, gain=[2.0, 4.0])
    text = NPZ.replace('[dq]\ncolumns = "dq"\nunit = "rad/s"\n', "")
    changes = [
        ('columns = "q"\nunit = "rad"', 'columns = "q"\nunit = "deg"\nsign = [1, -1]\noffset = [0.1, -0.2]'),
        ('columns = "tau"\nunit = "N*m"', 'columns = "tau"\nunit = "mN*m"\nscale = "gain"'),
    ]
    recording = load_data(path, mapping(text, *changes))[0]
    np.testing.assert_allclose(recording.channels["q"], Q, atol=1e-14)
    np.testing.assert_allclose(recording.channels["tau"], TAU, rtol=1e-14)


def test_motor_side_with_coupling(tmp_path: Path) -> None:
    matrix = np.array([[50.0, 0.0], [30.0, -40.0]])
    offset = np.array([5.0, -7.0])
    tau_motor = TAU @ np.linalg.inv(matrix)  # the same work: tau' dq = tau_motor' dq_motor
    path = npz(tmp_path, q=Q @ matrix.T + offset, dq=DQ @ matrix.T, tau=tau_motor)
    np.testing.assert_allclose(np.sum(tau_motor * (DQ @ matrix.T), axis=1), np.sum(TAU * DQ, axis=1), atol=1e-10)
    changes = [(f'columns = "{name}"\n', f'columns = "{name}"\nside = "motor"\n') for name in ("q", "dq", "tau")]
    table = f"[transmission]\nmatrix = {matrix.tolist()}\noffset = {offset.tolist()}\n"
    recording = load_data(path, mapping(NPZ + table, *changes))[0]
    np.testing.assert_allclose(recording.channels["q"], Q, atol=1e-12)
    np.testing.assert_allclose(recording.channels["dq"], DQ, atol=1e-12)
    np.testing.assert_allclose(recording.channels["tau"], TAU, atol=1e-12)


def test_torque_from_current(tmp_path: Path) -> None:
    matrix, constants = np.array([[50.0, 0.0], [30.0, -40.0]]), np.array([0.1, 0.2])
    current = TAU @ np.linalg.inv(matrix) / constants
    text = NPZ.replace(
        '[tau]\ncolumns = "tau"\nunit = "N*m"', '[current]\ncolumns = "i"\nunit = "A"\n[tau]\nfrom_current = true'
    )
    path = npz(tmp_path, tau=None, i=current)
    table = f"[transmission]\nmatrix = {matrix.tolist()}\n"
    with pytest.raises(MappingError, match="needs `torque_constant`"):
        load_data(path, mapping(text + table))
    recording, result = load_data(path, mapping(text + table + f"torque_constant = {constants.tolist()}\n"))
    np.testing.assert_allclose(recording.channels["tau"], TAU, atol=1e-12)
    np.testing.assert_array_equal(recording.channels["current"], current)
    assert "not measured" in str(result["warnings"])


def test_prismatic_joint_among_revolute_ones(tmp_path: Path) -> None:
    path = npz(tmp_path, q=Q * [180.0 / np.pi, 1e3], dq=None)
    text = NPZ.replace('[dq]\ncolumns = "dq"\nunit = "rad/s"\n', "")
    changes = [('unit = "rad"', 'unit = ["deg", "mm"]'), ('unit = "N*m"', 'unit = ["N*m", "N"]')]
    recording = load_data(path, mapping(text, *changes))[0]
    assert recording.units == ("rad", "m")
    np.testing.assert_allclose(recording.channels["q"], Q, rtol=1e-14)
    with pytest.raises(MappingError, match=r"tau.unit 'N\*m' does not suit joint 2"):
        load_data(path, mapping(text, changes[0]))


def test_robot_gives_joints_and_limits(tmp_path: Path) -> None:
    (tmp_path / "two.toml").write_text(ROBOT)
    text = NPZ.replace("[time]", f'robot = "{tmp_path}/two.toml"\n[time]')
    recording = load_data(npz(tmp_path), mapping(text))[0]
    assert recording.robot == "two"
    assert recording.joint_names == ("a", "b")
    with pytest.raises(MappingError, match="are not those of robot two"):
        load_data(npz(tmp_path), mapping(text.replace("[time]", 'joints = ["x", "y"]\n[time]')))
    with pytest.raises(MappingError, match=r"robot: .*absent\.toml"):
        load_data(npz(tmp_path), mapping(text.replace("two.toml", "absent.toml")))
    with pytest.raises(DataError, match="q has 3 columns for 2 joints"):
        load_data(npz(tmp_path, q=np.column_stack([Q, Q[:, 0]])), mapping(text))


# Time ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [0.0, 17.25, 1.7e9])
@pytest.mark.parametrize(("unit", "factor"), [("s", 1.0), ("ms", 1e3), ("us", 1e6)])
def test_time_units_and_origins(tmp_path: Path, start: float, unit: str, factor: float) -> None:
    path = npz(tmp_path, t=(T + start) * factor)
    recording = load_data(path, mapping(NPZ, ('column = "t"', f'column = "t"\nunit = "{unit}"')))[0]
    np.testing.assert_allclose(recording.t, T, atol=1e-6 if start > 1e9 else 1e-9)
    assert recording.t_ns[0] == pytest.approx(start * 1e9, rel=1e-15, abs=1)


def test_integer_nanoseconds_are_exact(tmp_path: Path) -> None:
    t_ns = 1_700_000_000_123_456_789 + np.arange(N) * 5_000_001
    recording = load_data(npz(tmp_path, t=t_ns), mapping(NPZ, ('column = "t"', 'column = "t"\nunit = "ns"')))[0]
    np.testing.assert_array_equal(np.diff(recording.t_ns), 5_000_001)


def test_time_before_zero_starts_at_zero(tmp_path: Path) -> None:
    recording = load_data(npz(tmp_path, t=T - 3.0), mapping(NPZ))[0]
    assert recording.t_ns[0] == 0
    np.testing.assert_allclose(recording.t, T, atol=1e-9)


def test_rates_instead_of_time_stamps(tmp_path: Path) -> None:
    for change in ("rate_hz = 200", 'rate_column = "fs"'):
        recording = load_data(npz(tmp_path, fs=200.0), mapping(NPZ, ('column = "t"', change)))[0]
        np.testing.assert_allclose(recording.t, T, atol=1e-9)
        assert recording.rate_hz == 200.0
    with pytest.raises(DataError, match="not one positive number"):
        load_data(npz(tmp_path, fs=-1.0), mapping(NPZ, ('column = "t"', 'rate_column = "fs"')))


def test_shuffled_time_stamps(tmp_path: Path) -> None:
    t = T.copy()
    t[[100, 200]] = t[[200, 100]]
    with pytest.raises(DataError, match=r"column 't': time stamps go backwards at 2 of 400 rows, first at row 101"):
        load_data(npz(tmp_path, t=t), mapping(NPZ))
    rng = np.random.default_rng(0)
    with pytest.raises(DataError, match="go backwards"):
        load_data(npz(tmp_path, t=rng.permutation(T)), mapping(NPZ))


def test_rows_logged_twice_are_dropped_and_counted(tmp_path: Path) -> None:
    rows = np.sort(np.concatenate([np.arange(N), [5, 77, 77]]))
    path = npz(tmp_path, t=T[rows], q=Q[rows], dq=DQ[rows], tau=TAU[rows])
    recording, result = load_data(path, mapping(NPZ))
    same(recording)
    assert (result["rows"], result["frames"], result["dropped"]) == (N + 3, N, 3)
    assert "3 rows repeat" in str(result["warnings"])


def test_repeated_time_stamps_with_other_values(tmp_path: Path) -> None:
    t = T.copy()
    t[50] = t[49]
    with pytest.raises(DataError, match=r"1 rows repeat the time stamp .* first row 50 at 0\.245"):
        load_data(npz(tmp_path, t=t), mapping(NPZ))


def test_repeated_values_at_later_times_are_kept_and_counted(tmp_path: Path) -> None:
    q, dq, tau = Q.copy(), DQ.copy(), TAU.copy()
    for array in (q, dq, tau):
        array[[10, 20]] = array[[9, 19]]
    recording, result = load_data(npz(tmp_path, q=q, dq=dq, tau=tau), mapping(NPZ))
    assert recording.samples == N
    assert result["repeated_samples"] == 2


def test_gaps_are_reported(tmp_path: Path) -> None:
    t = T + (np.arange(N) >= 300) * 0.5
    result = load_data(npz(tmp_path, t=t, dq=None), mapping(NPZ.replace('[dq]\ncolumns = "dq"\nunit = "rad/s"\n', "")))[
        1
    ]
    assert result["gaps"] == 1
    assert "0.505 s, is at 1.495 s" in str(result["warnings"])


# Bad data ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_missing_values(tmp_path: Path, bad: float) -> None:
    tau = TAU.copy()
    tau[[30, 31], 1] = bad
    path = npz(tmp_path, tau=tau)
    with pytest.raises(DataError, match=r"tau of joint joint2 is \w+ at sample 30 .*t = 0\.150000 s.*2 values"):
        load_data(path, mapping(NPZ))
    recording, result = load_data(path, mapping(NPZ, ("[time]", 'missing = "mask"\n[time]')))
    assert result["masked"] == 2
    assert recording.valid is not None
    np.testing.assert_array_equal(np.argwhere(~recording.valid), [[30, 1], [31, 1]])
    assert np.isnan(recording.channels["tau"][30, 1])


def test_masked_samples_survive_the_file(tmp_path: Path) -> None:
    tau = TAU.copy()
    tau[30, 1] = np.nan
    out = tmp_path / "out.mcap"
    import_recording(npz(tmp_path, tau=tau), mapping(NPZ, ("[time]", 'missing = "mask"\n[time]')), out)
    valid = read_recording(out).valid
    assert valid is not None
    np.testing.assert_array_equal(np.argwhere(~valid), [[30, 1]])


@pytest.mark.parametrize(
    ("line", "new", "message"),
    [
        (11, "0.05,,1,1,1", r"line 12, column 'q_1': is empty"),
        (11, "0.05,x,1,1,1", r"line 12, column 'q_1': 'x' is not a number"),
        (11, "0.05,1,1", r"line 12 has 3 columns, line 2 has 5; the file was cut off"),
        (11, "0.05,nan,1,1,1", r"q of joint joint1 is NaN at sample 10"),
    ],
)
def test_bad_fields_of_text(tmp_path: Path, line: int, new: str, message: str) -> None:
    lines = csv_text().splitlines()
    lines[line] = new
    path = tmp_path / "log.csv"
    path.write_text("\n".join(lines))
    with pytest.raises(DataError, match=message):
        load_data(path, mapping(CSV))


def test_empty_fields_of_text_can_be_masked(tmp_path: Path) -> None:
    lines = csv_text().splitlines()
    fields = lines[11].split(",")
    lines[11] = ",".join([*fields[:4], ""])
    path = tmp_path / "log.csv"
    path.write_text("\n".join(lines))
    recording, result = load_data(path, mapping(CSV, ("[time]", 'missing = "mask"\n[time]')))
    assert result["masked"] == 1
    np.testing.assert_array_equal(recording.channels["q"], Q)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"tau"', '"torque"', "tau.columns names column 'torque', which is absent; .*present are: t, q, dq, tau"),
        ('"dq"', '"DQ "', "did you mean 'dq'"),
        ('column = "t"', 'column = "time"', "time.column names column 'time', which is absent"),
        ('column = "t"', 'rate_column = "fs"', "time.rate_column names column 'fs'"),
        ('"tau"\n', '"tau"\nscale = "gain"\n', "tau.scale names column 'gain'"),
        ('"tau"\n', '"tau[5]"\n', "no column 5"),
        ('"q"\n', '["q", "dq"]\n', "name column k of it as"),
        ('"q"\n', '"q{joint}"\n', "q.columns names column 'q1', which is absent"),
    ],
)
def test_absent_columns(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_data(npz(tmp_path), mapping(NPZ, (old, new)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tau": TAU[:-1]}, "different numbers of samples: q 400, dq 400, tau 399"),
        ({"tau": TAU[:, :1]}, "tau has 1 columns for 2 joints"),
        ({"tau": TAU.T}, "tau has 400 columns for 2 joints .* tau.transpose = true"),
        ({"t": T[:-1]}, "has shape .399,., the channels have 400 rows"),
        ({"tau": np.zeros((N, 2, 2))}, r"shape \(400, 2, 2\)"),
        ({"tau": TAU.astype(str)}, "not real numbers"),
        ({"tau": TAU + 1j}, "not real numbers"),
        ({"tau": np.array([{}] * N)}, "without running its pickle"),
        ({"t": np.where(T[7] == T, np.nan, T)}, "not a finite number in 1 rows, first row 7"),
        ({"t": T * 1e300}, "check time.unit"),
        ({"t": T[:1], "q": Q[:1], "dq": DQ[:1], "tau": TAU[:1]}, "at least two"),
        ({"t": T[:0], "q": Q[:0], "dq": DQ[:0], "tau": TAU[:0]}, "holds no samples"),
    ],
)
def test_wrong_shapes_and_types(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_data(npz(tmp_path, **changes), mapping(NPZ))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataNotFoundError, match="no such file"):
        load_data(tmp_path / "none.npz", mapping(NPZ))
    with pytest.raises(DataError, match="a directory"):
        load_data(tmp_path, mapping(NPZ))
    (tmp_path / "log.xlsx").write_bytes(b"PK")
    with pytest.raises(DataError, match=r"format '\.xlsx' is not known; known are \.csv"):
        load_data(tmp_path / "log.xlsx", mapping(NPZ))
    for suffix in (".csv", ".npz", ".npy", ".mat", ".mcap"):
        (tmp_path / f"empty{suffix}").write_bytes(b"")
        with pytest.raises(DataError, match="is empty"):
            load_data(tmp_path / f"empty{suffix}", mapping(NPZ))
    (tmp_path / "header.csv").write_text("time,q_1\n")
    with pytest.raises(DataError, match="no row of numbers"):
        load_data(tmp_path / "header.csv", mapping(CSV))
    (tmp_path / "comments.csv").write_text("# nothing\n\n")
    with pytest.raises(DataError, match="no rows"):
        load_data(tmp_path / "comments.csv", mapping(CSV))


def _bytes(save: Callable[[io.BytesIO], None]) -> bytes:
    buffer = io.BytesIO()
    save(buffer)
    return buffer.getvalue()


SMALL = {"t": T[:40], "q": Q[:40], "dq": DQ[:40], "tau": TAU[:40]}
FILES = {
    ".npz": _bytes(lambda f: np.savez(f, **SMALL)),
    ".npy": _bytes(lambda f: np.save(f, np.column_stack([T, Q, TAU])[:40])),
    ".mat": _bytes(lambda f: scipy.io.savemat(f, SMALL, do_compression=True)),
    ".csv": csv_text(rows=40).encode(),
}


@pytest.mark.parametrize("suffix", FILES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(data=st.data())
def test_cut_off_and_damaged_files(tmp_path: Path, suffix: str, data: st.DataObject) -> None:
    content = bytearray(FILES[suffix])
    content = content[: data.draw(st.integers(0, len(content)))]
    for position in data.draw(st.lists(st.integers(0, max(len(content) - 1, 0)), max_size=3)):
        if content:
            content[position] = data.draw(st.integers(0, 255))
    path = tmp_path / f"log{suffix}"
    path.write_bytes(content)
    used = {".npy": numbered(CSV), ".csv": CSV}.get(suffix, NPZ)
    try:
        recording = load_data(path, mapping(used))[0]
    except ImportFailedError:
        return
    assert recording.samples <= N


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=300), suffix=st.sampled_from([".csv", ".npz", ".npy", ".mat", ".mcap", ".txt"]))
def test_random_bytes(tmp_path: Path, content: bytes, suffix: str) -> None:
    path = tmp_path / f"log{suffix}"
    path.write_bytes(content)
    with pytest.raises(ImportFailedError):
        load_data(path, mapping(NPZ))


# Units that are off by a known factor -----------------------------------------------------------------


DEG = 180.0 / np.pi


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"q": Q * DEG}, r"dq is 0\.01745 times the change of q: a factor of 1/57\.3, as between degrees and radians"),
        ({"q": Q / DEG}, r"dq is 57\.3 times the change of q: a factor of 57\.3"),
        ({"dq": DQ * DEG}, r"a factor of 57\.3, as between degrees and radians; check q.unit and dq.unit"),
        ({"dq": DQ * 1e3}, "a factor of 1000, as between milli-units"),
        ({"dq": DQ * 30.0 / np.pi}, "as between rpm and rad/s"),
        ({"dq": DQ * 32.0}, "dq is 32 times the change of q; check the units"),
        ({"dq": -DQ}, "opposite sign"),
        ({"q": Q * 120.0, "dq": DQ * 120.0}, "turns; q.unit is likely 'deg'"),
    ],
)
@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_units_without_a_robot(tmp_path: Path, changes: dict[str, np.ndarray], message: str, noise: float) -> None:
    rng = np.random.default_rng(1)
    noisy = {k: v * (1.0 + noise * rng.normal(size=v.shape)) for k, v in changes.items()}
    path = npz(tmp_path, **noisy)
    with pytest.raises(DataError, match=message) as caught:
        load_data(path, mapping(NPZ))
    assert "joint joint1" in str(caught.value)
    _, result = load_data(path, mapping(NPZ + '[checks]\nplausibility = "warn"\n'))
    assert "joint joint1" in str(result["warnings"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"q": Q * DEG, "dq": DQ * DEG}, r"joint a: q runs from .*, its limits are -1 to 1; q.unit is likely 'deg'"),
        ({"q": Q * 50.0, "dq": DQ * 50.0}, "q.side 'motor'"),
        ({"tau": TAU * 57.3}, r"joint a: \|tau\| reaches .* times its limit of 20"),
        ({"dq": DQ * 10.0}, r"joint a: \|dq\| reaches 24 rad/s, 8 times its limit of 3"),
    ],
)
def test_units_with_a_robot(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    (tmp_path / "two.toml").write_text(ROBOT)
    text = NPZ.replace("[time]", f'robot = "{tmp_path}/two.toml"\n[time]')
    with pytest.raises(DataError, match=message):
        load_data(npz(tmp_path, **changes), mapping(text))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"q": Q / DEG, "dq": DQ / DEG}, "no joint moves by more than"),
        ({"tau": np.column_stack([TAU[:, 0], np.full(N, 3.0)])}, "joint joint2: tau is 3 N*m throughout"),
        ({"dq": DQ[:, ::-1]}, "dq does not follow the change of q"),
        ({"dq": DQ * 1.3}, "dq is 1.3 times the change of q"),
    ],
)
def test_what_is_odd_but_possible_is_a_warning(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    assert message in str(load_data(npz(tmp_path, **changes), mapping(NPZ))[1]["warnings"])


def test_a_resting_joint_says_nothing_about_units(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    q, dq = Q.copy(), DQ.copy()
    q[:, 1], dq[:, 1] = 0.3 + 1e-5 * rng.normal(size=N), 1e-2 * rng.normal(size=N)
    assert load_data(npz(tmp_path, q=q, dq=dq), mapping(NPZ))[1]["warnings"] == ()


# Output ----------------------------------------------------------------------------------------------


def test_output_is_complete_or_absent(tmp_path: Path) -> None:
    out = tmp_path / "out.mcap"
    with pytest.raises(DataError):
        import_recording(npz(tmp_path, t=T[::-1]), mapping(NPZ), out)
    assert [p.name for p in tmp_path.iterdir()] == ["log.npz"]
    import_recording(npz(tmp_path), mapping(NPZ), out)
    before = out.read_bytes()
    with pytest.raises(RecordingError, match=r"already there.*--force"):
        import_recording(npz(tmp_path), mapping(NPZ), out)
    with pytest.raises(DataError):
        import_recording(npz(tmp_path, t=T[::-1]), mapping(NPZ), out, force=True)
    assert out.read_bytes() == before
    import_recording(npz(tmp_path, tau=2.0 * TAU), mapping(NPZ), out, force=True)
    np.testing.assert_array_equal(read_recording(out).channels["tau"], 2.0 * TAU)
    with pytest.raises(RecordingError, match="there is no directory"):
        import_recording(npz(tmp_path), mapping(NPZ), tmp_path / "absent" / "out.mcap")
