"""The error model against textbook matrices and differences; commands for targets, and jumps between them."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from drivers.files.robots.file import load_robot
from rt_core.calibration._chain import rotation_vector
from rt_core.calibration.compensation import compensate
from rt_core.calibration.error_model import error_model
from rt_core.calibration.geometry import Geometry
from rt_core.calibration.sample import Sample
from rt_core.model.dh import chain_from_dh, chain_from_mdh
from rt_core.model.frames import link_poses
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray
from tests.lab.arms.calibration import PANDA, SCARA, UR10, forward, frame, postures, random_arm

GEOMETRIES = {
    "dh 6": random_arm(6, "dh", np.random.default_rng(6)), "mdh 9": random_arm(9, "mdh", np.random.default_rng(9)),
    "ur10": UR10, "scara": SCARA, "placements": Geometry.from_model(load_robot("kuka_lwr4").model),
}  # fmt: skip


def drawn(geometry: Geometry, orientation: bool) -> tuple[Sample, FloatArray]:
    """Postures, poses some degrees away from the model's, and errors."""
    rng = np.random.default_rng(3)
    model = error_model(geometry, orientation=orientation)
    q = postures(geometry, 12, rng)
    positions, rotations = model.predict(q, rng.normal(0.0, 0.05, model.size))
    return Sample.of(q, positions, rotations if orientation else None), rng.normal(0.0, 0.05, model.size)


@pytest.mark.parametrize("orientation", [False, True], ids=["position", "pose"])
@pytest.mark.parametrize("name", GEOMETRIES)
def test_jacobian_is_the_derivative(name: str, orientation: bool) -> None:
    model = error_model(GEOMETRIES[name], orientation=orientation)
    sample, x = drawn(GEOMETRIES[name], orientation)
    J = model.jacobian(sample, x)
    h = 1e-5
    for k in range(model.size):
        step = h * np.eye(model.size)[k]
        differences = (model.residual(sample, x + step) - model.residual(sample, x - step)) / (2.0 * h)
        np.testing.assert_allclose(J[:, :, k], differences, atol=2e-9, err_msg=model.names[k])


def test_jacobian_of_some_columns_is_a_part_of_the_whole() -> None:
    model = error_model(UR10)
    sample, x = drawn(UR10, False)
    some = np.array([7, 2, 20])
    np.testing.assert_array_equal(model.jacobian(sample, x, some), model.jacobian(sample, x)[:, :, some])


@pytest.mark.parametrize("name", [name for name in GEOMETRIES if name != "placements"])
def test_poses_are_those_of_the_textbook(name: str) -> None:
    geometry = GEOMETRIES[name]
    rng = np.random.default_rng(5)
    model = error_model(geometry, orientation=True)
    x = rng.normal(0.0, 0.02, model.size)
    x[np.concatenate((model.belongs_to("base"), model.belongs_to("tool")))] = 0.0
    base, tool = frame((1.0, -2.0, 0.5), (0.3, 2.0, -0.4)), frame((0.1, 0.0, 0.2), (0.0, 0.5, 0.1))
    model = model.with_frame("base", base[:3, :3], base[:3, 3]).with_frame("tool", tool[:3, :3], tool[:3, 3])
    q = postures(geometry, 10, rng)
    expected = forward(geometry, q, dict(zip(model.names, x, strict=True)), base, tool)
    positions, rotations = model.predict(q, x)
    np.testing.assert_allclose(positions, expected[:, :3, 3], atol=1e-13)
    np.testing.assert_allclose(rotations, expected[:, :3, :3], atol=1e-13)


@pytest.mark.parametrize("name", GEOMETRIES)
def test_corrected_joints_move_as_the_model(name: str) -> None:
    """What the internal form of a robot gives is what the error model gives, and link frames stay where they were."""
    geometry = GEOMETRIES[name]
    model = error_model(geometry, orientation=True)
    rng = np.random.default_rng(7)
    x = rng.normal(0.0, 0.02, model.size)
    joints, (R_tip, t_tip) = model.joints(x)
    R_base, t_base = model.frame("base", x)
    q = postures(geometry, 5, rng)
    positions, rotations = model.predict(q, x)
    for posture, position, rotation in zip(q, positions, rotations, strict=True):
        last = link_poses(RobotModel("corrected", joints), posture)[-1]
        np.testing.assert_allclose(R_base @ (last[:3, :3] @ t_tip + last[:3, 3]) + t_base, position, atol=1e-13)
        np.testing.assert_allclose(R_base @ last[:3, :3] @ R_tip, rotation, atol=1e-13)
    nominal, _ = model.joints(np.zeros(model.size))
    described = geometry.joints
    if geometry.rows:
        described = (chain_from_mdh if geometry.convention == "mdh" else chain_from_dh)(geometry.rows).joints
    for joint, expected in zip(nominal, described, strict=True):
        np.testing.assert_allclose(joint.rotation, expected.rotation, atol=1e-15)
        np.testing.assert_allclose(joint.translation, expected.translation, atol=1e-15)
        np.testing.assert_allclose(joint.axis, expected.axis, atol=1e-15)


def test_beta_replaces_the_offset_along_the_first_of_parallel_axes() -> None:
    assert error_model(UR10).replaced == {"d2": "beta2", "d3": "beta3"}
    assert error_model(PANDA).replaced == {}
    names = error_model(SCARA).names
    assert "d3" in names  # the zero of the sliding joint
    assert {"beta1", "beta2", "beta3", "d4"} <= set(names)
    assert not {"d1", "d2"} & set(names)


@pytest.mark.parametrize("angle", [0.0, 1e-14, 1e-7, 0.5, 2.8, 3.1, np.pi - 1e-9, np.pi])
def test_rotation_vector_at_any_angle(angle: float) -> None:
    for direction in np.random.default_rng(11).normal(size=(20, 3)):
        axis = direction / np.linalg.norm(direction)
        R = Rotation.from_rotvec(angle * axis).as_matrix()
        out = np.empty(3)
        rotation_vector(R.ravel(), out)
        back = Rotation.from_rotvec(out).as_matrix()
        np.testing.assert_allclose(back, R, atol=1e-12)
        assert np.linalg.norm(out) == pytest.approx(angle, abs=1e-8)


def corrected() -> Geometry:
    """The arm with errors of some millimetres."""
    model = error_model(UR10, base=False, tool=False)
    x = np.where(model.of_arm, np.random.default_rng(1).normal(0.0, 2e-3, model.size), 0.0)
    joints, (rotation, translation) = model.joints(x)
    return Geometry("placements", joints=joints, tip_rotation=rotation, tip_translation=translation)


@pytest.mark.parametrize("seed", [0, 1])
def test_whatever_the_arm_reaches_is_found(seed: int) -> None:
    """Near a stretched elbow the nominal arm may not reach what the corrected one does."""
    arm = corrected()
    model = error_model(arm, base=False, tool=False)
    q = postures(UR10, 30, np.random.default_rng(2))
    q[::3, 2] = 1e-3  # stretched
    positions, rotations = model.predict(q, np.zeros(model.size))
    found = compensate(UR10, arm, positions, rotations, seed=seed)
    assert found.reached.all()
    again, _ = model.predict(found.commands, np.zeros(model.size))
    np.testing.assert_allclose(again, positions, atol=2e-6)
    assert len(found.jumps) <= 29


def test_a_jump_is_told_and_a_smooth_way_has_none() -> None:
    arm = corrected()
    model = error_model(arm, base=False, tool=False)
    q = np.linspace([0.1, -1.0, 1.2, 0.3, 1.0, 0.2], [0.5, -0.8, 1.0, 0.6, 1.3, 0.0], 12)
    positions, rotations = model.predict(q, np.zeros(model.size))
    smooth = compensate(UR10, arm, positions, rotations, start=q)
    assert (smooth.reached.all(), smooth.jumps) == (True, ())
    turned = q.copy()
    turned[6:] = q[6:] * [1.0, 1.0, 1.0, 1.0, -1.0, 1.0] + [0.0, 0.0, 0.0, np.pi, 0.0, np.pi]  # the wrist turned over
    jump = compensate(UR10, arm, positions, rotations, start=turned).jumps[0]
    assert (jump.start, jump.end) == (5, 6)
    assert jump.step > 1.0
