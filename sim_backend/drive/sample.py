"""One sample of a `DriveArm`, evaluated lazily."""

import numpy as np

from rt_core.types import BoolArray, FloatArray
from sim_backend.arm import layout


class _Row:
    """Attribute of a row of the kernels' output."""

    def __init__(self, row: int) -> None:
        self._row = row

    def __get__(self, sample: "DriveSample", owner: "type[DriveSample]") -> FloatArray:
        row: FloatArray = sample.out[self._row]
        return row


class DriveSample:
    """One sample of a `DriveArm`, `t_s` after it was made; arrays are (n,), in SI units on the joint side unless noted.

    Measured values are as in `drivers.frame.JointFrame`; `true_tau` is motor torque, which includes friction and closed
    brakes.  `out` (OUT_ROWS, n) and `state` (STATE_ROWS, n) are sample and state of the kernels
    (`sim_backend.arm.layout`), not copied; `limit` (n,) is the largest torque of each motor; `coupling` (2, n, n) is
    from joint to motor coordinates and back, None where they are the same; `noisy`: the velocity has noise.
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
    def limited(self) -> BoolArray:
        """Motors at their limit."""
        return np.asarray(np.abs(self._state[layout.U]) >= self._limit)
