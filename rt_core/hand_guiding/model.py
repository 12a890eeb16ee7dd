"""Identified model as arrays for the kernel of the controller.

Gravity, Coriolis torque and the mass matrix are linear in the inertial parameters.  Any standard parameters with the
identified base parameters give the right ones, even if the links are not physical bodies.

Friction that opposes motion is compensated by a lower bound that is linear in speed, `dry + slope*|w|`, for each
coordinate `w` on which friction acts: a joint's velocity, or a motor's where the transmission is coupled.  Torque that
depends on position alone (offset, cyclic terms) dissipates nothing and is compensated in full.  Friction that depends
on temperature is that of the start of a session; `friction_left` compares it with another temperature.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rt_core.hand_guiding.rows import COORDINATE_WIDTH, E_COORDINATE, E_LAW, E_SHAPE, E_VALUE, EFFECT_WIDTH
from rt_core.model import friction as laws
from rt_core.model.base import BaseParameters
from rt_core.model.forward import equations_of_motion
from rt_core.model.parameters import ParameterLayout
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray

#: Deadband of the friction compensation, and the further rise to its full value, over the standstill velocity.
DEADBAND, RISE = 1.0, 3.0
_AT_TEMPERATURE = {warm: law for law, warm in laws.FOLLOWING.items()}
_TOP_SPEED = 2.0  # [rad/s or m/s], of a joint without a limit
_POSTURES = 64
_CHECKED_SPEEDS = 40


@dataclass(frozen=True)
class GuidingModel:
    """Arrays of an arm for zero-force control."""

    model: RobotModel
    arm: FloatArray  # (n, 47) geometry and link parameters side by side
    rotor: FloatArray  # (n, n) rotor inertias at the joints
    effects: FloatArray  # (C, EFFECT_WIDTH + n) friction and offset terms of the model
    # (K, COORDINATE_WIDTH + n) coordinates of friction: lower bound, breakaway torque, deadband and rise, weights of
    # the joint velocities
    coordinates: FloatArray
    # (n,) diagonal lower bound of the mass matrix: `M(q) - diag(inertia)` is positive semidefinite in sampled postures
    inertia: FloatArray

    @property
    def n(self) -> int:
        """Number of joints."""
        return self.model.n

    @classmethod
    def of(
        cls, model: RobotModel, base: BaseParameters, theta: FloatArray, standard: FloatArray | None = None,
        temperature: FloatArray | None = None,
    ) -> GuidingModel:  # fmt: skip
        """Build from base parameters `theta` (p,), or from the full `standard` parameters (P,) if given.

        `temperature` (n,) [degC] is needed if friction depends on it. Raises `ValueError` if parameters are not finite,
        of the wrong number, or give a mass matrix that is not positive definite in some posture; or if a needed
        temperature is unknown.
        """
        layout = base.standard
        phi = base.phi(theta) if standard is None else np.asarray(standard, dtype=np.float64)
        if phi.shape != (len(layout),) or not np.all(np.isfinite(phi)):
            raise ValueError(f"the model of {model.name} needs {len(layout)} finite standard parameters")
        warmth = np.zeros(model.n)
        if layout.has_temperature:
            if temperature is None or not np.isfinite(temperature).all():
                raise ValueError(f"friction of {model.name} follows temperature, and that of a joint is not known")
            warmth = temperature - laws.REFERENCE_TEMPERATURE
        inertial = np.zeros((model.n, 10))
        inertial.ravel()[layout.source[layout.is_link]] = phi[layout.is_link]
        rotor = np.zeros((model.n, model.n))
        for c in np.flatnonzero(layout.law == laws.LAW_ARMATURE):
            rotor += phi[c] * np.outer(layout.motor[c], layout.motor[c])
        effects, weights = _effects(layout, phi, warmth)
        coordinates = np.array([_coordinate(model, effects, k, w) for k, w in enumerate(weights)])
        if not np.isfinite(coordinates).all():
            raise ValueError(f"friction in the model of {model.name} is too large to be computed")
        return cls(
            model, np.ascontiguousarray(np.hstack((model.geometry, inertial))), rotor, effects,
            coordinates.reshape(-1, COORDINATE_WIDTH + model.n), _smallest_inertia(model, inertial, rotor),
        )  # fmt: skip


def _effects(layout: ParameterLayout, phi: FloatArray, warmth: FloatArray) -> tuple[FloatArray, list[FloatArray]]:
    """Return friction and offset terms (C, EFFECT_WIDTH + n) at `warmth` (n,) [K] above reference, and their motors."""
    rows: list[FloatArray] = []
    weights: list[FloatArray] = []
    for c in np.flatnonzero((layout.law != laws.LAW_LINK) & (layout.law != laws.LAW_ARMATURE)):
        law, motor, value = int(layout.law[c]), layout.motor[c], float(phi[c])
        if law in _AT_TEMPERATURE:
            law, value = _AT_TEMPERATURE[law], value * float(warmth[layout.source[c]])
        place = -1
        if law != laws.LAW_OFFSET and law not in laws.CYCLIC:
            place = next((k for k, w in enumerate(weights) if np.array_equal(w, motor)), len(weights))
            if place == len(weights):
                weights.append(motor)
        rows.append(np.concatenate(([law, *layout.shape[c], value, place], motor)))
    return np.array(rows).reshape(-1, EFFECT_WIDTH + layout.motor.shape[1]), weights


def friction_left(
    model: RobotModel, base: BaseParameters, theta: FloatArray, started: FloatArray, present: FloatArray
) -> float:
    """Return friction at temperatures `present` (n,) [degC] over the bound compensated since those at `started` (n,).

    The minimum over all coordinates and speeds, for base parameters `theta` (p,).  Unless it is above the compensated
    share, compensation drives the arm.
    """
    phi, least = base.phi(theta), np.inf
    before, weights = _effects(base.standard, phi, started - laws.REFERENCE_TEMPERATURE)
    after, _ = _effects(base.standard, phi, present - laws.REFERENCE_TEMPERATURE)
    for k, w in enumerate(weights):
        dry, slope, _, standstill = _coordinate(model, before, k, w)[:4]
        speed = np.geomspace(standstill, max(_top_speed(model, w), 2.0 * standstill), _CHECKED_SPEEDS)
        own = after[after[:, E_COORDINATE] == k]
        friction = np.minimum(_friction(own, speed), -_friction(own, -speed))
        compensated = dry + slope * speed
        if compensated.max() > 0.0:
            least = min(least, float((friction / np.maximum(compensated, 1e-12)).min()))
    return least


def _top_speed(model: RobotModel, weights: FloatArray) -> float:
    joint = model.joints[int(np.argmax(np.abs(weights)))]
    return joint.velocity if np.isfinite(joint.velocity) else _TOP_SPEED


def _coordinate(model: RobotModel, effects: FloatArray, index: int, weights: FloatArray) -> FloatArray:
    """Return the row of one coordinate: lower bound and breakaway of its friction, deadband, rise, weights."""
    standstill = float(model.standstill_velocity[int(np.argmax(np.abs(weights)))])
    top = _top_speed(model, weights)
    own = effects[effects[:, E_COORDINATE] == index]
    speed = np.geomspace(DEADBAND * standstill, max(top, 2.0 * standstill), 400)
    dry, slope = _lower_bound(speed, np.minimum(_friction(own, speed), -_friction(own, -speed)), own)
    start = np.array([-1e-9, 1e-9])
    breakaway = max(float(np.abs(_friction(own, start)).max()), dry)
    return np.array([dry, slope, breakaway, DEADBAND * standstill, RISE * standstill, *weights])


def _friction(effects: FloatArray, velocity: FloatArray) -> FloatArray:
    """Return the friction of `effects` at velocities (N,), without load-dependent terms."""
    total = np.zeros_like(velocity)
    for row in effects:
        law, shape = int(row[E_LAW]), row[E_SHAPE : E_SHAPE + 3]
        if law != laws.LAW_LOAD:
            total += row[E_VALUE] * np.array([laws.friction_effect(law, shape, 0.0, v, 0.0) for v in velocity])
    return total


def _lower_bound(speed: FloatArray, friction: FloatArray, effects: FloatArray) -> tuple[float, float]:
    """Return `dry` and `slope`, not negative, with `dry + slope*speed <= friction` everywhere.

    Of all such lines it is the highest at a tenth of the top speed, a typical speed of guiding.
    """
    at = 0.1 * speed[-1]
    viscous = float(effects[effects[:, E_LAW] == laws.LAW_VISCOUS, E_VALUE].sum())
    steepest = max(float(friction[-1]) / float(speed[-1]), 0.0)
    candidates = np.append(np.linspace(0.0, steepest, 101), np.clip(viscous, 0.0, steepest))
    dry = np.array([np.min(friction - slope * speed) for slope in candidates])
    good = dry >= 0.0
    if not good.any():
        return 0.0, 0.0
    best = int(np.argmax(np.where(good, dry + candidates * at, -1.0)))
    return float(dry[best]), float(candidates[best])


def postures(model: RobotModel, count: int = _POSTURES) -> FloatArray:
    """Return random positions (count, n) within the joints' limits."""
    lower = np.array([j.lower if np.isfinite(j.lower) else -np.pi for j in model.joints])
    upper = np.array([j.upper if np.isfinite(j.upper) else np.pi for j in model.joints])
    return np.random.default_rng(0).uniform(lower, upper, (count, model.n))


def _smallest_inertia(model: RobotModel, inertial: FloatArray, rotor: FloatArray) -> FloatArray:
    """Return `GuidingModel.inertia` (n,), in proportion to the smallest inertia of each joint moving alone."""
    q = postures(model)
    mass, _ = equations_of_motion(model.geometry, model.gravity, inertial, q, np.zeros_like(q))
    mass = mass + rotor
    smallest = np.linalg.eigvalsh(mass)[:, 0].min()
    if not smallest > 0.0:
        raise ValueError(
            f"the model of {model.name} is not physical: its mass matrix has the eigenvalue {smallest:.3g} in some "
            "posture; identify again with better excitation, or with a physically consistent method"
        )
    alone = 1.0 / np.linalg.inv(mass).diagonal(axis1=1, axis2=2).max(axis=0)
    root = np.sqrt(alone)
    shares = np.linalg.eigvalsh(root[:, None] * np.linalg.inv(mass) * root)[:, -1]
    return np.asarray(alone / shares.max())
