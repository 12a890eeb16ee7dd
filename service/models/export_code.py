"""Export of a model as code: Python, C99, Structured Text and CasADi.

Each language is a template in `templates/` that computes torque by recursive Newton-Euler and adds the joint effects;
all are filled from the same tables.
"""

import itertools
import re
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from rt_core.model import friction as laws
from rt_core.model.base import BaseParameters
from rt_core.model.parameters import ParameterLayout
from rt_core.model.ranges import LEAVES
from rt_core.types import FloatArray
from service.models.document import ModelFile
from service.models.export_urdf import plain_text, springs_text

Language = Literal["python", "c", "st", "casadi"]
_TEMPLATES: dict[Language, str] = {
    "python": "torque.py.j2", "c": "torque.c.j2", "st": "FB_ThetaTorque.st.j2", "casadi": "casadi.py.j2",
}  # fmt: skip
#: Formulas of joint effects, by name.
_FORMULAS = {column.name: column.formula for column in laws.COLUMNS.values()}


def to_code(model_file: ModelFile, language: Language) -> str:
    """Return source code that computes the torque of a model, with temperatures where friction follows them.

    `python` is a module with `torque(q, dq, ddq)` that needs nothing but Python, `c` C99 with `thetad_torque(q, dq,
    ddq, tau)`, `st` a function block `FB_ThetaTorque` in Structured Text (IEC 61131-3), and `casadi` a module with the
    `casadi.Function`s `torque` and `regressor`.
    """
    model, base, document = model_file.robot.model, model_file.base, model_file.document
    # the load that friction depends on is that of the base parameters, as in the fit
    bodies = model_file.standard is not None and not base.layout.has_load
    phi = model_file.standard if bodies else base.phi(model_file.theta)
    assert phi is not None
    links = np.zeros((model.n, 10))
    links.ravel()[base.standard.source[base.standard.is_link]] = phi[base.standard.is_link]
    effects = [
        _effect(base.standard, c, phi[c]) for c in range(phi.size) if not base.standard.is_link[c] and phi[c] != 0.0
    ]
    seen, ranges = model_file.temperatures, model_file.ranges
    lower, upper = ([None] * model.n, [None] * model.n) if seen is None else seen.plain
    return _environment().get_template(_TEMPLATES[language]).render(
        robot=plain_text(model.name), kind=document["kind"], method=plain_text(document["method"]),
        recording=plain_text(model_file.origin), verdict=document["verdict"], n=model.n, bodies=bodies,
        gravity=_numbers(model.gravity), links=[_numbers(row) for row in links], effects=effects, laws=_FORMULAS,
        # rotation in three parts, origin in two, axis, whether it is revolute
        joints=[
            (*(_numbers(row[a:b]) for a, b in itertools.pairwise((0, 9, 18, 27, 30, 33, 36))), bool(row[36] > 0.5))
            for row in model.geometry
        ],
        columns=_columns(base), names=base.names, theta=_numbers(model_file.theta),
        warm=seen is not None, lower=lower, upper=upper, leaves=f"{LEAVES:g}",
        ranges=None if ranges is None else plain_text(ranges.text(model)),
        speeds=None if ranges is None else _numbers(ranges.speed),
        springs=springs_text(model_file) if model_file.springs else None,
    )  # fmt: skip


def _effect(layout: ParameterLayout, c: int, value: float) -> tuple[Any, ...]:
    """Return law, value, weights of the joints, constant, exponent, smoothing, and joint of its temperature or None."""
    warm = int(layout.source[c]) if layout.follows_temperature[c] else None
    weights, shape = _numbers(layout.motor[c]), _numbers(layout.shape[c])
    return (laws.COLUMNS[int(layout.law[c])].name, float(value), weights, *shape, warm)


def _columns(base: BaseParameters) -> list[Any]:
    """Return the columns of the base regressor: place of a link's parameter, or effect of value 1."""
    layout = base.layout
    return [int(layout.source[c]) if layout.is_link[c] else _effect(layout, c, 1.0) for c in range(len(layout))]


@cache
def _environment() -> Environment:
    folder = Path(__file__).with_name("templates")
    found = Environment(  # of code, in which nothing is escaped
        loader=FileSystemLoader(folder), trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
        undefined=StrictUndefined,
    )  # fmt: skip
    found.filters |= {"repr": repr, "braces": _braces, "st": _st_literal, "st_formula": _st_formula}
    return found


def _numbers(values: FloatArray) -> tuple[float, ...]:
    return tuple(float(v) for v in values)


def _braces(value: object) -> str:
    """Return a value as C has it, nested tuples as initialisers."""
    if isinstance(value, tuple):
        return "{" + ", ".join(map(_braces, value)) + "}"
    return repr(int(value)) if isinstance(value, bool) else str(value) if isinstance(value, str) else repr(value)


def _st_literal(value: float | tuple[float, ...]) -> str:
    """Return a number, or several, in Structured Text, which has no literal such as 1e-09."""
    if isinstance(value, tuple):
        return ", ".join(map(_st_literal, value))
    mantissa, _, exponent = repr(value).upper().partition("E")
    return mantissa + ".0" * ("." not in mantissa) + ("E" + exponent if exponent else "")


def _st_formula(formula: str) -> str:
    """Return a formula of a joint effect in Structured Text: its functions, and names that are no keywords there."""
    functions = {"fabs": "ABS", "sin": "SIN", "cos": "COS"}
    return re.sub(r"[a-z]+", lambda word: functions.get(word[0], f"f{word[0].capitalize()}"), formula)
