"""Export of a model as a Python module with one function, `torque(q, dq, ddq)`, that needs nothing but Python."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rt_core.model import friction as laws
from rt_core.model.ranges import LEAVES
from rt_core.types import FloatArray
from service.models.document import ModelFile
from service.models.export_urdf import plain_text, springs_text

#: The module, as `str.format` takes it.
_TEMPLATE = Path(__file__).with_name("exported_model.py.template")

# Additional check of a model that says up to which speeds it was identified.
_FAST = """    for joint, (v, limit) in enumerate(zip(dq, SPEEDS)):
        if limit > 0.0 and abs(v) > {leaves} * limit:
            warn(f"joint {joint + 1} is faster than {leaves} x {limit:.3g}, where its friction was identified")
"""
# Additional part of a model whose friction follows temperature.
_WITH_TEMPERATURE = {
    "argument": ", temperature",
    "takes": ", temperature [degC]",
    "imports": "from warnings import warn\n",
    "field": ", warm",
    "check": """    if len(temperature) != len(JOINTS):
        raise ValueError(f"temperature has {len(temperature)} values: expected {len(JOINTS)}, one for each joint")
    for joint, (t, low, high) in enumerate(zip(temperature, *TEMPERATURES)):
        if low is None or not low - 1.0 <= t <= high + 1.0:  # the same text each time: it is shown once
            warn(f"joint {joint + 1} is outside {low} to {high} degC, where its friction was identified")
""",
    "warm": """        if warm is not None:  # per kelvin above 20 degC
            size *= temperature[warm] - 20.0
""",
}

BODIES = "each a possible body"
NOT_BODIES = "chosen so that the torque is right,\n# not meaningful link by link"
#: Formulas of joint effects, by name.
FORMULAS = {column.name: column.formula for column in laws.COLUMNS.values()}


@dataclass(frozen=True)
class ModelTables:
    """What an exported function computes torque from."""

    gravity: tuple[float, ...]
    joints: list[tuple[object, ...]]  # rotation in three parts, origin in two, axis, whether it is revolute
    links: list[tuple[float, ...]]  # parameters about the link frames
    effects: list[tuple[Any, ...]]  # law, value, weights of the joints, three constants, joint of its temperature


def tables(model_file: ModelFile) -> ModelTables:
    """Return what an exported function of a model computes torque from."""
    model, base = model_file.robot.model, model_file.base
    phi = base.phi(model_file.theta) if model_file.standard is None else model_file.standard
    links = np.zeros((model.n, 10))
    effects: list[tuple[Any, ...]] = []
    for c in range(len(base.standard)):
        law = int(base.standard.law[c])
        if law == laws.LAW_LINK:
            links[base.standard.source[c] // 10, base.standard.source[c] % 10] = phi[c]
        elif phi[c] != 0.0:
            warm = int(base.standard.source[c]) if law in laws.TEMPERATURE else None
            weights, constants = _numbers(base.standard.motor[c]), _numbers(base.standard.shape[c])
            effects.append((laws.COLUMNS[law].name, float(phi[c]), weights, *constants, warm))
    joints: list[tuple[object, ...]] = [
        (*(_numbers(row[a:b]) for a, b in itertools.pairwise((0, 9, 18, 27, 30, 33, 36))), bool(row[36] > 0.5))
        for row in model.geometry
    ]
    return ModelTables(_numbers(model.gravity), joints, [_numbers(row) for row in links], effects)


def to_python(model_file: ModelFile) -> str:
    """Return the source of a module with `torque(q, dq, ddq)`, with temperatures where friction follows them."""
    model, found = model_file.robot.model, tables(model_file)
    seen = model_file.temperatures
    words = dict.fromkeys((*_WITH_TEMPERATURE, "range"), "")
    if seen is not None:
        lower, upper = seen.plain
        words = {
            **_WITH_TEMPERATURE,
            "range": f"# Per joint, what friction was identified at [degC].\nTEMPERATURES = {(lower, upper)!r}\n",
        }
    ranges, fast = model_file.ranges, {"fast": "", "ranges": ""}
    if ranges is not None:
        fast["fast"] = _FAST.replace("{leaves}", f"{LEAVES:g}")
        fast["ranges"] = f"\nIts {ranges.text(model)}; beyond that it warns."
        words["imports"] = "from warnings import warn\n"
        words["range"] += "# Per joint, the speed that friction was identified up to.\n"
        words["range"] += f"SPEEDS = {_numbers(ranges.speed)}\n"
    if model_file.springs:
        fast["ranges"] += f"\nIts {springs_text(model_file)}."
    document = model_file.document

    def block(rows: Sequence[tuple[object, ...]]) -> str:
        return "[\n" + "".join(f"    {row!r},\n" for row in rows) + "]"

    return _TEMPLATE.read_text(encoding="utf-8").format(
        robot=model.name, kind=document["kind"], method=plain_text(document["method"]),
        recording=plain_text(model_file.origin), verdict=document["verdict"], n=model.n, gravity=found.gravity,
        joints=block(found.joints), meaning=NOT_BODIES if model_file.standard is None else BODIES,
        links=block(found.links),
        cases="".join(f'    if law == "{law}":\n        return {formula}\n' for law, formula in FORMULAS.items()),
        effects=block([row if seen else row[:-1] for row in found.effects]), **words, **fast,
    )  # fmt: skip


def _numbers(values: FloatArray) -> tuple[float, ...]:
    return tuple(float(v) for v in values)
