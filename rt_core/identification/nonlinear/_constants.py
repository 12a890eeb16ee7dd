"""Columns of the regressor that the velocity constants of friction shape.

A constant shapes the torque `a * E(constant)`, with `a` linear in the base parameters:

    stribeck               fc*s + (fb - fc)*s*exp(-(v/vb)^2)      E = s*exp(-(v/vb)^2),      a = fb - fc
      with temperature     the same of alpha, alphab, T - T0      E = (T - T0)*s*exp(...),   a = alphab - alpha
    harmonic_drive_input   C1*tanh(v/w1)                          E = tanh(v/w1),            a = C1
                           C2*v*exp(-|v/ws|^delta)                E = v*exp(-|v/ws|^delta),  a = C2

The columns that remain when the constants are zero (unknown) are linear: the fixed columns.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from rt_core.model import parameters
from rt_core.model.base import BaseParameters
from rt_core.model.friction import (
    LAW_BREAKAWAY,
    LAW_BREAKAWAY_TEMPERATURE,
    LAW_COULOMB,
    LAW_COULOMB_TEMPERATURE,
    LAW_TANH,
)
from rt_core.model.parameters import parameter_name
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray

#: A term is negligible, or equal to a sign, where its exponential or `1 - tanh` is below this.
_INVISIBLE = 1e-4


@dataclass(frozen=True)
class Constant:
    """A velocity constant: name such as `vb2`, joint (from 0), field of `JointDynamics`, unit."""

    name: str
    joint: int
    field: str
    unit: str


@dataclass(frozen=True, eq=False)
class Term:
    """One shaped term `(theta[plus] - theta[minus]) * E(constant)`.

    `constant` is an index; `law`, `exponent` and `smoothing` define `E`, `motor` (n,) the coordinate that it acts on.
    `minus` is -1 where there is none; with `warm`, `E` is proportional to the warmth of the joint `source`.
    """

    constant: int
    law: int
    exponent: float
    smoothing: float
    motor: FloatArray
    plus: int
    minus: int
    source: int = 0
    warm: bool = False

    @property
    def decay(self) -> float:
        """Exponent of the term in `v/constant`."""
        return 1.0 if self.law == LAW_TANH else self.exponent

    @property
    def resolution(self) -> float:
        """The constant below which the term is negligible at speed 1."""
        log = -np.log(_INVISIBLE)
        return float(2.0 / log) if self.law == LAW_TANH else float(log ** (-1.0 / self.exponent))


def shaped_terms(model: RobotModel, base: BaseParameters) -> tuple[tuple[Constant, ...], tuple[Term, ...]]:
    """Return all constants of the model's friction law, joint by joint, and the terms that they shape.

    Raises `ValueError` if a shaped column is not a base parameter of its own: then no motion determines its constant.
    """
    layout = base.layout
    constants: list[Constant] = []
    terms: list[Term] = []
    for i, joint in enumerate(model.joints):
        for symbol, field, codes in model.friction.constants:
            number = len(constants)
            unit = "rad/s" if joint.kind == "revolute" else "m/s"
            constants.append(Constant(parameter_name(symbol, i), i, field, unit))
            of_joint = (layout.source == i) & np.isin(layout.law, codes)
            for motor in np.unique(layout.motor[of_joint], axis=0):
                found = {
                    int(layout.law[c]): int(c)
                    for c in np.flatnonzero(of_joint)
                    if np.array_equal(layout.motor[c], motor)
                }
                law = LAW_BREAKAWAY if LAW_COULOMB in codes else codes[0]
                if set(found) != set(codes):
                    raise ValueError(
                        f"{constants[-1].name} of joint {joint.name} shapes a column that other columns make up: "
                        "choose another friction law"
                    )
                plus, minus = found[law], found.get(LAW_COULOMB, -1) if law == LAW_BREAKAWAY else -1
                _, exponent, smoothing = (float(x) for x in layout.shape[plus])
                terms.append(Term(number, law, exponent, smoothing, motor, plus, minus, i))
                if LAW_COULOMB_TEMPERATURE in found:
                    warm, cool = found[LAW_BREAKAWAY_TEMPERATURE], found[LAW_COULOMB_TEMPERATURE]
                    terms.append(Term(number, law, exponent, smoothing, motor, warm, cool, i, warm=True))
    return tuple(constants), tuple(terms)


def with_constants(
    model: RobotModel, base: BaseParameters, values: Mapping[str, float]
) -> tuple[RobotModel, BaseParameters]:
    """Return model and base parameters with the constants `values` by name, the others unchanged; zero switches off.

    Raises as `rt_core.model.parameters.with_constants`, which sets those of the model.
    """
    changed = parameters.with_constants(model, values)
    known = parameters.friction_constants(model)
    shape = base.standard.shape.copy()
    for name, value in values.items():
        field, joint = known[name]
        codes = next(codes for _, of_law, codes in model.friction.constants if of_law == field)
        shape[(base.standard.source == joint) & np.isin(base.standard.law, codes), 0] = value
    return changed, replace(base, standard=replace(base.standard, shape=shape))
