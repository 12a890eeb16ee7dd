"""The springs of an arm, and the motion of both sides of its joints, in the kernels' arrays."""

from __future__ import annotations

import numpy as np

from rt_core.model.dynamics import inverse_dynamics
from rt_core.model.robot import JointDynamics, RobotModel
from rt_core.types import FloatArray
from sim_backend.arm import layout
from sim_backend.arm.elastic import layout as rows
from sim_backend.errors import SimulationConfigError

#: Fields of `JointDynamics` that only a joint with a spring has.
SPRING_FIELDS = (
    "stiffness", "stiffness_cubic", "spring_damping", "link_viscous", "link_coulomb", "link_cyclic_sine",
    "link_cyclic_cosine",
)  # fmt: skip
#: Repetitions within which links come to rest on their springs; each gains a factor of stiffness over gravity's, and
#: where that is small Newton's method does it.
_REPETITIONS = 100
#: Step of its derivatives [rad or m].
_SMALL = 1e-6
#: Links hang still that move by less from one repetition to the next [rad or m].
_HANGS = 1e-13
#: Places between motors and links at which springs are looked at, and steps in which gravity grows.
_PLACES = 17
#: Angle [rad] through which a rotor may swing on its spring within a step: what rings faster is excited by rounding and
#: by every reversal, and nothing in the method damps it.
_MAX_ANGLE = 20.0


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
        spring so stiff, at rest or at the joint's effort limit, that it is none.
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
        #: (SPRING_ROWS, n), (MOTION_ROWS, 2, n): see `sim_backend.arm.elastic.layout`.
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
            most = _MAX_ANGLE**2 * inertia / self._step_s**2
            cubic = float(dynamics.stiffness_cubic[i])
            if now and cubic > 0.0 and np.isfinite(joint.effort):  # as stiff as it gets
                far = float(deflection(np.array([joint.effort]), np.array([stiffness]), np.array([cubic]))[0])
                stiffness += 3.0 * cubic * far**2
            if now and stiffness > most:
                own = stiffness == dynamics.stiffness[i]
                said = f"is {stiffness:.3g}" if own else f"reaches {stiffness:.3g} at its effort limit {joint.effort:g}"
                raise SimulationConfigError(
                    f"stiffness of joint '{joint.name}' {said}: with armature {inertia:.3g}, and steps of "
                    f"{1e3 * self._step_s:g} ms, it can be at most {most:.2g}; leave it out for a rigid joint, or set "
                    "more substeps"
                )

    def fill(self, dynamics: JointDynamics) -> None:
        """Take the values of `dynamics`."""
        for row, field in enumerate(SPRING_FIELDS):
            self.values[row] = np.where(self._elastic, getattr(dynamics, field), 0.0)

    def begin(self, state: FloatArray) -> None:
        """Let the links hang on their springs, at the speed of the motors, whose `state` (STATE_ROWS, n) is given.

        All the way from the motors to where they hang the springs must be stiffer than gravity: then that balance is
        stable, and the one next to the motors.  Links that are to buckle before they come to rest are refused.

        Raises
        ------
        SimulationConfigError
            If the springs are too soft for that.
        """
        x = state[layout.X]
        y = x
        for _ in range(_REPETITIONS):
            before, y = y, self._hanging(x, y[None])[0]
            if np.allclose(y, before, rtol=0.0, atol=_HANGS):
                break
        else:
            y = self._balanced(x)
        if not self._held(x, y):  # the repetitions may have gone past the balance that is next to the motors
            y = self._balanced(x)
        if not self._held(x, y):
            raise SimulationConfigError(
                f"robot '{self._model.name}': its links do not come to rest on their springs at the start: gravity "
                "turns them further than the springs hold; make the springs stiffer, or begin in another posture"
            )
        self.motion[:] = 0.0
        self.motion[rows.POS] = x, y
        self.motion[rows.VEL] = state[layout.V]
        self.motion[rows.SLIDE] = np.sign(state[layout.V])

    def _hanging(self, x: FloatArray, y: FloatArray, share: float = 1.0) -> FloatArray:
        """Links (m, n) where springs at motors `x` (n,) hold a `share` of what turns links at `y` (m, n).

        That is gravity, and cyclic friction.
        """
        model = self._model
        assert model.inertial is not None
        still = np.zeros_like(y)
        torque = inverse_dynamics(model.geometry, model.gravity, model.inertial, y, still, still)
        torque = share * (torque + self.values[rows.LINK_SINE] * np.sin(y) + self.values[rows.LINK_COSINE] * np.cos(y))
        k1, k2 = np.where(self._elastic, self.values[rows.STIFFNESS], 1.0), self.values[rows.CUBIC]
        return x - np.where(self._elastic, deflection(torque, k1, k2), 0.0)

    def _slope(self, x: FloatArray, y: FloatArray, share: float = 1.0) -> FloatArray:
        """Identity, and compliance times the stiffness of gravity: (m, n, n) at links `y` (m, n)."""
        columns = [
            (self._hanging(x, y + s, share) - self._hanging(x, y - s, share)) / (2.0 * _SMALL)
            for s in np.eye(x.size) * _SMALL
        ]
        return np.eye(x.size) - np.stack(columns, axis=-1)

    def _held(self, x: FloatArray, y: FloatArray) -> bool:
        """Whether springs are stiffer than gravity all the way from motors `x` (n,) to links `y` (n,)."""
        if not np.isfinite(y).all():
            return False
        return _definite(self._slope(x, x + np.linspace(0.0, 1.0, _PLACES)[:, None] * (y - x)))

    def _balanced(self, x: FloatArray) -> FloatArray:
        """Links (n,) at rest, by Newton's method while gravity grows from none; NaN where it finds no balance."""
        y = x[None]
        for share in np.linspace(0.0, 1.0, _PLACES)[1:]:
            for _ in range(_REPETITIONS):
                off, slope = y - self._hanging(x, y, share), self._slope(x, y, share)
                if not _definite(slope):
                    return np.full(x.size, np.nan)
                y = y - np.linalg.solve(slope[0], off[0])
                if np.abs(off).max() < _HANGS:
                    break
            else:
                return np.full(x.size, np.nan)
        return np.asarray(y[0])


def _definite(slope: FloatArray) -> bool:
    """Whether what changes as `slope` (m, n, n) says comes back everywhere."""
    return bool(np.isfinite(slope).all() and np.linalg.eigvals(slope).real.min() > 0.0)


def deflection(torque: FloatArray, k1: FloatArray, k2: FloatArray) -> FloatArray:
    """Real root (..., n) [rad or m] of `k1*d + k2*d^3 = torque`, for `k1` above and `k2` not below zero."""
    d = torque / k1
    for _ in range(60):  # from beyond the root, along a curve that is bent one way: Newton's method cannot pass it
        d = d - (k1 * d + k2 * d**3 - torque) / (k1 + 3.0 * k2 * d**2)
    return np.asarray(d)
