"""A simulated arm: forward dynamics, drives and sensors from a robot description.

The truth is the model's own `inertial` and `dynamics`; at every sample instant the exact values obey

    tau + J' f = M(q) ddq + b(q, dq) + C' (Ia * C ddq + friction) + offset

with `C` the coupling of the transmission (identity for most arms) and `f` the outside forces, by default none.
Friction of a moving motor follows the model's law (`rt_core.model.friction`, as in a fit); at standstill its dry part
takes any value up to the breakaway torque.  Measured torque is motor torque on the joint side, before friction.
"""

from dataclasses import dataclass

import numpy as np

from drivers.frame import JointFrame
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray
from sim_backend.arm import layout
from sim_backend.arm.elastic.layout import ELASTIC_OUT_ROWS
from sim_backend.arm.elastic.stepper import advance_elastic
from sim_backend.arm.packed import PackedArm
from sim_backend.arm.settings import MotionSettings, SimSettings
from sim_backend.arm.stepper import advance, begin
from sim_backend.arm.trajectory import Motion, plan_motion
from sim_backend.errors import SimulationConfigError

_NOISE_BLOCK = 128  # samples of noise drawn at once
_ROWS = {
    "q": layout.OUT_Q, "dq": layout.OUT_DQ, "current": layout.OUT_CURRENT, "tau": layout.OUT_TAU,
    "q_motor": layout.OUT_Q_MOTOR, "temperature": layout.OUT_TEMPERATURE, "setpoint": layout.OUT_SETPOINT,
}  # fmt: skip


@dataclass(frozen=True)
class ElasticData:
    """Exact values (N, n) of an arm with elastic joints, on the joint side; a rigid joint's motor has the joint's."""

    q_motor: FloatArray  # of the motors [rad or m]
    dq_motor: FloatArray
    ddq_motor: FloatArray
    spring: FloatArray  # torque of the springs on the links
    sensor: FloatArray  # torque behind the springs and the links' friction: that of the rigid links
    link_friction: FloatArray


@dataclass(frozen=True)
class SimulatedData:
    """Samples (N, n) of a simulated arm, measured and exact; units as in `drivers.frame.JointFrame`.

    The exact values are on the joint side; `tau` is motor torque, `friction` is part of it.  Of an arm with elastic
    joints `q, dq, ddq` are the links', `friction` is the motors'.
    """

    t: FloatArray  # (N,), since the arm's reset [s]
    channels: dict[str, FloatArray]  # measured values, by the names of `drivers.frame.CHANNELS`
    q: FloatArray
    dq: FloatArray
    ddq: FloatArray
    tau: FloatArray
    friction: FloatArray
    elastic: ElasticData | None = None  # motors and springs; None for a rigid arm


class SimulatedArm(PackedArm):
    """A simulated arm that follows a set trajectory, sampled at a fixed rate; see `PackedArm` for `model` and errors.

    `motion` is by default an endless Fourier motion with the arm's seed.  `seed` overrides the settings'; equal seeds
    give equal samples, to the bit on one machine.
    """

    def __init__(
        self, model: RobotModel, settings: SimSettings | None = None, motion: Motion | MotionSettings | None = None,
        seed: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(model, SimSettings() if settings is None else settings)
        self.seed = self.settings.seed if seed is None else seed
        if motion is None:
            motion = MotionSettings(seed=self.seed)
        self.motion = plan_motion(model, motion) if isinstance(motion, MotionSettings) else motion
        if self.motion.n != model.n:
            raise SimulationConfigError(f"the motion has {self.motion.n} joints, robot '{model.name}' has {model.n}")
        asked, geared = self.settings.channels, model.transmission is not None
        absent = [] if geared else ["current"] if self._springs is not None else ["current", "q_motor"]
        #: Channels delivered: the requested ones that the arm has.
        self.channels = tuple(c for c in _ROWS if c in asked and c not in absent)
        self._rows = layout.OUT_ROWS if self._springs is None else ELASTIC_OUT_ROWS
        self._sample_out = np.zeros((1, self._rows, model.n))
        self.reset()

    def reset(self, seed: int | None = None) -> None:
        """Restart at time zero, with the original dynamics and the same or another noise seed."""
        if seed is not None:
            self.seed = seed
        self._rng = np.random.default_rng(self.seed)
        self._noise = np.zeros((0, 3, self.n))
        self._used = 0
        self._next = 0
        self._event = 0
        self._dynamics = self._truth
        self._outside.clear()
        self._scalars[layout.AMBIENT] = self.settings.ambient_c
        self._fill_dynamics()
        if not begin(self._arrays, self.motion.arrays):
            raise self._diverged()
        if self._springs is not None:
            self._springs.begin(self._state)
            self._refresh()

    def step(self) -> JointFrame:
        """Return the next sample; its times are those of the simulation [ns]; raises `SimulationDivergedError`."""
        seq = self._next
        self._run(self._sample_out)
        t_ns = round(seq * 1e9 / self.settings.rate_hz)
        frame = JointFrame(seq, t_ns, t_ns)
        for channel in self.channels:
            setattr(frame, channel, self._sample_out[0, _ROWS[channel]].copy())
        return frame

    def simulate(self, duration_s: float) -> SimulatedData:
        """Return the next `duration_s * rate_hz` samples (rounded); raises `SimulationDivergedError`."""
        count = round(duration_s * self.settings.rate_hz)
        t = (self._next + np.arange(count)) / self.settings.rate_hz
        out = np.empty((count, self._rows, self.n))
        self._run(out)
        exact = (np.ascontiguousarray(out[:, row]) for row in range(layout.OUT_TRUE_Q, self._rows))
        q, dq, ddq, tau, friction, *sides = exact
        elastic = None if self._springs is None else ElasticData(*sides)
        channels: dict[str, FloatArray] = {c: np.ascontiguousarray(out[:, _ROWS[c]]) for c in self.channels}
        return SimulatedData(t, channels, q, dq, ddq, tau, friction, elastic)

    def _run(self, out: FloatArray) -> None:
        """Fill `out` (N, OUT_ROWS, n) with the next samples, block by block of noise and from event to event."""
        done = 0
        while done < out.shape[0]:
            self._apply_events()
            if self._used == self._noise.shape[0]:
                self._noise = self._rng.standard_normal((_NOISE_BLOCK, 3, self.n))
                self._used = 0
            count = min(out.shape[0] - done, self._noise.shape[0] - self._used)
            if self._event < len(self._events):
                count = min(count, self._events[self._event].sample + 1 - self._next)
            if self._ambient.shape[1] > 1:
                count = min(count, self._ambient_every - self._next % self._ambient_every)
            if self._outside.next_sample is not None:
                count = min(count, self._outside.next_sample + 1 - self._next)
            good = self._advance(self._noise[self._used : self._used + count], out[done : done + count])
            self._next += good
            self._used += good
            done += good
            if good < count:
                raise self._diverged()

    def _advance(self, noise: FloatArray, out: FloatArray) -> int:
        """Fill `out` with the next samples until the arm diverges; return their number."""
        motion = self.motion.arrays
        if self._springs is None:
            return advance(self._arrays, motion, self._next, noise, out)
        return advance_elastic(self._arrays, self._springs.arrays, motion, self._next, noise, out)
