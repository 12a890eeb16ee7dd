"""Write a robot model as a URDF that reads back to the same chain."""

import math
import re
import xml.etree.ElementTree as ET

import numpy as np

from rt_core.model.inertia import mass_com_inertia, six
from rt_core.model.robot import JointDynamics, RobotModel
from rt_core.model.urdf import UrdfError
from rt_core.types import FloatArray


def rpy_from_rotation(rotation: FloatArray) -> tuple[float, float, float]:
    """Return roll, pitch, yaw [rad] of a rotation `Rz(yaw) Ry(pitch) Rx(roll)`; yaw is 0 at a pitch of +-90 deg."""
    cp = math.hypot(rotation[0, 0], rotation[1, 0])
    pitch = math.atan2(-rotation[2, 0], cp)
    if cp < 1e-12:
        return math.atan2(-rotation[1, 2], rotation[1, 1]), pitch, 0.0
    return math.atan2(rotation[2, 1], rotation[2, 2]), pitch, math.atan2(rotation[1, 0], rotation[0, 0])


def _numbers(values: FloatArray | tuple[float, ...]) -> str:
    return " ".join(repr(float(v) + 0.0) for v in values)


def _number(value: float) -> str:
    return repr(float(value))


def _origin(parent: ET.Element, rotation: FloatArray, translation: FloatArray) -> None:
    ET.SubElement(parent, "origin", xyz=_numbers(translation), rpy=_numbers(rpy_from_rotation(rotation)))


def _add_inertial(link: ET.Element, name: str, phi: FloatArray) -> None:
    try:
        mass, com, inertia = mass_com_inertia(phi)
    except ValueError as error:
        raise UrdfError(f'link "{name}": {error}; URDF cannot express it') from None
    inertial = ET.SubElement(link, "inertial")
    _origin(inertial, np.eye(3), com)
    ET.SubElement(inertial, "mass", value=_number(mass))
    keys = ("ixx", "ixy", "iyy", "ixz", "iyz", "izz")
    ET.SubElement(inertial, "inertia", dict(zip(keys, map(_number, six(inertia)), strict=True)))


def _unused(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _link_names(model: RobotModel) -> list[str]:
    """Return distinct names of base, moving links and tip."""
    taken: set[str] = set()
    moving = [_unused(f"{joint.name}_link", taken) for joint in model.joints]
    return [_unused("base_link", taken), *moving, _unused("tip_link", taken)]


def urdf_from_model(
    model: RobotModel, inertial: FloatArray | None = None, dynamics: JointDynamics | None = None, *, comment: str = ""
) -> str:
    """Write a chain as a URDF that `chain_from_urdf` reads back to the same joints, inertials and tip.

    Links are named `base_link`, `<joint>_link` and `tip_link`; limits are written where both are known.  `<inertial>`
    is about the centre of mass in the link's axes.  Viscous and Coulomb friction go into `<dynamics>`.  URDF cannot
    express rotor inertia, torque offset, gravity or transmission.

    Parameters
    ----------
    model : RobotModel
    inertial : (n, 10) array, optional
        Link parameters about the link frames; rows of zeros are left out.  By default links have no `<inertial>`.
    dynamics : JointDynamics, optional
        Friction to write.
    comment : str
        Comment at the top of the file.

    Raises
    ------
    UrdfError
        If a link has first moments but no mass, and so no centre of mass.
    """
    robot = ET.Element("robot", name=model.name)
    if comment:
        robot.append(ET.Comment(f" {re.sub(r'-(?=-)', '- ', comment)} "))
    links = _link_names(model)
    ET.SubElement(robot, "link", name=links[0])
    for i, joint in enumerate(model.joints):
        child = links[i + 1]
        link = ET.SubElement(robot, "link", name=child)
        if inertial is not None and np.any(inertial[i] != 0.0):
            _add_inertial(link, child, inertial[i])
        limited = math.isfinite(joint.lower) and math.isfinite(joint.upper)
        kind = "continuous" if joint.kind == "revolute" and not limited else joint.kind
        element = ET.SubElement(robot, "joint", name=joint.name, type=kind)
        _origin(element, joint.rotation, joint.translation)
        ET.SubElement(element, "parent", link=links[i])
        ET.SubElement(element, "child", link=child)
        ET.SubElement(element, "axis", xyz=_numbers(joint.axis))
        limit = ET.SubElement(element, "limit")
        if kind != "continuous":
            limit.set("lower", _number(joint.lower if limited else 0.0))
            limit.set("upper", _number(joint.upper if limited else 0.0))
        limit.set("velocity", _number(joint.velocity if math.isfinite(joint.velocity) else 0.0))
        limit.set("effort", _number(joint.effort if math.isfinite(joint.effort) else 0.0))
        if dynamics is not None:
            friction = {"damping": _number(dynamics.viscous[i]), "friction": _number(dynamics.coulomb[i])}
            ET.SubElement(element, "dynamics", friction)
    ET.SubElement(robot, "link", name=links[-1])
    tip = ET.SubElement(robot, "joint", name=_unused("tip_joint", {joint.name for joint in model.joints}), type="fixed")
    _origin(tip, model.tip_rotation, model.tip_translation)
    ET.SubElement(tip, "parent", link=links[-2])
    ET.SubElement(tip, "child", link=links[-1])
    ET.indent(robot)
    return '<?xml version="1.0"?>\n' + ET.tostring(robot, encoding="unicode") + "\n"
