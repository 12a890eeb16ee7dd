"""Import: formats, layouts, atomic output; bad data, refused or masked; the shipped mappings on their recordings."""

import io
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

from drivers.files.importing._data_files import SUFFIXES
from drivers.files.importing.data_source import DataError, DataNotFoundError
from drivers.files.importing.importer import ImportFailedError, import_recording, load_data
from drivers.files.recordings.recording import RecordingError, read_recording
from tests.lab.recordings.logs import CSV, DQ, NPZ, TAU, N, Q, T, csv_text, mapping, npz, numbered, same


def test_npz_to_a_file(tmp_path: Path) -> None:
    fractions: list[float] = []
    out = tmp_path / "out.mcap"
    result = import_recording(npz(tmp_path), mapping(NPZ), out, progress=fractions.append)
    recording = read_recording(out)
    same(recording)
    assert recording.sha256 == result.sha256
    assert recording.robot == "lab"
    assert recording.rate_hz == pytest.approx(200.0)
    assert (recording.meta.source, recording.meta.mapping) == ("log.npz", "lab")
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


@pytest.mark.parametrize(
    ("content", "mapping_text"),
    [
        (csv_text(header=False), numbered(CSV)),
        (csv_text(), numbered(CSV)),
        ("\ufeff" + csv_text(), CSV),
        (csv_text().replace("\n", "\r\n"), CSV),
        ("# made by us\n# " + csv_text(), CSV),
        (csv_text(";", ","), CSV + '[csv]\ndecimal = ","\n'),
        ("junk\nmore junk, here\n" + csv_text(), CSV + "[csv]\nskip_rows = 2\n"),
        (csv_text().replace("tau_2\n", "tau_2\ns,rad,rad,Nm,Nm\n"), CSV),
        (csv_text().replace("tau_2\n", "tau_2\n1,2,3,4,5\n"), CSV + "[csv]\nheader = true\nskip_after_header = 1\n"),
        (csv_text().replace("time", '"time"').replace("tau_2\n", ' "tau_2"\n'), CSV),
        (csv_text().replace("\n", ",\n"), CSV),
    ],
    ids=[
        "no header", "by number", "byte order mark", "crlf", "commented header", "decimal comma",
        "preamble", "row of units", "row of numbers under the header", "quoted", "trailing delimiter",
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


def test_npy_mat_and_recordings(tmp_path: Path) -> None:
    np.save(tmp_path / "log.npy", np.column_stack([T, Q, TAU]))
    same(load_data(tmp_path / "log.npy", mapping(numbered(CSV)))[0])
    table = np.zeros(N, dtype=[("t", float), ("q", float, 2), ("dq", float, 2), ("tau", float, 2)])
    table["t"], table["q"], table["dq"], table["tau"] = T, Q, DQ, TAU
    np.save(tmp_path / "fields.npy", table)
    same(load_data(tmp_path / "fields.npy", mapping(NPZ))[0])
    scipy.io.savemat(tmp_path / "log.mat", {"log": {"t": T[:, None], "q": Q, "dq": DQ, "tau": TAU}})
    in_mat = [(f'"{name}"', f'"log.{name}"') for name in ("t", "q", "dq", "tau")]
    same(load_data(tmp_path / "log.mat", mapping(NPZ, *in_mat))[0])
    import_recording(npz(tmp_path), mapping(NPZ), tmp_path / "first.mcap")
    same(load_data(tmp_path / "first.mcap", mapping(NPZ))[0])


def test_hdf5_and_matlab_7_3(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "log.h5", "w") as file:
        for name, array in (("t", T), ("q", Q), ("dq", DQ), ("tau", TAU)):
            file[f"arm/{name}"] = array
        file["linked"], file["arm/circle"], file["dead"] = (h5py.SoftLink(to) for to in ("/arm/q", "/arm", "/x"))
        file["table"] = np.rec.fromarrays([T, Q[:, 0]], names=["t", "q1"])
    grouped = [(f'"{name}"', f'"arm/{name}"') for name in ("t", "q", "dq", "tau")]
    linked = [(a, '"linked"' if b == '"arm/q"' else b) for a, b in grouped]
    same(load_data(tmp_path / "log.h5", mapping(NPZ, *linked))[0])
    same(load_data(tmp_path / "log.h5", mapping(NPZ, *grouped))[0])
    same(load_data(tmp_path / "log.h5", mapping(NPZ, ('"t"', '"table.t"'), *grouped[1:]))[0])
    with h5py.File(tmp_path / "log.mat", "w", userblock_size=512) as file:  # by columns, after a header
        for name, array in (("t", T[:, None]), ("q", Q), ("dq", DQ), ("tau", TAU)):
            file[f"log/{name}"] = array.T
        file["#refs#/a"] = np.zeros(3)
        file["log/none"] = np.array([0, 3], np.uint64)
        file["log/none"].attrs["MATLAB_empty"] = 1
    with (tmp_path / "log.mat").open("r+b") as raw:
        raw.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")
    same(load_data(tmp_path / "log.mat", mapping(NPZ, *[(a, b.replace("arm/", "log.")) for a, b in grouped]))[0])
    with pytest.raises(DataError, match=r"names column 'q', which is absent; present are: log\.dq, log\.none"):
        load_data(tmp_path / "log.mat", mapping(NPZ))


def test_parquet(tmp_path: Path) -> None:
    lists = {name: pa.array(list(array)) for name, array in (("q", Q), ("dq", DQ), ("tau", TAU))}
    dates = pa.array(np.round(1e9 * T).astype(np.int64) + 1_700_000_000_000_000_000).cast(pa.timestamp("ns", "UTC"))
    path = tmp_path / "log.parquet"
    for stamps in (pa.array(T), dates):
        pq.write_table(pa.table({"t": stamps, **lists}), path)
        same(load_data(path, mapping(NPZ))[0])
    gaps = pa.table({"t": pa.array(T), **lists, "q": pa.array([None if k == 3 else row for k, row in enumerate(Q)])})
    pq.write_table(gaps, path)
    with pytest.raises(DataError, match="is NaN at sample 3"):
        load_data(path, mapping(NPZ))
    ragged = pa.table({"t": pa.array(T), **lists, "q": pa.array([row[: 1 + k % 2] for k, row in enumerate(Q)])})
    pq.write_table(ragged, path)
    with pytest.raises(DataError, match="'q' holds lists of different lengths"):
        load_data(path, mapping(NPZ))
    cells = {f"q_{j + 1}": pa.array(Q[:, j], mask=np.arange(N) == 3) for j in range(2)}
    pq.write_table(pa.table({"t": pa.array(T), **cells, **lists, "mode": ["a"] * N}), path)
    with pytest.raises(DataError, match="is NaN at sample 3"):
        load_data(path, mapping(NPZ, ('"q"\nunit', '"q_{joint}"\nunit')))
    with pytest.raises(DataError, match="'mode' holds string, not real numbers"):
        load_data(path, mapping(NPZ, ('"tau"', '"mode"')))


def test_a_bag_of_ros_2_in_sqlite(tmp_path: Path) -> None:
    store, kind = get_typestore(Stores.ROS2_JAZZY), "sensor_msgs/msg/JointState"
    state, header, time = (store.types[name] for name in (kind, "std_msgs/msg/Header", "builtin_interfaces/msg/Time"))
    with Writer(tmp_path / "bag", version=9, storage_plugin=StoragePlugin.SQLITE3) as bag:
        topic = bag.add_connection("/joint_states", kind, typestore=store)
        for t, q, dq, tau in zip(T, Q, DQ, TAU, strict=True):
            t_ns = round(1e9 * t)
            stamp = time(sec=t_ns // 10**9, nanosec=t_ns % 10**9)
            message = state(header(stamp, "base"), ["a", "b"], q, dq, tau)
            bag.write(topic, t_ns, store.serialize_cdr(message, kind))
    named = [('"q"\nunit', '"position"\nunit'), ('"dq"', '"velocity"'), ('"tau"', '"effort"')]
    for path in (tmp_path / "bag", tmp_path / "bag" / "bag.db3"):
        recording = load_data(path, mapping(NPZ, *named))[0]
        same(recording)
        assert recording.meta.source == "bag.db3"
    copy = tmp_path / "killed"  # while what was written last is in the log beside the file
    connection = sqlite3.connect(tmp_path / "bag" / "bag.db3")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA wal_autocheckpoint=0")
    connection.execute("UPDATE messages SET data = x'00' WHERE id = 5")
    connection.commit()
    shutil.copytree(tmp_path / "bag", copy)
    connection.close()
    with pytest.raises(DataError, match=r"message 4 of /joint_states is no .*: it ends within its head"):
        load_data(copy / "bag.db3", mapping(NPZ, *named))
    (tmp_path / "cut.db3").write_bytes((tmp_path / "bag" / "bag.db3").read_bytes()[:5000])
    with pytest.raises(DataError, match="not a complete ROS 2 bag"):
        load_data(tmp_path / "cut.db3", mapping(NPZ, *named))


def test_columns_of_arrays_and_transposed(tmp_path: Path) -> None:
    path = npz(tmp_path, q=Q.T, tau=np.column_stack([TAU, TAU]))
    text = [('"q"\nunit', '"q"\ntranspose = true\nunit'), ('"tau"\n', '["tau[2]", "tau[3]"]\n')]
    same(load_data(path, mapping(NPZ, *text))[0])


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
        ('"q"\n', '["q", "dq"]\n', "name column k of it as"),
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
        ({"tau": TAU.astype(str)}, "not real numbers"),
        ({"tau": np.array([{}] * N)}, "without running its pickle"),
        ({"t": np.where(T[7] == T, np.nan, T)}, "not a finite number in 1 rows, first row 7"),
        ({"t": T * 1e300}, "check time.unit"),
        ({"t": T[:1], "q": Q[:1], "dq": DQ[:1], "tau": TAU[:1]}, "at least two"),
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
    for suffix in SUFFIXES:
        (tmp_path / f"empty{suffix}").write_bytes(b"")
        with pytest.raises(DataError, match="is empty"):
            load_data(tmp_path / f"empty{suffix}", mapping(NPZ))
    for suffix in (".h5", ".mat", ".parquet", ".db3"):
        (tmp_path / f"other{suffix}").write_bytes(b"no such format" * 99)
        with pytest.raises(DataError, match="not a complete"):
            load_data(tmp_path / f"other{suffix}", mapping(NPZ))
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


SETS = {
    "emps": ("emps/emps.npz", 1, 24841, ("q", "tau", "setpoint")),
    "staubli_tx40": ("staubli_tx40/tx40.npz", 6, 45000, ("q", "tau")),
    "franka_panda": ("franka_panda/panda_exciting.npz", 7, 20544, ("q", "dq", "tau")),
    "kuka_lwr4": ("kuka_lwr4/measurements_1.npz", 7, 5027, ("q", "dq", "tau")),
    "kuka_kr300_elastic": ("kuka_kr300_elastic/trajectory_A.npz", 6, 2501, ("q", "dq", "tau", "setpoint")),
    "kuka_kr300_encoders": ("kuka_kr300_elastic/trajectory_A.npz", 3, 2501, ("q", "q_motor", "tau")),
    "franka_joint_friction": ("franka_joint_friction/case3_slow.npz", 1, 25390, ("q", "dq", "tau")),
}


@pytest.mark.parametrize("name", SETS)
def test_shipped_mappings(data_dir: Path, tmp_path: Path, name: str) -> None:
    file, n, samples, channels = SETS[name]
    result = import_recording(data_dir / file, name, tmp_path / "r.mcap")
    recording = read_recording(tmp_path / "r.mcap")
    assert (recording.n, recording.samples) == (n, samples)
    assert set(recording.channels) == set(channels)
    assert recording.robot == name
    assert recording.sha256 == result.sha256
    assert recording.valid is None
    assert not any("q.unit" in w or "dq.unit" in w or "limits" in w for w in result.warnings)


def test_tx40_joint_side_is_that_of_its_readme(data_dir: Path) -> None:
    recording = load_data(data_dir / "staubli_tx40/tx40.npz", "staubli_tx40")[0]
    raw = np.load(data_dir / "staubli_tx40/tx40.npz")
    to_motor, to_joint = np.diag(raw["N"]), np.diag(raw["N"])
    to_motor[5, 4] = to_joint[4, 5] = raw["N"][5]
    q = raw["q_motor"] @ np.linalg.inv(to_motor).T + [0.0, -np.pi / 2, np.pi / 2, 0.0, 0.0, 0.0]
    np.testing.assert_allclose(recording.channels["q"], q, atol=1e-12)
    np.testing.assert_allclose(recording.channels["tau"], raw["tau_motor"] @ to_joint.T, atol=1e-12)
    np.testing.assert_array_equal(np.diff(recording.t_ns), 200_000)


def test_panda_keeps_samples_that_were_logged_twice(data_dir: Path) -> None:
    recording, result = load_data(data_dir / "franka_panda/panda_exciting.npz", "franka_panda")
    raw = np.load(data_dir / "franka_panda/panda_exciting.npz")
    np.testing.assert_array_equal(recording.channels["tau"], raw["tau"])
    np.testing.assert_allclose(recording.t, raw["t"], atol=1e-9)
    assert 0.05 < result["repeated_samples"] / recording.samples < 0.07  # type: ignore[operator]
