"""Step `robot`: check that the description is complete enough for motion."""

from __future__ import annotations

from typing import Any

import numpy as np

from rt_core.model.base import base_parameters
from service.commission.context import Context, Step
from service.commission.errors import StepFailedError


def _run(context: Context) -> tuple[str, dict[str, Any]]:
    model = context.robot.model
    missing = [
        f"{name} of {joint.name}"
        for joint in model.joints
        for name in ("lower", "upper", "velocity")
        if not np.isfinite(getattr(joint, name))
    ]
    if missing:
        raise StepFailedError(
            f"robot {model.name} states no {', '.join(missing)}: an arm is not moved without; add "
            "them to the robot file"
        )
    unlimited = [joint.name for joint in model.joints if not np.isfinite(joint.effort)]
    notes = list(context.robot.warnings)
    if unlimited:
        notes.append(f"no effort limit of {', '.join(unlimited)}: the size of their torque cannot be judged")
    if model.inertial is None:
        notes.append("no link parameters: neither torque of a trajectory nor signs of gravity can be judged ahead")
    if not np.any(model.gravity):
        notes.append("gravity is zero: masses do not show")
    count = len(base_parameters(model))
    joints = [
        {
            "name": joint.name,
            "kind": joint.kind,
            "lower": joint.lower,
            "upper": joint.upper,
            "velocity": joint.velocity,
            "effort": joint.effort,
        }
        for joint in model.joints
    ]
    found = {
        "robot": model.name,
        "sha256": context.robot.sha256,
        "joints": joints,
        "gravity": model.gravity,
        "friction": model.friction.law,
        "base_parameters": count,
        "notes": notes,
    }
    return f"{model.n} joints, {count} base parameters", found


ROBOT = Step("robot", "the description: limits, geometry, what is to be identified", _run, lambda _: 1.0)
