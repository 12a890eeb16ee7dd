"""Import: units, signs, offsets, motor side, torque from current, and data of the robot file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from drivers.files.importing._mapping import MappingError
from drivers.files.importing.data_source import DataError
from drivers.files.importing.importer import load_data
from tests.lab.recordings.logs import DQ, NPZ, NPZ_NO_DQ, ROBOT, TAU, Q, mapping, npz


def test_units_scale_sign_offset(tmp_path: Path) -> None:
    raw = np.degrees((Q - [0.1, -0.2]) * [1.0, -1.0])
    path = npz(tmp_path, q=raw, dq=None, tau=TAU / [2.0, 4.0] * 1e3, gain=[2.0, 4.0])
    changes = [
        ('columns = "q"\nunit = "rad"', 'columns = "q"\nunit = "deg"\nsign = [1, -1]\noffset = [0.1, -0.2]'),
        ('columns = "tau"\nunit = "N*m"', 'columns = "tau"\nunit = "mN*m"\nscale = "gain"'),
    ]
    recording = load_data(path, mapping(NPZ_NO_DQ, *changes))[0]
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
    changes = [('unit = "rad"', 'unit = ["deg", "mm"]'), ('unit = "N*m"', 'unit = ["N*m", "N"]')]
    recording = load_data(path, mapping(NPZ_NO_DQ, *changes))[0]
    assert recording.units == ("rad", "m")
    np.testing.assert_allclose(recording.channels["q"], Q, rtol=1e-14)
    with pytest.raises(MappingError, match=r"tau.unit 'N\*m' does not suit joint 2"):
        load_data(path, mapping(NPZ_NO_DQ, changes[0]))


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
