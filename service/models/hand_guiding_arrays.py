"""Model for hand guiding as plain values, sent from the estimator to the acquisition."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from rt_core.hand_guiding import GuidingModel
from rt_core.hand_guiding.rows import COORDINATE_WIDTH, EFFECT_WIDTH
from rt_core.model.robot import RobotModel

_ARRAYS = ("arm", "rotor", "effects", "coordinates", "inertia")


def plain_model(model: GuidingModel) -> dict[str, Any]:
    """Return the arrays of a model as lists."""
    return {name: getattr(model, name).tolist() for name in _ARRAYS}


def guiding_model(robot: RobotModel, values: object) -> GuidingModel:
    """Return the model of `robot` from the lists of `plain_model`; raises `ValueError` or `TypeError`."""
    if not isinstance(values, Mapping):
        raise TypeError("a model for guiding is a map of arrays")
    n = robot.n
    given = {name: np.array(values.get(name), dtype=np.float64) for name in _ARRAYS}
    given["effects"] = given["effects"].reshape(-1, EFFECT_WIDTH + n)
    given["coordinates"] = given["coordinates"].reshape(-1, COORDINATE_WIDTH + n)
    for name, shape in (("arm", (n, robot.geometry.shape[1] + 10)), ("rotor", (n, n)), ("inertia", (n,))):
        if given[name].shape != shape:
            raise ValueError(f"{name} of a model for guiding has shape {given[name].shape}, expected {shape}")
    if not all(np.isfinite(array).all() for array in given.values()):
        raise ValueError("a model for guiding has values that are not finite")
    return GuidingModel(robot, **given)


def still_model(robot: RobotModel) -> GuidingModel:
    """Return a model without links or friction, to compile kernels and check settings."""
    n = robot.n
    return GuidingModel(
        robot, np.ascontiguousarray(np.hstack((robot.geometry, np.zeros((n, 10))))), np.eye(n),
        np.zeros((0, EFFECT_WIDTH + n)), np.zeros((0, COORDINATE_WIDTH + n)), np.ones(n),
    )  # fmt: skip
