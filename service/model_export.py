"""A model in forms that other tools take: URDF, and a Python function that needs nothing but Python."""

from __future__ import annotations

import itertools
import re

import numpy as np

from rt_core.model.base import BaseParameters
from rt_core.model.friction import LAW_ARMATURE, LAW_COULOMB, LAW_LINK, LAW_OFFSET, LAW_VISCOUS
from rt_core.model.inertia import is_physical
from rt_core.model.parameters import standard_parameters
from rt_core.model.robot import JointDynamics, RobotModel
from rt_core.model.urdf_writer import urdf_from_model
from rt_core.types import FloatArray
from service.model_file import ModelFile

#: Assumed where the robot file knows nothing of a link: 1 kg, a ball of 10 cm [Pinocchio's order].
_ASSUMED_LINK = np.array([1.0, 0.0, 0.0, 0.0, 0.004, 0.0, 0.004, 0.0, 0.0, 0.004])
#: A mass below this is rounding [kg].
_NO_MASS = 1e-9


def standard_from_base(model: RobotModel, base: BaseParameters, theta: FloatArray) -> FloatArray:
    """Find standard parameters (P,) with exactly the base parameters `theta`, as close as possible to the prior.

    What torque cannot determine stays at the robot file's link parameters (or an assumed ball of 1 kg).
    The closeness is measured in units of one kilogram, and of a tenth of a metre for moments.
    """
    prior = standard_parameters(model, base.standard)
    for i in range(model.n):
        link = (base.standard.law == LAW_LINK) & (base.standard.source // 10 == i)
        if not prior[link].any():
            prior[link] = _ASSUMED_LINK
    element = np.where(base.standard.law == LAW_LINK, base.standard.source % 10, 4)
    unit = np.select([element == 0, element < 4], [0.1, 0.1], 0.01)  # the mass moves reluctantly
    scaled = base.mapping * unit
    correction = np.linalg.lstsq(scaled, theta - base.mapping @ prior, rcond=None)[0]
    return np.asarray(prior + unit * correction)


def joint_effects(model: RobotModel, base: BaseParameters, phi: FloatArray) -> JointDynamics:
    """Rotor inertia, friction and offset per joint in standard parameters `phi` (P,), joint side only."""
    effects = JointDynamics.zeros(model.n)
    target = {
        LAW_ARMATURE: effects.armature,
        LAW_VISCOUS: effects.viscous,
        LAW_COULOMB: effects.coulomb,
        LAW_OFFSET: effects.offset,
    }
    for c in range(len(base.standard)):
        law = int(base.standard.law[c])
        if law != LAW_LINK and np.count_nonzero(base.standard.motor[c]) == 1:
            target[law][base.standard.source[c]] += phi[c]
    return effects


def to_urdf(model_file: ModelFile) -> tuple[str, list[str]]:
    """URDF of an identified arm, and warnings.

    The link parameters give exactly the identified torque, with friction, rotor inertia and offset
    added; they need not be physically possible link by link, and the warnings name those that are not.
    They also name negative friction, which a URDF cannot hold.

    Raises
    ------
    ValueError
        If a link cannot be written: no mass, but a first moment.
    """
    model, base = model_file.robot.model, model_file.base
    phi = standard_from_base(model, base, model_file.theta)
    links = np.zeros((model.n, 10))
    for c in np.flatnonzero(base.standard.law == LAW_LINK):
        links[base.standard.source[c] // 10, base.standard.source[c] % 10] = phi[c]
    links[np.abs(links[:, 0]) < _NO_MASS, 0] = 0.0
    warnings = [
        f"link {i + 1} ({joint.name}): the inertial parameters are not physically possible by themselves; "
        "together with the others they give the identified torque"
        for i, joint in enumerate(model.joints)
        if not is_physical(links[i])
    ]
    rest = [
        f"{base.standard.names[c]} = {phi[c]:.9g} {base.standard.units[c]}"
        for c in np.flatnonzero(base.standard.law != LAW_LINK)
    ]
    comment = (
        f"identified by thetad from {_plain(model_file.origin)}; "
        f"gravity in the base frame {' '.join(f'{g:.9g}' for g in model.gravity)}; "
        f"URDF has no place for: {', '.join(rest)}"
    )
    effects = joint_effects(model, base, phi)
    for word, values in (("viscous", effects.viscous), ("Coulomb", effects.coulomb)):
        warnings += [
            f"joint {j + 1} ({model.joints[j].name}): its {word} friction is {values[j]:.4g}; readers of URDF refuse "
            "negative friction, so 0 is written, and the value stands in the comment"
            for j in np.flatnonzero(values < 0.0)
        ]
        np.maximum(values, 0.0, out=values)
    return urdf_from_model(model, links, effects, comment=comment), warnings


_PYTHON = '''"""Joint torque of {robot}, identified by thetad ({kind}, {method}) from {recording}.

    tau = torque(q, dq, ddq)

takes and gives sequences of {n} numbers: position [rad or m], velocity, acceleration; torque [N*m or N].
Needs nothing but Python.  Verdict of the identification: {verdict}.
"""

from math import cos, sin

GRAVITY = {gravity}
# Per joint: rotation = A0 + cos(q)*A1 + sin(q)*A2 (row-major), origin = P + q*D, axis, revolute.
JOINTS = {joints}
# Per link, about its frame: m, mx, my, mz, Ixx, Ixy, Iyy, Ixz, Iyz, Izz; chosen so that the torque is right,
# not meaningful link by link.
LINKS = {links}
# Joint effects: (law, value, weights of the joint coordinates).
EFFECTS = {effects}


def _cross(a, b):
    return (a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])


def _add(*vectors):
    return tuple(sum(x) for x in zip(*vectors))


def _times(s, a):
    return tuple(s * x for x in a)


def _dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def _turn(R, a):
    return tuple(R[3 * i] * a[0] + R[3 * i + 1] * a[1] + R[3 * i + 2] * a[2] for i in range(3))


def _turn_back(R, a):
    return tuple(R[i] * a[0] + R[3 + i] * a[1] + R[6 + i] * a[2] for i in range(3))


def torque(q, dq, ddq):
    """Joint torques for one state: recursive Newton-Euler, then the joint effects."""
    w = dw = (0.0, 0.0, 0.0)
    a = _times(-1.0, GRAVITY)
    frames = []
    for i, (A0, A1, A2, P, D, axis, revolute) in enumerate(JOINTS):
        c, s = cos(q[i]), sin(q[i])
        R = tuple(x + c * y + s * z for x, y, z in zip(A0, A1, A2))
        p = _add(P, _times(q[i], D))
        a = _turn_back(R, _add(a, _cross(dw, p), _cross(w, _cross(w, p))))
        w, dw = _turn_back(R, w), _turn_back(R, dw)
        coriolis = _times(dq[i], _cross(w, axis))
        if revolute:
            dw = _add(dw, _times(ddq[i], axis), coriolis)
            w = _add(w, _times(dq[i], axis))
        else:
            a = _add(a, _times(ddq[i], axis), _times(2.0, coriolis))
        m, hx, hy, hz, xx, xy, yy, xz, yz, zz = LINKS[i]
        h = (hx, hy, hz)
        inertia = (xx, xy, xz, xy, yy, yz, xz, yz, zz)
        force = _add(_times(m, a), _cross(dw, h), _cross(w, _cross(w, h)))
        moment = _add(_cross(h, a), _turn(inertia, dw), _cross(w, _turn(inertia, w)))
        frames.append([R, p, force, moment])
    tau = [0.0] * len(JOINTS)
    for i in range(len(JOINTS) - 1, -1, -1):
        R, p, force, moment = frames[i]
        axis, revolute = JOINTS[i][5], JOINTS[i][6]
        tau[i] = _dot(axis, moment if revolute else force)
        if i:
            force, moment = _turn(R, force), _turn(R, moment)
            frames[i - 1][2] = _add(frames[i - 1][2], force)
            frames[i - 1][3] = _add(frames[i - 1][3], moment, _cross(p, force))
    for law, value, weights in EFFECTS:
        speed = _dot(weights, dq)
        if law == "armature":
            size = _dot(weights, ddq)
        elif law == "viscous":
            size = speed
        elif law == "coulomb":
            size = (speed > 0.0) - (speed < 0.0)
        else:
            size = 1.0
        for j, weight in enumerate(weights):
            tau[j] += weight * value * size
    return tau
'''

_LAW_WORDS = {LAW_ARMATURE: "armature", LAW_VISCOUS: "viscous", LAW_COULOMB: "coulomb", LAW_OFFSET: "offset"}


def to_python(model_file: ModelFile) -> str:
    """Source of a module with `torque(q, dq, ddq)` that needs nothing but Python."""
    model, base = model_file.robot.model, model_file.base
    phi = base.phi(model_file.theta)
    links = np.zeros((model.n, 10))
    effects: list[tuple[str, float, tuple[float, ...]]] = []
    for c in range(len(base.standard)):
        law = int(base.standard.law[c])
        if law == LAW_LINK:
            links[base.standard.source[c] // 10, base.standard.source[c] % 10] = phi[c]
        elif phi[c] != 0.0:
            effects.append((_LAW_WORDS[law], float(phi[c]), _numbers(base.standard.motor[c])))
    joints = [
        (*(_numbers(row[a:b]) for a, b in itertools.pairwise((0, 9, 18, 27, 30, 33, 36))), bool(row[36] > 0.5))
        for row in model.geometry
    ]
    document = model_file.document

    def block(rows: list[tuple[object, ...]]) -> str:
        return "[\n" + "".join(f"    {row!r},\n" for row in rows) + "]"

    return _PYTHON.format(
        robot=model.name,
        kind=document["kind"],
        method=_plain(document["method"]),
        recording=_plain(model_file.origin),
        verdict=document["verdict"],
        n=model.n,
        gravity=_numbers(model.gravity),
        joints=block(list(joints)),
        links=block([_numbers(row) for row in links]),
        effects=block(list(effects)),
    )


def _plain(text: str) -> str:
    """`text` with nothing in it that ends a docstring or an XML comment."""
    return re.sub(r"[^\w.,:/ -]", "_", re.sub(r"--+", "-", text))


def _numbers(values: FloatArray) -> tuple[float, ...]:
    return tuple(float(v) for v in values)
