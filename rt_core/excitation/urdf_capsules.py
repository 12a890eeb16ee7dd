"""Capsules that cover the collision shapes of a URDF.

A sphere is a capsule, and a cylinder one with round caps.  A box is covered by the capsule along its longest edge whose
radius is half the diagonal of its cross-section.  Meshes are not read.
Capsules enclose the shapes, so that distances are too small rather than too large.
"""

import xml.etree.ElementTree as ET
from dataclasses import dataclass

import numpy as np

from rt_core.excitation.shapes import Capsule
from rt_core.model.urdf import UrdfError, link_placements, rotation_from_rpy
from rt_core.types import FloatArray


@dataclass(frozen=True)
class UrdfCapsules:
    """Capsules of an arm and its surroundings, and what they do not cover."""

    capsules: tuple[Capsule, ...]
    unread: tuple[str, ...]  # meshes of unknown size, which are not covered
    # links that move on joints off the chain, such as fingers, covered in their zero position only
    moving: tuple[str, ...]


def capsules_from_urdf(text: str, *, base_link: str | None = None, tip_link: str | None = None) -> UrdfCapsules:
    """Cover each `<collision>` of the arm between two links, of its base and of fixed surroundings with a capsule.

    Arguments and numbers of links are as for `rt_core.model.urdf.chain_from_urdf`.  Raises `UrdfError` if the URDF is
    not of an arm, or a shape is not a box, cylinder, sphere or mesh, or has no size.
    """
    placed = link_placements(text, base_link=base_link, tip_link=tip_link)
    found: list[Capsule] = []
    unread: list[str] = []
    moving: list[str] = []
    for element in ET.fromstring(text).findall("link"):
        link = (element.get("name") or "").strip()
        place = placed[link]
        shapes = element.findall("collision")
        if shapes and place.moves:
            moving.append(link)
        for k, collision in enumerate(shapes):
            name = link if k == 0 else f"{link} {k + 1}"
            where = f'link "{link}" <collision>'
            pose = collision.find("origin")
            turned = rotation_from_rpy(_numbers(pose, "rpy", where, 3, (0.0, 0.0, 0.0)))
            shift = np.array(_numbers(pose, "xyz", where, 3, (0.0, 0.0, 0.0)))
            geometry = collision.find("geometry")
            shape = None if geometry is None else next(iter(geometry), None)
            if shape is None:
                raise UrdfError(f"{where}: <geometry> is missing or empty")
            if shape.tag == "mesh":
                unread.append(shape.get("filename") or name)
                continue
            axis, centre, radius = _capsule(shape, where)
            ends = (place.origin + place.rotation @ (shift + turned @ (centre + sign * axis)) for sign in (-1.0, 1.0))
            start, end = ((float(p[0]), float(p[1]), float(p[2])) for p in ends)
            found.append(Capsule(name, place.link, start, end, radius, base=place.base))
    return UrdfCapsules(tuple(found), tuple(unread), tuple(moving))


def _capsule(shape: ET.Element, where: str) -> tuple[FloatArray, FloatArray, float]:
    """Return half axis (3,), centre (3,) and radius of the capsule that covers a shape, in the shape's frame."""
    if shape.tag == "sphere":
        (radius,) = _numbers(shape, "radius", where, 1, None)
        return np.zeros(3), np.zeros(3), _positive(radius, "radius", where)
    if shape.tag == "cylinder":
        (radius,), (length,) = (_numbers(shape, key, where, 1, None) for key in ("radius", "length"))
        half = 0.5 * _positive(length, "length", where)
        return np.array([0.0, 0.0, half]), np.zeros(3), _positive(radius, "radius", where)
    if shape.tag == "box":
        edges = 0.5 * np.array([_positive(x, "size", where) for x in _numbers(shape, "size", where, 3, None)])
        longest = int(np.argmax(edges))
        axis = np.zeros(3)
        axis[longest] = edges[longest]
        return axis, np.zeros(3), float(np.linalg.norm(np.delete(edges, longest)))
    raise UrdfError(f"{where}: <{shape.tag}> is not supported, expected box, cylinder, sphere or mesh")


def _numbers(
    element: ET.Element | None, key: str, where: str, count: int, default: tuple[float, ...] | None
) -> tuple[float, ...]:
    text = None if element is None else element.get(key)
    if text is None:
        if default is None:
            raise UrdfError(f"{where}: {key} is missing")
        return default
    try:
        values = tuple(float(part) for part in text.split())
    except ValueError:
        raise UrdfError(f'{where}: {key}="{text}" is not a list of numbers') from None
    if len(values) != count or not np.isfinite(values).all():
        raise UrdfError(f'{where}: {key}="{text}" must be {count} finite numbers')
    return values


def _positive(value: float, key: str, where: str) -> float:
    if not value > 0.0:
        raise UrdfError(f"{where}: {key} must be above 0, not {value:g}")
    return value
