"""True geometry of a simulated arm: read from a file, and written as a robot file that differs from the nominal."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from drivers.files.robots.file import RobotFile
from rt_core.model.urdf_writer import urdf_from_model
from rt_core.types import FloatArray
from service.io.toml_text import toml_text
from sim_backend.arm.laser_tracker import TrackedArm
from sim_backend.errors import SimulationConfigError

Frame = tuple[FloatArray, FloatArray]

_ROTATION = 1e-6
#: Of a joint in a robot file whose geometry and links are in its URDF.
_IN_URDF = (
    "kind", "a", "alpha", "alpha_deg", "d", "theta", "theta_deg",
    "mass", "com", "first_moment", "inertia", "inertia_about",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Truth:
    """Geometric errors of an arm by name [m] or [rad]; optionally its target, and its base in a station's frame."""

    errors: dict[str, float]
    base: Frame | None = None
    tool: Frame | None = None
    station: int = 1


def read_truth(path: Path, known: Sequence[str]) -> Truth:
    """Read the file of `thetad poses measure --truth`; `known` are the names of the arm's parameters.

    `errors` is required, and those that are not named are zero; `base` and `tool` are optional. Raises
    `SimulationConfigError` with the key.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SimulationConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise SimulationConfigError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(data, dict) or not isinstance(data.get("errors"), dict):
        raise SimulationConfigError(f"{path}: errors is missing: give names of parameters and their errors [m or rad]")
    for name, value in data["errors"].items():
        if name not in known:
            raise SimulationConfigError(f"{path}: errors: there is no parameter {name!r}; known: {', '.join(known)}")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise SimulationConfigError(f"{path}: errors: {name} is {value!r}, not a finite number")
    frames = {which: _frame(data.get(which), f"{path}: {which}") for which in ("base", "tool")}
    station = data.get("station", 1)
    if isinstance(station, bool) or not isinstance(station, int) or station < 1:
        raise SimulationConfigError(f"{path}: station is {station!r}, not a number from 1 on")
    return Truth({name: float(value) for name, value in data["errors"].items()}, **frames, station=station)


def true_robot_text(robot: RobotFile, arm: TrackedArm) -> str:
    """Return a robot file of the true arm: true joints, and all else from the nominal file; raises `UrdfError`."""
    nominal = arm.model.geometry
    to_tip = arm.model.with_frame("tool", nominal.tip_rotation, nominal.tip_translation)
    joints, (rotation, translation) = to_tip.joints(arm.errors)
    model = replace(robot.model, joints=joints, tip_rotation=rotation, tip_translation=translation)
    own = ("urdf", "urdf_text", "base_link", "tip_link", "tip", "joint")
    source: dict[str, Any] = {key: value for key, value in robot.source.items() if key not in own}
    source |= {"kinematics": "urdf", "urdf_text": urdf_from_model(model, model.inertial, model.dynamics)}
    given = [{key: value for key, value in joint.items() if key not in _IN_URDF} for joint in robot.source["joint"]]
    return toml_text(source | ({"joint": given} if given else {}))


def _frame(value: Any, where: str) -> Frame | None:
    if value is None:
        return None
    try:
        rotation = np.array(value["rotation"], dtype=np.float64)
        translation = np.array(value["translation"], dtype=np.float64)
    except (KeyError, TypeError, ValueError):
        rotation = translation = np.zeros(0)
    if rotation.shape != (3, 3) or translation.shape != (3,) or not np.isfinite(translation).all():
        raise SimulationConfigError(f"{where}: needs rotation, 3 rows of 3 numbers, and translation, 3 numbers [m]")
    if not np.allclose(rotation @ rotation.T, np.eye(3), atol=_ROTATION) or np.linalg.det(rotation) < 0.0:
        raise SimulationConfigError(f"{where}: rotation: its rows are not of unit length and orthogonal")
    return rotation, translation
