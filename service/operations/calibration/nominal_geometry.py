"""Nominal geometry of a robot file, as input of a calibration."""

import math

import numpy as np

from drivers.files.robots.file import RobotFile
from rt_core.calibration.geometry import Geometry
from rt_core.model.dh import DhRow, chain_from_dh, chain_from_mdh
from rt_core.model.dynamics import inverse_dynamics
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray
from service.operations.errors import OperationError


def nominal_geometry(robot: RobotFile) -> Geometry:
    """Return the nominal geometry of the robot's description: its DH table, or placements."""
    model, source = robot.model, robot.source
    convention = source["kinematics"]
    if convention == "urdf":
        return Geometry.from_model(model)
    rows = []
    for row, joint in zip(source["joint"], model.joints, strict=True):
        angles = [math.radians(row[f"{k}_deg"]) if f"{k}_deg" in row else row.get(k, 0.0) for k in ("alpha", "theta")]
        limits = (joint.lower, joint.upper, joint.velocity, joint.effort)
        rows.append(DhRow(joint.name, row.get("a", 0.0), angles[0], row.get("d", 0.0), angles[1], joint.kind, *limits))
    rotation, translation = (chain_from_mdh if convention == "mdh" else chain_from_dh)(rows).tip
    return Geometry(
        convention, rows=tuple(rows), tip_rotation=rotation.T @ model.tip_rotation,
        tip_translation=rotation.T @ (model.tip_translation - translation),
    )  # fmt: skip


def gravity_load(model: RobotModel, q: FloatArray) -> FloatArray:
    """Return the torque that each joint holds against gravity (N, n) [N*m or N] at postures `q` (N, n).

    Raises `OperationError` if the robot file has no masses of the links.
    """
    if model.inertial is None or not np.any(model.inertial[:, 0] > 0.0):
        what = f"robot {model.name} has no masses"
        raise OperationError(f"compliance: {what}: add mass and com of its links to the robot file")
    still = np.zeros_like(q)
    return inverse_dynamics(model.geometry, model.gravity, model.inertial, q, still, still)
