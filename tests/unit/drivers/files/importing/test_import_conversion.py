"""Import: units, signs, offsets, motor side, torque from current; refused factors between units, and warnings."""

from pathlib import Path

import numpy as np
import pytest

from drivers.files.importing._mapping import MappingError
from drivers.files.importing.data_source import DataError
from drivers.files.importing.importer import load_data
from tests.lab.recordings.logs import DQ, NPZ, NPZ_NO_DQ, ROBOT, TAU, N, Q, mapping, npz


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


DEG = 180.0 / np.pi


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"q": Q * DEG}, r"dq is 0\.01745 times the change of q: a factor of 1/57\.3, as between degrees and radians"),
        ({"dq": DQ * DEG}, r"a factor of 57\.3, as between degrees and radians; check q.unit and dq.unit"),
        ({"dq": DQ * 1e3}, "a factor of 1000, as between milli-units"),
        ({"dq": DQ * 30.0 / np.pi}, "as between rpm and rad/s"),
        ({"dq": DQ * 32.0}, "dq is 32 times the change of q; check the units"),
        ({"dq": -DQ}, "opposite sign"),
        ({"q": Q * 120.0, "dq": DQ * 120.0}, "turns; q.unit is likely 'deg'"),
    ],
)
def test_units_without_a_robot(tmp_path: Path, changes: dict[str, np.ndarray], message: str) -> None:
    rng = np.random.default_rng(1)
    noisy = {k: v * (1.0 + 1e-3 * rng.normal(size=v.shape)) for k, v in changes.items()}
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
def test_warnings(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    assert message in str(load_data(npz(tmp_path, **changes), mapping(NPZ))[1]["warnings"])


def test_a_joint_at_rest_gives_no_warning(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    q, dq = Q.copy(), DQ.copy()
    q[:, 1], dq[:, 1] = 0.3 + 1e-5 * rng.normal(size=N), 1e-2 * rng.normal(size=N)
    assert load_data(npz(tmp_path, q=q, dq=dq), mapping(NPZ))[1]["warnings"] == ()


def test_a_channel_that_drops_out(tmp_path: Path) -> None:
    """Refused with joint, count and time; `missing = "mask"` takes the samples out instead."""
    q = Q.copy()
    at = np.array([60, 61, 150, 290])
    q[at, 0] = 5.0
    path = npz(tmp_path, q=q, dq=None)
    with pytest.raises(DataError, match=r"joint joint1: q drops out 3 times, first at 0\.3 s"):
        load_data(path, mapping(NPZ_NO_DQ))
    recording, result = load_data(path, mapping(NPZ_NO_DQ, ("[time]", 'missing = "mask"\n[time]')))
    np.testing.assert_array_equal(np.flatnonzero(~recording.valid.all(axis=1)), at)
    assert "4 samples are marked invalid" in str(result["warnings"])
