"""The UR10's robot file: it loads, its links are bodies, and its geometry is that of the nominal table."""

import json
from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest

from drivers.files.robots.file import load_robot
from rt_core.model.base import base_parameters
from rt_core.model.inertia import is_physical, mass_com_inertia
from rt_core.model.urdf_writer import urdf_from_model


def test_links_are_bodies_that_balance_where_they_should() -> None:
    """Upper arm and forearm, from the shoulder's and the elbow's axis, as in the manufacturer's robot description."""
    robot = load_robot("ur10")
    inertial = robot.model.inertial
    assert robot.warnings == ()
    assert all(is_physical(phi) for phi in inertial)
    np.testing.assert_allclose(mass_com_inertia(inertial[1])[1], [-0.232, 0.0, 0.158], atol=1e-12)
    np.testing.assert_allclose(mass_com_inertia(inertial[2])[1], [-0.3323, 0.0, 0.068], atol=1e-12)
    assert inertial[:, 0].sum() == pytest.approx(28.435)
    joint_effects = 6 * 3 + 4  # friction and offsets; rotor inertias of joints 1 and 2 go into their links'
    assert len(base_parameters(robot.model)) == 36 + joint_effects


@pytest.mark.real_data
def test_geometry_is_the_nominal_table(data_dir: Path, tmp_path: Path) -> None:
    model = load_robot("ur10").model
    table = json.loads((data_dir / "ur10_lasertracker" / "ur10_dh.json").read_text())
    urdf = tmp_path / "ur10.urdf"
    urdf.write_text(urdf_from_model(model, model.inertial))
    other = pin.buildModelFromUrdf(str(urdf))
    data = other.createData()
    q = np.random.default_rng(0).uniform(-np.pi, np.pi, 6)
    pin.framesForwardKinematics(other, data, q)
    expected = np.eye(4)
    for k in range(6):
        turn = pin.SE3(pin.utils.rotate("z", q[k] + table["theta_offset_rad"][k]), np.array([0, 0, table["d_m"][k]]))
        reach = pin.SE3(pin.utils.rotate("x", table["alpha_rad"][k]), np.array([table["a_m"][k], 0, 0]))
        expected = expected @ turn.homogeneous @ reach.homogeneous
    np.testing.assert_allclose(data.oMf[other.getFrameId("tip_link")].homogeneous, expected, atol=1e-12)
