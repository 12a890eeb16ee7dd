"""Tables and keys of robot files, `configs/robots/NAME.toml`, each checked by itself.

An angle may be given in radians or, under the same key with `_deg`, in degrees.  `_build` checks more than one table.
"""

import difflib
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, PositiveFloat, create_model

from drivers.files.table import Table
from rt_core.model.friction import FollowsTemperature, FrictionLaw, Quadratic
from rt_core.model.robot import SIGNED_DYNAMICS, JointDynamics, JointKind

Vector3 = Annotated[list[float], Field(min_length=3, max_length=3)]
Vector6 = Annotated[list[float], Field(min_length=6, max_length=6)]
NonNegative = Annotated[float, Field(ge=0.0)]
Environment = Literal["ground", "vacuum", "microgravity"]
Gravity = Literal["floor", "ceiling", "microgravity", "+x", "-x", "+y", "-y", "+z", "-z"]


class IdentificationSettings(Table):
    """Preparation of this robot's recordings for identification; None: the general default."""

    cutoff_hz: PositiveFloat | None = None  # zero-phase low-pass on position and torque
    rate_hz: PositiveFloat | None = None  # rate of the regression's rows after decimation
    filter_order: Annotated[int, Field(ge=1, le=12)] = 4
    trim_s: NonNegative | None = None  # cut at both ends of the span
    min_velocity: list[NonNegative] | None = None  # per joint [rad/s] or [m/s]; slower rows of that joint are dropped


class _LinkTable(Table):
    """Keys of a joint's geometry, limits and link."""

    name: Annotated[str, Field(min_length=1)]
    kind: JointKind | None = None  # "revolute" if left out
    # DH row
    a: float | None = None  # [m]
    alpha: float | None = None  # [rad]
    alpha_deg: float | None = None
    d: float | None = None  # [m]
    theta: float | None = None  # [rad]
    theta_deg: float | None = None
    # limits, none if left out
    lower: float | None = None  # [rad] or [m]
    lower_deg: float | None = None
    upper: float | None = None
    upper_deg: float | None = None
    velocity: PositiveFloat | None = None  # [rad/s] or [m/s]
    velocity_deg: PositiveFloat | None = None  # [deg/s]
    effort: PositiveFloat | None = None  # [N*m] or [N]
    # the link, in the frame of the chosen convention
    mass: NonNegative | None = None  # [kg]
    com: Vector3 | None = None  # [m]
    first_moment: Vector3 | None = None  # [kg*m], instead of com
    inertia: Vector6 | None = None  # Ixx, Ixy, Iyy, Ixz, Iyz, Izz [kg*m^2]
    inertia_about: Literal["com", "origin"] | None = None  # "com" if left out


#: Keys of its drive and of the spring behind it, with their units: those of `JointDynamics`, None where left out.
_DRIVE: dict[str, Any] = dict.fromkeys((item.name for item in fields(JointDynamics)), (NonNegative | None, None))
_DRIVE |= dict.fromkeys(SIGNED_DYNAMICS, (float | None, None)) | {"stiffness": (PositiveFloat | None, None)}
_JointKeys: Any = create_model("_JointKeys", __base__=_LinkTable, **_DRIVE)


class JointTable(_JointKeys):
    """One `[[joint]]`."""

    if TYPE_CHECKING:

        def __getattr__(self, key: str) -> Any: ...


class TipTable(Table):
    """Pose of the flange or tool in the last frame of the chosen convention."""

    translation: Vector3 = Field([0.0, 0.0, 0.0])  # [m]
    rpy: Vector3 | None = None  # roll, pitch, yaw [rad]
    rpy_deg: Vector3 | None = None


class TransmissionTable(Table):
    """Joints to motors: `q_motor = matrix @ q + offset`, `tau = matrix^T @ tau_motor`."""

    gear_ratio: list[float] | None = None  # the diagonal of an uncoupled matrix, with signs
    matrix: list[list[float]] | None = None  # rows motors, columns joints
    offset: list[float] | None = None  # motor side [rad]
    offset_deg: list[float] | None = None
    torque_constant: list[float] | None = None  # [N*m/A], with signs


class ModelTable(Table):
    """Joint effects that are parameters of the model."""

    friction: FrictionLaw = "coulomb_viscous"
    friction_quadratic: Quadratic = "odd"  # of "stribeck": kv2*dq*|dq|, kv2*dq^2, or none
    friction_cubic: bool = True  # of "stribeck": kv3*dq^3
    friction_delta: PositiveFloat = 1.0  # of "harmonic_drive_input": exponent of its Stribeck term
    friction_smoothing: NonNegative = 0.0  # sgn(dq) becomes tanh(dq/smoothing) [rad/s or m/s]; 0 keeps sgn
    friction_load: bool = False  # k1*|tau_load|*sgn(dq) on top of the law
    friction_cyclic: bool = False  # A1*sin(q) + A2*cos(q) on top of the law
    friction_temperature: FollowsTemperature = "none"  # which friction follows the joint's temperature
    armature: bool = True
    offset: bool = True


class RobotTable(Table):
    """The whole file."""

    format: Literal[1]
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
    description: str = ""
    kinematics: Literal["urdf", "mdh", "dh"]
    urdf: str | None = None  # path, relative to the robot file
    urdf_text: str | None = None  # the URDF itself, in a self-contained description
    base_link: str | None = None
    tip_link: str | None = None
    gravity: Gravity | Vector3 = "floor"
    environment: Environment = "ground"  # what it takes away: gravity, or the friction of the lubricant's shear
    payload: PositiveFloat | None = None  # largest that the arm is made for [kg]
    joint: list[JointTable] = Field([])
    tip: TipTable = TipTable()
    transmission: TransmissionTable | None = None
    model: ModelTable = ModelTable()
    identification: IdentificationSettings = IdentificationSettings()


#: Tables by their names in the file, for messages.
TABLES: dict[str, type[Table]] = {
    "": RobotTable, "joint": JointTable, "tip": TipTable, "transmission": TransmissionTable, "model": ModelTable,
    "identification": IdentificationSettings,
}  # fmt: skip


def describe_errors(errors: list[Any], data: dict[str, Any]) -> list[tuple[str, str]]:
    """Return field and explanation of each of pydantic's errors."""
    seen: dict[str, str] = {}
    for error in errors:
        location = list(error["loc"])
        if location[:1] == ["gravity"]:
            location = location[:1]  # pydantic adds the member of the union
        seen.setdefault(_field(location, data), _explanation(error, location, data))
    return list(seen.items())


def _explanation(error: Any, location: list[Any], data: dict[str, Any]) -> str:
    kind = error["type"]
    got = f", got {_shortened(error['input'])}"
    if location == ["gravity"]:
        names = '"floor", "ceiling", "microgravity" or an axis such as "-z"'
        return f"should be [x, y, z] in m/s^2, {names}, got {_shortened(data['gravity'])}"
    if kind == "extra_forbidden":
        return _unknown_key(location)
    if kind == "missing":
        return "is missing"
    if kind == "value_error":
        return str(error["ctx"]["error"])
    if kind in ("too_short", "too_long"):
        limit = error["ctx"].get("min_length", error["ctx"].get("max_length"))
        return f"should have {limit} numbers{got}"
    if location == ["joint"] and isinstance(error["input"], dict):
        return "is one table; write [[joint]] with double brackets above each joint"
    return str(error["msg"]).removeprefix("Input ") + got


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _field(location: list[Any], data: dict[str, Any]) -> str:
    """Return `joint "elbow".com[1]` for `["joint", 2, "com", 1]`; lists count from 0."""
    text = ""
    for depth, part in enumerate(location):
        if isinstance(part, int):
            name = None
            if depth == 1 and location[0] == "joint":
                entry = data["joint"][part]
                name = entry.get("name") if isinstance(entry, dict) else None
            text += f' "{name}"' if isinstance(name, str) else f"[{part}]"
        else:
            text += f".{part}" if text else str(part)
    return text or "file"


def _unknown_key(location: list[Any]) -> str:
    key = str(location[-1])
    here = str(location[0]) if len(location) > 1 else ""
    known = list(TABLES[here].model_fields)
    close = difflib.get_close_matches(key, known, 1, 0.6)
    if close:
        return f'unknown key; did you mean "{close[0]}"?'
    for table, model in TABLES.items():
        if key in model.model_fields:
            where = {"": "the top of the file", "joint": "a [[joint]]"}.get(table, f"[{table}]")
            return f"unknown key here; it belongs in {where}"
    return f"unknown key; known are {', '.join(sorted(known))}"
