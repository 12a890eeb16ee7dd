"""Import: refused factors between units, and warnings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from drivers.files.importing.data_source import DataError
from drivers.files.importing.importer import load_data
from tests.lab.recordings.logs import DQ, NPZ, NPZ_NO_DQ, ROBOT, TAU, N, Q, mapping, npz

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
    assert recording.valid is not None
    np.testing.assert_array_equal(np.flatnonzero(~recording.valid.all(axis=1)), at)
    assert "4 samples are marked invalid" in str(result["warnings"])
