"""Which columns the regressor has: the standard parameters of an arm, their order, names and units.

Joint by joint, the parameters of the joint itself stand just before those of its link: a column then
meets only the torque rows of its own and earlier joints, which the online factorisation exploits.
Per joint `i` (counted from 1):

    Iai fvi fci offi          rotor inertia, viscous and Coulomb friction, offset; as the model asks
    Iami fvmi fcmi            the same at motor `i`, where the transmission couples it to another joint
    mi mxi myi mzi Ixxi Ixyi Iyyi Ixzi Iyzi Izzi
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray, IntArray

LAW_LINK = 0
LAW_ARMATURE = 1
LAW_VISCOUS = 2
LAW_COULOMB = 3
LAW_OFFSET = 4

LINK_NAMES = ("m", "mx", "my", "mz", "Ixx", "Ixy", "Iyy", "Ixz", "Iyz", "Izz")
_LINK_UNITS = ("kg", "kg*m", "kg*m", "kg*m") + 6 * ("kg*m^2",)


@dataclass(frozen=True)
class ParameterLayout:
    """Columns of a regressor.

    Attributes
    ----------
    names, units : tuple of str
    law : (P,) int64
        What the column is: one of the `LAW_` constants.
    source : (P,) int64
        For a link parameter `10*link + element`, else the joint's index.
    motor : (P, n) float64
        For a joint effect: the coordinate it acts on, as weights of the joint coordinates.
    """

    names: tuple[str, ...]
    units: tuple[str, ...]
    law: IntArray
    source: IntArray
    motor: FloatArray

    def __len__(self) -> int:
        return len(self.names)

    def take(self, columns: IntArray) -> ParameterLayout:
        """Return the layout of the given columns only."""
        return ParameterLayout(
            tuple(self.names[c] for c in columns),
            tuple(self.units[c] for c in columns),
            self.law[columns],
            self.source[columns],
            self.motor[columns],
        )

    @property
    def joint(self) -> IntArray:
        """(P,) the joint or link each column belongs to."""
        return np.where(self.law == LAW_LINK, self.source // 10, self.source)

    @property
    def is_link(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """(P,) True for link parameters, False for joint effects."""
        return np.asarray(self.law == LAW_LINK)


def standard_layout(model: RobotModel) -> ParameterLayout:
    """All standard parameters that `model` asks for, in the order of the module docstring."""
    n = model.n
    coupling = model.coupling
    names: list[str] = []
    units: list[str] = []
    law: list[int] = []
    source: list[int] = []
    motor: list[FloatArray] = []

    def add(name: str, unit: str, code: int, origin: int, weights: FloatArray) -> None:
        names.append(name)
        units.append(unit)
        law.append(code)
        source.append(origin)
        motor.append(weights)

    for i, joint in enumerate(model.joints):
        revolute = joint.kind == "revolute"
        inertia = "kg*m^2" if revolute else "kg"
        viscous = "N*m*s/rad" if revolute else "N*s/m"
        torque = "N*m" if revolute else "N"
        own = np.eye(n)[i]
        coupled = np.count_nonzero(coupling[i]) > 1
        for suffix, weights in (("", own), ("m", coupling[i])):
            if suffix and not coupled:
                continue
            if model.armature:
                add(f"Ia{suffix}{i + 1}", inertia, LAW_ARMATURE, i, weights)
            if model.friction != "none":
                add(f"fv{suffix}{i + 1}", viscous, LAW_VISCOUS, i, weights)
                add(f"fc{suffix}{i + 1}", torque, LAW_COULOMB, i, weights)
        if model.offset or model.friction == "coulomb_viscous_offset":
            add(f"off{i + 1}", torque, LAW_OFFSET, i, own)
        for e in range(10):
            add(f"{LINK_NAMES[e]}{i + 1}", _LINK_UNITS[e], LAW_LINK, 10 * i + e, np.zeros(n))
    return ParameterLayout(
        tuple(names),
        tuple(units),
        np.array(law, dtype=np.int64),
        np.array(source, dtype=np.int64),
        np.array(motor).reshape(len(names), n),
    )


def standard_parameters(model: RobotModel, layout: ParameterLayout) -> FloatArray:
    """(P,) values of the columns of `layout` from the model's own priors; zero where it has none."""
    values = np.zeros(len(layout))
    for c in range(len(layout)):
        s = int(layout.source[c])
        if layout.law[c] == LAW_LINK:
            if model.inertial is not None:
                values[c] = model.inertial[s // 10, s % 10]
        elif model.dynamics is not None:
            coupled = np.count_nonzero(model.coupling[s]) > 1
            at_motor = layout.names[c].rstrip("0123456789").endswith("m")
            if coupled != at_motor and layout.law[c] != LAW_OFFSET:
                continue  # a coupled motor's effects act at the motor, an uncoupled one's at the joint
            effect = {
                LAW_ARMATURE: model.dynamics.armature,
                LAW_VISCOUS: model.dynamics.viscous,
                LAW_COULOMB: model.dynamics.coulomb,
                LAW_OFFSET: model.dynamics.offset,
            }[int(layout.law[c])]
            values[c] = effect[s]
    return values
