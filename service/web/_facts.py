"""What an arm's estimate is about: names and units, which change only with the model."""

from __future__ import annotations

from typing import Any

from service.protocol.control import ControlError
from service.web._cache import Arm
from service.web._metrics import joint_of


def arm_facts(arm: Arm) -> dict[str, Any]:
    """Return names, units and meanings of all that is in the live sections; raises `ControlError` before the first.

    `hash` is that of the estimates that this holds for.
    """
    meta, source = arm.meta.get("estimator"), arm.meta.get("acquisition", {})
    if meta is None:
        raise ControlError("unavailable", f"arm {arm.name}: its estimator has not said yet what it estimates")
    return {
        "arm": arm.name,
        "hash": meta["hash"],
        "robot": meta["robot"],
        "joints": meta["joints"],
        "torque_units": meta["torque_units"],
        "parameters": meta["parameters"],
        "units": meta["units"],
        "expressions": meta["expressions"],
        "of_joint": [joint_of(name) for name in meta["parameters"]],
        "rate_hz": meta["rate_hz"],
        "update_hz": meta["update_hz"],
        "memory_s": meta["settings"].get("memory_s"),
        "source": source.get("source"),
        "channels": source.get("channels"),
    }
