"""Write a robot model as SDF 1.9, the format of Gazebo and Drake."""

import math
import re
import xml.etree.ElementTree as ET

import numpy as np

from rt_core.model.inertia import mass_com_inertia, six
from rt_core.model.robot import JointDynamics, RobotModel
from rt_core.model.urdf_writer import link_names, rpy_from_rotation, unused
from rt_core.types import FloatArray


def _add(parent: ET.Element, tag: str, text: str = "", **attributes: str) -> ET.Element:
    element = ET.SubElement(parent, tag, attributes)
    element.text = text or None
    return element


def _numbers(*values: float | FloatArray | tuple[float, ...]) -> str:
    return " ".join(repr(float(v) + 0.0) for v in np.concatenate([np.atleast_1d(v) for v in values]))


def sdf_from_model(model: RobotModel, inertial: FloatArray, dynamics: JointDynamics, *, comment: str = "") -> str:
    """Write a chain as SDF: a link in the frame of each joint, a base that is fixed to the world, and a frame `tip`.

    Viscous and Coulomb friction become `<damping>` and `<friction>`.  Rotor inertia, other friction, a torque offset,
    and gravity, which is a world's in SDF, have no place.

    Parameters
    ----------
    inertial : (n, 10) array
        Parameters of physically possible links about their frames.
    dynamics : JointDynamics
        Friction to write, none of it negative.
    comment : str
        Comment at the top of the file.
    """
    root = ET.Element("sdf", version="1.9")
    if comment:
        root.append(ET.Comment(f" {re.sub(r'-(?=-)', '- ', comment)} "))
    arm = _add(root, "model", name=model.name)
    taken = {joint.name for joint in model.joints}  # joints, links and frames share their names
    links = link_names(model, taken)
    _add(arm, "link", name=links[0])
    mount = _add(arm, "joint", name=unused("world_joint", taken), type="fixed")
    _add(mount, "parent", "world")
    _add(mount, "child", links[0])
    for i, joint in enumerate(model.joints):
        link = _add(arm, "link", name=links[i + 1])
        _add(link, "pose", _numbers(joint.translation, rpy_from_rotation(joint.rotation)), relative_to=links[i])
        mass, com, inertia = mass_com_inertia(inertial[i])
        body = _add(link, "inertial")
        _add(body, "pose", _numbers(com, np.zeros(3)))
        _add(body, "mass", _numbers(mass))
        tensor = _add(body, "inertia")
        for key, value in zip(("ixx", "ixy", "iyy", "ixz", "iyz", "izz"), six(inertia), strict=True):
            _add(tensor, key, _numbers(value))
        limited = math.isfinite(joint.lower) and math.isfinite(joint.upper)
        kind = "continuous" if joint.kind == "revolute" and not limited else joint.kind
        element = _add(arm, "joint", name=joint.name, type=kind)
        _add(element, "parent", links[i])
        _add(element, "child", links[i + 1])
        axis = _add(element, "axis")
        _add(axis, "xyz", _numbers(joint.axis))
        limits = {"lower": joint.lower, "upper": joint.upper} if limited else {}
        limits |= {"effort": joint.effort, "velocity": joint.velocity}
        limit = _add(axis, "limit")
        for key, value in limits.items():
            if math.isfinite(value):
                _add(limit, key, _numbers(value))
        effects = _add(axis, "dynamics")
        _add(effects, "damping", _numbers(dynamics.viscous[i]))
        _add(effects, "friction", _numbers(dynamics.coulomb[i]))
    tip = _add(arm, "frame", name=unused("tip", taken), attached_to=links[-2])
    _add(tip, "pose", _numbers(model.tip_translation, rpy_from_rotation(model.tip_rotation)))
    ET.indent(root)
    return '<?xml version="1.0"?>\n' + ET.tostring(root, encoding="unicode") + "\n"
