"""Arms for the tests of the simulation, each with an independently built Pinocchio twin."""

import numpy as np
import pinocchio as pin

from rt_core.model.robot import Joint, JointDynamics, JointKind, RobotModel, Transmission
from sim_backend.arm.settings import DriveSettings, MotionSettings, SimSettings

EXACT = SimSettings(encoder_bits=None, torque_noise=0.0, current_noise=0.0, velocity_noise=0.0)
#: A drive so soft that the arm moves freely.
FREE = EXACT.model_copy(update={"drive": DriveSettings(feedforward="none", velocity_bandwidth_hz=1e-12)})
REST = MotionSettings(kind="hold")
AT_ZERO = MotionSettings(kind="hold", centre=(0.0,))


def twin(model: RobotModel) -> pin.Model:
    """The same chain in Pinocchio, from the joints' placements and the link parameters."""
    out = pin.Model()
    out.gravity = pin.Motion(np.array(model.gravity), np.zeros(3))
    parent = 0
    for joint, body in zip(model.joints, model.inertial, strict=True):
        kinds = {"revolute": pin.JointModelRevoluteUnaligned, "prismatic": pin.JointModelPrismaticUnaligned}
        placement = pin.SE3(joint.rotation, joint.translation)
        parent = out.addJoint(parent, kinds[joint.kind](*joint.axis), placement, joint.name)
        out.appendBodyToJoint(parent, pin.Inertia.FromDynamicParameters(body), pin.SE3.Identity())
    return out


def random_body(rng: np.random.Generator, mass: float, size: float) -> np.ndarray:
    """Parameters of eight random point masses: always physical."""
    points = rng.normal(size=(8, 3)) * size
    shares = rng.dirichlet(np.ones(8)) * mass
    first = shares @ points
    tensor = sum(m * (p @ p * np.eye(3) - np.outer(p, p)) for m, p in zip(shares, points, strict=True))
    Ixx, Ixy, Ixz, Iyy, Iyz, Izz = tensor[np.triu_indices(3)]
    return np.array([mass, *first, Ixx, Ixy, Iyy, Ixz, Iyz, Izz])


def rigid_torque(model: RobotModel, q: np.ndarray, dq: np.ndarray, ddq: np.ndarray) -> np.ndarray:
    """Torque (N, n) of the rigid links, by Pinocchio."""
    oracle = twin(model)
    store = oracle.createData()
    return np.array([pin.rnea(oracle, store, *row) for row in zip(q, dq, ddq, strict=True)])


def random_arm(
    n: int, seed: int, *, prismatic: float = 0.3, friction: bool = True, coupled: bool = False
) -> RobotModel:
    """A random arm of `n` joints with tilted gravity, random axes and friction."""
    rng = np.random.default_rng(seed)
    joints = []
    for i in range(n):
        Q, _ = np.linalg.qr(rng.normal(size=(3, 3)))
        Q[:, 0] *= np.linalg.det(Q)
        axis = rng.normal(size=3)
        slides = rng.random() < prismatic
        lower, upper, velocity, effort = (-0.5, 0.5, 0.8, 900.0) if slides else (-2.0, 2.5, 2.0, 400.0)
        kind: JointKind = "prismatic" if slides else "revolute"
        axis /= np.linalg.norm(axis)
        place = rng.normal(size=3) * 0.2
        joints.append(Joint(f"joint_{i + 1}", kind, Q, place, axis, lower, upper, velocity, effort))
    gravity = rng.normal(size=3)
    transmission = None
    if coupled:
        matrix = np.diag(rng.uniform(30.0, 100.0, n) * rng.choice([-1.0, 1.0], n))
        matrix[n - 1, n - 2] = matrix[n - 1, n - 1]
        transmission = Transmission(matrix, rng.normal(size=n), rng.uniform(0.05, 0.2, n))
    return RobotModel(
        "random", tuple(joints), gravity=9.81 * gravity / np.linalg.norm(gravity),
        inertial=np.array([random_body(rng, 6.0 * 0.8**i, 0.1) for i in range(n)]),
        dynamics=JointDynamics(
            rng.uniform(0.1, 1.0, n),
            rng.uniform(1.0, 4.0, n) * friction,
            rng.uniform(1.0, 5.0, n) * friction,
            rng.normal(size=n) * friction,
        ),
        transmission=transmission,
    )  # fmt: skip


def single_joint(
    kind: str, coulomb: float = 0.0, viscous: float = 0.0, mass: float = 2.0, offset: tuple[float, float] = (0.5, 0.0)
) -> RobotModel:
    """One joint: a pendulum about y, or a slider along x; the centre of mass at `offset` (x, z) in the link."""
    x, z = offset
    point = [mass, mass * x, 0.0, mass * z, mass * z * z, 0.0, mass * (x * x + z * z), -mass * x * z, 0.0, mass * x * x]
    axis = np.array([0.0, 1.0, 0.0]) if kind == "revolute" else np.array([1.0, 0.0, 0.0])
    joint = Joint("only", "revolute" if kind == "revolute" else "prismatic", np.eye(3), np.zeros(3), axis)
    dynamics = JointDynamics(np.zeros(1), np.array([viscous]), np.array([coulomb]), np.zeros(1))
    return RobotModel("single", (joint,), inertial=np.array([point]), dynamics=dynamics)
