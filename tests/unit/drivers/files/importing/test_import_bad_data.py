"""Import of bad data: refused, or masked if `missing = "mask"`."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drivers.files.importing.data_source import DataError, DataNotFoundError
from drivers.files.importing.importer import ImportFailedError, import_recording, load_data
from drivers.files.recordings.recording import read_recording
from tests.lab.recordings.logs import CSV, DQ, NPZ, TAU, N, Q, T, csv_text, mapping, npz, numbered

MASK = ("[time]", 'missing = "mask"\n[time]')


def log(folder: Path, line: int, new: str) -> Path:
    """Write a text log with one line replaced."""
    lines = csv_text().splitlines()
    lines[line] = new
    (folder / "log.csv").write_text("\n".join(lines))
    return folder / "log.csv"


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_missing_values(tmp_path: Path, bad: float) -> None:
    tau = TAU.copy()
    tau[[30, 31], 1] = bad
    path = npz(tmp_path, tau=tau)
    with pytest.raises(DataError, match=r"tau of joint joint2 is \w+ at sample 30 .*t = 0\.150000 s.*2 values"):
        load_data(path, mapping(NPZ))
    recording, result = load_data(path, mapping(NPZ, MASK))
    assert result["masked"] == 2
    assert recording.valid is not None
    np.testing.assert_array_equal(np.argwhere(~recording.valid), [[30, 1], [31, 1]])
    assert np.isnan(recording.channels["tau"][30, 1])
    import_recording(path, mapping(NPZ, MASK), tmp_path / "out.mcap")
    np.testing.assert_array_equal(read_recording(tmp_path / "out.mcap").valid, recording.valid)


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
    with pytest.raises(DataError, match=message):
        load_data(log(tmp_path, line, new), mapping(CSV))


def test_empty_fields_of_text_can_be_masked(tmp_path: Path) -> None:
    line = csv_text().splitlines()[11].rpartition(",")[0] + ","
    recording, result = load_data(log(tmp_path, 11, line), mapping(CSV, MASK))
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
    for text, message in (("time,q_1\n", "no row of numbers"), ("# nothing\n\n", "no rows")):
        (tmp_path / "log.csv").write_text(text)
        with pytest.raises(DataError, match=message):
            load_data(tmp_path / "log.csv", mapping(CSV))


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
