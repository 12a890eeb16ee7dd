"""The springs of an arm, and the motion of both sides of its joints, in the kernels' arrays."""

from __future__ import annotations

import numpy as np

from rt_core.model.dynamics import inverse_dynamics
from rt_core.model.robot import JointDynamics, RobotModel
from rt_core.types import FloatArray
from sim_backend import layout
from sim_backend.elastic import layout as rows
from sim_backend.errors import SimulationConfigError

#: Fields of `JointDynamics` that only a joint with a spring has.
SPRING_FIELDS = ("stiffness", "stiffness_cubic", "spring_damping", "link_viscous", "link_coulomb")
#: Repetitions within which links come to rest on their springs; each gains a factor of stiffness over gravity's.
_REPETITIONS = 100
#: Angle [rad] through which a rotor may swing on its spring within a step: what rings faster is excited by rounding and
#: by every reversal, and nothing in the method damps it.
_LARGEST_ANGLE = 20.0


class Springs:
    """What an arm with elastic joints has beside the arrays of a rigid one.

    Parameters
    ----------
    model : RobotModel
    dynamics : JointDynamics
        Truth at the start; which of its joints are elastic stays as it is.
    behind : bool
        Torque is measured behind the springs.
    step_s : float
        Length of an integration step [s].

    Raises
    ------
    SimulationConfigError
        A motor that also turns with another joint, a rotor without inertia, friction that depends on the load, a
        spring so stiff that it is none.
    """

    def __init__(self, model: RobotModel, dynamics: JointDynamics, *, behind: bool, step_s: float) -> None:
        self._model, self._step_s = model, step_s
        self._elastic = dynamics.elastic
        n = model.n
        if not np.array_equal(model.coupling, np.eye(n)):
            raise SimulationConfigError(
                f"robot '{model.name}' has elastic joints and a motor that also turns with another joint: only one of "
                "the two can be simulated; leave out the stiffness, or the coupling of the transmission"
            )
        if model.friction.load and np.any(dynamics.load_friction != 0.0):
            raise SimulationConfigError(
                f"robot '{model.name}' has elastic joints and friction that depends on the load: set friction_load = "
                "false, or load_friction to 0"
            )
        #: (SPRING_ROWS, n), (MOTION_ROWS, 2, n): see `sim_backend.elastic.layout`.
        self.values = np.zeros((rows.SPRING_ROWS, n))
        self.values[rows.SENSOR_BEHIND] = float(behind)
        self.motion = np.zeros((rows.MOTION_ROWS, 2, n))
        self.stages = np.zeros((rows.STAGE_LAYERS, 2, n))
        self.blocks = np.zeros((n, rows.BLOCK_COLUMNS))
        self.system = np.zeros((2 * n, 2 * n))
        self.pivots = np.zeros(2 * n, dtype=np.int64)
        self.right = np.zeros(2 * n)
        self.check(dynamics)
        self.fill(dynamics)

    def check(self, dynamics: JointDynamics) -> None:
        """Raise `SimulationConfigError` if a joint would become elastic or rigid, or its rotor or spring cannot be."""
        for i, (joint, was, now) in enumerate(zip(self._model.joints, self._elastic, dynamics.elastic, strict=True)):
            inertia, stiffness = float(dynamics.armature[i]), float(dynamics.stiffness[i])
            if was != now:
                raise SimulationConfigError(
                    f"stiffness of joint '{joint.name}' cannot become {'zero' if was else 'other than zero'} while the "
                    "arm is simulated"
                )
            if now and not inertia > 0.0:
                raise SimulationConfigError(
                    f"armature of joint '{joint.name}' must be above 0: behind a spring the rotor moves by itself"
                )
            most = _LARGEST_ANGLE**2 * inertia / self._step_s**2
            if now and stiffness > most:
                raise SimulationConfigError(
                    f"stiffness of joint '{joint.name}' is {stiffness:.3g}: with armature {inertia:.3g}, and steps of "
                    f"{1e3 * self._step_s:g} ms, it can be at most {most:.2g}; leave it out for a rigid joint, or set "
                    "more substeps"
                )

    def fill(self, dynamics: JointDynamics) -> None:
        """Take the values of `dynamics`."""
        for row, field in enumerate(SPRING_FIELDS):
            self.values[row] = np.where(self._elastic, getattr(dynamics, field), 0.0)

    def begin(self, state: FloatArray) -> None:
        """Let the links hang on their springs, at the speed of the motors, whose `state` (STATE_ROWS, n) is given."""
        model, x = self._model, state[layout.X]
        assert model.inertial is not None
        k1, k2 = np.where(self._elastic, self.values[rows.STIFFNESS], 1.0), self.values[rows.CUBIC]
        y, still = x, np.zeros((1, model.n))
        for _ in range(_REPETITIONS):
            torque = inverse_dynamics(model.geometry, model.gravity, model.inertial, y[None], still, still)[0]
            before, y = y, x - np.where(self._elastic, deflection(torque, k1, k2), 0.0)
            if np.allclose(y, before, rtol=0.0, atol=1e-15):
                break
        self.motion[:] = 0.0
        self.motion[rows.POS] = x, y
        self.motion[rows.VEL] = state[layout.V]
        self.motion[rows.SLIDE] = np.sign(state[layout.V])


def deflection(torque: FloatArray, k1: FloatArray, k2: FloatArray) -> FloatArray:
    """Real root (n,) [rad or m] of `k1*d + k2*d^3 = torque`, for `k1` above and `k2` not below zero."""
    d = torque / k1
    for _ in range(60):  # from beyond the root, along a curve that is bent one way: Newton's method cannot pass it
        d = d - (k1 * d + k2 * d**3 - torque) / (k1 + 3.0 * k2 * d**2)
    return np.asarray(d)
