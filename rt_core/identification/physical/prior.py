"""Prior of an arm: a real body for each link, a scale for each joint effect.

Links come from the model's own parameters (URDF, CAD).  A link without parameters, or with parameters that no body can
have, gets a solid cylinder along the line between its joint and the next one.  Its radius is three tenths of the arm's
mean link length; its density comes from the data or is a default.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from rt_core.model.friction import DISSIPATIVE, LAW_ARMATURE
from rt_core.model.inertia import from_pseudo_inertia, mass_com_inertia, pseudo_inertia
from rt_core.model.parameters import ParameterLayout, standard_parameters
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray, IntArray

#: Laws whose parameter cannot be negative.
NON_NEGATIVE = (LAW_ARMATURE, *DISSIPATIVE)
#: Radius of the stand-in bodies, as a share of the mean distance between joints.
RADIUS = 0.3
#: Default density of the stand-in bodies [kg/m^3]: light metal with hollows.
DENSITY = 1500.0
#: The smallest principal second moment of a prior body is raised to this share of the sum: the metric is infinite at a
#: rod or a disc, on the boundary of the possible bodies.
THICKNESS = 0.01
_MIN = 1e-6  # an arm shorter than this gets links of 0.1 m

Source = Literal["given", "shape assumed", "assumed"]


class ConsistencyError(ValueError):
    """Input without a physically consistent fit; the message states the reason and a remedy."""


@dataclass(frozen=True)
class Prior:
    """The reference of the metric."""

    links: FloatArray  # (n, 10) a possible body for each link
    # of each body: "given" by the model; mass and centre given, "shape assumed"; or all "assumed"
    sources: tuple[Source, ...]
    effects: FloatArray  # (P,) values of the joint effects of the model, in the columns of the layout; zero elsewhere

    @property
    def invented(self) -> bool:
        """Whether no link's mass is given."""
        return all(source == "assumed" for source in self.sources)


@dataclass(frozen=True)
class Blocks:
    """Columns of a layout by constraint: links (n, 10), non-negative effects, free effects."""

    links: IntArray
    positive: IntArray
    free: IntArray


def blocks(layout: ParameterLayout) -> Blocks:
    """Sort the columns of a standard layout."""
    link = np.flatnonzero(layout.is_link)
    order = np.argsort(layout.source[link])
    positive = np.isin(layout.law, NON_NEGATIVE)
    return Blocks(
        link[order].reshape(-1, 10), np.flatnonzero(positive), np.flatnonzero(~positive & ~np.asarray(layout.is_link))
    )


def stand_in_bodies(model: RobotModel, density: float = DENSITY) -> FloatArray:
    """Return the parameters (n, 10) of solid cylinders between each joint and the next (the last: the flange).

    Where two axes meet, the body is a short cylinder about the joint.
    """
    ends = [joint.translation for joint in model.joints[1:]] + [model.tip_translation]
    lengths = np.array([float(np.linalg.norm(end)) for end in ends])
    reach = np.array([*lengths, float(np.linalg.norm(model.joints[0].translation))])
    mean = float(reach.mean()) if reach.max() > _MIN else 0.1
    radius = RADIUS * mean
    out = np.zeros((model.n, 10))
    for i, (end, length, joint) in enumerate(zip(ends, lengths, model.joints, strict=True)):
        along = end / length if length > _MIN else joint.axis
        full = length + 2.0 * radius
        mass = density * np.pi * radius**2 * full
        com = 0.5 * end
        J = np.zeros((4, 4))
        J[:3, :3] = 0.25 * radius**2 * np.eye(3) + (full**2 / 12.0 - 0.25 * radius**2) * np.outer(along, along)
        J[:3, :3] += np.outer(com, com)
        J[:3, 3] = J[3, :3] = com
        J[3, 3] = 1.0
        out[i] = from_pseudo_inertia(mass * J)
    return out


def _thickened(phi: FloatArray) -> FloatArray | None:
    """Return the body with its thinnest direction raised to `THICKNESS`; None if it is far from any body."""
    mass, com, _ = mass_com_inertia(phi)
    J = pseudo_inertia(phi)
    values, vectors = np.linalg.eigh(J[:3, :3] - mass * np.outer(com, com))
    total = float(values.sum())
    if total <= 0.0 or values[0] < -0.1 * total:
        return None
    J[:3, :3] = (vectors * np.maximum(values, THICKNESS * total)) @ vectors.T + mass * np.outer(com, com)
    return from_pseudo_inertia(J)


def physical_prior(model: RobotModel, layout: ParameterLayout, density: float = DENSITY) -> Prior:
    """Return the prior of `model`, with stand-ins for missing and impossible bodies.

    Raises `ConsistencyError` if the model's parameters are not finite.
    """
    bodies = stand_in_bodies(model, density)
    sources: list[Source] = ["assumed"] * model.n
    known = np.zeros(model.n, dtype=bool)
    links = bodies.copy()
    if model.inertial is not None:
        for i, phi in enumerate(model.inertial):
            if not np.isfinite(phi).all():
                raise ConsistencyError(
                    f"prior of link {i + 1} ({model.joints[i].name}) is not finite: correct it in the robot file"
                )
            if phi[0] <= 0.0:
                continue
            known[i] = True
            body = _thickened(phi)
            sources[i] = "given" if body is not None else "shape assumed"
            links[i] = body if body is not None else _reshaped(phi, bodies[i])
        if known.any():  # the others get the mean density of the known ones
            links[~known] *= float(links[known, 0].sum() / bodies[known, 0].sum())
    effects = np.where(layout.is_link, 0.0, standard_parameters(model, layout))
    for c in np.flatnonzero(~np.isfinite(effects)):
        raise ConsistencyError(f"prior of {layout.names[c]} is not finite: correct it in the robot file")
    return Prior(links, tuple(sources), effects)


def _reshaped(phi: FloatArray, body: FloatArray) -> FloatArray:
    """Return a body with mass and centre of `phi` and the shape of `body` about its own centre."""
    mass, com, _ = mass_com_inertia(phi)
    own = pseudo_inertia(body) / body[0]
    J = np.outer(np.append(com, 1.0), np.append(com, 1.0))
    J[:3, :3] += own[:3, :3] - np.outer(own[:3, 3], own[:3, 3])
    return from_pseudo_inertia(mass * J)
