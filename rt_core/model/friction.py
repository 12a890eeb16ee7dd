"""Friction laws for simulation, fitting, prediction and the online estimator.

Per joint, with velocity `v`, position `q` and `s(v) = sgn v`, or `tanh(v/eps)` with smoothing:

    coulomb_viscous         fc*s + fv*v
    coulomb_viscous_offset  fc*s + fv*v + offset
    stribeck                [fc + (fb - fc)*exp(-(v/vb)^2)]*s + kv1*v + kv2*v*|v| + kv3*v^3
    harmonic_drive_input    fv*v + C1*tanh(v/w1) + C2*v*exp(-|v/ws|^delta) + fc*s
    cyclic                  A1*sin q + A2*cos q

Sources: Jing et al. 2025 (Actuators 14, 497) eq. 2 for `stribeck`, where `kv2*v^2` is printed without a sign and so
helps motion in one direction (`quadratic="even"`); the dissipative `kv2*v*|v|` is the default.  Sun et al. eqs. 15 and
18 for the harmonic drive.  Any law may have the cyclic term and a load-dependent term `k1*|tau_load|*s`, with
`tau_load` the torque of the rigid links at the joint: our reading of the `k1` that Jing et al. list but do not define.

All laws are linear in their torques and nonlinear in the velocities `vb`, `w1`, `ws`, the velocity constants.  A
constant of zero (unknown) switches off the term that it shapes.

With `temperature`, Coulomb friction and optionally viscous friction follow the temperature `T` of the joint:

    fc(T) = fc + alpha*(T - T0)          fv(T) = fv + alphav*(T - T0)          T0 = 20 degC

(Jing et al. eq. 3), so that `fc` is the friction at `T0`; with Stribeck's law also `fb(T) = fb + alphab*(T - T0)`.  The
terms of `alpha`, `alphab` and `alphav` are linear, those of `fc`, `fb` and `fv` times `T - T0`.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from rt_core.jit import jit
from rt_core.types import FloatArray

FrictionLaw = Literal["none", "coulomb_viscous", "coulomb_viscous_offset", "stribeck", "harmonic_drive_input", "cyclic"]
Quadratic = Literal["odd", "even", "none"]
Shape: TypeAlias = FloatArray | tuple[float, float, float]
FollowsTemperature = Literal["none", "coulomb", "coulomb_viscous"]

#: `T0`: friction at this temperature is that without temperature terms [degC].
REFERENCE_TEMPERATURE = 20.0

# Kinds of columns of the regressor; saved states hold these numbers.
LAW_LINK = 0
LAW_ARMATURE = 1
LAW_VISCOUS = 2
LAW_COULOMB = 3  # s, times 1 - exp(-(v/vb)^2) where the column has a constant
LAW_OFFSET = 4
LAW_BREAKAWAY = 5  # s*exp(-(v/vb)^2)
LAW_QUADRATIC_ODD = 6
LAW_QUADRATIC_EVEN = 7
LAW_CUBIC = 8
LAW_TANH = 9
LAW_DECAYING_VISCOUS = 10  # v*exp(-|v/ws|^delta)
LAW_SINE = 11
LAW_COSINE = 12
LAW_LOAD = 13
LAW_COULOMB_TEMPERATURE = 14  # as LAW_COULOMB, LAW_VISCOUS, LAW_BREAKAWAY, per kelvin above the reference
LAW_VISCOUS_TEMPERATURE = 15
LAW_BREAKAWAY_TEMPERATURE = 16

#: Laws of columns that are proportional to the joint's temperature above the reference, by the law without it.
FOLLOWING = {
    LAW_COULOMB: LAW_COULOMB_TEMPERATURE,
    LAW_VISCOUS: LAW_VISCOUS_TEMPERATURE,
    LAW_BREAKAWAY: LAW_BREAKAWAY_TEMPERATURE,
}
TEMPERATURE = tuple(FOLLOWING.values())
#: Laws of torques that oppose motion, whose parameters cannot be negative.
DISSIPATIVE = (LAW_VISCOUS, LAW_COULOMB, LAW_BREAKAWAY, LAW_LOAD)
#: Laws of the position alone, which may look like gravity.
CYCLIC = (LAW_SINE, LAW_COSINE)
#: Laws with the sign of the velocity: those of the velocity alone, and those without a temperature.
DRY = (LAW_COULOMB, LAW_BREAKAWAY, LAW_COULOMB_TEMPERATURE, LAW_BREAKAWAY_TEMPERATURE)
SIGNED = (LAW_COULOMB, LAW_BREAKAWAY, LAW_LOAD)
#: Laws that are visible only near their velocity constant.
SHAPED = (LAW_BREAKAWAY, LAW_TANH, LAW_DECAYING_VISCOUS)


class Column(NamedTuple):
    """A law outside the kernels; in the formula `sign` is s(v), `decay` the exponential, `step` tanh(v/constant)."""

    name: str
    units: tuple[str, str]  # of the parameter at a revolute and at a prismatic joint
    formula: str  # of `friction_effect`, in both C and Python, for exported models


_TORQUE, _DAMPING = ("N*m", "N"), ("N*m*s/rad", "N*s/m")
_SQUARE, _CUBE, _WARMTH = ("N*m*s^2/rad^2", "N*s^2/m^2"), ("N*m*s^3/rad^3", "N*s^3/m^3"), ("N*m/K", "N/K")
COLUMNS = {
    LAW_ARMATURE: Column("armature", ("kg*m^2", "kg"), "acceleration"),
    LAW_VISCOUS: Column("viscous", _DAMPING, "speed"),
    LAW_COULOMB: Column("coulomb", _TORQUE, "sign * (1.0 - decay)"),
    LAW_OFFSET: Column("offset", _TORQUE, "1.0"),
    LAW_BREAKAWAY: Column("breakaway", _TORQUE, "sign * decay"),
    LAW_QUADRATIC_ODD: Column("quadratic_odd", _SQUARE, "speed * fabs(speed)"),
    LAW_QUADRATIC_EVEN: Column("quadratic_even", _SQUARE, "speed * speed"),
    LAW_CUBIC: Column("cubic", _CUBE, "speed * speed * speed"),
    LAW_TANH: Column("tanh", _TORQUE, "step"),
    LAW_DECAYING_VISCOUS: Column("decaying_viscous", _DAMPING, "speed * decay"),
    LAW_SINE: Column("sine", _TORQUE, "sin(position)"),
    LAW_COSINE: Column("cosine", _TORQUE, "cos(position)"),
    LAW_LOAD: Column("load", ("1", "1"), "sign * fabs(load)"),
    LAW_COULOMB_TEMPERATURE: Column("coulomb", _WARMTH, "sign * (1.0 - decay)"),
    LAW_VISCOUS_TEMPERATURE: Column("viscous", ("N*m*s/(rad*K)", "N*s/(m*K)"), "speed"),
    LAW_BREAKAWAY_TEMPERATURE: Column("breakaway", _WARMTH, "sign * decay"),
}


@dataclass(frozen=True)
class Friction:
    """Friction model of an arm; the values are in `JointDynamics`."""

    law: FrictionLaw = "coulomb_viscous"  # name of the law, see the module's docstring
    quadratic: Quadratic = "odd"  # form of `stribeck`'s quadratic term
    cubic: bool = True  # `stribeck` has its cubic term
    delta: float = 1.0  # exponent of the harmonic drive's Stribeck term
    smoothing: float = 0.0  # `eps` of `tanh(v/eps)` [rad/s or m/s]; zero for the sign itself
    load: bool = False  # the load-dependent term, on top of the law
    cyclic: bool = False  # the cyclic term, on top of the law
    temperature: FollowsTemperature = "none"  # friction that follows the temperature of its joint

    @property
    def terms(self) -> tuple[tuple[str, int, str], ...]:
        """Linear terms: symbol, law code, and field of `JointDynamics` with the value."""
        base: list[tuple[str, int, str]] = []
        if self.law in ("coulomb_viscous", "coulomb_viscous_offset"):
            base = [("fv", LAW_VISCOUS, "viscous"), ("fc", LAW_COULOMB, "coulomb")]
        elif self.law == "stribeck":
            base = [("kv1", LAW_VISCOUS, "viscous")]
            if self.quadratic != "none":
                code = LAW_QUADRATIC_ODD if self.quadratic == "odd" else LAW_QUADRATIC_EVEN
                base.append(("kv2", code, "quadratic_friction"))
            if self.cubic:
                base.append(("kv3", LAW_CUBIC, "cubic_friction"))
            base += [("fc", LAW_COULOMB, "coulomb"), ("fb", LAW_BREAKAWAY, "breakaway")]
        elif self.law == "harmonic_drive_input":
            base = [
                ("fv", LAW_VISCOUS, "viscous"), ("C1", LAW_TANH, "tanh_torque"),
                ("C2", LAW_DECAYING_VISCOUS, "decaying_viscous"), ("fc", LAW_COULOMB, "coulomb"),
            ]  # fmt: skip
        if self.temperature != "none":
            base.append(("alpha", LAW_COULOMB_TEMPERATURE, "coulomb_temperature"))
            if self.law == "stribeck":
                base.append(("alphab", LAW_BREAKAWAY_TEMPERATURE, "breakaway_temperature"))
        if self.temperature == "coulomb_viscous":
            base.append(("alphav", LAW_VISCOUS_TEMPERATURE, "viscous_temperature"))
        if self.load:
            base.append(("k1", LAW_LOAD, "load_friction"))
        if self.cyclic or self.law == "cyclic":
            base += [("A1", LAW_SINE, "cyclic_sine"), ("A2", LAW_COSINE, "cyclic_cosine")]
        return tuple(base)

    @property
    def constants(self) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
        """Nonlinear constants: symbol, field of `JointDynamics`, and law codes of the columns that they shape."""
        if self.law == "stribeck":
            warm = () if self.temperature == "none" else (LAW_COULOMB_TEMPERATURE, LAW_BREAKAWAY_TEMPERATURE)
            return (("vb", "stribeck_velocity", (LAW_COULOMB, LAW_BREAKAWAY, *warm)),)
        if self.law == "harmonic_drive_input":
            return (("w1", "tanh_velocity", (LAW_TANH,)), ("ws", "decay_velocity", (LAW_DECAYING_VISCOUS,)))
        return ()

    @property
    def shaped(self) -> tuple[int, ...]:
        """Law codes of all columns with a nonlinear constant."""
        return tuple(code for _, _, codes in self.constants for code in codes)

    def exponent(self, code: int) -> float:
        """Return the exponent of the exponential in a column of law `code`."""
        return self.delta if code == LAW_DECAYING_VISCOUS else 2.0


@jit
def smooth_sign(v: float, smoothing: float) -> float:
    """Return `s(v)`: the sign, or `tanh(v/smoothing)`."""
    return float(np.tanh(v / smoothing)) if smoothing > 0.0 else float(np.sign(v))


@jit
def friction_effect(law: int, shape: Shape, q: float, v: float, load: float) -> float:
    """Return the torque of a friction term per unit of its parameter, for a temperature term also per kelvin.

    `shape` is constant [rad/s or m/s] and exponent of the exponential, and the smoothing of the sign; `q` and `v` are
    position and velocity on the side where the friction acts, `load` is the torque of the links at the joint.
    """
    constant, exponent, smoothing = shape[0], shape[1], shape[2]
    if law in (LAW_VISCOUS, LAW_VISCOUS_TEMPERATURE):
        return v
    if law == LAW_SINE:
        return float(np.sin(q))
    if law == LAW_COSINE:
        return float(np.cos(q))
    if law == LAW_QUADRATIC_ODD:
        return v * abs(v)
    if law == LAW_QUADRATIC_EVEN:
        return v * v
    if law == LAW_CUBIC:
        return v * v * v
    if law == LAW_TANH:
        return float(np.tanh(v / constant)) if constant > 0.0 else 0.0
    decay = 0.0
    if constant > 0.0:
        x = abs(v) / constant
        decay = float(np.exp(-(x * x))) if exponent == 2.0 else float(np.exp(-(x**exponent)))
    if law == LAW_DECAYING_VISCOUS:
        return v * decay
    sign = smooth_sign(v, smoothing)
    if law in (LAW_COULOMB, LAW_COULOMB_TEMPERATURE):
        return sign * (1.0 - decay)
    if law in (LAW_BREAKAWAY, LAW_BREAKAWAY_TEMPERATURE):
        return sign * decay
    if law == LAW_LOAD:
        return sign * abs(load)
    return 1.0  # LAW_OFFSET


@jit
def friction_slopes(law: int, shape: Shape, q: float, v: float, load: float) -> tuple[float, float, float]:
    """Return the derivatives of `friction_effect` by `q`, `v` and `load`.

    A sign without smoothing counts as constant, and `|load|` has the slope of its side.
    """
    constant, exponent, smoothing = shape[0], shape[1], shape[2]
    if law in (LAW_VISCOUS, LAW_VISCOUS_TEMPERATURE):
        return 0.0, 1.0, 0.0
    if law == LAW_SINE:
        return float(np.cos(q)), 0.0, 0.0
    if law == LAW_COSINE:
        return -float(np.sin(q)), 0.0, 0.0
    if law == LAW_QUADRATIC_ODD:
        return 0.0, 2.0 * abs(v), 0.0
    if law == LAW_QUADRATIC_EVEN:
        return 0.0, 2.0 * v, 0.0
    if law == LAW_CUBIC:
        return 0.0, 3.0 * v * v, 0.0
    if law == LAW_TANH:
        if not constant > 0.0:
            return 0.0, 0.0, 0.0
        t = float(np.tanh(v / constant))
        return 0.0, (1.0 - t * t) / constant, 0.0
    decay = slope = 0.0  # of the exponential, and by v
    if constant > 0.0 and v != 0.0:
        x = abs(v) / constant
        power = x * x if exponent == 2.0 else x**exponent
        decay = float(np.exp(-power))
        slope = -exponent * power / v * decay
    elif constant > 0.0:
        decay = 1.0
    if law == LAW_DECAYING_VISCOUS:
        return 0.0, decay + v * slope, 0.0
    sign = smooth_sign(v, smoothing)
    turn = (1.0 - sign * sign) / smoothing if smoothing > 0.0 else 0.0
    if law in (LAW_COULOMB, LAW_COULOMB_TEMPERATURE):
        return 0.0, turn * (1.0 - decay) - sign * slope, 0.0
    if law in (LAW_BREAKAWAY, LAW_BREAKAWAY_TEMPERATURE):
        return 0.0, turn * decay + sign * slope, 0.0
    if law == LAW_LOAD:
        return 0.0, turn * abs(load), sign * float(np.sign(load))
    return 0.0, 0.0, 0.0  # LAW_OFFSET
