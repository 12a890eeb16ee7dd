"""Export of a model as URDF, MJCF and SDF, and as parameters of a ROS 2 node."""

import re
import textwrap
import xml.etree.ElementTree as ET
from dataclasses import dataclass

import numpy as np
import yaml

from rt_core.identification.physical.recovery import complete_parameters
from rt_core.linear_algebra import lstsq
from rt_core.model.base import BaseParameters, link_torque
from rt_core.model.friction import LAW_ARMATURE, LAW_COULOMB, LAW_LINK, LAW_OFFSET, LAW_VISCOUS
from rt_core.model.inertia import is_physical
from rt_core.model.mjcf_writer import CoupledMotor, mjcf_from_model
from rt_core.model.parameters import friction_constants, standard_parameters
from rt_core.model.regressor import regressor
from rt_core.model.robot import JointDynamics, RobotModel
from rt_core.model.sdf_writer import sdf_from_model
from rt_core.model.urdf_writer import urdf_from_model, urdf_with
from rt_core.types import FloatArray
from service.models.document import ModelFile, ModelFileError

#: Assumed for links that the robot file does not describe: 1 kg, a ball of 10 cm [Pinocchio's order].
_ASSUMED_LINK = np.array([1.0, 0.0, 0.0, 0.0, 0.004, 0.0, 0.004, 0.0, 0.0, 0.004])
#: A mass below this is rounding [kg].
_NO_MASS = 1e-9
_STATES = 500
_ROUNDING = 1e-12  # of the largest parameter
#: Standard deviations from the model below which possible links count as the model's: they add 1 % to a variance.
_ALIKE = 0.1
#: Relative tolerance, to the largest, within which two sets of base parameters give the same torque.
_SAME = 1e-10
# Parameters as the package's documentation has them; the URDF follows.
_ROS2 = """# Inverse dynamics by KDL: torque of the links, without friction and rotor inertia, which the URDF states.
/**:
  ros__parameters:
    inverse_dynamics_solver_plugin_name: kdl_inverse_dynamics_solver/InverseDynamicsSolverKDL
    kdl:
      root: {root}
      tip: {tip}
      gravity: {gravity}
    robot_description: |
"""


def possible_parameters(model_file: ModelFile) -> tuple[FloatArray, float]:
    """Return standard parameters (P,) with physically possible links, and how far they are from the model's torque.

    They are those of the model file where its method gives them, else the nearest to the robot file's links that have
    the model's base parameters; the distance is then 0.  Where no possible links have them, they are the nearest by the
    estimate's covariance, and the distance is the root mean square difference of the base parameters in standard
    deviations. Raises `ModelFileError` if the file's own set does not have the base parameters.
    """
    base, theta = model_file.base, model_file.theta
    if model_file.standard is not None:
        if not _same(base.theta(model_file.standard), theta):
            raise ModelFileError(
                f"{model_file.path}: field standard does not belong to theta; the file is damaged or was edited"
            )
        return model_file.standard, 0.0
    # an undetermined parameter has no variance in the file, and keeps its value like the others
    known = bool((np.diag(model_file.covariance) > 0.0).all())
    found = complete_parameters(base, model_file.robot.model, theta, model_file.covariance if known else None)
    exact = found.exact and _same(base.theta(found.phi), theta)
    return found.phi, 0.0 if exact else found.deviation


def torque_change(model_file: ModelFile, phi: FloatArray) -> float:
    """Return by how much the torque of standard parameters (P,) differs from the model's, as a share of it.

    Root mean squares over random states within the joints' limits, at up to half their velocity.
    """
    model, base, rng = model_file.robot.model, model_file.base, np.random.default_rng(0)
    lower, upper, speed = np.array([[j.lower, j.upper, j.velocity] for j in model.joints]).T
    limited = np.isfinite(lower) & np.isfinite(upper)
    lower, upper = np.where(limited, lower, -np.pi), np.where(limited, upper, np.pi)
    dq = 0.5 * np.where(np.isfinite(speed), speed, 1.0)
    shape = (_STATES, model.n)
    states = rng.uniform(lower, upper, shape), rng.uniform(-dq, dq, shape), rng.uniform(-4.0 * dq, 4.0 * dq, shape)
    load = link_torque(model, base, model_file.theta, *states) if base.layout.has_load else None
    warm = None if model.friction.temperature == "none" else np.full(shape, 20.0)
    Y = regressor(model, base.layout, *states, load=load, temperature=warm)
    size = float(np.linalg.norm(Y @ model_file.theta))
    return float(np.linalg.norm(Y @ (base.theta(phi) - model_file.theta))) / size if size > 0.0 else 0.0


def _same(a: FloatArray, b: FloatArray) -> bool:
    return bool(np.abs(a - b).max() <= _SAME * np.abs(b).max())


def standard_from_base(model: RobotModel, base: BaseParameters, theta: FloatArray) -> FloatArray:
    """Return standard parameters (P,) with exactly the base parameters `theta`, as close as possible to the prior.

    What torque cannot determine stays at the robot file's link parameters (or an assumed ball of 1 kg). The distance is
    measured in units of one kilogram, and of a tenth of a metre for moments.
    """
    prior = standard_parameters(model, base.standard)
    for i in range(model.n):
        link = (base.standard.law == LAW_LINK) & (base.standard.source // 10 == i)
        if not prior[link].any():
            prior[link] = _ASSUMED_LINK
    element = np.where(base.standard.law == LAW_LINK, base.standard.source % 10, 4)
    unit = np.select([element == 0, element < 4], [0.1, 0.1], 0.01)  # penalises changes of mass
    scaled = base.mapping * unit
    correction = lstsq(scaled, theta - base.mapping @ prior)
    return np.asarray(prior + unit * correction)


def joint_effects(model: RobotModel, base: BaseParameters, phi: FloatArray) -> JointDynamics:
    """Return rotor inertia, friction and offset per joint in standard parameters `phi` (P,), joint side only."""
    held = {law: source for _, law, source in model.friction.terms}
    held |= {LAW_ARMATURE: "armature", LAW_OFFSET: "offset"}
    effects = JointDynamics.zeros(model.n)
    for c in range(len(base.standard)):
        law = int(base.standard.law[c])
        if law != LAW_LINK and np.count_nonzero(base.standard.motor[c]) == 1:
            getattr(effects, held[law])[base.standard.source[c]] += phi[c]
    return effects


@dataclass(frozen=True)
class _Description:
    """What a description of an arm holds: links (n, 10), what joints have beside them, a comment, and warnings."""

    links: FloatArray
    effects: JointDynamics
    motors: list[CoupledMotor]
    comment: str
    warnings: list[str]


def to_urdf(
    model_file: ModelFile, into: str | None = None, *, allow_impossible: bool = False
) -> tuple[str, list[str]]:  # fmt: skip
    """Return the URDF of an identified arm, and warnings; with `into`, a URDF of the arm, that with new parameters.

    The link parameters give the identified torque, with friction, rotor inertia and offset added, and every link is
    possible. Where noise has carried the model beyond all possible links, the torque is that of the nearest ones, and a
    warning says by how much it changes; with `allow_impossible` it is the model's, and warnings name the impossible
    links. Warnings also name negative friction, which a URDF cannot hold.

    Raises `ValueError` if a link cannot be written (no mass, but a first moment), or `into` is of another arm.
    """
    d = _description(model_file, "URDF", allow_impossible)
    if into is None:
        return urdf_from_model(model_file.robot.model, d.links, d.effects, comment=d.comment), d.warnings
    ends = _ends(model_file, into)
    return urdf_with(into, model_file.robot.model, d.links, d.effects, comment=d.comment, **ends), d.warnings


def _ends(model_file: ModelFile, urdf: str) -> dict[str, str | None]:
    """Return the ends of the arm in another URDF: the robot file's where it has them, else root and last link."""
    root = ET.fromstring(urdf.removeprefix("\ufeff"))
    links = {element.get("name") for element in root.findall("link")}
    given = {key: model_file.robot.source.get(key) for key in ("base_link", "tip_link")}
    ends = {key: name if name in links else None for key, name in given.items()}
    moved = {element.get("name"): element.find("child") for element in root.findall("joint")}
    last = moved.get(model_file.robot.model.joints[-1].name)
    return ends if ends["tip_link"] or last is None else ends | {"tip_link": last.get("link")}


def to_mjcf(model_file: ModelFile) -> tuple[str, list[str]]:
    """Return the MJCF of an identified arm, and warnings as of `to_urdf`; its links are always possible."""
    d, model = _of_bodies(model_file, "MJCF", "MuJoCo needs"), model_file.robot.model
    # without the inertia of its rotor alone a spring would hold a body that nobody knows
    open_ = {parameter["name"] for parameter in model_file.document.get("parameters", ()) if parameter["value"] is None}
    springs = {
        spring["joint"]: spring["stiffness"]["value"]
        for j, spring in enumerate(model_file.springs, 1)
        if f"Ia{j}" not in open_
    }
    return mjcf_from_model(model, d.links, d.effects, d.motors, springs, comment=d.comment), d.warnings


def to_sdf(model_file: ModelFile) -> tuple[str, list[str]]:
    """Return the SDF of an identified arm, and warnings as of `to_urdf`; its links are always possible."""
    d = _of_bodies(model_file, "SDF", "simulators need")
    return sdf_from_model(model_file.robot.model, d.links, d.effects, comment=d.comment), d.warnings


def to_ros2(model_file: ModelFile) -> tuple[str, list[str]]:
    """Return a ROS 2 parameter file for `inverse_dynamics_solver`, and warnings as of `to_urdf`.

    It chooses the plugin of KDL, and has the URDF, the ends of the arm in it, and gravity.
    """
    urdf, warnings = to_urdf(model_file)
    links = [str(link.get("name")) for link in ET.fromstring(urdf).findall("link")]
    gravity = yaml.safe_dump([float(g) for g in model_file.robot.model.gravity], default_flow_style=True, width=120)
    head = _ROS2.format(root=links[0], tip=links[-1], gravity=gravity.strip())
    return head + textwrap.indent(urdf, "      "), warnings


def _of_bodies(model_file: ModelFile, kind: str, needed: str) -> _Description:
    """Return a description in which all links are possible; raises `ValueError` where one is not."""
    d = _description(model_file, kind, False)
    for link, joint in zip(d.links, model_file.robot.model.joints, strict=True):
        if not is_physical(link):
            raise ValueError(f"the link of joint {joint.name} is not a possible body, which {needed}")
    return d


def _description(model_file: ModelFile, kind: str, allow_impossible: bool) -> _Description:
    model, base = model_file.robot.model, model_file.base
    phi, distance = possible_parameters(model_file)
    if distance and allow_impossible:
        phi, distance = standard_from_base(model, base, model_file.theta), 0.0
    links = np.zeros((model.n, 10))
    for c in np.flatnonzero(base.standard.law == LAW_LINK):
        links[base.standard.source[c] // 10, base.standard.source[c] % 10] = phi[c]
    links[np.abs(links[:, 0]) < _NO_MASS, 0] = 0.0
    warnings = [
        f"link {i + 1} ({joint.name}): the inertial parameters are not physically possible by themselves; "
        "together with the others they give the identified torque; `thetad identify --method physical` finds "
        "possible ones"
        for i, joint in enumerate(model.joints)
        if not is_physical(links[i])
    ]
    if distance > _ALIKE:
        warnings.insert(
            0, "noise has carried the model beyond all possible links: the nearest are written, "
            f"{distance:.2g} standard deviations away, whose torque is {100 * torque_change(model_file, phi):.3g} % "
            f"off (random states within the limits); {'--allow-impossible keeps the torque, ' * (kind == 'URDF')}"
            "`thetad identify --method physical` fits possible links",
        )  # fmt: skip
    written = (LAW_ARMATURE, LAW_VISCOUS, LAW_COULOMB) if kind == "MJCF" else (LAW_VISCOUS, LAW_COULOMB)
    at_joint = np.count_nonzero(base.standard.motor, axis=1) == 1
    held = np.isin(base.standard.law, written) & (phi >= 0.0) & (at_joint | (kind == "MJCF"))
    rest = [
        f"{base.standard.names[c]} = {phi[c]:.9g} {base.standard.units[c]}"
        for c in np.flatnonzero((base.standard.law != LAW_LINK) & ~held)
    ]
    if model.dynamics is not None:
        rest += [
            f"{name} = {getattr(model.dynamics, field)[j]:.9g} {'rad' if model.joints[j].kind == 'revolute' else 'm'}/s"
            for name, (field, j) in friction_constants(model).items()
        ]
    comment = (
        f"identified by thetad from {plain_text(model_file.origin)}; "
        f"gravity in the base frame {' '.join(f'{g:.9g}' for g in model.gravity)}; "
        f"not in this file: {', '.join(rest) or 'nothing'}"
    )
    if model_file.springs:
        comment += f"; its {springs_text(model_file, written=kind == 'MJCF')}"
    if model_file.ranges is not None:
        comment += f"; {plain_text(model_file.ranges.text(model))}"
    effects = joint_effects(model, base, phi)
    named = {
        "viscous friction": effects.viscous,
        "Coulomb friction": effects.coulomb,
        "rotor inertia": effects.armature,
    }
    for word, values in named.items():
        values[np.abs(values) < _ROUNDING * np.abs(phi).max()] = 0.0
        warnings += [
            f"joint {j + 1} ({model.joints[j].name}): its {word} is {values[j]:.4g}; readers of {kind} refuse negative "
            "values, so 0 is written, and the value stands in the comment"
            for j in np.flatnonzero(values < 0.0)
            if kind == "MJCF" or "friction" in word
        ]
        np.maximum(values, 0.0, out=values)
    return _Description(links, effects, _coupled_motors(base, phi), comment, warnings)


def _coupled_motors(base: BaseParameters, phi: FloatArray) -> list[CoupledMotor]:
    """Return what acts at motors of several joints, none of it negative."""
    found: dict[int, dict[int, float]] = {}
    weights: dict[int, FloatArray] = {}
    for c in np.flatnonzero(np.count_nonzero(base.standard.motor, axis=1) > 1):
        motor, law = int(base.standard.source[c]), int(base.standard.law[c])
        weights[motor] = base.standard.motor[c]
        found.setdefault(motor, {})[law] = max(float(phi[c]), 0.0)
    laws = (LAW_ARMATURE, LAW_VISCOUS, LAW_COULOMB)
    return [CoupledMotor(f"motor_{m + 1}", weights[m], *(of.get(k, 0.0) for k in laws)) for m, of in found.items()]


def springs_text(model_file: ModelFile, *, written: bool = False) -> str:
    """Return a sentence on the springs of a model, for a format without them; `written`: it has linear ones."""
    found = [
        f"{plain_text(spring['joint'])} {value:.4g} {spring['unit']}{power}"
        for spring in model_file.springs
        for value, power in ((spring["stiffness"]["value"], ""), (spring["stiffness_cubic"], "^3"))
        if value is not None
    ]
    where = "here links move as motors do"
    if written:
        where = "with linear springs NAME_spring where the rotor's inertia is known"
    return f"joints are elastic, {where}; stiffness without an interval: {', '.join(found) or 'none is known'}"


def plain_text(text: str) -> str:
    """Return `text` without anything that ends a docstring or an XML comment."""
    return re.sub(r"[^\w.,:/ -]", "_", re.sub(r"--+", "-", text))
