"""One sample of a `DriveArm`, evaluated lazily."""

from __future__ import annotations

import numpy as np

from rt_core.types import BoolArray, FloatArray
from sim_backend.arm import layout


class _Row:
    """Attribute of a row of the kernels' output."""

    def __init__(self, row: int) -> None:
        self._row = row

    def __get__(self, sample: DriveSample, owner: type[DriveSample]) -> FloatArray:
        row: FloatArray = sample.out[self._row]
        return row


class DriveSample:
    """One sample of a `DriveArm`; each array is (n,), in SI units on the joint side unless noted otherwise.

    Parameters
    ----------
    t_s : float
    out, state : (OUT_ROWS, n) and (STATE_ROWS, n) float64
        Sample and state of the kernels (`sim_backend.arm.layout`); not copied.
    limit : (n,) float64
        Largest torque of each motor.
    coupling : (2, n, n) float64, optional
        From joint to motor coordinates, and back; None where they are the same.
    noisy : bool
        Whether the velocity has noise.

    Attributes
    ----------
    t_s : float
        Time since the arm was made.
    q, dq, tau, current, q_motor, temperature : float64
        Measured values, as in `drivers.frame.JointFrame`.
    true_q, true_dq, true_ddq, true_tau, true_friction : float64
        Exact values; `true_tau` is motor torque, which includes friction and closed brakes.
    x, v, u : float64
        Exact position, measured velocity and torque, on the drive side.
    x_set : float64
        Set position of the drive; its position if it has none.
    limited : bool
        Whether a motor's torque is at its limit.
    """

    __slots__ = ("_coupling", "_limit", "_noisy", "_state", "out", "t_s")

    q, dq, tau = _Row(layout.OUT_Q), _Row(layout.OUT_DQ), _Row(layout.OUT_TAU)
    current, q_motor = _Row(layout.OUT_CURRENT), _Row(layout.OUT_Q_MOTOR)
    temperature = _Row(layout.OUT_TEMPERATURE)
    true_q, true_dq, true_ddq = _Row(layout.OUT_TRUE_Q), _Row(layout.OUT_TRUE_DQ), _Row(layout.OUT_TRUE_DDQ)
    true_tau, true_friction = _Row(layout.OUT_TRUE_TAU), _Row(layout.OUT_TRUE_FRICTION)

    def __init__(
        self, t_s: float, out: FloatArray, state: FloatArray, limit: FloatArray, coupling: FloatArray | None = None, *,
        noisy: bool = False,
    ) -> None:  # fmt: skip
        self.t_s, self.out = t_s, out
        self._state, self._limit = state, limit
        self._coupling, self._noisy = coupling, noisy

    @property
    def x(self) -> FloatArray:
        """Position on the drive side."""
        return np.asarray(self._state[layout.X])

    @property
    def v(self) -> FloatArray:
        """Velocity on the drive side."""
        v = np.asarray(self._state[layout.V])
        if not self._noisy:
            return v
        noise = self.dq - self.true_dq
        return v + (noise if self._coupling is None else self._coupling[0] @ noise)

    @property
    def u(self) -> FloatArray:
        """Torque on the drive side."""
        return self.tau if self._coupling is None else np.asarray(self._coupling[1].T @ self.tau)

    @property
    def x_set(self) -> FloatArray:
        """Set position on the drive side."""
        return np.asarray(self._state[layout.X_SET])

    @property
    def limited(self) -> BoolArray:
        """Motors at their limit."""
        return np.asarray(np.abs(self._state[layout.U]) >= self._limit)
