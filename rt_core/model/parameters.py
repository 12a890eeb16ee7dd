"""Standard parameters of an arm, the columns of the regressor: their order, names and units.

Joint by joint, the parameters of the joint come just before those of its link, so that a column affects only the torque
rows of its own and earlier joints, which the online factorisation exploits.  Per joint `i` (counted from 1):

    Iai fvi fci offi          rotor inertia, viscous and Coulomb friction, offset, if in the model
    kv1_i kv2_i kv3_i fci fbi and so on: the terms of the model's friction law (`rt_core.model.friction`)
    alphai alphabi alphavi    how Coulomb, breakaway and viscous friction follow the joint's temperature
    Iami fvmi fcmi            the same at motor `i`, where the transmission couples it to another joint
    mi mxi myi mzi Ixxi Ixyi Iyyi Ixzi Iyzi Izzi
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from rt_core.model.friction import COLUMNS, LAW_ARMATURE, LAW_LINK, LAW_LOAD, LAW_OFFSET, TEMPERATURE
from rt_core.model.robot import JointDynamics, RobotModel
from rt_core.types import BoolArray, FloatArray, IntArray

LINK_NAMES = ("m", "mx", "my", "mz", "Ixx", "Ixy", "Iyy", "Ixz", "Iyz", "Izz")
_LINK_UNITS = ("kg", "kg*m", "kg*m", "kg*m") + 6 * ("kg*m^2",)


@dataclass(frozen=True)
class ParameterLayout:
    """Columns of a regressor."""

    names: tuple[str, ...]
    units: tuple[str, ...]
    law: IntArray  # (P,) kind of the column: one of the `LAW_` constants
    source: IntArray  # (P,) for a link parameter `10*link + element`, else the joint's index
    motor: FloatArray  # (P, n) for a joint effect: the coordinate that it acts on, as weights of the joint coordinates
    # (P, 3) for a friction term: the velocity constant (zero if it has none), the exponent, and the smoothing velocity
    shape: FloatArray

    def __len__(self) -> int:
        return len(self.names)

    def take(self, columns: IntArray) -> "ParameterLayout":
        """Return the layout of the given columns only."""
        names, units = (tuple(x[c] for c in columns) for x in (self.names, self.units))
        law, source = self.law[columns], self.source[columns]
        return ParameterLayout(names, units, law, source, self.motor[columns], self.shape[columns])

    @property
    def joint(self) -> IntArray:
        """(P,) the joint or link each column belongs to."""
        return np.where(self.law == LAW_LINK, self.source // 10, self.source)

    @property
    def is_link(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """(P,) True for link parameters, False for joint effects."""
        return np.asarray(self.law == LAW_LINK)

    @property
    def has_load(self) -> bool:
        """Whether a column depends on the torque of the links at a joint."""
        return bool((self.law == LAW_LOAD).any())

    @cached_property
    def follows_temperature(self) -> BoolArray:
        """(P,) True for columns that are proportional to a joint's temperature above the reference."""
        return np.isin(self.law, TEMPERATURE)

    @property
    def has_temperature(self) -> bool:
        """Whether a column depends on the temperature of a joint."""
        return bool(self.follows_temperature.any())


def parameter_name(symbol: str, joint: int, at_motor: bool = False) -> str:
    """Return the name of a joint's parameter, `joint` counted from 0: `fc3`, `fcm3` at a coupled motor, `kv1_3`."""
    text = symbol + ("m" if at_motor else "")
    return f"{text}_{joint + 1}" if text[-1].isdigit() else f"{text}{joint + 1}"


def standard_layout(model: RobotModel) -> ParameterLayout:
    """Return all standard parameters of `model`, in the order of the module docstring.

    The velocity constants of friction come from `model.dynamics`; unknown ones are zero.
    """
    n = model.n
    friction = model.friction
    columns: list[tuple[str, str, int, int, FloatArray, tuple[float, float, float]]] = []
    plain = (0.0, 0.0, 0.0)
    for i, joint in enumerate(model.joints):
        side = 0 if joint.kind == "revolute" else 1
        own = np.eye(n)[i]
        coupled = np.count_nonzero(model.coupling[i]) > 1
        for at_motor in (False, True) if coupled else (False,):
            weights = model.coupling[i] if at_motor else own
            if model.armature:
                unit = COLUMNS[LAW_ARMATURE].units[side]
                columns.append((parameter_name("Ia", i, at_motor), unit, LAW_ARMATURE, i, weights, plain))
            for symbol, code, _ in friction.terms:
                if code == LAW_LOAD and at_motor:
                    continue  # the load of a motor of two joints is not a joint's torque
                constant = 0.0
                for _, known, shaped in friction.constants:
                    if code in shaped and model.dynamics is not None:
                        constant = float(getattr(model.dynamics, known)[i])
                shape = (constant, friction.exponent(code), friction.smoothing)
                name, unit = parameter_name(symbol, i, at_motor), COLUMNS[code].units[side]
                columns.append((name, unit, code, i, weights, shape))
        if model.offset or friction.law == "coulomb_viscous_offset":
            columns.append((f"off{i + 1}", COLUMNS[LAW_OFFSET].units[side], LAW_OFFSET, i, own, plain))
        columns += [
            (f"{LINK_NAMES[e]}{i + 1}", _LINK_UNITS[e], LAW_LINK, 10 * i + e, np.zeros(n), plain) for e in range(10)
        ]
    names, units, law, source_of, motor, shapes = zip(*columns, strict=True)
    laws, sources = np.array(law, dtype=np.int64), np.array(source_of, dtype=np.int64)
    return ParameterLayout(names, units, laws, sources, np.array(motor), np.array(shapes))


def standard_parameters(model: RobotModel, layout: ParameterLayout) -> FloatArray:
    """Return the values (P,) of the columns of `layout` from the model's own priors; zero where it has none."""
    values = np.zeros(len(layout))
    held = {code: source for _, code, source in model.friction.terms}
    held |= {LAW_ARMATURE: "armature", LAW_OFFSET: "offset"}
    for c in range(len(layout)):
        s, law = int(layout.source[c]), int(layout.law[c])
        if law == LAW_LINK:
            if model.inertial is not None:
                values[c] = model.inertial[s // 10, s % 10]
        elif model.dynamics is not None:
            coupled = np.count_nonzero(model.coupling[s]) > 1
            at_motor = np.count_nonzero(layout.motor[c]) > 1
            if coupled != at_motor and law not in (LAW_OFFSET, LAW_LOAD):
                continue  # a coupled motor's effects act at the motor, an uncoupled one's at the joint
            values[c] = getattr(model.dynamics, held[law])[s]
    return values


def stated_parameters(model: RobotModel, layout: ParameterLayout) -> BoolArray:
    """Return a mask (P,) of the columns whose value the model's description gives, as opposed to defaults of zero.

    A first moment needs mass and centre, an inertia about the link frame all parameters of a link.
    """
    given = np.zeros(len(layout), dtype=bool)
    held = {code: source for _, code, source in model.friction.terms}
    held |= {LAW_ARMATURE: "armature", LAW_OFFSET: "offset"}
    stated = model.stated
    for c in range(len(layout)):
        s, law = int(layout.source[c]), int(layout.law[c])
        if law == LAW_LINK:
            i, element = divmod(s, 10)
            given[c] = model.inertial is not None and (
                stated is None
                or (stated.mass[i] and (element < 1 or stated.centre[i]) and (element < 4 or stated.inertia[i]))
            )
        elif model.dynamics is not None:
            given[c] = stated is None or (held[law] in stated.effects and stated.effects[held[law]][s])
    return given


def friction_constants(model: RobotModel) -> dict[str, tuple[str, int]]:
    """Return the nonlinear constants of the model's friction by name: field of `JointDynamics` and joint."""
    return {
        parameter_name(symbol, i): (source, i) for i in range(model.n) for symbol, source, _ in model.friction.constants
    }


def with_constants(model: RobotModel, values: Mapping[str, float]) -> RobotModel:
    """Return the model with the named friction constants [rad/s or m/s] set, the others as they are.

    Raises `ValueError` if a name is unknown, or a value negative or not finite.
    """
    known = friction_constants(model)
    dynamics = JointDynamics.zeros(model.n) if model.dynamics is None else model.dynamics
    changed: dict[str, FloatArray] = {}
    for name, value in values.items():
        if name not in known:
            raise ValueError(f"{name} is not a constant of this robot's friction; it has {', '.join(known) or 'none'}")
        if not 0.0 <= value < np.inf:
            raise ValueError(f"{name} must be a velocity, finite and not negative, not {value}")
        source, joint = known[name]
        changed.setdefault(source, getattr(dynamics, source).copy())[joint] = value
    return replace(model, dynamics=replace(dynamics, **changed)) if changed else model
