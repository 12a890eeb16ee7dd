"""Write a robot model as MJCF, the format of MuJoCo."""

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rt_core.model.inertia import mass_com_inertia
from rt_core.model.robot import JointDynamics, RobotModel
from rt_core.types import FloatArray

_TYPES = {"revolute": "hinge", "prismatic": "slide"}


def _numbers(*values: float | FloatArray) -> str:
    return " ".join(repr(float(v) + 0.0) for v in np.concatenate([np.atleast_1d(v) for v in values]))


def _frame(rotation: FloatArray, translation: FloatArray) -> dict[str, str]:
    return {"pos": _numbers(translation), "xyaxes": _numbers(rotation[:, 0], rotation[:, 1])}


@dataclass(frozen=True)
class CoupledMotor:
    """A motor that moves several joints: weights (n,) of their coordinates, and what acts at it."""

    name: str
    weights: FloatArray
    armature: float
    viscous: float
    coulomb: float


def mjcf_from_model(
    model: RobotModel, inertial: FloatArray, dynamics: JointDynamics, motors: Sequence[CoupledMotor] = (),
    springs: Mapping[str, float | None] | None = None, *, comment: str = "",
) -> str:  # fmt: skip
    """Write a chain as MJCF: a body for each moving link in the frame of its joint, a motor for each joint, a tip site.

    MuJoCo has `armature * ddq + damping * dq + frictionloss * sign(dq)` at each joint, which rotor inertia, viscous and
    Coulomb friction become, and at each fixed tendon, which a coupled motor becomes.  Other friction and a torque
    offset have no place.

    Parameters
    ----------
    inertial : (n, 10) array
        Parameters of physically possible links about their frames.
    dynamics : JointDynamics
        None of it negative.
    motors : sequence of CoupledMotor
        None of what acts there negative.
    springs : mapping of str to float or None
        Stiffness of joints [N*m/rad or N/m].  Where there is one, and rotor inertia, the body has a joint NAME_spring
        behind the motor's: the sum of both is the joint's position.
    comment : str
        Comment at the top of the file.
    """
    root = ET.Element("mujoco", model=model.name)
    if comment:
        root.append(ET.Comment(f" {re.sub(r'-(?=-)', '- ', comment)} "))
    ET.SubElement(root, "compiler", angle="radian", autolimits="true", inertiafromgeom="false")
    ET.SubElement(root, "option", gravity=_numbers(model.gravity))
    parent, actuator, tendon = ET.SubElement(root, "worldbody"), ET.Element("actuator"), ET.Element("tendon")
    for i, joint in enumerate(model.joints):
        placed = {"name": f"{joint.name}_link"} | _frame(joint.rotation, joint.translation)
        parent = ET.SubElement(parent, "body", placed)
        mass, com, inertia = mass_com_inertia(inertial[i])
        full = _numbers(np.diag(inertia), inertia[0, 1], inertia[0, 2], inertia[1, 2])
        ET.SubElement(parent, "inertial", pos=_numbers(com), mass=_numbers(mass), fullinertia=full)
        at_joint = {"armature": dynamics.armature, "damping": dynamics.viscous, "frictionloss": dynamics.coulomb}
        attributes = {key: _numbers(values[i]) for key, values in at_joint.items()}
        moves = {"type": _TYPES[joint.kind], "axis": _numbers(joint.axis)}
        element = ET.SubElement(parent, "joint", attributes | {"name": joint.name} | moves)
        if math.isfinite(joint.lower) and math.isfinite(joint.upper):
            element.set("range", _numbers(joint.lower, joint.upper))
        stiffness = (springs or {}).get(joint.name)
        if stiffness is not None and dynamics.armature[i] > 0.0:  # a rotor without inertia would be singular
            ET.SubElement(parent, "joint", {"name": f"{joint.name}_spring", "stiffness": _numbers(stiffness)} | moves)
        motor = ET.SubElement(actuator, "motor", name=joint.name, joint=joint.name)
        if math.isfinite(joint.effort):
            motor.set("ctrlrange", _numbers(-joint.effort, joint.effort))
    ET.SubElement(parent, "site", {"name": "tip"} | _frame(model.tip_rotation, model.tip_translation))
    for coupled in motors:
        effects = {"armature": coupled.armature, "damping": coupled.viscous, "frictionloss": coupled.coulomb}
        fixed = ET.SubElement(tendon, "fixed", {"name": coupled.name} | {k: _numbers(v) for k, v in effects.items()})
        for joint, weight in zip(model.joints, coupled.weights, strict=True):
            if weight != 0.0:
                ET.SubElement(fixed, "joint", joint=joint.name, coef=_numbers(weight))
    root.extend([tendon, actuator] if motors else [actuator])
    ET.indent(root)
    return ET.tostring(root, encoding="unicode") + "\n"
