"""Laser-tracker recordings of real arms, and the figures that plain least squares is known to reach on them.

The poses of the 30 per cent that test are drawn with a stated seed.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rt_core.calibration.calibrate import calibrate
from rt_core.calibration.geometry import Geometry
from rt_core.calibration.sample import Contacts, Spacing
from rt_core.calibration.settings import CalibrationSettings
from rt_core.types import BoolArray, FloatArray
from tests.lab.arms.calibration import table

SEED = 0
#: Joints 4 to 6 of the UR10 carry little but the wrist.
SOFT = CalibrationSettings(compliance=True, excluded=("compliance4", "compliance5", "compliance6"))


def nominal(path: Path) -> Geometry:
    found: dict[str, Any] = json.loads(path.read_text())
    assert not any(found["theta_offset_rad"])
    return table(found["a_m"], found["alpha_rad"], found["d_m"])


def drawn(count: int, share: float, seed: int = SEED) -> BoolArray:
    use = np.zeros(count, dtype=bool)
    use[np.random.default_rng(seed).permutation(count)[: round(share * count)]] = True
    return use


@pytest.mark.slow  # where kernels are interpreted
@pytest.mark.real_data
def test_ur10_series_a(data_dir: Path) -> None:
    folder = data_dir / "ur10_lasertracker"
    series = np.load(folder / "series_A.npz")
    geometry = nominal(folder / "ur10_dh.json")
    measured = 1e-3 * series["meas_xyz_mm"]
    result = calibrate(geometry, series["q"], measured, use=drawn(len(measured), 0.7))
    assert result.verdict == "ok"
    assert result.test.count == 3573
    assert result.test.before.mean == pytest.approx(0.75e-3, abs=0.01e-3)
    assert result.test.after.mean <= 0.40e-3
    assert result.test.after.maximum < 1.3e-3
    # No offset of centimetres along parallel axes; a length of this arm is off by a millimetre at most, or so.
    lengths = [abs(p.value) for p in result.parameters if p.unit == "m" and p.value is not None]
    assert max(lengths) < 2e-3
    tilts = {p.name: p.value for p in result.parameters if p.name in ("beta2", "beta3")}  # instead of `d2` and `d3`
    assert all(value is not None and abs(value) < 1e-3 for value in tilts.values())
    assert len(tilts) == 2


@pytest.mark.real_data
def test_ur5_grid(data_dir: Path) -> None:
    folder = data_dir / "ur5_lasertracker"
    grid = np.load(folder / "ur5_grid.npz")
    measured = 1e-3 * (grid["target_mm"] + grid["dif_mm"])
    result = calibrate(nominal(folder / "ur5_dh.json"), np.radians(grid["q_deg"]), measured, use=drawn(1000, 0.8))
    assert result.verdict == "ok"
    assert result.test.before.mean == pytest.approx(0.62e-3, abs=0.05e-3)
    assert result.test.after.mean <= 0.105e-3
    lengths = [abs(p.value) for p in result.parameters if p.unit == "m" and p.value is not None]
    assert max(lengths) < 3e-3
    assert halves_apart(nominal(folder / "ur5_dh.json"), np.radians(grid["q_deg"]), measured) < 1.5


def halves_apart(geometry: Geometry, q: FloatArray, measured: FloatArray) -> float:
    """Root-mean-square difference of first and second half of a recording, in its standard deviations."""
    first = np.arange(len(q)) < len(q) // 2
    found = []
    for part in (first, ~first):
        result = calibrate(geometry, q[part], measured[part])
        assert result.dependence.found
        found.append({p.name: (p.value, p.std) for p in result.parameters if p.value is not None and p.std is not None})
    one, other = found
    both = one.keys() & other.keys()
    assert len(both) >= 14
    return float(np.sqrt(np.mean([(one[k][0] - other[k][0]) ** 2 / (one[k][1] ** 2 + other[k][1] ** 2) for k in both])))


def two_sockets(folder: Path, name: str) -> tuple[Geometry, FloatArray, Contacts]:
    """A Panda with a ball in two sockets, 50 mm apart, at several positions: 2k and 2k + 1 of position k."""
    found: dict[str, Any] = json.loads((folder / "panda_mdh.json").read_text())
    rows = table(found["a_m"], found["alpha_rad"], found["d_m"], "mdh").rows
    geometry = Geometry("mdh", rows=rows, tip_translation=np.array([0.0, 0.0, found["flange_d_m"]]))
    arrays = np.load(folder / f"{name}.npz")
    names = sorted(arrays.files)
    assert [n[-7:] for n in names] == ["__hole0", "__hole1"] * (len(names) // 2)
    q = np.vstack([arrays[n] for n in names])
    socket = np.repeat(np.arange(len(names)), [len(arrays[n]) for n in names])
    known = [Spacing(k, k + 1, found["socket_distance_m"]) for k in range(0, len(names), 2)]
    return geometry, q, Contacts(socket, known)


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("name", "nominal_mm", "all_mm", "others_mm"), [("panda_2_clean", 7.50, 0.36, 0.8), ("panda_3", 2.62, 0.20, 0.25)]
)
@pytest.mark.slow  # where kernels are interpreted
def test_two_sockets(data_dir: Path, name: str, nominal_mm: float, all_mm: float, others_mm: float) -> None:
    """The error of a pose is the distance of the ball from the mean of its socket, as the recording's notes have it."""
    geometry, q, contacts = two_sockets(data_dir / "panda_two_socket", name)
    whole = calibrate(geometry, q, contacts)
    assert whole.verdict == "ok"
    assert 1e3 * whole.training.before.mean == pytest.approx(nominal_mm, abs=0.05)
    assert 1e3 * whole.training.after.mean <= all_mm
    positions, _ = whole.predict(q)
    means = np.array([positions[contacts.socket == g].mean(axis=0) for g in range(contacts.socket.max() + 1)])
    scatter = np.linalg.norm(positions - means[contacts.socket], axis=1).mean()
    assert whole.training.after.mean == pytest.approx(scatter, rel=1e-9)
    np.testing.assert_allclose(np.linalg.norm(means[::2] - means[1::2], axis=1), 0.05, atol=4e-4)
    lengths = [abs(p.value) for p in whole.parameters if p.unit == "m" and p.value is not None]
    assert max(lengths) < 2e-3
    first = calibrate(geometry, q, contacts, use=contacts.socket < 2)
    assert 1e3 * first.test.after.mean <= others_mm
