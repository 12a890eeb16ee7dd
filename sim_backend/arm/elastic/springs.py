"""The springs of an arm, and the motion of both sides of its joints, in the kernels' arrays."""

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
#: Most iterations for the rest position of links; where gravity is nearly as stiff as the springs, Newton's method is
#: used instead.
_REPETITIONS = 100
#: Step of its derivatives [rad or m].
_SMALL = 1e-6
#: Change of an iteration at rest [rad or m].
_HANGS = 1e-13
#: Places between motors and links at which stability is checked, and steps in which gravity grows.
_PLACES = 17
#: Largest phase [rad] of a rotor's vibration on its spring within a step: a faster one is excited by rounding and
#: reversals, and the method does not damp it.
_MAX_ANGLE = 20.0


class Springs:
    """Springs of an arm, and the arrays that it has in addition to a rigid one.

    `dynamics` are initial values; which joints are elastic does not change.  `behind`: torque is measured behind the
    springs.  `step_s` is the length of an integration step [s].  Raises `SimulationConfigError`: a motor that also
    turns with another joint, a rotor without inertia, friction that depends on the load, or a spring that is too stiff,
    at rest or at the joint's effort limit.
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
        self.arrays = rows.ElasticArrays(
            self.values, self.motion, np.zeros((rows.STAGE_LAYERS, 2, n)), np.zeros((n, rows.BLOCK_COLUMNS)),
            np.zeros((2 * n, 2 * n)), np.zeros(2 * n, dtype=np.int64), np.zeros(2 * n),
        )  # fmt: skip
        self.check(dynamics)
        self.fill(dynamics)

    def check(self, dynamics: JointDynamics) -> None:
        """Raise `SimulationConfigError` if a joint would become elastic or rigid, or its rotor or spring is invalid."""
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
                text = f"is {stiffness:.3g}" if own else f"reaches {stiffness:.3g} at its effort limit {joint.effort:g}"
                raise SimulationConfigError(
                    f"stiffness of joint '{joint.name}' {text}: with armature {inertia:.3g}, and steps of "
                    f"{1e3 * self._step_s:g} ms, it can be at most {most:.2g}; leave it out for a rigid joint, or set "
                    "more substeps"
                )

    def fill(self, dynamics: JointDynamics) -> None:
        """Set the values of `dynamics`."""
        for row, field in enumerate(SPRING_FIELDS):
            self.values[row] = np.where(self._elastic, getattr(dynamics, field), 0.0)

    def begin(self, state: FloatArray) -> None:
        """Set the links to rest on their springs, at the speed of the motors of `state` (STATE_ROWS, n).

        From the motors to that balance the springs must be stiffer than gravity, so that it is stable and the nearest.
        Raises `SimulationConfigError`: the springs are too soft.
        """
        x = state[layout.X]
        y = x
        for _ in range(_REPETITIONS):
            before, y = y, self._hanging(x, y[None])[0]
            if np.allclose(y, before, rtol=0.0, atol=_HANGS):
                break
        else:
            y = self._balanced(x)
        if not self._held(x, y):  # the iteration may have passed the nearest balance
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
        """Return links (m, n) held at motors `x` (n,) against a `share` of gravity and cyclic friction at `y`."""
        model = self._model
        assert model.inertial is not None
        still = np.zeros_like(y)
        torque = inverse_dynamics(model.geometry, model.gravity, model.inertial, y, still, still)
        torque = share * (torque + self.values[rows.LINK_SINE] * np.sin(y) + self.values[rows.LINK_COSINE] * np.cos(y))
        k1, k2 = np.where(self._elastic, self.values[rows.STIFFNESS], 1.0), self.values[rows.CUBIC]
        return x - np.where(self._elastic, deflection(torque, k1, k2), 0.0)

    def _slope(self, x: FloatArray, y: FloatArray, share: float = 1.0) -> FloatArray:
        """Return identity plus compliance times stiffness of gravity: (m, n, n) at links `y` (m, n)."""
        columns = [
            (self._hanging(x, y + s, share) - self._hanging(x, y - s, share)) / (2.0 * _SMALL)
            for s in np.eye(x.size) * _SMALL
        ]
        return np.eye(x.size) - np.stack(columns, axis=-1)

    def _held(self, x: FloatArray, y: FloatArray) -> bool:
        """Return whether springs are stiffer than gravity from motors `x` (n,) to links `y` (n,)."""
        if not np.isfinite(y).all():
            return False
        return _definite(self._slope(x, x + np.linspace(0.0, 1.0, _PLACES)[:, None] * (y - x)))

    def _balanced(self, x: FloatArray) -> FloatArray:
        """Return links (n,) at rest, by Newton's method with growing gravity; NaN if it does not converge."""
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
    """Return whether all eigenvalues of `slope` (m, n, n) have positive real parts."""
    return bool(np.isfinite(slope).all() and np.linalg.eigvals(slope).real.min() > 0.0)


def deflection(torque: FloatArray, k1: FloatArray, k2: FloatArray) -> FloatArray:
    """Return the real root (..., n) [rad or m] of `k1*d + k2*d^3 = torque`, for `k1 > 0` and `k2 >= 0`."""
    d = torque / k1
    for _ in range(60):  # converges monotonically: the curve is convex beyond the root
        d = d - (k1 * d + k2 * d**3 - torque) / (k1 + 3.0 * k2 * d**2)
    return np.asarray(d)
