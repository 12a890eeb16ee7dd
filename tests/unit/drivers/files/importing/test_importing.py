"""Import: formats and layouts, and atomic output."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.io

from drivers.files.importing.data_source import DataError
from drivers.files.importing.importer import import_recording, load_data
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


def test_npy_mat_and_recordings(tmp_path: Path) -> None:
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
