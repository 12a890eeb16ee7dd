"""Differences between two models of one robot, relative to their stated uncertainties.

`z` is a difference over the joint standard deviation `sqrt(std_a^2 + std_b^2)`: the two are taken as independent. Fits
of one recording are not; their differences are less certain than `z` indicates.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rt_core.model.friction import CYCLIC, LAW_ARMATURE, LAW_LINK, LAW_LOAD, LAW_OFFSET, REFERENCE_TEMPERATURE
from rt_core.model.regressor import regressor
from rt_core.statistics import NORMAL_QUANTILE_95
from rt_core.types import FloatArray
from service.models.document import ModelFile

#: Speeds at which friction is compared, as shares of the joint's greatest, in both directions.
SPEEDS = (0.05, 0.2, 0.5)
_UNKNOWN_SPEED = 1.0  # [rad/s or m/s], of a joint without a known limit
_SAME = 1e-6  # of the regrouping coefficients
_ELSEWHERE = (LAW_LINK, LAW_ARMATURE, LAW_LOAD, LAW_OFFSET, *CYCLIC)


class ModelDiffError(ValueError):
    """Two models that cannot be compared; the message has the reason."""


@dataclass(frozen=True)
class Quantity:
    """A quantity in both models; a value is None where a model does not determine it, and then so is `z`.

    `values` and `stds` are of the first and of the second model, `z` is of the second less the first: infinite if both
    are certain and differ.
    """

    name: str
    unit: str
    values: tuple[float | None, float | None]
    stds: tuple[float | None, float | None]
    z: float | None


@dataclass(frozen=True)
class FrictionDifference:
    """Friction torque of a joint that moves alone at `speed` [rad/s or m/s], without offset, cyclic and load terms."""

    joint: str
    speed: float
    torque: Quantity


@dataclass(frozen=True)
class ModelDifference:
    """Differences between two models: in all base `parameters`, in velocity `constants` and in `friction`.

    Of constants, `z` is of their logarithms, and `stds` are half a 95 % interval over 1.96. Friction is compared joint
    by joint, at all `SPEEDS` both ways.
    """

    models: tuple[ModelFile, ModelFile]
    parameters: tuple[Quantity, ...]
    constants: tuple[Quantity, ...]
    friction: tuple[FrictionDifference, ...]

    def beyond(self, z: float) -> list[Quantity]:
        """Return the parameters and constants that differ by more than `z`, the largest difference first."""
        found = [q for q in (*self.parameters, *self.constants) if q.z is not None and abs(q.z) > z]
        return sorted(found, key=lambda q: -abs(q.z or 0.0))

    @property
    def compared(self) -> int:
        """Number of parameters and constants that both models determine."""
        return sum(q.z is not None for q in (*self.parameters, *self.constants))

    def by_chance(self, z: float) -> float:
        """Return the expected number of differences beyond `z` by noise alone."""
        return self.compared * math.erfc(z / math.sqrt(2.0))

    def known_to_one(self) -> list[Quantity]:
        """Return the parameters and constants that only one of the models determines."""
        return [q for q in (*self.parameters, *self.constants) if (q.values[0] is None) != (q.values[1] is None)]


def compare_models(a: ModelFile, b: ModelFile) -> ModelDifference:
    """Compare two models parameter by parameter.

    Raises `ModelDiffError`: they are of different robots, or of one that was described in different ways.
    """
    _check(a, b)
    parameters = []
    for p, q in zip(a.document["parameters"], b.document["parameters"], strict=True):
        known = [row["value"] is not None and row["std"] is not None for row in (p, q)]
        values = tuple(row["value"] if there else None for row, there in zip((p, q), known, strict=True))
        stds = tuple(row["std"] if there else None for row, there in zip((p, q), known, strict=True))
        parameters.append(_quantity(p["name"], p["unit"], (values[0], values[1]), (stds[0], stds[1])))
    return ModelDifference((a, b), tuple(parameters), tuple(_constants(a, b)), tuple(_friction(a, b)))


def _check(a: ModelFile, b: ModelFile) -> None:
    names = a.robot.model.name, b.robot.model.name
    if names[0] != names[1]:
        raise ModelDiffError(
            f"{a.path} is a model of {names[0]}, {b.path} one of {names[1]}: only models of one robot can be compared"
        )
    if bool(a.springs) != bool(b.springs):
        rigid, elastic = (b, a) if a.springs else (a, b)
        raise ModelDiffError(f"{elastic.path} has elastic joints, {rigid.path} rigid ones: they have other parameters")
    same = a.base.names == b.base.names and a.base.standard.names == b.base.standard.names
    if not same or not np.allclose(a.base.mapping, b.base.mapping, rtol=_SAME, atol=_SAME):
        raise ModelDiffError(
            f"{a.path} and {b.path} have other parameters: their robot files of {names[0]} differ in geometry, gravity "
            "or friction law; identify again with one of them"
        )


def _quantity(
    name: str, unit: str, values: tuple[float | None, float | None], stds: tuple[float | None, float | None]
) -> Quantity:
    return Quantity(name, unit, values, stds, _z(values, stds))


def _z(values: Sequence[float | None], stds: Sequence[float | None]) -> float | None:
    """Return the difference over the joint standard deviation; None where something is unknown."""
    (value_a, value_b), (std_a, std_b) = values, stds
    if value_a is None or value_b is None or std_a is None or std_b is None:
        return None
    difference, std = value_b - value_a, math.hypot(std_a, std_b)
    if std == 0.0:
        return 0.0 if difference == 0.0 else math.copysign(math.inf, difference)
    return difference / std


def _constants(a: ModelFile, b: ModelFile) -> list[Quantity]:
    found = []
    rows_b = {row["name"]: row for row in b.document.get("constants", ())}
    for row in a.document.get("constants", ()):
        rows = (row, rows_b[row["name"]])
        (value_a, std_a, log_a, spread_a), (value_b, std_b, log_b, spread_b) = (_constant(r) for r in rows)
        z = _z((log_a, log_b), (spread_a, spread_b))
        found.append(Quantity(row["name"], row["unit"], (value_a, value_b), (std_a, std_b), z))
    return found


def _constant(row: dict[str, Any]) -> tuple[float | None, float | None, float | None, float | None]:
    """Return a constant and its standard deviation, of itself and of its logarithm; None where unknown."""
    value, lower, upper = row["value"], row["lower"], row["upper"]
    if value is None or lower is None or upper is None or not 0.0 < lower <= value <= upper:
        return None, None, None, None
    spread = math.log(upper / lower) / (2.0 * NORMAL_QUANTILE_95)
    return value, (upper - lower) / (2.0 * NORMAL_QUANTILE_95), math.log(value), spread


def _friction(a: ModelFile, b: ModelFile) -> list[FrictionDifference]:
    found = []
    for j, joint in enumerate(a.robot.model.joints):
        top = joint.velocity if math.isfinite(joint.velocity) else _UNKNOWN_SPEED
        speeds = np.array([sign * part * top for part in SPEEDS for sign in (-1.0, 1.0)])
        unit = "N*m" if joint.kind == "revolute" else "N"
        of_a, of_b = (_friction_torque(model, j, speeds) for model in (a, b))
        if of_a is None and of_b is None:
            continue  # a joint without friction, or with one that neither determines
        for k, speed in enumerate(speeds):
            (value_a, std_a), (value_b, std_b) = (
                (None, None) if of is None else (float(of[0][k]), float(of[1][k])) for of in (of_a, of_b)
            )
            torque = _quantity("friction", unit, (value_a, value_b), (std_a, std_b))
            found.append(FrictionDifference(joint.name, float(speed), torque))
    return found


def _friction_torque(model: ModelFile, joint: int, speeds: FloatArray) -> tuple[FloatArray, FloatArray] | None:
    """Return friction at `speeds` (V,) and its standard deviation; None if it is absent or undetermined."""
    layout = model.base.layout
    columns = np.flatnonzero(~np.isin(layout.law, _ELSEWHERE) & (layout.motor[:, joint] != 0.0))
    if columns.size == 0:
        return None
    still = np.zeros((speeds.size, model.robot.model.n))
    dq = still.copy()
    dq[:, joint] = speeds
    warm = np.full(still.shape, REFERENCE_TEMPERATURE)
    Y = regressor(model.robot.model, layout.take(columns), still, dq, still, temperature=warm)[:, joint, :]
    acting = Y.any(axis=0)
    rows = [model.document["parameters"][c] for c in columns[acting]]
    if not rows or any(row["value"] is None or row["std"] is None for row in rows):
        return None
    index = columns[acting]
    variance = np.einsum("vc,cd,vd->v", Y[:, acting], model.covariance[np.ix_(index, index)], Y[:, acting])
    return Y[:, acting] @ model.theta[index], np.sqrt(np.maximum(variance, 0.0))


def difference_document(found: ModelDifference, z: float) -> dict[str, Any]:
    """Return a comparison as plain JSON."""

    def entry(q: Quantity) -> dict[str, Any]:
        differs = q.z is not None and abs(q.z) > z
        return {"name": q.name, "unit": q.unit, "values": q.values, "stds": q.stds, "z": q.z, "differs": differs}

    return {
        "robot": found.models[0].robot.model.name, "z": z, "models": [_model(model) for model in found.models],
        "compared": found.compared, "differing": len(found.beyond(z)), "by_chance": found.by_chance(z),
        "parameters": [entry(q) for q in found.parameters], "constants": [entry(q) for q in found.constants],
        "friction": [{"joint": f.joint, "speed": f.speed, **entry(f.torque)} for f in found.friction],
    }  # fmt: skip


def _model(model: ModelFile) -> dict[str, Any]:
    document = model.document
    metrics = document.get("metrics") or {}
    return {
        "path": str(model.path), "created": document["created"], "method": document["method"],
        "verdict": document["verdict"], "origin": model.origin, "relative_error": metrics.get("relative_error"),
        "rmse": metrics.get("rmse"),
    }  # fmt: skip
