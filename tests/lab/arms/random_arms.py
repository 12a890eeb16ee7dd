"""Random arms in every kind of description, each with a Pinocchio twin built from the textbook, not from our code."""

import math

import numpy as np
import pinocchio as pin

from rt_core.model.dh import DhRow, chain_from_dh, chain_from_mdh
from rt_core.model.friction import Friction
from rt_core.model.robot import RobotModel
from rt_core.model.urdf import chain_from_urdf

KINDS = ("mdh", "dh", "urdf")


def placement(x_turn: float, x_shift: float, z_turn: float, z_shift: float, modified: bool) -> pin.SE3:
    """The constant part of a DH row: `Rx Tx Rz Tz` (modified) or `Rz Tz Tx Rx` (standard)."""
    about_x = pin.SE3(pin.utils.rotate("x", x_turn), np.array([x_shift, 0.0, 0.0]))
    about_z = pin.SE3(pin.utils.rotate("z", z_turn), np.array([0.0, 0.0, z_shift]))
    return about_x * about_z if modified else about_z * about_x


def angle(rng: np.random.Generator) -> float:
    """Right angles and zero often, as real arms have them."""
    return float(rng.choice([0.0, math.pi / 2, -math.pi / 2, rng.uniform(-3, 3)]))


def length(rng: np.random.Generator) -> float:
    return float(rng.choice([0.0, rng.uniform(-0.5, 0.5)]))


def random_gravity(rng: np.random.Generator) -> np.ndarray:
    """Along an axis, tilted, or none."""
    along = np.zeros(3)
    along[rng.integers(3)] = rng.choice([-9.81, 9.81])
    tilted = rng.normal(size=3)
    choices = [along, 9.81 * tilted / np.linalg.norm(tilted), np.zeros(3)]
    return np.asarray(choices[rng.choice(3, p=[0.45, 0.45, 0.1])])


def random_bodies(rng: np.random.Generator, n: int) -> list[pin.Inertia]:
    bodies = []
    for _ in range(n):
        root = rng.uniform(-1, 1, (3, 3))
        tensor = 0.1 * (root @ root.T)
        tensor = np.trace(tensor) * np.eye(3) - tensor
        bodies.append(pin.Inertia(float(rng.uniform(0.2, 8.0)), rng.uniform(-0.3, 0.3, 3), tensor))
    return bodies


def random_arm(seed: int) -> tuple[RobotModel, pin.Model]:
    """Our model, rigid links only, and Pinocchio's; 1 to 9 joints, the kind of description by turns."""
    rng = np.random.default_rng([seed, 11])
    n = 1 + seed % 9
    kind = KINDS[seed % 3]
    gravity = random_gravity(rng)
    bodies = random_bodies(rng, n)
    model, twin = (_urdf_arm if kind == "urdf" else _dh_arm)(rng, n, bodies, kind)
    twin.gravity = pin.Motion(gravity, np.zeros(3))
    ours = RobotModel(
        f"{kind}{seed}", model, gravity=gravity, inertial=np.array([body.toDynamicParameters() for body in bodies]),
        friction=Friction("none"), armature=False, offset=False,
    )  # fmt: skip
    return ours, twin


def _dh_arm(rng: np.random.Generator, n: int, bodies: list[pin.Inertia], kind: str) -> tuple[tuple, pin.Model]:
    modified = kind == "mdh"
    twin = pin.Model()
    rows, parent, before = [], 0, pin.SE3.Identity()
    for i, body in enumerate(bodies):
        slides = bool(rng.random() < 0.25)
        row = DhRow(f"j{i}", length(rng), angle(rng), length(rng), angle(rng), "prismatic" if slides else "revolute")
        rows.append(row)
        constant = placement(row.alpha, row.a, row.theta, row.d, modified)
        joint = pin.JointModelPZ() if slides else pin.JointModelRZ()
        parent = twin.addJoint(parent, joint, constant if modified else before, row.name)
        before = constant
        twin.appendBodyToJoint(parent, body, pin.SE3.Identity())
    chain = chain_from_mdh(rows) if modified else chain_from_dh(rows)
    return chain.joints, twin


def _urdf_arm(rng: np.random.Generator, n: int, bodies: list[pin.Inertia], kind: str) -> tuple[tuple, pin.Model]:
    text = ['<robot name="r"><link name="l0"/>']
    for i, body in enumerate(bodies):
        axis = np.eye(3)[rng.integers(3)] * rng.choice([-1, 1]) if rng.random() < 0.5 else rng.normal(size=3)
        xyz = (length(rng), length(rng), length(rng))
        rpy = (angle(rng), angle(rng), angle(rng))
        slides = rng.random() < 0.25
        tensor, c = body.inertia, body.lever
        text.append(
            f'<link name="l{i + 1}"><inertial><origin xyz="{c[0]!r} {c[1]!r} {c[2]!r}"/><mass value="{body.mass!r}"/>'
            f'<inertia ixx="{tensor[0, 0]!r}" ixy="{tensor[0, 1]!r}" ixz="{tensor[0, 2]!r}" '
            f'iyy="{tensor[1, 1]!r}" iyz="{tensor[1, 2]!r}" izz="{tensor[2, 2]!r}"/></inertial></link>'
            f'<joint name="j{i}" type="{"prismatic" if slides else "revolute"}"><parent link="l{i}"/>'
            f'<child link="l{i + 1}"/><origin xyz="{xyz[0]!r} {xyz[1]!r} {xyz[2]!r}" '
            f'rpy="{rpy[0]!r} {rpy[1]!r} {rpy[2]!r}"/>'
            f'<axis xyz="{axis[0]!r} {axis[1]!r} {axis[2]!r}"/>'
            '<limit lower="-2.5" upper="2.5" velocity="2" effort="50"/></joint>'
        )
    source = "".join(text).replace("np.float64(", "").replace(')"', '"').replace(") ", " ") + "</robot>"
    return chain_from_urdf(source).joints, pin.buildModelFromXML(source)


def random_motion(rng: np.random.Generator, count: int, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    q, dq, ddq = rng.uniform(-2.0, 2.0, (3, count, n))
    return q, 1.5 * dq, 3.0 * ddq


def pinocchio_regressor(model: pin.Model, q: np.ndarray, dq: np.ndarray, ddq: np.ndarray) -> np.ndarray:
    """(N, n, 10 n); each call returns a view of one buffer, hence the copies."""
    store = model.createData()
    rows = [pin.computeJointTorqueRegressor(model, store, *state).copy() for state in zip(q, dq, ddq, strict=True)]
    return np.array(rows).reshape(len(q), model.nv, -1)
