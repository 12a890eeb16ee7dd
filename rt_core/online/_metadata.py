"""Metadata of an estimator for its subscribers, and the hash that a saved state must match."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Any

from rt_core.model.base import BaseParameters
from rt_core.model.friction import Friction
from rt_core.model.robot import RobotModel
from rt_core.online._settings import OnlineSettings


def describe(
    model: RobotModel, base: BaseParameters, settings: OnlineSettings, rate_hz: float, factor: int, has_dq: bool,
    delay_s: float,
) -> tuple[str, dict[str, Any]]:  # fmt: skip
    """Return the hash that a saved state must match, without friction's constants, and the metadata for subscribers."""
    names = {
        "robot": model.name, "joints": [j.name for j in model.joints],
        "torque_units": ["N*m" if j.kind == "revolute" else "N" for j in model.joints],
        "parameters": list(base.names), "units": list(base.layout.units), "expressions": list(base.expressions),
        "standard": list(base.standard.names), "base_map": base.mapping.tolist(),
        "friction": _described(model.friction), "settings": asdict(settings), "rate_hz": rate_hz,
        "update_hz": rate_hz / factor, "has_dq": has_dq, "delay_s": delay_s,
    }  # fmt: skip
    content = json.dumps(names, sort_keys=True) + model.geometry.tobytes().hex() + str(model.gravity)
    constants = base.layout.shape[:, 0].tolist()
    full = hashlib.sha256((content + json.dumps(constants)).encode()).hexdigest()
    return hashlib.sha256(content.encode()).hexdigest(), names | {"constants": constants, "hash": full}


def _described(friction: Friction) -> dict[str, Any]:
    """Return the friction of a model as plain values; keys added later only if set, so that old states stay valid."""
    return {key: value for key, value in asdict(friction).items() if (key, value) != ("temperature", "none")}
