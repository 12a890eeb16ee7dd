"""What the check of a motion does not cover, in words, because the robot description does not have it."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rt_core.excitation.settings import ExcitationSettings
from rt_core.excitation.shapes import Box, Capsule, Region
from rt_core.excitation.workspace_regions import compared_pairs, neighbours
from rt_core.model.friction import LAW_ARMATURE, LAW_LINK, LAW_OFFSET, REFERENCE_TEMPERATURE
from rt_core.model.parameters import standard_layout, standard_parameters
from rt_core.model.robot import RobotModel
from rt_core.types import BoolArray

#: Maximum number of names in a list; the rest is counted.
_NAMED = 6


def torque_gaps(model: RobotModel) -> tuple[str, ...]:
    """Return what the torque of a model leaves out: links and joints with only zeros."""
    if model.inertial is None:
        return ("torque: the robot description does not give its link parameters",)
    found = []
    bare = _joints(model, np.asarray(~model.inertial.any(axis=1)))
    if bare:
        found.append(f"links moved by {bare} in the torque: the robot description does not give their parameters")
    if model.dynamics is None:
        return (*found, "friction and rotor inertia in the torque: the robot description does not give them")
    friction, rotor = _known_effects(model)
    for what, known in (("friction", friction), ("rotor inertia", rotor)):
        if not known.any():
            found.append(f"{what} in the torque: the robot description does not give it")
        elif not known.all():
            found.append(f"{what} of {_joints(model, ~known)} in the torque: the robot description does not give it")
    if model.friction.temperature != "none":
        found.append(f"torque at other temperatures: friction is taken as it is at {REFERENCE_TEMPERATURE:g} degC")
    return tuple(found)


def coupled_motors(model: RobotModel) -> tuple[str, ...]:
    """Return a note that limits of coupled motors are checked at the joints."""
    coupled = ((model.coupling != 0.0) & ~np.eye(model.n, dtype=bool)).any(axis=1)
    if not coupled.any():
        return ()
    return (f"limits of the motors of {_joints(model, coupled)}, which are coupled: they are judged at the joints",)


def unbounded_tip(model: RobotModel, regions: Sequence[Region]) -> tuple[str, ...]:
    """Return a note if no region bounds the tip or another point of the last link."""
    for region in regions:
        if region.link in (None, model.n - 1) and (isinstance(region, Box) or region.side == "inside"):
            return ()
    return ("workspace of the tip: none is set",)


def collision_gaps(model: RobotModel, settings: ExcitationSettings) -> tuple[str, ...]:
    """Return the links without a body, and the pairs of bodies that are not compared."""
    bodies = settings.bodies
    chosen = compared_pairs(bodies, settings.pairs, settings.skip_pairs)
    if not chosen:
        return ("collisions",)
    found = []
    bare = _joints(model, ~np.isin(np.arange(model.n), [body.link for body in bodies]))
    if bare:
        found.append(f"collisions of the links moved by {bare}: no body covers them")
    if all(body.link >= 0 or body.base for body in bodies):
        found.append("collisions with what stands around the arm: no body on link -1 covers it")
    compared = {frozenset((one.name, other.name)) for one, other in chosen}
    left = [
        (one, other)
        for k, one in enumerate(bodies)
        for other in bodies[:k]
        if one.link != other.link and frozenset((one.name, other.name)) not in compared
    ]
    beside = [pair for pair in left if neighbours(*pair)]
    apart = [pair for pair in left if not neighbours(*pair)]
    if beside:
        found.append(f"collisions of neighbours: {_pairs(beside)}")
    if apart:
        found.append(f"collisions that pairs or skip_pairs leave out: {_pairs(apart)}")
    return tuple(found)


def _known_effects(model: RobotModel) -> tuple[BoolArray, BoolArray]:
    """Return (n,) each whether friction, and rotor inertia, of a joint are known and not zero."""
    whole = replace(model, armature=True, offset=True)
    layout = standard_layout(whole)
    known = layout.take(np.flatnonzero(standard_parameters(whole, layout)))
    joint, law = known.joint, known.law
    friction = np.zeros(model.n, dtype=bool)
    friction[joint[~np.isin(law, (LAW_LINK, LAW_ARMATURE, LAW_OFFSET))]] = True
    rotor = np.zeros(model.n, dtype=bool)
    rotor[joint[law == LAW_ARMATURE]] = True
    return friction, rotor


def _joints(model: RobotModel, flags: BoolArray) -> str:
    return _listed([joint.name for joint, flag in zip(model.joints, flags, strict=True) if flag])


def _pairs(pairs: Sequence[tuple[Capsule, Capsule]]) -> str:
    return _listed([f"{one.name} with {other.name}" for one, other in pairs])


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
