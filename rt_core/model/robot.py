"""Internal form of a robot, independent of the format of its description.

A serial chain of `n` one-degree-of-freedom joints.  Joint `i` is fixed to link `i - 1` (link -1 is the base) by a
placement: `rotation` turns joint-frame coordinates into parent-link coordinates and `translation` is the joint frame's
origin in the parent-link frame, both at `q = 0`.  The joint then turns about (revolute) or slides along (prismatic)
`axis`, a unit vector in the joint frame.  The link frame is the joint frame after that motion: link parameters are
about it, in Pinocchio's order `m, mx, my, mz, Ixx, Ixy, Iyy, Ixz, Iyz, Izz`, with first moments `m*c` and the inertia
tensor about the frame's origin.

SI units: rad or m, rad/s, N*m or N, kg.
"""

from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Literal

import numpy as np

from rt_core.model.friction import Friction
from rt_core.types import BoolArray, FloatArray

JointKind = Literal["revolute", "prismatic"]

#: Width of one joint's row in `RobotModel.geometry`.
GEOMETRY_WIDTH = 37

_UNSET: FloatArray = np.zeros(0)  # stands for "not given"


def _unset() -> FloatArray:
    return _UNSET


@dataclass(frozen=True)
class Joint:
    """One joint and its placement on the parent link; unknown limits are infinite."""

    name: str
    kind: JointKind
    rotation: FloatArray  # (3, 3) joint frame -> parent link frame at q = 0
    translation: FloatArray  # (3,) [m]
    axis: FloatArray  # (3,) unit vector, joint frame
    lower: float = -np.inf  # [rad] or [m]
    upper: float = np.inf
    velocity: float = np.inf  # [rad/s] or [m/s], absolute
    effort: float = np.inf  # [N*m] or [N], absolute


@dataclass(frozen=True)
class JointDynamics:
    """Known or assumed joint-side effects beyond the rigid links, each of shape (n,).

    True values of a simulated arm, a prior otherwise.  `RobotModel.friction` selects the friction values that count
    (`rt_core.model.friction`); by default they are zero, and `breakaway` equals `coulomb`.

    A joint with `stiffness` is elastic: rotor inertia, offset and the friction of that law act on the motor's side of
    its spring, `link_viscous`, `link_coulomb` and, over the link's own position, `link_cyclic_sine` and
    `link_cyclic_cosine` on the link's; the spring's torque on the link is
    `stiffness*d + stiffness_cubic*d^3 + spring_damping*dd`, with `d` motor minus link.
    """

    armature: FloatArray  # reflected rotor inertia [kg*m^2] or [kg]
    viscous: FloatArray  # fv, kv1, b_in [N*m*s/rad] or [N*s/m]
    coulomb: FloatArray  # fc, b_inD [N*m] or [N]
    offset: FloatArray  # torque offset [N*m] or [N]
    breakaway: FloatArray = field(default_factory=_unset)  # fb [N*m]
    stribeck_velocity: FloatArray = field(default_factory=_unset)  # vb [rad/s], zero where unknown
    quadratic_friction: FloatArray = field(default_factory=_unset)  # kv2 [N*m*s^2/rad^2]
    cubic_friction: FloatArray = field(default_factory=_unset)  # kv3 [N*m*s^3/rad^3]
    load_friction: FloatArray = field(default_factory=_unset)  # k1 [-]
    tanh_torque: FloatArray = field(default_factory=_unset)  # C1 [N*m]
    tanh_velocity: FloatArray = field(default_factory=_unset)  # w1 [rad/s]
    decaying_viscous: FloatArray = field(default_factory=_unset)  # C2 [N*m*s/rad]
    decay_velocity: FloatArray = field(default_factory=_unset)  # ws [rad/s]
    cyclic_sine: FloatArray = field(default_factory=_unset)  # A1 [N*m]
    cyclic_cosine: FloatArray = field(default_factory=_unset)  # A2 [N*m]
    coulomb_temperature: FloatArray = field(default_factory=_unset)  # alpha, of fc [N*m/K]
    breakaway_temperature: FloatArray = field(default_factory=_unset)  # alphab, of fb [N*m/K]
    viscous_temperature: FloatArray = field(default_factory=_unset)  # alphav, of fv, kv1 [N*m*s/(rad*K)]
    stribeck_velocity_temperature: FloatArray = field(default_factory=_unset)  # of vb [rad/(s*K)], of a simulated arm
    stiffness: FloatArray = field(default_factory=_unset)  # k1 of a joint's spring [N*m/rad]; zero where it is rigid
    stiffness_cubic: FloatArray = field(default_factory=_unset)  # k2 [N*m/rad^3]
    spring_damping: FloatArray = field(default_factory=_unset)  # [N*m*s/rad]
    link_viscous: FloatArray = field(default_factory=_unset)  # b_out, behind the spring [N*m*s/rad]
    link_coulomb: FloatArray = field(default_factory=_unset)  # b_outC [N*m]
    link_cyclic_sine: FloatArray = field(default_factory=_unset)  # A1, over the link's position [N*m]
    link_cyclic_cosine: FloatArray = field(default_factory=_unset)  # A2 [N*m]

    def __post_init__(self) -> None:
        for item in fields(self):
            if getattr(self, item.name) is _UNSET:
                value = self.coulomb.copy() if item.name == "breakaway" else np.zeros_like(self.coulomb)
                object.__setattr__(self, item.name, value)

    @property
    def elastic(self) -> BoolArray:
        """(n,) mask of joints with a spring between motor and link."""
        return np.asarray(self.stiffness > 0.0)

    @classmethod
    def zeros(cls, n: int) -> "JointDynamics":
        """Return the dynamics of `n` joints without rotor inertia, friction and offset."""
        return cls(*(np.zeros(n) for _ in range(4)))


#: Values that may be negative.
SIGNED_DYNAMICS = (
    "offset", "quadratic_friction", "cubic_friction", "tanh_torque", "decaying_viscous", "cyclic_sine", "cyclic_cosine",
    "link_cyclic_sine", "link_cyclic_cosine", "coulomb_temperature", "breakaway_temperature", "viscous_temperature",
    "stribeck_velocity_temperature",
)  # fmt: skip


@dataclass(frozen=True)
class Transmission:
    """From motors to joints: `q_motor = matrix @ q + offset`, `tau = matrix.T @ tau_motor`.

    The diagonal of `matrix` holds the gear ratios with their signs; off-diagonal entries are couplings, such as a wrist
    motor that also turns with the joint before it.  `torque_constant` [N*m/A] turns motor current into motor torque;
    default ones are not `known`.
    """

    matrix: FloatArray  # (n, n)
    offset: FloatArray  # (n,) [rad], motor side
    torque_constant: FloatArray  # (n,)
    known: bool = True  # torque_constant

    @classmethod
    def direct(cls, n: int) -> "Transmission":
        """Return a transmission with equal motor and joint side."""
        return cls(np.eye(n), np.zeros(n), np.ones(n))

    @cached_property
    def coupling(self) -> FloatArray:
        """(n, n) motor coordinates referred to the joint side: unit diagonal, identity if uncoupled."""
        return np.asarray(self.matrix / np.diag(self.matrix)[:, None])

    def joint_position(self, q_motor: FloatArray) -> FloatArray:
        """Return joint positions (..., n) from motor positions."""
        return np.asarray(np.linalg.solve(self.matrix, (q_motor - self.offset)[..., None])[..., 0])

    def joint_velocity(self, dq_motor: FloatArray) -> FloatArray:
        """Return joint velocities (..., n) from motor velocities."""
        return np.asarray(np.linalg.solve(self.matrix, dq_motor[..., None])[..., 0])

    def joint_torque(self, tau_motor: FloatArray) -> FloatArray:
        """Return the joint torques (..., n) that do the same work as the motor torques."""
        return np.asarray(tau_motor @ self.matrix)


@dataclass(frozen=True)
class Stated:
    """Values that a description gives, as opposed to default zeros in `RobotModel.inertial` and `.dynamics`.

    Attributes
    ----------
    mass, centre, inertia : (n,) bool
        Of the link that each joint moves.
    effects : dict of str to (n,) bool
        By the field of `JointDynamics`; a missing field is given for no joint.
    """

    mass: BoolArray
    centre: BoolArray
    inertia: BoolArray
    effects: dict[str, BoolArray]


@dataclass(frozen=True)
class RobotModel:
    """A serial arm: geometry, gravity, transmission, priors and modelled joint effects."""

    name: str
    joints: tuple[Joint, ...]
    gravity: FloatArray = field(default_factory=lambda: np.array([0.0, 0.0, -9.81]))  # (3,) base frame [m/s^2]
    tip_rotation: FloatArray = field(default_factory=lambda: np.eye(3))  # flange in the last link frame
    tip_translation: FloatArray = field(default_factory=lambda: np.zeros(3))
    inertial: FloatArray | None = None  # (n, 10) prior in Pinocchio's order, None where unknown
    dynamics: JointDynamics | None = None
    transmission: Transmission | None = None
    friction: Friction = field(default_factory=Friction)
    armature: bool = True  # rotor inertia is a parameter of the model
    offset: bool = True  # a constant torque offset is a parameter of the model
    stated: Stated | None = None  # None: all of `inertial` and `dynamics`
    payload: float | None = None  # largest that it is made for [kg], None where unknown

    @property
    def n(self) -> int:
        """Number of joints."""
        return len(self.joints)

    @property
    def torque_units(self) -> list[str]:
        """Units of the joints' torques or forces (n,)."""
        return ["N*m" if joint.kind == "revolute" else "N" for joint in self.joints]

    @cached_property
    def standstill_velocity(self) -> FloatArray:
        """(n,) speed below which a joint is at standstill [rad/s or m/s]: half a per cent of its limit, or 0.01.

        Friction at rest balances the other torques and is not a function of velocity.
        """
        return np.array([0.005 * j.velocity if np.isfinite(j.velocity) else 0.01 for j in self.joints])

    @property
    def payload_bound(self) -> float | None:
        """Mass [kg] that no payload exceeds: the arm's `payload`, or its own mass; None where neither is known.

        No arm is made for more than itself.  Masses that are not stated, zero, or all the same are placeholders.
        """
        if self.payload is not None or self.inertial is None:
            return self.payload
        mass, given = self.inertial[:, 0], self.stated is None or self.stated.mass.all()
        known = given and (mass > 0.0).all() and (self.n == 1 or np.ptp(mass) > 0.0)
        return float(mass.sum()) if known else None

    @cached_property
    def at_reference_temperature(self) -> "RobotModel":
        """The arm at the reference temperature: without the terms of friction that follow temperature."""
        if self.friction.temperature == "none":
            return self
        return replace(self, friction=replace(self.friction, temperature="none"))

    @cached_property
    def coupling(self) -> FloatArray:
        """(n, n) motor coordinates referred to the joint side."""
        return np.eye(self.n) if self.transmission is None else self.transmission.coupling

    @cached_property
    def geometry(self) -> FloatArray:
        """(n, 37) packed placements for the kernels.

        The rotation of link `i` in its parent is `A0 + cos(q)*A1 + sin(q)*A2` and the origin is
        `p + q*d`; columns are `A0, A1, A2` (row-major), `p`, `d`, `axis`, and 1.0 for a revolute joint.
        """
        packed = np.zeros((self.n, GEOMETRY_WIDTH))
        for i, joint in enumerate(self.joints):
            a = joint.axis
            R = joint.rotation
            cross = np.array([[0.0, -a[2], a[1]], [a[2], 0.0, -a[0]], [-a[1], a[0], 0.0]])
            revolute = joint.kind == "revolute"
            along = R @ np.outer(a, a)
            packed[i, 0:9] = (along if revolute else R).ravel()
            packed[i, 9:18] = (R - along).ravel() if revolute else 0.0
            packed[i, 18:27] = (R @ cross).ravel() if revolute else 0.0
            packed[i, 27:30] = joint.translation
            packed[i, 30:33] = 0.0 if revolute else R @ a
            packed[i, 33:36] = a
            packed[i, 36] = 1.0 if revolute else 0.0
        return packed
