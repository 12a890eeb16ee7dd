"""Import: time stamps of all units and origins, rates, repetitions, gaps."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from drivers.files.importing.data_source import DataError
from drivers.files.importing.importer import load_data
from tests.lab.recordings.logs import CSV, DQ, NPZ, NPZ_NO_DQ, TAU, N, Q, T, csv_text, mapping, npz, same


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
    result = load_data(npz(tmp_path, t=t, dq=None), mapping(NPZ_NO_DQ))[1]
    assert result["gaps"] == 1
    assert "0.505 s, is at 1.495 s" in str(result["warnings"])


def test_iso_dates(tmp_path: Path) -> None:
    lines = csv_text().splitlines()
    start = datetime(2026, 5, 1, 12, tzinfo=UTC)
    stamps = [(start + timedelta(milliseconds=5 * k)).isoformat().replace("+00:00", "Z") for k in range(N)]
    dated = [f"{stamp},{line.split(',', 1)[1]}" for stamp, line in zip(stamps, lines[1:], strict=True)]
    path = tmp_path / "log.csv"
    path.write_text("\n".join([lines[0], *dated]))
    recording = load_data(path, mapping(CSV))[0]
    assert recording.t_ns[0] == round(start.timestamp() * 1e9)
    np.testing.assert_array_equal(np.diff(recording.t_ns), 5_000_000)
    path.write_text("\n".join([lines[0], *dated[:50], "yesterday" + dated[50][len(stamps[50]) :], *dated[51:]]))
    with pytest.raises(DataError, match="line 52, column 'time': 'yesterday' is not a date"):
        load_data(path, mapping(CSV))


def test_two_clocks_in_one_file(tmp_path: Path) -> None:
    path = npz(tmp_path, t=np.where(np.arange(N) < 5, T, T + 1.7e9))
    with pytest.raises(DataError, match=r"jump by 1\.7e\+09 s at row 5 .* two clocks"):
        load_data(path, mapping(NPZ))


@pytest.mark.parametrize("in_a_burst", [1, 4, 20])
def test_stamps_of_arrival(tmp_path: Path, in_a_burst: int) -> None:
    """Rows that arrive in bursts, and not those of a clock that scatters, or of times that are far from even."""
    rows, step = np.arange(N), T[1] - T[0]
    last = (rows // in_a_burst + 1) * in_a_burst - 1
    arrived = last * step + 1e-5 * (rows % in_a_burst) + 0.2 * step * np.random.default_rng(1).random(N)
    if in_a_burst > 1:
        with pytest.raises(DataError, match=r"below a fifth of their mean .* in bursts, not when they were measured"):
            load_data(npz(tmp_path, t=np.sort(arrived), dq=None), mapping(NPZ_NO_DQ))
    else:
        load_data(npz(tmp_path, t=np.sort(arrived), dq=None), mapping(NPZ_NO_DQ))
        uneven = np.cumsum(np.where(rows % 4, 0.05, 1.0)) * step
        q = np.stack([np.interp(uneven, T, x) for x in Q.T], axis=1)
        load_data(npz(tmp_path, t=uneven, q=q, dq=None), mapping(NPZ_NO_DQ))
