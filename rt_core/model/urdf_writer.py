"""Write a robot model as a URDF that reads back to the same chain."""

import math
import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from xml.parsers import expat

import numpy as np

from rt_core.model.inertia import is_physical, mass_com_inertia, six
from rt_core.model.robot import JointDynamics, RobotModel
from rt_core.model.urdf import UrdfError, chain_from_urdf
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


def unused(name: str, taken: set[str]) -> str:
    """Return a name that is not in `taken`, and add it."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def link_names(model: RobotModel, taken: set[str]) -> list[str]:
    """Return distinct names of base, moving links and tip, none of them in `taken`, to which they are added."""
    moving = [unused(f"{joint.name}_link", taken) for joint in model.joints]
    return [unused("base_link", taken), *moving, unused("tip_link", taken)]


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
    links = link_names(model, set())
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
    tip = ET.SubElement(robot, "joint", name=unused("tip_joint", {joint.name for joint in model.joints}), type="fixed")
    _origin(tip, model.tip_rotation, model.tip_translation)
    ET.SubElement(tip, "parent", link=links[-2])
    ET.SubElement(tip, "child", link=links[-1])
    ET.indent(robot)
    return '<?xml version="1.0"?>\n' + ET.tostring(robot, encoding="unicode") + "\n"


#: What an earlier call has added.
_COMMENT = re.compile(rb"<!-- identified by thetad from .*?-->\r?\n?", re.DOTALL)
_TAG = re.compile(rb"""<(?:[^<>"']|"[^"]*"|'[^']*')*>""")
#: Tolerances within which two chains are the same: positions [m] and elements of rotations.
_SAME_PLACE = 1e-6


@dataclass
class _Span:
    """An element of a text: bytes from `begin` to `end`, those of its first tag, and its children by tag."""

    begin: int
    head: int  # end of the first tag
    attributes: dict[str, str]
    end: int = 0
    children: dict[str, "_Span"] = field(default_factory=dict)  # the first of each


def _spans(text: bytes) -> tuple[dict[tuple[str, str], _Span], int]:
    """Return the links and joints of a URDF by tag and name, and where its last tag begins."""
    found: dict[tuple[str, str], _Span] = {}
    stack: list[_Span] = []
    last = 0
    parser = expat.ParserCreate("utf-8")

    def end_of_tag(at: int) -> int:
        tag = _TAG.match(text, at)
        if tag is None:
            raise UrdfError("malformed XML")
        return tag.end()

    def begin(tag: str, attributes: dict[str, str]) -> None:
        at = parser.CurrentByteIndex
        span = _Span(at, end_of_tag(at), attributes)
        if stack:
            stack[-1].children.setdefault(tag, span)
        if len(stack) == 1:
            found.setdefault((tag, attributes.get("name", "").strip()), span)
        stack.append(span)

    def end(_: str) -> None:
        nonlocal last
        span, last = stack.pop(), parser.CurrentByteIndex
        span.end = span.head if text[span.head - 2 : span.head] == b"/>" else end_of_tag(last)

    parser.StartElementHandler, parser.EndElementHandler = begin, end
    parser.Parse(text, True)
    return found, last


def urdf_with(
    text: str, model: RobotModel, inertial: FloatArray, dynamics: JointDynamics, *, base_link: str | None = None,
    tip_link: str | None = None, comment: str = "",
) -> str:  # fmt: skip
    """Return a URDF with `<inertial>` of the moving links and `<dynamics>` of the joints replaced, all else as it is.

    What hangs on a moving link by itself, as a tool or a gripper's fingers, keeps its `<inertial>`, and the link has
    the rest of `inertial`.

    Parameters
    ----------
    text : str
        The URDF; `base_link` and `tip_link` are the ends of the arm in it, as for `chain_from_urdf`.
    model : RobotModel
        The arm, with the joints of the URDF.
    inertial : (n, 10) array
        Parameters of each moving link with all that it carries, about the link frames.
    dynamics : JointDynamics
        Its viscous and Coulomb friction are written.
    comment : str
        Comment before the end of the file.

    Raises
    ------
    UrdfError
        If the URDF cannot be read or is of another arm, a link has first moments but no mass, or what hangs on a
        link has more inertia than `inertial` has room for.
    """
    chain = chain_from_urdf(text, base_link=base_link, tip_link=tip_link)
    names = [joint.name for joint in model.joints]
    if [joint.name for joint in chain.joints] != names:
        raise UrdfError(f"its joints are {', '.join(j.name for j in chain.joints)}, the model's {', '.join(names)}")
    for ours, theirs in zip(model.joints, chain.joints, strict=True):
        pairs = ((ours.rotation, theirs.rotation), (ours.translation, theirs.translation), (ours.axis, theirs.axis))
        if ours.kind != theirs.kind or any(np.abs(a - b).max() > _SAME_PLACE for a, b in pairs):
            raise UrdfError(f'joint "{ours.name}" is placed differently in the model')
    raw = _COMMENT.sub(b"", text.encode())
    (spans, closing), edits = _spans(raw), list[tuple[int, int, bytes]]()
    for j, (name, link) in enumerate(zip(names, chain.links, strict=True)):
        own = chain_from_urdf(_without_inertial(text, link), base_link=base_link, tip_link=tip_link)
        parent, rest = ET.Element("link"), inertial[j] - own.inertial[j]
        if is_physical(inertial[j]) and not is_physical(rest):
            raise UrdfError(
                f'link "{link}": what hangs on it has more inertia than was identified for both; lower or remove its '
                "<inertial>"
            )
        _add_inertial(parent, link, rest)
        friction = {"damping": _number(dynamics.viscous[j]), "friction": _number(dynamics.coulomb[j])}
        old = spans["joint", name].children.get("dynamics")
        friction = ({} if old is None else old.attributes) | friction
        new = (("link", link, parent[0]), ("joint", name, ET.Element("dynamics", friction)))
        edits += [_edit(raw, spans[tag, of], element) for tag, of, element in new]
    if comment:
        edits.append((closing, closing, f"<!-- {re.sub(r'-(?=-)', '- ', comment)} -->\n".encode()))
    line_end = b"\r\n" if b"\r\n" in raw else b"\n"
    for begin, end, new_text in sorted(edits, reverse=True):
        raw = raw[:begin] + new_text.replace(b"\n", line_end) + raw[end:]
    read = chain_from_urdf(raw.decode(), base_link=base_link, tip_link=tip_link)
    if not np.allclose(read.inertial, inertial, rtol=1e-9, atol=1e-12):
        raise UrdfError("its inertials cannot be replaced one by one; write a URDF of its own")
    return raw.decode()


def _without_inertial(text: str, link: str) -> str:
    root = ET.fromstring(text)
    for element in root.findall("link"):
        for found in element.findall("inertial") if (element.get("name") or "").strip() == link else ():
            element.remove(found)
    return ET.tostring(root, encoding="unicode")


def _edit(raw: bytes, span: _Span, element: ET.Element) -> tuple[int, int, bytes]:
    """Return begin, end and text of what replaces an element's child of this tag, or is added to it."""
    line = raw.rfind(b"\n", 0, span.begin) + 1
    indent = raw[line : span.begin] if raw[line : span.begin].isspace() or line == span.begin else b""
    ET.indent(element, level=0)
    inner = b"\n".join(indent + b"  " + part for part in ET.tostring(element).splitlines())
    old = span.children.get(element.tag)
    if old is not None:
        return old.begin, old.end, inner.lstrip()
    if span.end == span.head:  # <link name="x"/>
        opened = raw[span.begin : span.head - 2].rstrip() + b">\n" + inner + b"\n" + indent
        return span.begin, span.end, opened + b"</" + raw[span.begin + 1 :].split(None, 1)[0] + b">"
    return span.head, span.head, b"\n" + inner
