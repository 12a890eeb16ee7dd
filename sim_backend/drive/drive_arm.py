"""A simulated arm moved by drive commands, sample by sample, as over a field bus.

The equations are those of `sim_backend.arm.robot`; closed brakes are part of friction.  Each sample period has one set
value per drive: a position (csp), velocity (csv) or torque (cst), reached at the end of the period.  Set positions are
joined by cubics with continuous velocity (the second-order difference of the last three), so that a constant
acceleration is followed without ripple; velocities and torques are interpolated linearly.

Drive side.  Commands and `x, v, u` are the motors' coordinates referred to the joint side (`RobotModel.coupling`):
the joints' own unless a motor also turns with another joint.
"""

import math
from collections.abc import Sequence

import numpy as np

from rt_core.jit import kernel
from rt_core.model.dynamics import rnea_single
from rt_core.model.robot import RobotModel
from rt_core.types import BoolArray, FloatArray, IntArray
from sim_backend.arm import layout
from sim_backend.arm import layout as at
from sim_backend.arm.equations import times, times_transposed
from sim_backend.arm.friction import FrictionTerms
from sim_backend.arm.integrate import substep
from sim_backend.arm.packed import PackedArm, torque_scale
from sim_backend.arm.settings import DriveSettings, SimSettings
from sim_backend.arm.stepper import control, control_error, is_finite, measure
from sim_backend.arm.temperature import warm
from sim_backend.arm.trajectory import MotionLimits
from sim_backend.drive.modes import BRAKED, CSP, CST, CSV
from sim_backend.drive.sample import DriveSample
from sim_backend.errors import SimulationConfigError

#: Ideal sensors, as drives quantise themselves; control loops as fast as a servo drive's.
DRIVE_ARM_SETTINGS = SimSettings(
    encoder_bits=None, torque_noise=0.0, current_noise=0.0, velocity_noise=0.0,
    drive=DriveSettings(
        position_bandwidth_hz=20.0, velocity_bandwidth_hz=120.0, integral_time_s=0.02, feedforward="gravity"
    ),
)  # fmt: skip
#: A brake's torque as a multiple of the joint's torque scale.
_BRAKE = 3.0

# Rows of the commands (COMMAND_ROWS, n): the command; the mode of the period before; ends of the set trajectory.
MODE_WANTED, TARGET, TORQUE_OFFSET, MODE_BEFORE, X_START, V_START, V_END, U_START, U_END = range(9)
COMMAND_ROWS = 9


@kernel
def _begin_period(scalars: FloatArray, command: FloatArray, state: FloatArray) -> None:
    """Set start and end of each set trajectory; a change of mode starts from the motor's state."""
    T = scalars[at.PERIOD]
    for i in range(state.shape[1]):
        mode, before, target = command[MODE_WANTED, i], command[MODE_BEFORE, i], command[TARGET, i]
        _follow_motor(mode, state, i)
        x, v = state[at.X_SET, i], state[at.V_SET, i]
        if not (mode in (CSP, CSV) and before in (CSP, CSV)):
            state[at.INTEGRAL, i] = 0.0
        if mode == CSP:
            command[V_END, i] = (target - x) / T
            if before == CSP:
                command[V_END, i] += 0.5 * (target - 2.0 * x + command[X_START, i]) / T
        elif mode == CSV:
            command[V_END, i] = target
        command[X_START, i], command[V_START, i] = x, v
        # Feed-forward: the commanded torque in cst, in the other modes the offset only.
        command[U_START, i] = command[U_END, i]
        if (mode == CST) != (before == CST) or before not in (CSP, CSV, CST):
            command[U_START, i] = state[at.U, i] if mode == CST else 0.0
        command[U_END, i] = command[TORQUE_OFFSET, i] + (target if mode == CST else 0.0)
        command[MODE_BEFORE, i] = mode


@kernel
def _follow_motor(mode: float, state: FloatArray, i: int) -> None:
    """Make the values that the mode does not set follow the motor."""
    if mode != CSP:
        state[at.X_SET, i] = state[at.X, i]
        if mode != CSV:
            state[at.V_SET, i] = state[at.V, i]


@kernel
def _set_values(arrays: at.ArmArrays, command: FloatArray, share: float) -> None:
    """Compute set position, velocity and fed-forward torque at `share` of the period, into `state`."""
    links, work, coupling = at.links_of(arrays), arrays.work, arrays.coupling
    scalars, state, vectors = arrays.scalars, arrays.state, arrays.vectors
    n = state.shape[1]
    q, zero, tau = vectors[11], vectors[12], vectors[14]
    T, s = scalars[at.PERIOD], share
    for i in range(n):
        state[at.FEED, i] = 0.0
        zero[i] = 0.0
        x0, v0, v1 = command[X_START, i], command[V_START, i], command[V_END, i]
        if command[MODE_WANTED, i] == CSP:
            way = command[TARGET, i] - x0
            a, b = v0 * T - way, v1 * T - way  # Hermite's cubic, about the straight line
            state[at.X_SET, i] = x0 + way * s + s * (1.0 - s) * (a * (1.0 - s) - b * s)
            state[at.V_SET, i] = (way + a * (1.0 - s) * (1.0 - 3.0 * s) + b * s * (3.0 * s - 2.0)) / T
        elif command[MODE_WANTED, i] == CSV:
            state[at.V_SET, i] = v0 + (v1 - v0) * s
    if scalars[at.FEEDFORWARD] != 0.0:
        if scalars[at.COUPLED] != 0.0:
            times(coupling[1], state[at.X_SET], q)
            rnea_single(links, q, zero, zero, tau, work)
            times_transposed(coupling[1], tau, state[at.FEED])
        else:
            rnea_single(links, state[at.X_SET], zero, zero, state[at.FEED], work)
    for i in range(n):
        mode = command[MODE_WANTED, i]
        if mode not in (CSP, CSV):
            state[at.FEED, i] = 0.0
        elif scalars[at.FEEDFORWARD] != 0.0:
            state[at.FEED, i] += arrays.parameters[at.FEED_OFFSET, i]
        if mode in (CSP, CSV, CST):
            state[at.FEED, i] += command[U_START, i] + (command[U_END, i] - command[U_START, i]) * s


@kernel
def advance_drive_arm(arrays: at.ArmArrays, command: FloatArray, noise: FloatArray, out: FloatArray) -> bool:
    """Simulate one period under `command` (COMMAND_ROWS, n), sampled to `out` (OUT_ROWS, n); False if it diverged.

    `noise` is (3, n).
    """
    state = arrays.state
    substeps = int(arrays.scalars[at.SUBSTEPS])
    h = arrays.scalars[at.PERIOD] / substeps
    error, target, jump = arrays.vectors[16], arrays.vectors[17], arrays.vectors[19]
    _begin_period(arrays.scalars, command, state)
    warm(arrays)
    for s in range(substeps):
        control_error(arrays, error)
        jump[:] = 0.0
        _set_values(arrays, command, (s + 1) / substeps)
        control(arrays, h, error, target, jump)
        if not substep(arrays, h, target, jump):
            return False
        for i in range(state.shape[1]):
            _follow_motor(command[MODE_WANTED, i], state, i)
    if not is_finite(state):
        return False
    measure(arrays, noise, out)
    return True


class DriveArm(PackedArm):
    """A simulated arm moved by drive commands, initially at rest with closed brakes.

    Raises `SimulationConfigError`: as `PackedArm` (see there for `model`), or a list of the wrong length.

    Settings are by default `DRIVE_ARM_SETTINGS`; feed-forward "full" is refused: set values have no acceleration.
    `period_s` is the initial sample period, by default that of the settings' rate; `start` (n,) the initial joint
    positions [rad or m], by default mid-range; `brake_torque` (n,) the holding torque [N*m or N], 0 for a joint without
    brake, by default three times the effort limit.
    """

    def __init__(
        self, model: RobotModel, settings: SimSettings | None = None, period_s: float | None = None,
        start: FloatArray | Sequence[float] | None = None, brake_torque: FloatArray | Sequence[float] | None = None,
    ) -> None:  # fmt: skip
        settings = DRIVE_ARM_SETTINGS if settings is None else settings
        if settings.drive.feedforward == "full":
            raise SimulationConfigError(
                "drive.feedforward of a driven arm must be 'gravity' or 'none': set values have no accelerations"
            )
        self._brakes = np.zeros(model.n)
        if model.dynamics is not None and model.dynamics.elastic.any():
            raise SimulationConfigError(
                f"robot '{model.name}' has elastic joints: an arm that is commanded has rigid ones only; leave out "
                "stiffness and what belongs to it"
            )
        super().__init__(model, settings)
        n = model.n
        self._longest_s = 1.0 / (settings.rate_hz * self.substeps)
        self._time_s = 0.0
        self._coupled = bool(self._scalars[at.COUPLED])
        self._rng = np.random.default_rng(settings.seed)
        self._noisy = bool(self._parameters[layout.TAU_NOISE : layout.VELOCITY_NOISE + 1].any())
        self._noise = np.zeros((3, n))
        self._out = np.zeros((layout.OUT_ROWS, n))
        self._command = np.zeros((COMMAND_ROWS, n))
        self._command[MODE_BEFORE] = BRAKED
        #: (n,) largest torque of each motor [N*m or N].
        self.effort = self._parameters[layout.LIMIT].copy()
        assert model.inertial is not None
        scale = torque_scale(model, model.inertial)
        #: (n,) holding torque of each brake [N*m or N].
        self.brake_torque = _BRAKE * scale if brake_torque is None else self._vector("brake_torque", brake_torque)
        limits = MotionLimits.of(model)
        q = 0.5 * (limits.lower + limits.upper) if start is None else self._vector("start", start)
        self._set_period(1.0 / settings.rate_hz if period_s is None else period_s)
        self._state[at.X] = self._state[at.X_SET] = self._coupling[0] @ q
        self._state[layout.TEMPERATURE] = settings.ambient_c
        self._closed = np.ones(n, np.bool_)
        self._brakes[:] = self.brake_torque
        self._fill_dynamics()
        self._refresh()

    @property
    def time_s(self) -> float:
        """Time of the last sample [s]."""
        return self._time_s

    def step(
        self, mode: IntArray | Sequence[int], target: FloatArray | Sequence[float],
        torque_offset: FloatArray | Sequence[float] | None = None, period_s: float | None = None, *,
        brake: BoolArray | Sequence[bool] | None = None, torque_limit: FloatArray | Sequence[float] | None = None,
    ) -> DriveSample:  # fmt: skip
        """Simulate one period and return the sample at its end; all arrays are (n,), for each drive.

        `mode` is of `sim_backend.drive.modes`.  `target` is the set position, velocity or torque at the end of the
        period, on the drive side, else ignored; `torque_offset` is added to the drive's torque in every mode.
        `period_s` is by default that of the last call.  `brake` has the closed brakes, by default those of the drives
        in mode `BRAKED`; `torque_limit` the largest torque, at most the joint's effort limit.

        Raises `SimulationDivergedError`; `SimulationConfigError`: an invalid event of the settings.
        """
        command = self._command
        command[MODE_WANTED] = mode
        command[TARGET] = target
        command[TORQUE_OFFSET] = 0.0 if torque_offset is None else torque_offset
        if period_s is not None and period_s != self._period_s:
            self._set_period(period_s)
        if torque_limit is None:
            self._parameters[layout.LIMIT] = self.effort
        else:
            np.minimum(self.effort, torque_limit, out=self._parameters[layout.LIMIT])
        self._next = math.floor(self._time_s * self.settings.rate_hz + 1e-6) + 1
        self._apply_events()
        self._close_brakes(command[MODE_WANTED] == BRAKED if brake is None else np.asarray(brake))
        if self._noisy:
            self._rng.standard_normal(out=self._noise)
        good = advance_drive_arm(self._arrays, command, self._noise, self._out)
        self._time_s += self._period_s
        if not good:
            raise self._diverged()
        return self._sample()

    def sample(self) -> DriveSample:
        """Return the sample of the present instant."""
        measure(self._arrays, self._noise, self._out)
        return self._sample()

    def _sample(self) -> DriveSample:
        coupling = self._coupling if self._coupled else None
        limit = self._parameters[layout.LIMIT].copy()
        return DriveSample(self._time_s, self._out.copy(), self._state.copy(), limit, coupling, noisy=self._noisy)

    def _close_brakes(self, closed: BoolArray) -> None:
        if (closed == self._closed).all():
            return
        self._closed = closed.copy()
        torque = np.where(closed, self.brake_torque, 0.0)
        if not np.array_equal(torque, self._brakes):
            self._brakes[:] = torque
            self._fill_dynamics()
            self._refresh()

    def _friction(self) -> FrictionTerms:
        """Return the present friction terms, with closed brakes."""
        return super()._friction().with_brake(self._brakes)

    def _set_period(self, period_s: float) -> None:
        if not (np.isfinite(period_s) and period_s > 0.0):
            raise SimulationConfigError(f"period of robot '{self.model.name}' is {period_s} s, must be > 0")
        self._scalars[at.PERIOD] = self._period_s = period_s
        self._scalars[at.SUBSTEPS] = max(1.0, np.ceil(period_s / self._longest_s - 1e-9))
        self._scalars[layout.COOLING] = np.exp(-period_s / self.settings.thermal_time_s)

    def _vector(self, name: str, value: FloatArray | Sequence[float]) -> FloatArray:
        vector = np.array(value, dtype=np.float64)
        if vector.shape != (self.n,) or not np.all(np.isfinite(vector)):
            raise SimulationConfigError(f"{name} of robot '{self.model.name}' must be {self.n} finite values")
        return vector
