"""Torque constants from a known payload, if only the motors' current is measured.

The same motion out and back is made without and with the payload.  The half sum of current over both ways is free of
friction, and its change is due to the payload's gravity and inertia alone: with `tau = matrix' (Kt * i)`, motor by
motor,

    Kt_k * delta_i_k = g_k,     g = matrix'^-1 (torque of the payload at the joints),

a line over all places of the path.  Gravity acts on the motors that lift the payload, inertia on those that only swing
it, such as that of a vertical axis.  The line has a constant term for an offset that drifts between the two motions.
The regressor `g` follows from geometry and the noise is in the current, so `delta_i` is fitted over `g`, and the torque
constant is the inverse of the slope.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rt_core.commissioning._hysteresis import slope_std
from rt_core.commissioning.findings import CommissioningError
from rt_core.model.dynamics import inverse_dynamics
from rt_core.model.inertia import inertial_vector, transform_inertial
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray

#: Least significant slope, in standard deviations; below it not even the sign is certain.
SURE = 5.0


@dataclass(frozen=True)
class TorqueConstant:
    """Torque constant of one motor [N*m/A], or [N/A]; NaN if undetermined."""

    value: float  # with its sign
    std: float  # of noise, without errors of the payload
    determined: bool
    text: str  # the reason if undetermined, else the observed torque of the payload


def payload_parameters(model: RobotModel, mass: float, centre: Sequence[float]) -> FloatArray:
    """Return the parameters (10,) in the last link's frame of a point mass [kg] at `centre` (3,) [m] of the flange.

    Raises `CommissioningError` if the mass is not above 0.
    """
    if not mass > 0.0:
        raise CommissioningError(f"the payload's mass must be above 0, not {mass:g} kg")
    phi = inertial_vector(mass, np.asarray(centre, dtype=np.float64), np.zeros((3, 3)))
    return transform_inertial(phi, model.tip_rotation, model.tip_translation)


def payload_torque(
    model: RobotModel, q: FloatArray, dq: FloatArray, ddq: FloatArray, mass: float, centre: Sequence[float]
) -> FloatArray:
    """Return the joint torque (B, n) of a point mass [kg] at `centre` (3,) [m] of the flange, at states (B, n).

    Raises as `payload_parameters`.
    """
    inertial = np.zeros((model.n, 10))
    inertial[-1] = payload_parameters(model, mass, centre)
    return inverse_dynamics(model.geometry, model.gravity, inertial, q, dq, ddq)


def torque_constants(
    matrix: FloatArray, change: Sequence[FloatArray], torque: Sequence[FloatArray]
) -> tuple[TorqueConstant, ...]:
    """Estimate the torque constants of all motors.

    Parameters
    ----------
    matrix : (n, n) float64
        Of the transmission: `q_motor = matrix @ q + offset`.
    change : sequence of (B, n) float64
        Half sum of current [A] with the payload less that without, place by place, for each path.
    torque : sequence of (B, n) float64
        Torque of the payload at the joints, at these places.

    Raises
    ------
    CommissioningError
        If there is no path, or shapes differ.
    """
    if not change or len(change) != len(torque) or any(i.shape != g.shape for i, g in zip(change, torque, strict=True)):
        raise CommissioningError("current and torque of the payload have to be given for the same places")
    motor = [np.asarray(np.linalg.solve(matrix.T, g.T).T, dtype=np.float64) for g in torque]
    return tuple(_constant([i[:, k] for i in change], [g[:, k] for g in motor]) for k in range(len(matrix)))


def _constant(change: list[FloatArray], torque: list[FloatArray]) -> TorqueConstant:
    x, y = np.concatenate(torque), np.concatenate(change)
    largest = float(np.abs(x).max())
    x, y = x - x.mean(), y - y.mean()
    power = float(x @ x)
    if not power > (1e-9 * max(largest, 1e-9)) ** 2 * x.size or largest < 1e-9:
        return TorqueConstant(
            np.nan, np.nan, False, "the payload's torque at this motor does not change on these paths"
        )
    slope = float(x @ y) / power
    std = slope_std(power, y - slope * x, max(x.size - 2, 1))
    seen = f"{largest:.3g} N*m of the payload at the motor"
    if not abs(slope) > SURE * std:
        return TorqueConstant(np.nan, np.nan, False, f"{seen} do not show above the noise of the current")
    return TorqueConstant(1.0 / slope, std / slope**2, True, seen)
