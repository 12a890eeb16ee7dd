"""The regressor in batch beside Pinocchio's, called sample by sample from Python, in the same run."""

import time
from typing import Any

import numpy as np
import pinocchio as pin

from drivers.files.robots.file import load_robot
from rt_core.model.base import base_parameters
from rt_core.model.regressor import regressor_columns
from rt_core.model.robot import RobotModel

SAMPLES = 480  # a block of the batch path: its output stays in the second-level cache
ROUNDS = 101
TARGET = 10.0


def twin(model: RobotModel) -> pin.Model:
    """Build the same chain in Pinocchio."""
    other = pin.Model()
    parent = 0
    for joint in model.joints:
        kind = pin.JointModelRevoluteUnaligned if joint.kind == "revolute" else pin.JointModelPrismaticUnaligned
        parent = other.addJoint(parent, kind(joint.axis), pin.SE3(joint.rotation, joint.translation), joint.name)
        other.appendBodyToJoint(parent, pin.Inertia.Random(), pin.SE3.Identity())
    other.gravity = pin.Motion(np.asarray(model.gravity), np.zeros(3))
    return other


def beside_pinocchio(robot: str) -> dict[str, Any]:
    """Time per sample of the stacked base regressor with friction against the peer's rigid one."""
    model = load_robot(robot).model
    base = base_parameters(model)
    other = twin(model)
    scratch = other.createData()
    rng = np.random.default_rng(0)
    q, dq, ddq = rng.uniform(-1.0, 1.0, (3, SAMPLES, model.n))
    ours = regressor_columns(model, base.layout, q, dq, ddq)
    theirs = np.array(
        [pin.computeJointTorqueRegressor(other, scratch, *s).copy() for s in zip(q, dq, ddq, strict=True)]
    )
    links = base.layout.is_link
    assert np.allclose(ours.transpose(2, 0, 1)[:, :, links], theirs[:, :, base.layout.source[links]], atol=1e-9)
    own_s, peer_s = [], []
    for _ in range(ROUNDS):
        begin = time.thread_time()
        regressor_columns(model, base.layout, q, dq, ddq, ours)
        own_s.append((time.thread_time() - begin) / SAMPLES)
        begin = time.thread_time()
        for k in range(0, SAMPLES, 4):
            theirs[k] = pin.computeJointTorqueRegressor(other, scratch, q[k], dq[k], ddq[k])  # its buffer is reused
        peer_s.append((time.thread_time() - begin) / (SAMPLES // 4))
    return {
        "robot": robot,
        "joints": model.n,
        "columns": len(base),
        "own_ns": 1e9 * float(np.median(own_s)),
        "pinocchio_ns": 1e9 * float(np.median(peer_s)),
        "ratio": float(np.median(np.array(peer_s) / np.array(own_s))),
        "target": TARGET,
    }
