"""Friction of a simulated arm: the terms of its law, packed for the kernels.

Every term is a value times `rt_core.model.friction.friction_effect`, which also makes the columns of the regressor.
Terms are sorted by how they are integrated:

    plain    viscous friction, linear                           row `VISCOUS` of the parameters, `t < PLAIN_END`
    smooth   every other function of position and velocity      `PLAIN_END <= t < SMOOTH_END`
    dry      the torque that opposes sliding and holds a joint  `SMOOTH_END <= t < DRY_END`
    load     `k1*|tau_load|*s`, which depends on acceleration   `t >= DRY_END`

With a smoothing velocity `sgn` is `tanh`, dry terms count as smooth, and joints never stick.  Friction that follows
temperature has no terms of its own: values and constants change with it (`sim_backend.arm.temperature`).
"""

from dataclasses import dataclass, replace

import numpy as np

from rt_core.jit import kernel
from rt_core.model import friction as laws
from rt_core.model.robot import JointDynamics, RobotModel
from rt_core.types import FloatArray
from sim_backend.arm import layout as at
from sim_backend.errors import SimulationConfigError

#: Velocity in place of zero, for its sign.
_CREEP = 1e-300
#: Widths from zero within which an exponential and a hyperbolic tangent are steep.
GAUSSIAN_REACH, _TANH_REACH = 3.0, 4.0
#: Largest deviation from the reference temperature in bounds on slopes [K].
_WARMTH = 80.0
#: Default limits in bounds on slopes [rad/s, N*m].
_TOP_SPEED, _TOP_LOAD = 2.0, 100.0
#: Steepest slope of `exp(-x^2)`.
_GAUSSIAN_SLOPE = float(np.sqrt(2.0 / np.e))


@kernel
def effect(terms: FloatArray, t: int, i: int, x: float, v: float, load: float) -> float:
    """Return the torque of term `t` at motor `i`, at its position and velocity."""
    shape = terms[t, at.CONSTANT, i], terms[t, at.EXPONENT, i], terms[t, at.SMOOTHING, i]
    return float(terms[t, at.VALUE, i] * laws.friction_effect(int(terms[t, at.CODE, i]), shape, x, v, load))


@kernel
def dry_level(terms: FloatArray, first: int, end: int, i: int, v: float, load: float) -> float:
    """Return the dry friction of terms `first` to `end` at motor `i` while it slides at speed `|v|`."""
    total = 0.0
    for t in range(first, end):
        total += effect(terms, t, i, 0.0, max(abs(v), _CREEP), load)
    return total


@kernel
def friction_batch(terms: FloatArray, x: FloatArray, v: FloatArray, load: FloatArray, out: FloatArray) -> None:
    """Sum all terms (T, TERM_ROWS, n) at positions, velocities and loads (N, n) into `out` (N, n)."""
    for k in range(x.shape[0]):
        for i in range(x.shape[1]):
            out[k, i] = 0.0
            for t in range(terms.shape[0]):
                out[k, i] += effect(terms, t, i, x[k, i], v[k, i], load[k, i])


@dataclass(frozen=True)
class FrictionTerms:
    """Packed friction of an arm; the ends are those of the module docstring.

    `values` (T, TERM_ROWS, n) has code, value, constant, exponent and smoothing of each term; where it is steep, the
    width in velocity of its change, the reach from zero, and its steepest slope [N*m*s/rad].  `slope` (n,) bounds the
    slope of the other terms within the joint's velocity limit [N*m*s/rad].
    """

    values: FloatArray
    plain_end: int
    smooth_end: int
    dry_end: int
    slope: FloatArray

    @property
    def viscous(self) -> FloatArray:
        """(n,) coefficient of viscous friction [N*m*s/rad]."""
        return np.asarray(self.values[: self.plain_end, at.VALUE].sum(axis=0))

    @property
    def hold(self) -> FloatArray:
        """(n,) torque up to which dry friction holds a motor, without that of the load."""
        joints = range(self.values.shape[2])
        return np.array([dry_level(self.values, self.smooth_end, self.dry_end, i, 0.0, 0.0) for i in joints])

    @property
    def dry(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """(n,) whether dry friction acts on a motor at all."""
        rest = self.values[self.smooth_end :]
        return np.asarray(np.any((rest[:, at.VALUE] != 0.0) & (rest[:, at.SMOOTHING] == 0.0), axis=0))

    @property
    def varying(self) -> bool:
        """Whether dry friction depends on the speed."""
        return bool(np.any(self.values[self.smooth_end : self.dry_end, at.CONSTANT] > 0.0))

    @property
    def warm(self) -> bool:
        """Whether friction follows the temperature."""
        return bool(np.any(self.values[:, [at.VALUE_SLOPE, at.CONSTANT_SLOPE]] != 0.0))

    @property
    def loaded(self) -> bool:
        """Whether friction depends on the load of the joint."""
        return bool(np.any(self.values[self.dry_end :, at.VALUE] != 0.0))

    @property
    def steep(self) -> bool:
        """Whether a term changes within a small velocity."""
        return bool(np.any(self.values[:, at.WIDTH] > 0.0))

    def with_brake(self, torque: FloatArray) -> "FrictionTerms":
        """Add brakes as dry friction of `torque` (n,) [N*m], zero where a brake is released."""
        row = np.zeros((1, at.TERM_ROWS, torque.shape[0]))
        row[0, at.CODE], row[0, at.VALUE] = laws.LAW_COULOMB, torque
        values = np.concatenate((self.values[: self.dry_end], row, self.values[self.dry_end :]))
        return replace(self, values=values, dry_end=self.dry_end + 1)


def friction_terms(model: RobotModel, dynamics: JointDynamics) -> FrictionTerms:
    """Pack the friction of `model` with the values of `dynamics`.

    Raises `SimulationConfigError`: load-dependent friction of a coupled motor, or as large as the load itself.
    """
    law = model.friction
    smoothed = law.smoothing > 0.0
    dry_codes = () if smoothed else laws.DRY
    followed = {code: field for _, code, field in law.terms if code in laws.TEMPERATURE}
    order = sorted(
        (term for term in law.terms if term[1] not in laws.TEMPERATURE),
        key=lambda term: (term[1] == laws.LAW_LOAD, term[1] in dry_codes, term[1] != laws.LAW_VISCOUS),
    )
    constants = {code: field for _, field, codes in law.constants for code in codes}
    values = np.zeros((len(order), at.TERM_ROWS, model.n))
    for row, (_, code, field) in zip(values, order, strict=True):
        row[at.CODE], row[at.EXPONENT], row[at.SMOOTHING] = code, law.exponent(code), law.smoothing
        row[at.VALUE] = getattr(dynamics, field)
        if code == laws.LAW_LOAD:
            _check_load(model, row[at.VALUE])
        if code in constants:
            row[at.CONSTANT] = getattr(dynamics, constants[code])
            if followed and constants[code] == "stribeck_velocity":
                row[at.CONSTANT_SLOPE] = np.where(row[at.CONSTANT] > 0.0, dynamics.stribeck_velocity_temperature, 0.0)
        if laws.FOLLOWING.get(code) in followed:
            row[at.VALUE_SLOPE] = getattr(dynamics, followed[laws.FOLLOWING[code]])
        row[at.VALUE_AT_REFERENCE], row[at.CONSTANT_AT_REFERENCE] = row[at.VALUE], row[at.CONSTANT]
    codes = [code for _, code, _ in order]
    dry_end = len(codes) - codes.count(laws.LAW_LOAD)
    smooth_end = dry_end - sum(code in dry_codes for code in codes)
    slope = _mark_steep(model, dynamics, values)
    return FrictionTerms(values, codes.count(laws.LAW_VISCOUS), smooth_end, dry_end, slope)


def _check_load(model: RobotModel, value: FloatArray) -> None:
    for joint, weights, k1 in zip(model.joints, model.coupling, value, strict=True):
        if k1 != 0.0 and np.count_nonzero(weights) > 1:
            raise SimulationConfigError(
                f"load_friction of joint '{joint.name}' must be 0 in a simulated arm: its motor also turns with "
                "another joint, so that no joint's torque is its load"
            )
        if not k1 < 1.0:
            raise SimulationConfigError(
                f"load_friction of joint '{joint.name}' must be below 1: friction larger than the load locks the joint"
            )


def _mark_steep(model: RobotModel, dynamics: JointDynamics, values: FloatArray) -> FloatArray:
    """Fill the rows `WIDTH`, `REACH` and `RATE` (as a slope); return the slope (n,) of all other terms."""
    speed = np.array([j.velocity if np.isfinite(j.velocity) else _TOP_SPEED for j in model.joints])
    effort = np.array([j.effort if np.isfinite(j.effort) else _TOP_LOAD for j in model.joints])
    breaking = np.where(dynamics.stribeck_velocity > 0.0, dynamics.breakaway, 0.0)
    slope = np.zeros(model.n)
    hottest = {int(row[at.CODE, 0]): np.abs(row[at.VALUE]) + _WARMTH * np.abs(row[at.VALUE_SLOPE]) for row in values}
    coulomb = hottest.get(laws.LAW_COULOMB, dynamics.coulomb)
    largest = np.maximum(coulomb, breaking if model.friction.law == "stribeck" else 0.0)
    for row in values:
        code = int(row[at.CODE, 0])
        value = hottest[code]
        shaped = np.where(row[at.CONSTANT] > 0.0, row[at.CONSTANT], np.inf)
        steepest = np.zeros(model.n)
        if code == laws.LAW_TANH:
            row[at.WIDTH], row[at.REACH] = row[at.CONSTANT], _TANH_REACH * row[at.CONSTANT]
            steepest = value / shaped
        elif code == laws.LAW_BREAKAWAY:
            row[at.WIDTH], row[at.REACH] = row[at.CONSTANT], GAUSSIAN_REACH * row[at.CONSTANT]
            steepest = _GAUSSIAN_SLOPE * np.abs(value - dynamics.coulomb) / shaped
        elif code in (laws.LAW_COULOMB, laws.LAW_LOAD) and model.friction.smoothing > 0.0:
            row[at.WIDTH], row[at.REACH] = model.friction.smoothing, _TANH_REACH * model.friction.smoothing
            steepest = (largest if code == laws.LAW_COULOMB else value * effort) / model.friction.smoothing
        elif code not in laws.SIGNED:
            for i, (constant, exponent) in enumerate(row[[at.CONSTANT, at.EXPONENT]].T):
                speeds = np.linspace(0.0, speed[i], 65)
                rates = [laws.friction_slopes(code, (constant, exponent, 0.0), 0.0, v, 0.0)[1] for v in speeds]
                slope[i] += value[i] * np.abs(rates).max()
        row[at.RATE] = steepest
        row[at.WIDTH, steepest == 0.0] = 0.0
    return slope
