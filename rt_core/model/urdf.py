"""Serial chain from a URDF.

A URDF joint frame is the child link's frame at `q = 0`, so URDF links and the internal link frames coincide.  Fixed
joints are removed: a link on a fixed joint becomes part of the moving link that carries it, as in Pinocchio; links
fixed to the base are left out, because they never move.  `rpy` is `Rz(yaw) Ry(pitch) Rx(roll)`.  If an element is given
twice the first counts, as in urdfdom.

Limits: an effort or velocity of 0, and `lower = upper = 0`, count as not given (infinite), since converters write them
for unknown limits.  `<dynamics damping friction>` become viscous and Coulomb friction.
"""

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from rt_core.model.angles import EXACT, right_angle
from rt_core.model.inertia import inertial_vector, is_physical, tensor, transform_inertial
from rt_core.model.robot import Joint, JointDynamics, JointKind
from rt_core.types import BoolArray, FloatArray

_KINDS: dict[str, JointKind] = {"revolute": "revolute", "continuous": "revolute", "prismatic": "prismatic"}
#: Children of each element that `reduced_urdf` keeps; visuals, colours and simulator settings are removed.
_KEPT = {
    "robot": {"link", "joint"}, "link": {"inertial"}, "inertial": {"origin", "mass", "inertia"},
    "joint": {"origin", "parent", "child", "axis", "limit", "dynamics", "mimic"},
}  # fmt: skip
_KEPT_WITH_SHAPES = _KEPT | {
    "link": {"inertial", "collision"},
    "collision": {"origin", "geometry"},
    "geometry": {"box", "cylinder", "sphere", "mesh", "capsule"},
}


class UrdfError(ValueError):
    """A URDF that does not describe a serial arm; the message names the element."""


@dataclass(frozen=True)
class UrdfChain:
    """The moving joints between a base and a tip, in the internal form."""

    name: str
    joints: tuple[Joint, ...]
    links: tuple[str, ...]  # the link that each joint moves
    inertial: FloatArray  # (n, 10) about the link frames, fixed links lumped in; zero where nothing is given
    stated: BoolArray  # (n,) links with an <inertial>, their own or that of a link fixed to them
    dynamics: JointDynamics | None  # from <dynamics>, None if no joint has one
    effects: dict[str, BoolArray]  # (n,) which joints have it, by the field of `JointDynamics`
    base_link: str
    tip_link: str
    tip_rotation: FloatArray  # (3, 3) tip frame in the last link frame
    tip_translation: FloatArray  # (3,) [m]
    unphysical: tuple[str, ...]  # links whose <inertial> no body can have (negative mass, not positive definite)
    rounded: tuple[str, ...]  # joints placed by right angles that were written rounded, and are taken as exact


@dataclass(frozen=True, eq=False)
class Placement:
    """Placement of a link of a URDF."""

    link: int  # the moving link that carries it, from 0 as in `chain_from_urdf`; -1 for a fixed one
    rotation: FloatArray  # (3, 3), of its frame in that of this link; in that of the base for a fixed one
    origin: FloatArray  # (3,), likewise
    # whether it moves against that link, on a joint off the chain; its placement is that of the zero position
    moves: bool
    base: bool  # whether it carries the arm: the base, and links between it and the first moving joint


@dataclass(frozen=True)
class _Link:
    name: str
    inertial: FloatArray | None  # (10,) about the link frame


@dataclass(frozen=True)
class _UrdfJoint:
    joint: Joint  # placed on the parent link
    parent: str
    child: str
    fixed: bool
    mimic: bool
    dynamics: tuple[float, float] | None  # damping, friction
    given: tuple[bool, bool]  # which of the two the file gives
    problem: str | None  # why it cannot be a joint of the chain


def rotation_from_rpy(rpy: Iterable[float]) -> FloatArray:
    """Return the rotation (3, 3) `Rz(yaw) Ry(pitch) Rx(roll)` of roll, pitch, yaw [rad]."""
    roll, pitch, yaw = rpy
    cr, sr, cp, sp, cy, sy = (f(x) for x in (roll, pitch, yaw) for f in (math.cos, math.sin))
    return np.array(
        [
            [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
            [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
            [-sp, cp * sr, cp * cr],
        ]
    )


def _floats(element: ET.Element | None, key: str, where: str, default: tuple[float, ...]) -> list[float]:
    text = None if element is None else element.get(key)
    if text is None:
        return list(default)
    try:
        values = [float(part) for part in text.split()]
    except ValueError:
        raise UrdfError(f'{where}: {key}="{text}" is not a list of numbers') from None
    if len(values) != len(default):
        raise UrdfError(f'{where}: {key}="{text}" has {len(values)} numbers, expected {len(default)}')
    if not all(math.isfinite(v) for v in values):
        raise UrdfError(f'{where}: {key}="{text}" must be finite')
    return values


def _required(element: ET.Element, tag: str, key: str, where: str) -> float:
    child = element.find(tag)
    if child is None or child.get(key) is None:
        raise UrdfError(f"{where}: <{tag} {key}> is missing")
    return _floats(child, key, f"{where} <{tag}>", (0.0,))[0]


def _origin(element: ET.Element, where: str) -> tuple[FloatArray, FloatArray]:
    origin = element.find("origin")
    rpy = map(right_angle, _floats(origin, "rpy", f"{where} <origin>", (0.0, 0.0, 0.0)))
    return rotation_from_rpy(rpy), np.array(_floats(origin, "xyz", f"{where} <origin>", (0.0, 0.0, 0.0)))


def _root(text: str) -> ET.Element:
    if re.search(r"<!(DOCTYPE|ENTITY)", text, re.IGNORECASE):
        raise UrdfError("a DOCTYPE or ENTITY declaration is not accepted in a URDF; remove it")
    try:
        root = ET.fromstring(text)
    except ET.ParseError as error:
        raise UrdfError(f"malformed XML: {error}") from None
    if root.tag != "robot":
        raise UrdfError(f"the outermost element is <{root.tag}>, expected <robot>")
    for element in root.iter():
        if "xacro" in element.tag.partition("}")[0]:
            raise UrdfError("this is a xacro file; expand it first: xacro robot.urdf.xacro > robot.urdf")
    return root


def _name(element: ET.Element) -> str:
    name = (element.get("name") or "").strip()
    if not name:
        raise UrdfError(f"a <{element.tag}> has no name")
    return name


def _link(element: ET.Element) -> _Link:
    name = _name(element)
    inertial = element.find("inertial")
    if inertial is None:
        return _Link(name, None)
    where = f'link "{name}" <inertial>'
    mass = _required(inertial, "mass", "value", where)
    keys = ("ixx", "ixy", "iyy", "ixz", "iyz", "izz")
    moments = np.array([_required(inertial, "inertia", key, where) for key in keys])
    rotation, com = _origin(inertial, where)
    return _Link(name, inertial_vector(mass, com, tensor(moments), rotation=rotation))


def _limits(element: ET.Element, where: str, continuous: bool) -> tuple[float, float, float, float]:
    limit = element.find("limit")
    lower, upper, velocity, effort = (
        _floats(limit, key, f"{where} <limit>", (0.0,))[0] for key in ("lower", "upper", "velocity", "effort")
    )
    if velocity < 0.0 or effort < 0.0:
        raise UrdfError(f"{where}: <limit> velocity and effort must not be negative")
    if continuous or lower == upper == 0.0:
        lower, upper = -math.inf, math.inf
    elif lower >= upper:
        raise UrdfError(f"{where}: <limit> lower={lower:g} must be below upper={upper:g}")
    return lower, upper, velocity or math.inf, effort or math.inf


def _joint(element: ET.Element, links: dict[str, _Link]) -> _UrdfJoint:
    name = _name(element)
    where = f'joint "{name}"'
    kind = element.get("type")
    ends = []
    for tag in ("parent", "child"):
        end = element.find(tag)
        link = None if end is None else end.get("link")
        if link is None:
            raise UrdfError(f"{where}: <{tag} link> is missing")
        if link not in links:
            raise UrdfError(f'{where}: {tag} link "{link}" does not exist')
        ends.append(link)
    axis = np.array([1.0, 0.0, 0.0])
    lower, upper, velocity, effort = -math.inf, math.inf, math.inf, math.inf
    dynamics, stated = None, (False, False)
    problem: str | None = None
    if kind != "fixed" and kind not in _KINDS:
        problem = f'{where}: type="{kind}" is not supported, expected revolute, continuous, prismatic or fixed'
    elif kind != "fixed":
        axis = np.array(_floats(element.find("axis"), "xyz", f"{where} <axis>", (1.0, 0.0, 0.0)))
        length = float(np.linalg.norm(axis))
        if length < 1e-12:
            raise UrdfError(f"{where}: <axis> is zero; give the direction that the joint turns about or slides along")
        axis = axis / length
        try:
            lower, upper, velocity, effort = _limits(element, where, kind == "continuous")
        except UrdfError as error:
            problem = str(error)
        given = element.find("dynamics")
        if given is not None:
            damping, friction = (
                _floats(given, key, f"{where} <dynamics>", (0.0,))[0] for key in ("damping", "friction")
            )
            dynamics, stated = (damping, friction), ("damping" in given.attrib, "friction" in given.attrib)
    rotation, translation = _origin(element, where)
    placed = Joint(name, _KINDS.get(str(kind), "revolute"), rotation, translation, axis, lower, upper, velocity, effort)
    return _UrdfJoint(
        placed, ends[0], ends[1], kind == "fixed", element.find("mimic") is not None, dynamics, stated, problem
    )


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


class _Tree:
    """Links and joints as a checked tree: one root, each other link attached exactly once."""

    def __init__(self, root: ET.Element) -> None:
        self.links: dict[str, _Link] = {}
        for element in root.findall("link"):
            link = _link(element)
            if link.name in self.links:
                raise UrdfError(f'two links are named "{link.name}"')
            self.links[link.name] = link
        if not self.links:
            raise UrdfError("there is no <link>")
        self.above: dict[str, _UrdfJoint] = {}  # link -> the joint that attaches it
        self.rounded: list[str] = []  # joints with right angles written rounded
        self.below: dict[str, list[_UrdfJoint]] = {name: [] for name in self.links}
        names = set()
        for element in root.findall("joint"):
            joint = _joint(element, self.links)
            name = joint.joint.name
            if name in names:
                raise UrdfError(f'two joints are named "{name}"')
            names.add(name)
            if joint.child in self.above:
                other = self.above[joint.child].joint.name
                raise UrdfError(f'link "{joint.child}" is attached by two joints, "{other}" and "{name}": not a tree')
            self.above[joint.child] = joint
            rpy = _floats(element.find("origin"), "rpy", f'joint "{name}" <origin>', (0.0, 0.0, 0.0))
            if any(abs(right_angle(angle) - angle) > EXACT for angle in rpy):
                self.rounded.append(name)
            self.below[joint.parent].append(joint)
        roots = [name for name in self.links if name not in self.above]
        if not roots:
            raise UrdfError("the joints form a cycle: every link has a parent, so none is the base")
        if len(roots) > 1:
            raise UrdfError(
                f"links {_quoted(roots)} are attached by no joint: only the base may be; "
                "a joint is missing or names the wrong child"
            )
        self.root = roots[0]
        reached = {self.root, *(joint.child for joint in self.subtree(self.root))}
        if len(reached) < len(self.links):
            lost = [name for name in self.links if name not in reached]
            raise UrdfError(f'the joints of links {_quoted(lost)} form a cycle apart from the base "{self.root}"')

    def subtree(self, link: str) -> list[_UrdfJoint]:
        """List all joints below a link, parents first."""
        found: list[_UrdfJoint] = []
        stack = [link]
        while stack:
            joints = self.below[stack.pop()]
            found.extend(joints)
            stack.extend(joint.child for joint in joints)
        return found

    def path(self, base: str, tip: str) -> list[_UrdfJoint]:
        """List the joints from base to tip, in order."""
        joints: list[_UrdfJoint] = []
        link = tip
        while link != base:
            if link not in self.above:
                raise UrdfError(f'tip_link "{tip}" does not hang on base_link "{base}"')
            joints.append(self.above[link])
            link = self.above[link].parent
        return joints[::-1]

    def find_tip(self, base: str) -> str:
        """Find the end of the only moving chain: the only fixed leaf after the last moving link, or that link."""
        below = self.subtree(base)
        moving = [joint for joint in below if not joint.fixed]
        if not moving:
            raise UrdfError(f'no joint moves below link "{base}"')
        last = [joint.child for joint in moving if all(other.fixed for other in self.subtree(joint.child))]
        if len(last) > 1:
            raise UrdfError(
                f"the chain branches: moving links {_quoted(last)} end different branches; "
                "set tip_link to the link where the arm ends"
            )
        leaves = [joint.child for joint in self.subtree(last[0]) if not self.below[joint.child]]
        return leaves[0] if len(leaves) == 1 else last[0]


def _compose(
    outer: tuple[FloatArray, FloatArray], inner: tuple[FloatArray, FloatArray]
) -> tuple[FloatArray, FloatArray]:
    return outer[0] @ inner[0], outer[0] @ inner[1] + outer[1]


def _ends(tree: _Tree, base_link: str | None, tip_link: str | None) -> tuple[str, str, list[_UrdfJoint]]:
    """Return base, tip, and the moving joints between them."""
    for given, option in ((base_link, "base_link"), (tip_link, "tip_link")):
        if given is not None and given not in tree.links:
            raise UrdfError(f'{option} "{given}" does not exist; links are {_quoted(tree.links)}')
    base = base_link or tree.root
    tip = tip_link or tree.find_tip(base)
    chain = [joint for joint in tree.path(base, tip) if not joint.fixed]
    if not chain:
        raise UrdfError(f'no joint moves between "{base}" and "{tip}"')
    for joint in chain:
        if joint.problem is not None:
            raise UrdfError(joint.problem)
    return base, tip, chain


def link_placements(text: str, *, base_link: str | None = None, tip_link: str | None = None) -> dict[str, Placement]:
    """Return the placement of each link of the tree, including those above and beside the base.

    Raises `UrdfError` as `chain_from_urdf`.
    """
    tree = _Tree(_root(text))
    base, tip, chain = _ends(tree, base_link, tip_link)
    index = {joint.joint.name: i for i, joint in enumerate(chain)}
    placed = {base: Placement(-1, np.eye(3), np.zeros(3), moves=False, base=True)}
    link = base
    while link in tree.above:
        above, below = tree.above[link], placed[link]
        back = above.joint.rotation.T
        rotation, origin = _compose((below.rotation, below.origin), (back, -back @ above.joint.translation))
        link = above.parent
        placed[link] = Placement(-1, rotation, origin, below.moves or not above.fixed, base=False)
    carrying = {base}
    for joint in tree.path(base, tip):
        if not joint.fixed:
            break
        carrying.add(joint.child)
    for entry in tree.subtree(tree.root):
        if entry.child in placed:
            continue
        carrier = placed[entry.parent]
        if entry.joint.name in index:
            placed[entry.child] = Placement(index[entry.joint.name], np.eye(3), np.zeros(3), moves=False, base=False)
            continue
        rotation, origin = _compose((carrier.rotation, carrier.origin), (entry.joint.rotation, entry.joint.translation))
        moves = carrier.moves or not entry.fixed
        placed[entry.child] = Placement(carrier.link, rotation, origin, moves, base=entry.child in carrying)
    return placed


def chain_from_urdf(text: str, *, base_link: str | None = None, tip_link: str | None = None) -> UrdfChain:
    """Read the serial arm between two links of a URDF.

    Parameters
    ----------
    text : str
        The URDF itself, not a path.
    base_link : str, optional
        The fixed link, in whose frame gravity is given; the root link by default.
    tip_link : str, optional
        End of the arm.  Needed if moving joints branch, as a gripper's fingers do: links off the chain count as rigid
        in their zero position, and their mass is added to the link that carries them.

    Raises
    ------
    UrdfError
        If the text is not a URDF or does not describe a serial arm; the message names the element.
    """
    root = _root(text)
    tree = _Tree(root)
    base, tip, chain = _ends(tree, base_link, tip_link)
    for joint in chain:
        if joint.mimic:
            raise UrdfError(
                f'joint "{joint.joint.name}": <mimic> joints have no torque of their own and are not supported'
            )

    index = {joint.joint.name: i for i, joint in enumerate(chain)}
    joints: list[Joint] = [joint.joint for joint in chain]
    inertial = np.zeros((len(chain), 10))
    stated = np.zeros(len(chain), dtype=bool)
    unphysical = []
    # link -> the moving link that carries it (-1: the base) and its placement in that link's frame
    placed = {base: (-1, (np.eye(3), np.zeros(3)))}
    for entry in tree.subtree(base):
        body, carrier = placed[entry.parent]
        placement = _compose(carrier, (entry.joint.rotation, entry.joint.translation))
        if entry.joint.name in index:
            body = index[entry.joint.name]
            j = entry.joint
            joints[body] = Joint(
                j.name, j.kind, placement[0], placement[1], j.axis, j.lower, j.upper, j.velocity, j.effort
            )
            placement = (np.eye(3), np.zeros(3))
        placed[entry.child] = (body, placement)
        phi = tree.links[entry.child].inertial
        if body >= 0 and phi is not None:
            stated[body] = True
            inertial[body] += transform_inertial(phi, *placement)
            if np.any(phi != 0.0) and not is_physical(phi, 1e-6):
                unphysical.append(entry.child)
    dynamics = None
    if any(joint.dynamics is not None for joint in chain):
        pairs = np.array([joint.dynamics or (0.0, 0.0) for joint in chain])
        zeros = np.zeros(len(chain))
        dynamics = JointDynamics(armature=zeros, viscous=pairs[:, 0], coulomb=pairs[:, 1], offset=zeros.copy())
    return UrdfChain(
        name=root.get("name") or "robot", joints=tuple(joints), links=tuple(joint.child for joint in chain),
        inertial=inertial, stated=stated, dynamics=dynamics,
        effects={key: np.array([j.given[k] for j in chain]) for k, key in enumerate(("viscous", "coulomb"))},
        base_link=base, tip_link=tip, tip_rotation=placed[tip][1][0], tip_translation=placed[tip][1][1],
        unphysical=tuple(unphysical), rounded=tuple(name for name in tree.rounded if name in index),
    )  # fmt: skip


def reduced_urdf(text: str, *, shapes: bool = False) -> str:
    """Return the part that `chain_from_urdf` reads, as canonical XML: equal for files that differ in looks or layout.

    With `shapes` collision shapes are kept too. Raises `UrdfError` if the text is not a URDF.
    """
    kept = _KEPT_WITH_SHAPES if shapes else _KEPT
    root = _root(text)
    stack = [root]
    while stack:
        element = stack.pop()
        element.text = element.tail = None
        for child in list(element):
            if child.tag not in kept.get(element.tag, ()):
                element.remove(child)
        stack.extend(element)
    return ET.canonicalize(ET.tostring(root, encoding="unicode"))
