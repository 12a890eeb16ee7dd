"""Construction of a `RobotModel` from the tables of a robot file."""

import math
from dataclasses import fields, replace

import numpy as np

from drivers.files.robots._schema import JointTable, ModelTable, RobotTable
from rt_core.model.angles import EXACT, right_angle
from rt_core.model.dh import DhChain, DhRow, chain_from_dh, chain_from_mdh
from rt_core.model.friction import LAW_COULOMB, Friction
from rt_core.model.inertia import inertial_vector, is_physical, tensor, transform_inertial
from rt_core.model.robot import Joint, JointDynamics, RobotModel, Stated, Transmission
from rt_core.model.urdf import UrdfError, chain_from_urdf, rotation_from_rpy
from rt_core.types import FloatArray

#: Magnitude of gravity if a file gives only its direction [m/s^2].
GRAVITY = 9.81

_DIRECTIONS = {"floor": "-z", "ceiling": "+z"}
_GEOMETRY = ("a", "alpha", "alpha_deg", "d", "theta", "theta_deg")
_DRIVE = tuple(item.name for item in fields(JointDynamics))
_SPRING = (
    "stiffness_cubic", "spring_damping", "link_viscous", "link_coulomb", "link_cyclic_sine", "link_cyclic_cosine",
)  # fmt: skip
_LINK = ("mass", "com", "first_moment", "inertia", "inertia_about")


class BuildError(ValueError):
    """Tables that contradict each other; `field` and `what` are place and reason."""

    def __init__(self, field: str, what: str) -> None:
        self.field, self.what = field, what
        super().__init__(f"{field}: {what}")


def build_model(table: RobotTable) -> tuple[RobotModel, tuple[str, ...]]:
    """Return the robot that a file describes, and warnings; raises `BuildError`."""
    names = [joint.name for joint in table.joint]
    for name in names:
        if names.count(name) > 1:
            raise BuildError("joint", f'two joints are named "{name}"')
    model, warnings = _from_urdf(table) if table.kinematics == "urdf" else _from_dh(table)
    n = model.n
    speeds = table.identification.min_velocity
    if speeds is not None and len(speeds) != n:
        raise BuildError("identification.min_velocity", f"has {len(speeds)} numbers, the arm has {n} joints")
    model = replace(
        model, gravity=_gravity(table), transmission=_transmission(table, n), friction=_friction(table),
        armature=table.model.armature, offset=table.model.offset, payload=table.payload,
    )  # fmt: skip
    return model, warnings


def _friction(table: RobotTable) -> Friction:
    given = table.model
    for key, law in (
        ("friction_quadratic", "stribeck"),
        ("friction_cubic", "stribeck"),
        ("friction_delta", "harmonic_drive_input"),
    ):
        if given.friction != law and getattr(given, key) != ModelTable.model_fields[key].default:
            raise BuildError(f"model.{key}", f'has no meaning with friction = "{given.friction}", only with "{law}"')
    dry = any(code == LAW_COULOMB for _, code, _ in Friction(given.friction).terms)
    if given.friction_temperature != "none" and not dry:
        raise BuildError(
            "model.friction_temperature",
            f'has no meaning with friction = "{given.friction}", which has no Coulomb friction',
        )
    vacuum = table.environment == "vacuum"
    if vacuum and given.friction_quadratic == "even":
        raise BuildError(
            "model.friction_quadratic",
            'is "even", but environment = "vacuum" has no quadratic term; leave one of the two out',
        )
    return Friction(
        law=given.friction, quadratic="none" if vacuum else given.friction_quadratic,
        cubic=given.friction_cubic and not vacuum, delta=given.friction_delta, smoothing=given.friction_smoothing,
        load=given.friction_load, cyclic=given.friction_cyclic, temperature=given.friction_temperature,
    )  # fmt: skip


def _angle(joint: JointTable, key: str, default: float = 0.0) -> float:
    degrees = getattr(joint, f"{key}_deg")
    if degrees is not None:
        return math.radians(degrees)
    radians = getattr(joint, key)
    return default if radians is None else float(radians)


def _rounded(joint: JointTable) -> bool:
    """Return whether a right angle was written rounded, and is taken as exact."""
    given = [float(v) for key in ("alpha", "theta") if (v := getattr(joint, key)) is not None]
    return any(abs(right_angle(v) - v) > EXACT for v in given)


def _rounding(where: str) -> str:
    return f"{where}: right angles are written rounded (1.5708); they are taken as exact"


def _where(joint: JointTable) -> str:
    return f'joint "{joint.name}"'


def _refuse(joint: JointTable, keys: tuple[str, ...], why: str) -> None:
    for key in keys:
        if getattr(joint, key) is not None:
            raise BuildError(f"{_where(joint)}.{key}", why)


def _limits(joint: JointTable, prismatic: bool) -> dict[str, float]:
    if prismatic:
        _refuse(joint, ("lower_deg", "upper_deg", "velocity_deg"), "a prismatic joint has limits in m, not degrees")
    given = {}
    for key in ("lower", "upper", "velocity"):
        value = _angle(joint, key, math.nan)
        if not math.isnan(value):
            given[key] = value
    if joint.effort is not None:
        given["effort"] = joint.effort
    return given


def _limited(joint: Joint, given: dict[str, float]) -> Joint:
    limited = replace(joint, **given)  # type: ignore[arg-type]
    if limited.lower >= limited.upper:
        raise BuildError(
            f'joint "{joint.name}".lower', f"{limited.lower:g} must be below the upper limit {limited.upper:g}"
        )
    return limited


def _link(joint: JointTable) -> FloatArray | None:
    """Return the parameters (10,) about the frame of the file's convention; None without data of the link."""
    if joint.mass is None:
        _refuse(joint, _LINK[1:], "needs mass too")
        return None
    if joint.com is not None and joint.first_moment is not None:
        raise BuildError(f"{_where(joint)}.com", "com and first_moment are both given; keep one")
    if joint.inertia is None and joint.inertia_about is not None:
        raise BuildError(f"{_where(joint)}.inertia_about", "there is no inertia")
    moment = np.zeros(3)
    if joint.com is not None:
        moment = joint.mass * np.array(joint.com)
    elif joint.first_moment is not None:
        moment = np.array(joint.first_moment)
    about = joint.inertia_about or "com"
    if joint.mass == 0.0:
        if about == "com" and np.any(moment != 0.0):
            raise BuildError(
                f"{_where(joint)}.mass", 'is zero with a first moment; that needs inertia_about = "origin"'
            )
        com = np.zeros(3)
    else:
        com = moment / joint.mass
    inertia = tensor(np.array(joint.inertia or [0.0] * 6))
    phi = inertial_vector(joint.mass, com, inertia, about=about)
    phi[1:4] = moment
    return phi


def _state(joint: JointTable, into: Stated, i: int) -> None:
    """Mark what the file states of a link and a joint; the table of a URDF's joint replaces the whole link."""
    if joint.mass is not None:
        into.mass[i] = True
        into.centre[i] = joint.com is not None or joint.first_moment is not None
        into.inertia[i] = joint.inertia is not None
    for key in _DRIVE:
        if getattr(joint, key) is not None:
            into.effects.setdefault(key, np.zeros_like(into.mass))[i] = True
    if joint.coulomb is not None:
        into.effects.setdefault("breakaway", np.zeros_like(into.mass))[i] = True


def _unphysical(where: str) -> str:
    return (
        f"{where}: no body of positive density has this mass, centre of mass and inertia; "
        "it serves as a prior only (check signs, axes, and the point that inertia is about)"
    )


def _drive(joint: JointTable, into: JointDynamics, i: int) -> None:
    for key in _DRIVE:
        value = getattr(joint, key)
        if value is not None:
            getattr(into, key)[i] = value
    if joint.breakaway is None and joint.coulomb is not None:
        into.breakaway[i] = joint.coulomb
    if joint.stiffness is None:
        _refuse(joint, _SPRING, "is of a joint with a spring, and needs stiffness too")
    elif not joint.armature:
        raise BuildError(
            f"{_where(joint)}.stiffness", "needs armature above 0 too: behind a spring the rotor moves by itself"
        )


def _tip(table: RobotTable, rotation: FloatArray, translation: FloatArray) -> tuple[FloatArray, FloatArray]:
    tip = table.tip
    rpy = [math.radians(v) for v in tip.rpy_deg] if tip.rpy_deg is not None else tip.rpy or [0.0, 0.0, 0.0]
    return rotation @ rotation_from_rpy(rpy), translation + rotation @ np.array(tip.translation)


def _from_dh(table: RobotTable) -> tuple[RobotModel, tuple[str, ...]]:
    for key in ("urdf", "urdf_text", "base_link", "tip_link"):
        if getattr(table, key) is not None:
            raise BuildError(key, f'has no meaning with kinematics = "{table.kinematics}"')
    if not table.joint:
        raise BuildError("joint", "there is no [[joint]]; an arm needs at least one")
    rows = []
    for joint in table.joint:
        kind = joint.kind or "revolute"
        alpha, theta = right_angle(_angle(joint, "alpha")), right_angle(_angle(joint, "theta"))
        rows.append(DhRow(joint.name, joint.a or 0.0, alpha, joint.d or 0.0, theta, kind))
    chain: DhChain = chain_from_mdh(rows) if table.kinematics == "mdh" else chain_from_dh(rows)
    joints = tuple(
        _limited(placed, _limits(joint, placed.kind == "prismatic"))
        for placed, joint in zip(chain.joints, table.joint, strict=True)
    )
    links = [_link(joint) for joint in table.joint]
    none = np.zeros(len(joints), dtype=bool)
    stated = Stated(none, none.copy(), none.copy(), {})
    for i, joint in enumerate(table.joint):
        _state(joint, stated, i)
    inertial: FloatArray | None = None
    warnings = [_rounding(_where(joint)) for joint in table.joint if _rounded(joint)]
    if any(phi is not None for phi in links):
        inertial = np.zeros((len(joints), 10))
        for i, (joint, phi) in enumerate(zip(table.joint, links, strict=True)):
            if phi is None:
                raise BuildError(f"{_where(joint)}.mass", "is missing; give the links of all joints or of none")
            inertial[i] = transform_inertial(phi, *chain.frames[i])
            if np.any(phi != 0.0) and not is_physical(phi, 1e-6):
                warnings.append(_unphysical(_where(joint)))
    dynamics: JointDynamics | None = None
    if any(getattr(joint, key) is not None for joint in table.joint for key in _DRIVE):
        dynamics = JointDynamics.zeros(len(joints))
        for i, joint in enumerate(table.joint):
            _drive(joint, dynamics, i)
    rotation, translation = _tip(table, *chain.tip)
    model = RobotModel(
        table.name, joints, tip_rotation=rotation, tip_translation=translation, inertial=inertial, dynamics=dynamics,
        stated=stated,
    )  # fmt: skip
    return model, tuple(warnings)


def _from_urdf(table: RobotTable) -> tuple[RobotModel, tuple[str, ...]]:
    if table.urdf_text is None:
        raise BuildError("urdf", 'is missing; kinematics = "urdf" needs the path of a URDF')
    try:
        chain = chain_from_urdf(table.urdf_text, base_link=table.base_link, tip_link=table.tip_link)
    except UrdfError as error:
        raise BuildError("urdf", str(error)) from None
    joints = list(chain.joints)
    names = [joint.name for joint in joints]
    inertial = chain.inertial.copy()
    dynamics = chain.dynamics
    stated = Stated(chain.stated.copy(), chain.stated.copy(), chain.stated.copy(), dict(chain.effects))
    if "coulomb" in stated.effects:
        stated.effects["breakaway"] = stated.effects["coulomb"].copy()
    unphysical = [f'link "{name}"' for name in chain.unphysical]
    for joint in table.joint:
        if joint.name not in names:
            raise BuildError(_where(joint), f"the URDF's chain has no such joint; it has {', '.join(names)}")
        _refuse(
            joint, ("kind", *_GEOMETRY), "comes from the URDF; a [[joint]] here may only add limits, link and drive"
        )
        i = names.index(joint.name)
        joints[i] = _limited(joints[i], _limits(joint, joints[i].kind == "prismatic"))
        phi = _link(joint)
        if phi is not None:
            inertial[i] = phi
            if not is_physical(phi, 1e-6):
                unphysical.append(_where(joint))
        if any(getattr(joint, key) is not None for key in _DRIVE):
            dynamics = dynamics or JointDynamics.zeros(len(joints))
            _drive(joint, dynamics, i)
        _state(joint, stated, i)
    rotation, translation = _tip(table, chain.tip_rotation, chain.tip_translation)
    model = RobotModel(
        table.name, tuple(joints), tip_rotation=rotation, tip_translation=translation,
        inertial=inertial if stated.mass.any() else None, dynamics=dynamics, stated=stated,
    )  # fmt: skip
    rounded = tuple(_rounding(f'joint "{name}"') for name in chain.rounded)
    return model, (*(_unphysical(where) for where in unphysical), *rounded)


def _gravity(table: RobotTable) -> FloatArray:
    if table.environment == "microgravity":
        if table.gravity not in ("floor", "microgravity") and table.gravity != [0.0, 0.0, 0.0]:
            raise BuildError(
                "gravity", f'is {table.gravity}, but environment = "microgravity" has none; leave one of the two out'
            )
        return np.zeros(3)
    if isinstance(table.gravity, list):
        return np.array(table.gravity)
    vector = np.zeros(3)
    if table.gravity != "microgravity":
        direction = _DIRECTIONS.get(table.gravity, table.gravity)
        vector["xyz".index(direction[1])] = -GRAVITY if direction[0] == "-" else GRAVITY
    return vector


def _transmission(table: RobotTable, n: int) -> Transmission | None:
    given = table.transmission
    if given is None:
        return None
    for key in ("gear_ratio", "matrix", "offset", "offset_deg", "torque_constant"):
        value = getattr(given, key)
        if value is not None and len(value) != n:
            what = "rows" if key == "matrix" else "numbers"
            raise BuildError(f"transmission.{key}", f"has {len(value)} {what}, the arm has {n} joints")
    for key in ("gear_ratio", "torque_constant"):
        if 0.0 in (getattr(given, key) or []):
            raise BuildError(f"transmission.{key}", "must not be zero (a negative sign is fine)")
    if given.gear_ratio is not None and given.matrix is not None:
        raise BuildError("transmission.gear_ratio", "gear_ratio and matrix are both given; keep one")
    matrix = np.diag(given.gear_ratio or [1.0] * n)
    if given.matrix is not None:
        for i, row in enumerate(given.matrix):
            if len(row) != n:
                raise BuildError(f"transmission.matrix[{i}]", f"has {len(row)} numbers, the arm has {n} joints")
        matrix = np.array(given.matrix)
        if np.any(np.diag(matrix) == 0.0):
            raise BuildError("transmission.matrix", "the diagonal holds the gear ratios and must not be zero")
        if np.linalg.cond(matrix / np.abs(matrix).max(axis=1, keepdims=True)) > 1e10:
            raise BuildError("transmission.matrix", "is singular: joint positions do not follow from motor positions")
    degrees = given.offset_deg
    offset = np.radians(degrees) if degrees is not None else np.array(given.offset or [0.0] * n)
    constants = given.torque_constant
    return Transmission(matrix, offset, np.array(constants or [1.0] * n), known=constants is not None)
