"""A simulated arm under zero-force control: noise, quantisation and delay between measurement and torque."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from drivers.files.robots.file import load_robot
from drivers.frame import JointFrame
from rt_core.hand_guiding import GuidingModel, GuidingState, ZeroForceController, ZeroForceSettings
from rt_core.model.base import BaseParameters, base_parameters
from rt_core.model.frames import link_poses
from rt_core.model.parameters import standard_parameters
from rt_core.model.robot import RobotModel
from sim_backend.arm.settings import SimSettings
from sim_backend.drive.drive_arm import DRIVE_ARM_SETTINGS, DriveArm
from sim_backend.drive.modes import CSP, CST
from sim_backend.drive.sample import DriveSample

T = 1e-3
#: Sensors of a real arm: 20-bit encoders, and noise on torque and velocity.
SENSORS = SimSettings(drive=DRIVE_ARM_SETTINGS.drive)
IDEAL = DRIVE_ARM_SETTINGS


@lru_cache
def robot(name: str = "arm9") -> RobotModel:
    return load_robot(name).model


@lru_cache
def base_of(name: str = "arm9") -> BaseParameters:
    return base_parameters(robot(name))


@lru_cache
def exact(name: str = "arm9") -> GuidingModel:
    """The arm's own model, as base parameters alone."""
    base = base_of(name)
    return GuidingModel.of(robot(name), base, base.theta(standard_parameters(robot(name), base.standard)))


def with_payload(model: RobotModel, mass: float) -> RobotModel:
    """The arm with a point mass at its flange."""
    body = model.inertial.copy()
    p = model.tip_translation
    x, y, z = p
    body[-1] += mass * np.array([1.0, x, y, z, y * y + z * z, -x * y, x * x + z * z, -x * z, -y * z, x * x + y * y])
    return replace(model, inertial=body)


def believed(model: RobotModel) -> GuidingModel:
    """The given arm as a controller's model, as base parameters alone."""
    base = base_of(model.name)
    return GuidingModel.of(model, base, base.theta(standard_parameters(model, base.standard)))


def random_poses(model: RobotModel, count: int, seed: int = 0, share: float = 0.8) -> np.ndarray:
    """(count, n) poses inside the position limits."""
    lower, upper = np.array([(j.lower, j.upper) for j in model.joints]).T
    middle, half = 0.5 * (lower + upper), 0.5 * share * (upper - lower)
    return np.asarray(middle + half * np.random.default_rng(seed).uniform(-1.0, 1.0, (count, model.n)))


def tip_jacobian(model: RobotModel, q: np.ndarray) -> np.ndarray:
    """(3, n) of the flange's position, by central differences."""

    def tip(x: np.ndarray) -> np.ndarray:
        pose = link_poses(model, x)[-1]
        return np.asarray(pose[:3, :3] @ model.tip_translation + pose[:3, 3])

    step = 1e-6 * np.eye(model.n)
    return np.array([(tip(q + s) - tip(q - s)) / 2e-6 for s in step]).T


@dataclass
class Trace:
    """What happened; arrays are (N, n), one row a cycle, and (N, 3) for the force of the hand."""

    q: np.ndarray
    dq: np.ndarray
    ddq: np.ndarray
    residual: np.ndarray
    force: np.ndarray
    states: list[GuidingState]

    def reached(self, state: GuidingState) -> float | None:
        """Time at which `state` was first met."""
        return float(self.t[self.states.index(state)]) if state in self.states else None


@dataclass
class Rig:
    """A controller and the arm that it does not know exactly."""

    truth: RobotModel
    model: GuidingModel
    settings: ZeroForceSettings = field(default_factory=ZeroForceSettings)
    start: np.ndarray | None = None
    sensors: SimSettings = SENSORS
    delay: int = 1  # cycles between a measurement and the period that its torque acts in
    channels: Sequence[str] = ("dq", "tau")
    hold_s: float = 0.1  # by the drives, before the session
    wrong: Mapping[str, float] = field(default_factory=dict)  # factors on channels, and on torque as "drive"

    def __post_init__(self) -> None:
        self.arm = DriveArm(self.truth, self.sensors, start=self.start)
        if not np.any(self.sensors.torque_noise):  # else an arm at rest would count as a frozen bus
            self.settings = replace(self.settings, frozen_s=np.inf)
        self.controller = ZeroForceController(self.model, self.settings, T)
        at = self.arm.sample().x.copy()
        for _ in range(max(1, round(self.hold_s / T))):
            self.sample = self.arm.step([CSP] * self.arm.n, at)
        self._at = at
        self._pending: deque[np.ndarray] = deque(maxlen=self.delay + 1)
        self._torque_mode = False
        self._seq = 0
        self.force = np.zeros(3)

    def frame(self) -> JointFrame:
        """The present sample, as a driver would give it."""
        t_ns = round(self._seq * T * 1e9)
        frame = JointFrame(self._seq, t_ns, t_ns, q=self.sample.q.copy())
        for name in self.channels:
            setattr(frame, name, self.wrong.get(name, 1.0) * getattr(self.sample, name))
        return frame

    def push(self, force: Sequence[float] | np.ndarray) -> None:
        """Let a hand pull at the flange, in base coordinates [N]."""
        self.force = np.array(force, dtype=float)
        self.arm.set_outside_force(self.force)

    def cycle(self, frame: JointFrame | None) -> DriveSample:
        """One cycle with the given frame."""
        self._pending.append(self.controller.step(frame))
        self._torque_mode |= self.controller.state is GuidingState.RAMPING
        n = self.arm.n
        if self._torque_mode and len(self._pending) > self.delay:
            torque = self.wrong.get("drive", 1.0) * self._pending[0]
            self.sample = self.arm.step([CST] * n, np.linalg.solve(self.truth.coupling.T, torque))
        else:
            self.sample = self.arm.step([CSP] * n, self._at)
        self._seq += 1
        return self.sample

    def run(self, duration_s: float) -> Trace:
        """Go on for so long, with every frame in its place."""
        count, n = round(duration_s / T), self.arm.n
        rows, force = np.zeros((4, count, n)), np.zeros((count, 3))
        states = []
        for k in range(count):
            s = self.cycle(self.frame())
            status = self.controller.status
            rows[:, k] = s.true_q, s.true_dq, s.true_ddq, status.residual
            force[k] = self.force
            states.append(status.state)
        return Trace(*rows, force, states)
