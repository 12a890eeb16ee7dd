"""True dynamics, sensors and drives of an arm, packed in the arrays of the kernels, and events that change them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from rt_core.model.forward import FORWARD_WORK, equations_of_motion
from rt_core.model.friction import LAW_BREAKAWAY, LAW_TANH
from rt_core.model.robot import SIGNED_DYNAMICS, JointDynamics, RobotModel
from rt_core.types import FloatArray
from sim_backend.arm import layout
from sim_backend.arm._outside import TIP, OutsideForces
from sim_backend.arm.elastic.springs import SPRING_FIELDS, Springs
from sim_backend.arm.elastic.stepper import settle
from sim_backend.arm.friction import FrictionTerms, friction_terms
from sim_backend.arm.integrate import MAX_PIECES, STABLE
from sim_backend.arm.settings import DynamicsParameter, EventSettings, SimSettings
from sim_backend.arm.stepper import refresh
from sim_backend.arm.temperature import follow_temperature
from sim_backend.arm.trajectory import MotionLimits, motor_torque
from sim_backend.errors import SimulationConfigError, SimulationDivergedError

#: Longest step of a gradual change.
RAMP_STEP_S = 0.1
_MAX_SUBSTEP_S = 0.5e-3
_FEEDFORWARD = {"none": 0.0, "gravity": 1.0, "full": 2.0}


@dataclass(frozen=True)
class _Step:
    """One of the equal steps of an event, at the first sample not before its time."""

    sample: int
    joint: int
    event: EventSettings
    number: int = 1
    count: int = 1


def _steps(model: RobotModel, settings: SimSettings) -> list[_Step]:
    """Return the steps of all events in order of time; `SimulationConfigError`: unknown joint, overlapping changes."""
    names = [joint.name for joint in model.joints]
    steps: list[_Step] = []
    changing: dict[tuple[int, str], float] = {}
    for event in sorted(settings.events, key=lambda event: event.time_s):
        if event.joint not in (*names, "*"):
            raise SimulationConfigError(
                f"event at {event.time_s:g} s: '{event.joint}' is not a joint of robot '{model.name}': "
                + ", ".join(names)
            )
        duration_s = event.duration_s or 0.0
        count = max(1, math.ceil(duration_s / RAMP_STEP_S - 1e-9))
        for joint in range(model.n) if event.joint == "*" else (names.index(event.joint),):
            until_s = changing.get((joint, event.parameter), -1.0)
            if event.time_s < until_s:
                raise SimulationConfigError(
                    f"event at {event.time_s:g} s: {event.parameter} of joint '{names[joint]}' still changes until "
                    f"{until_s:g} s, by an event before"
                )
            changing[joint, event.parameter] = event.time_s + duration_s
            for number in range(1, count + 1):
                time_s = event.time_s + duration_s * number / count
                sample = math.ceil(time_s * settings.rate_hz - 1e-9)
                steps.append(_Step(sample, joint, event, number, count))
    return sorted(steps, key=lambda step: step.sample)


class PackedArm:
    """Base of simulated arms: the true dynamics, their changes, and the kernels' arrays.

    `model` needs `inertial`; without `dynamics` there is neither friction nor rotor inertia.  Raises
    `SimulationConfigError`: no or impossible inertia, a list of the wrong length, an unknown joint.
    """

    def __init__(self, model: RobotModel, settings: SimSettings) -> None:
        self.model = model
        self.settings = settings
        if model.inertial is None:
            raise SimulationConfigError(
                f"robot '{model.name}' has no inertial parameters: a simulated arm needs them in its description"
            )
        self._truth = JointDynamics.zeros(model.n) if model.dynamics is None else model.dynamics
        self._dynamics = self._truth
        #: Springs and link motion of an arm with elastic joints, None for a rigid one.
        self._springs: Springs | None = None
        self._check_dynamics()
        if self._truth.elastic.any():
            step_s = 1.0 / (settings.rate_hz * self._substeps_of(settings))
            self._springs = Springs(model, self._truth, behind=settings.torque_sensor == "link", step_s=step_s)
        elif settings.torque_sensor == "link":
            raise SimulationConfigError(
                f"torque_sensor = 'link' needs a joint with stiffness; robot '{model.name}' has none"
            )
        s, n = self.settings, model.n
        self.substeps = self._substeps_of(s)
        self._events = _steps(model, s)
        points = [(0.0, s.ambient_c), *((point.time_s, point.ambient_c) for point in s.ambient)]
        self._ambient: FloatArray = np.array(points).T
        self._ambient_every = max(1, round(RAMP_STEP_S * s.rate_hz))  # samples between two of its steps
        self._ramps: dict[tuple[int, DynamicsParameter], tuple[float, float]] = {}  # first value and last
        self._next = 0
        self._event = 0
        C = model.coupling
        self._coupling = np.stack((C, np.linalg.inv(C)))
        self._parameters = np.zeros((layout.PARAMETER_ROWS, n))
        self._scalars = np.zeros(layout.SCALARS)
        self._state = np.zeros((layout.STATE_ROWS, n))
        self._outside = OutsideForces(model, s.forces, s.rate_hz, self._parameters, self._scalars)
        self._fill_scalars()
        self._fill_sensors(model.inertial)
        self._fill_drive(model.inertial)

    @property
    def n(self) -> int:
        """Number of joints."""
        return self.model.n

    @property
    def time_s(self) -> float:
        """Time of the next sample [s]."""
        return self._next / self.settings.rate_hz

    @property
    def dynamics(self) -> JointDynamics:
        """Present true dynamics: rotor inertia, friction and offset, each (n,)."""
        return self._dynamics

    def set_dynamics(
        self, joint: int, parameter: DynamicsParameter, *, factor: float | None = None, value: float | None = None
    ) -> None:
        """Change the true dynamics of joint `joint` (from 0), but not the drive's feed-forward.

        Raises `SimulationConfigError`: not exactly one of `factor` and `value`, a parameter that the friction law does
        not have, a negative inertia or friction, or one that cannot be integrated; then nothing has changed.
        """
        if (factor is None) == (value is None):
            raise SimulationConfigError(f"change of {parameter}: give either factor or value")
        self._check_parameter(parameter)
        self._take(self._changed(self._dynamics, joint, parameter, factor, value))

    def set_outside_force(
        self, force: Sequence[float] | FloatArray, moment: Sequence[float] | FloatArray = (0.0, 0.0, 0.0), *,
        link: str = TIP, point: Sequence[float] | FloatArray = (0.0, 0.0, 0.0),
    ) -> None:  # fmt: skip
        """Set the outside force [N] and moment [N*m] on a link, in the directions of the base frame; zero removes it.

        `link` is the joint that moves the link, by default the flange; `point` [m], where the force acts, is in the
        frame of the link or the flange.  Raises `SimulationConfigError`: an unknown link, or a vector without three
        finite components; then nothing has changed.
        """
        self._outside.set(link, point, force, moment)
        self._refresh()

    def _changed(
        self, before: JointDynamics, joint: int, parameter: DynamicsParameter, factor: float | None, value: float | None
    ) -> JointDynamics:
        """Return `before` with one value changed; raises `SimulationConfigError` if it would become negative."""
        values = np.array(getattr(before, parameter))
        values[joint] = value if value is not None else values[joint] * (1.0 if factor is None else factor)
        if parameter not in SIGNED_DYNAMICS and values[joint] < 0.0:
            raise SimulationConfigError(
                f"{parameter} of joint '{self.model.joints[joint].name}' would become {values[joint]:g}: "
                "it cannot be negative"
            )
        return replace(before, **{parameter: values})

    def _take(self, dynamics: JointDynamics) -> None:
        """Set the true dynamics; raises `SimulationConfigError`, with nothing changed, if they are invalid."""
        before = self._dynamics
        self._dynamics = dynamics
        try:
            self._check_dynamics()
            self._fill_dynamics()
        except SimulationConfigError:
            self._dynamics = before
            self._fill_dynamics()
            raise
        self._refresh()

    def _check_parameter(self, parameter: DynamicsParameter) -> None:
        springs = SPRING_FIELDS if self._springs is not None else ()
        known = ("armature", "offset", *_friction_fields(self.model), *springs)
        if parameter not in known:
            raise SimulationConfigError(
                f"{parameter} means nothing to robot '{self.model.name}', whose friction law is "
                f"'{self.model.friction.law}'; it has {', '.join(known)}"
            )

    def _apply_events(self) -> None:
        """Apply all changes of the settings due before the next sample."""
        self._follow_ambient()
        dynamics = self._dynamics
        while self._event < len(self._events) and self._events[self._event].sample < self._next:
            step = self._events[self._event]
            self._event += 1
            self._check_parameter(step.event.parameter)
            dynamics = self._step(dynamics, step)
        pushed = self._outside.apply(self._next)
        if dynamics is not self._dynamics:
            self._take(dynamics)
        elif pushed:
            self._refresh()

    def _follow_ambient(self) -> None:
        """Set the ambient temperature, in steps of `RAMP_STEP_S`."""
        if self._ambient.shape[1] > 1:
            at = self._next // self._ambient_every * self._ambient_every / self.settings.rate_hz
            self._scalars[layout.AMBIENT] = np.interp(at, *self._ambient)

    def _step(self, dynamics: JointDynamics, step: _Step) -> JointDynamics:
        event, joint, share = step.event, step.joint, step.number / step.count
        if step.count == 1:
            return self._changed(dynamics, joint, event.parameter, event.factor, event.value)
        if step.number == 1:
            first = float(getattr(dynamics, event.parameter)[joint])
            last = event.value if event.value is not None else first * (event.factor or 0.0)
            self._ramps[joint, event.parameter] = first, last
        first, last = self._ramps[joint, event.parameter]
        return self._changed(dynamics, joint, event.parameter, None, (1.0 - share) * first + share * last)

    def _refresh(self) -> None:
        """Update modes and accelerations after a change of the true dynamics."""
        springs = self._springs
        if not (refresh(self._arrays) if springs is None else settle(self._arrays, springs.arrays)):
            raise self._diverged()

    def _friction(self) -> FrictionTerms:
        """Return the present friction terms."""
        return friction_terms(self.model, self._dynamics)

    def _diverged(self) -> SimulationDivergedError:
        return SimulationDivergedError(
            f"simulation of robot '{self.model.name}' diverged at {self.time_s:g} s: check that the inertial "
            "parameters are physical (positive definite mass matrix) and the drive bandwidths suit the rate"
        )

    @staticmethod
    def _substeps_of(settings: SimSettings) -> int:
        """Return the integration steps per sample."""
        return settings.substeps or int(np.ceil(1.0 / settings.rate_hz / _MAX_SUBSTEP_S - 1e-9))

    def _fill_scalars(self) -> None:
        s = self.settings
        self._scalars[layout.PERIOD] = 1.0 / s.rate_hz
        self._scalars[layout.SUBSTEPS] = self.substeps
        self._scalars[layout.FEEDFORWARD] = _FEEDFORWARD[s.drive.feedforward]
        self._scalars[layout.COUPLED] = float(not np.array_equal(self.model.coupling, np.eye(self.n)))
        self._scalars[layout.AMBIENT] = s.ambient_c
        self._scalars[layout.FRICTION_HEATING] = s.friction_heating_k_per_w
        self._scalars[layout.COOLING] = np.exp(-1.0 / (s.rate_hz * s.thermal_time_s))

    def _check_dynamics(self) -> None:
        for item in fields(JointDynamics):
            values = getattr(self._dynamics, item.name)
            signed = item.name in SIGNED_DYNAMICS
            if values.shape != (self.n,) or not np.all(np.isfinite(values) & (signed | (values >= 0.0))):
                kind = "finite values" if signed else "finite values >= 0"
                raise SimulationConfigError(f"{item.name} of robot '{self.model.name}' must be {self.n} {kind}")
        if self._springs is not None:
            self._springs.check(self._dynamics)

    def _fill_dynamics(self) -> None:
        p, s, d = self._parameters, self._scalars, self._dynamics
        if self._springs is not None:
            self._springs.fill(d)
        friction = self._friction()
        p[layout.ARMATURE], p[layout.OFFSET] = d.armature, self._coupling[1].T @ d.offset
        p[layout.VISCOUS], p[layout.HOLD], p[layout.DRY] = friction.viscous, friction.hold, friction.dry
        s[layout.PLAIN_END], s[layout.SMOOTH_END] = friction.plain_end, friction.smooth_end
        s[layout.DRY_END] = friction.dry_end
        s[layout.VARYING], s[layout.LOADED], s[layout.STEEP] = friction.varying, friction.loaded, friction.steep
        s[layout.WARM] = friction.warm
        self._terms[0] = friction.values
        if friction.steep:
            inertia = _smallest_inertia(self._masses, d.armature)
            self._terms[0, :, layout.RATE] /= inertia
            s[layout.BASE_RATE] = np.sum(friction.slope / inertia)
            self._check_steepness()
        if friction.warm:
            follow_temperature(self._arrays)

    def _check_steepness(self) -> None:
        """Check that friction is not too steep to be integrated; Stribeck's exponential falls and is stable."""
        terms = self._terms[0]
        rising = np.where(terms[:, layout.CODE] == LAW_BREAKAWAY, 0.0, terms[:, layout.RATE])
        allowed = STABLE * MAX_PIECES * self.substeps * self.settings.rate_hz
        rate = rising.sum() + self._scalars[layout.BASE_RATE]
        if rate > allowed:
            term, joint = np.unravel_index(int(np.argmax(rising)), rising.shape)
            key = "tanh_velocity" if terms[term, layout.CODE, joint] == LAW_TANH else "friction_smoothing"
            raise SimulationConfigError(
                f"friction of joint '{self.model.joints[joint].name}' is too steep to be integrated: its inertia would "
                f"follow within {1.0 / rate:.1g} s; make {key} ({terms[term, layout.WIDTH, joint]:g}) at least "
                f"{rate / allowed:.2g} times as large, or set more substeps"
            )

    def _fill_sensors(self, inertial: FloatArray) -> None:
        s, p, model = self.settings, self._parameters, self.model
        transmission = model.transmission
        p[layout.RATIO] = 1.0 if transmission is None else np.diag(transmission.matrix)
        p[layout.MOTOR_OFFSET] = 0.0 if transmission is None else transmission.offset
        p[layout.CURRENT] = 0.0 if transmission is None else 1.0 / (p[layout.RATIO] * transmission.torque_constant)
        if s.encoder_bits is not None:
            counts = 2.0**s.encoder_bits
            p[layout.RESOLUTION] = [(2.0 * np.pi if j.kind == "revolute" else 1.0) / counts for j in model.joints]
            p[layout.MOTOR_RESOLUTION] = 2.0 * np.pi / counts
        scale = torque_scale(model, inertial)
        p[layout.LIMIT] = [joint.effort for joint in model.joints]
        p[layout.TAU_NOISE] = self._per_joint("torque_noise", s.torque_noise, scale)
        p[layout.CURRENT_NOISE] = self._per_joint("current_noise", s.current_noise, scale * np.abs(p[layout.CURRENT]))
        p[layout.VELOCITY_NOISE] = self._per_joint("velocity_noise", s.velocity_noise, np.ones(self.n))
        p[layout.HEATING] = s.temperature_rise_k / scale**2

    def _per_joint(self, field: str, value: float | tuple[float, ...], scale: FloatArray) -> FloatArray:
        if not isinstance(value, tuple):
            return value * scale
        if len(value) != self.n:
            raise SimulationConfigError(
                f"{field} has {len(value)} values, robot '{self.model.name}' has {self.n} joints"
            )
        return np.array(value)

    def _fill_drive(self, inertial: FloatArray) -> None:
        """Set gains for the smallest inertia of each motor over random postures, all joints free."""
        drive, p, model = self.settings.drive, self._parameters, self.model
        limits = MotionLimits.of(model)
        q = np.random.default_rng(0).uniform(limits.lower, limits.upper, (64, self.n))
        mass, _ = equations_of_motion(model.geometry, model.gravity, inertial, q, np.zeros_like(q))
        truth = self._truth
        self._masses = self._coupling[1].T @ mass @ self._coupling[1]
        smallest = np.linalg.eigvalsh(self._masses + np.diag(truth.armature))[:, 0].min()
        if not smallest > 0.0:
            raise SimulationConfigError(
                f"inertial parameters of robot '{model.name}' are not physical: its mass matrix has the eigenvalue "
                f"{smallest:.3g} in some posture, all must be positive"
            )
        inertia = _smallest_inertia(self._masses, truth.armature)
        p[layout.KD] = 2.0 * np.pi * drive.velocity_bandwidth_hz * inertia
        p[layout.KP] = 2.0 * np.pi * drive.position_bandwidth_hz
        p[layout.KI] = 0.0 if drive.integral_time_s is None else p[layout.KD] / drive.integral_time_s
        p[layout.FEED_ARMATURE], p[layout.FEED_OFFSET] = truth.armature, self._coupling[1].T @ truth.offset
        friction = self._friction()
        p[layout.FEED_VISCOUS], p[layout.FEED_HOLD] = friction.viscous, friction.hold
        self._scalars[layout.FEED_VARYING] = friction.varying
        #: Friction terms of the arm, and of the drive's model of it.
        self._terms = np.stack((friction.values, friction.values))
        self._arrays = layout.ArmArrays(
            np.ascontiguousarray(np.hstack((model.geometry, inertial))), np.array(model.gravity, dtype=np.float64), p,
            self._terms, self._coupling, self._scalars, self._state, np.zeros((layout.VECTORS, self.n)),
            np.zeros((layout.MATRICES, self.n, self.n)), np.zeros((layout.SCRATCH_ROWS, self.n)),
            np.zeros(self.n, dtype=np.int64), np.zeros((self.n, FORWARD_WORK)),
        )  # fmt: skip


def _friction_fields(model: RobotModel) -> list[str]:
    """Return the fields of `JointDynamics` that the friction of `model` uses."""
    law = model.friction
    constants = [field for _, field, _ in law.constants]
    if law.temperature != "none" and "stribeck_velocity" in constants:
        constants.append("stribeck_velocity_temperature")
    return [field for _, _, field in law.terms] + constants


def _smallest_inertia(masses: FloatArray, armature: FloatArray) -> FloatArray:
    """Return the smallest inertia (n,) of each motor over the postures of `masses` (K, n, n), all joints free."""
    inverse = np.linalg.inv(masses + np.diag(armature))
    return np.asarray(1.0 / inverse.diagonal(axis1=1, axis2=2).max(axis=0))


def torque_scale(model: RobotModel, inertial: FloatArray) -> FloatArray:
    """Return effort limits (n,); where unknown, the largest torque of random states within the other limits."""
    limits = MotionLimits.of(model)
    rng = np.random.default_rng(0)
    q = rng.uniform(limits.lower, limits.upper, (64, model.n))
    dq = rng.uniform(-1.0, 1.0, (64, model.n)) * limits.velocity
    ddq = rng.uniform(-1.0, 1.0, (64, model.n)) * limits.acceleration
    largest = np.abs(motor_torque(model, inertial, q, dq, ddq)).max(axis=0)
    return np.where(np.isfinite(limits.effort), limits.effort, np.maximum(largest, 1e-9))
