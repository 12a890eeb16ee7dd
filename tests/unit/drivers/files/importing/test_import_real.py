"""The shipped mappings on their recordings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from drivers.files.importing._mapping import load_mapping
from drivers.files.importing.importer import DataError, import_recording, load_data
from drivers.files.recordings.recording import read_recording

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


@pytest.mark.parametrize("file", ["kuka_lwr4/measurements_2.npz", "kuka_kr300_elastic/trajectory_B.npz"])
def test_other_files_of_the_same_layout(data_dir: Path, file: str) -> None:
    load_data(data_dir / file, file.split("/")[0])


def test_emps_force_is_gain_times_voltage(data_dir: Path) -> None:
    recording = load_data(data_dir / "emps/emps.npz", "emps")[0]
    raw = np.load(data_dir / "emps/emps.npz")
    np.testing.assert_allclose(recording.channels["tau"][:, 0], raw["gtau"] * raw["vir"], rtol=1e-14)
    assert recording.units == ("m",)


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


@pytest.mark.parametrize(
    ("name", "array", "factor"),
    [
        ("franka_panda", "q", 57.3),
        ("franka_panda", "q", 1 / 57.3),
        ("franka_panda", "dq", 57.3),
        ("franka_panda", "tau", 57.3),
        ("staubli_tx40", "q_motor", 57.3),
        ("staubli_tx40", "tau_motor", 57.3),
        ("kuka_lwr4", "dq", 1 / 57.3),
        ("emps", "qm", 57.3),
    ],
)
def test_a_factor_of_57_is_refused(data_dir: Path, tmp_path: Path, name: str, array: str, factor: float) -> None:
    with np.load(data_dir / SETS[name][0]) as archive:
        arrays = {key: archive[key] for key in archive.files}
    arrays[array] = arrays[array] * factor
    np.savez(tmp_path / "wrong.npz", **arrays)
    with pytest.raises(DataError, match="joint "):
        load_data(tmp_path / "wrong.npz", name)


def test_all_mappings_of_the_folder_are_tested() -> None:
    folder = Path(__file__).parents[5] / "configs/mappings"
    assert {path.stem for path in folder.glob("*.toml")} == set(SETS)
    for path in folder.glob("*.toml"):
        assert load_mapping(path).content.name == path.stem
