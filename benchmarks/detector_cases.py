"""Changes of simulated arms, seen by the online estimator and its detector of changes.

An arm moves along a drawn Fourier series; its model is what the estimator has learned from the first part of the
motion.  Torque has white noise of a fifth of a per cent of each joint's effort limit, and correlated noise (30 ms) of
twice its strength; positions are rounded as by a 20-bit encoder.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from benchmarks.coverage import correlated_noise
from drivers.files.robots.file import load_robot
from rt_core.model.base import BaseParameters, base_parameters, payload_columns
from rt_core.model.inertia import inertial_vector, transform_inertial
from rt_core.model.robot import RobotModel
from rt_core.online import OnlineEstimator, OnlineSettings
from rt_core.online.monitors.change import ChangeDetector
from rt_core.online.monitors.change_report import ArmChange
from rt_core.online.monitors.change_rules import ChangeSettings
from rt_core.online.monitors.drift import Watched
from rt_core.online.monitors.payload_estimate import payload_information
from rt_core.types import FloatArray
from sim_backend.arm.packed import torque_scale
from sim_backend.arm.settings import MotionSettings
from sim_backend.arm.trajectory import motor_torque, plan_motion

RATE_HZ = 250.0
SETTINGS = OnlineSettings(update_hz=50.0)
LEARN_S = 60.0  # of the model
WATCH_S = 45.0  # before the change
TORQUE_NOISE = 0.002
CORRELATED = 2.0
ENCODER = 2.0 * np.pi / 2**20
#: Payload that arms of this size are made for [kg].
CAPACITY = {"arm7": 7.0, "space6": 10.0}
_LOOK = 25  # frames between two looks of the detector: ten times a second

What = Literal["payload", "friction", "sensor_gain", "sensor_offset"]


@dataclass(frozen=True)
class Alteration:
    """What changes `at_s` after the watch has begun: mass [kg], factor of friction, or the sensor's gain or offset.

    `ramp_s` is for friction: the time in which it grows [s].
    """

    what: What
    size: float
    joint: int = 0
    at_s: float = WATCH_S
    until_s: float = np.inf
    ramp_s: float = 0.0


@dataclass
class Outcome:
    """What was told, each with the time since the watch began [s]; and the detector in the end."""

    told: list[tuple[float, ArmChange]]
    detector: ChangeDetector

    def first(self, *but: str) -> tuple[float, ArmChange] | None:
        """Return what was told first that is none of these kinds."""
        return next(((t, change) for t, change in self.told if change.kind not in but), None)


@lru_cache
def arm(robot: str) -> tuple[RobotModel, BaseParameters]:
    """Model and base parameters of a shipped robot."""
    model = load_robot(robot).model
    return model, base_parameters(model)


def load_of(mass: float) -> FloatArray:
    """(10,) a payload about the flange: a cuboid whose centre is 8 cm before it."""
    return inertial_vector(mass, np.array([0.01, -0.02, 0.08]), mass * np.diag([0.008, 0.006, 0.004]))


def loaded(model: RobotModel, mass: float) -> FloatArray:
    """(n, 10) inertial parameters of the links with a payload."""
    assert model.inertial is not None
    inertial = model.inertial.copy()
    inertial[-1] += transform_inertial(load_of(mass), model.tip_rotation, model.tip_translation)
    return inertial


def torque(model: RobotModel, t: FloatArray, states: Sequence[FloatArray], changes: Sequence[Alteration]) -> FloatArray:
    """(N, n) exact torque as the sensors show it, `t` counted from the beginning of the watch."""
    q, dq, ddq = states
    assert model.inertial is not None
    assert model.dynamics is not None
    exact = motor_torque(model, model.inertial, q, dq, ddq)
    tau = exact.copy()
    for change in changes:
        now = (t >= change.at_s) & (t < change.until_s)
        j = change.joint
        if change.what == "payload":
            tau[now] += (motor_torque(model, loaded(model, change.size), q, dq, ddq) - exact)[now]
        elif change.what == "friction":
            share = np.clip((t - change.at_s) / change.ramp_s, 0.0, 1.0) if change.ramp_s else 1.0
            dynamics = model.dynamics
            names = ("viscous", "coulomb", "breakaway")
            grown = {name: np.array(getattr(dynamics, name)) for name in names}
            for values in grown.values():
                values[j] *= change.size
            rubbing = motor_torque(replace(model, dynamics=replace(dynamics, **grown)), model.inertial, q, dq, ddq)
            tau[now] += ((rubbing - exact) * np.broadcast_to(share, t.shape)[:, None])[now]
    for change in changes:  # a sensor shows what there is
        now = (t >= change.at_s) & (t < change.until_s)
        if change.what == "sensor_gain":
            tau[now, change.joint] *= 1.0 + change.size
        elif change.what == "sensor_offset":
            tau[now, change.joint] += change.size
    return tau


def run(
    robot: str,
    seed: int,
    changes: Sequence[Alteration],
    after_s: float,
    *,
    held: Sequence[int] = (),
    detector: dict[str, Any] | None = None,
) -> Outcome:
    """Let an arm move, learn its model, and watch it until `after_s` after the watch began [s].

    Joints `held` stand still once the model is learned; `detector` are settings of it.
    """
    model, base = arm(robot)
    motion = plan_motion(model, MotionSettings(seed=seed, candidates=2))
    count = round((LEARN_S + after_s) * RATE_HZ)
    t = np.arange(count) / RATE_HZ
    states = [np.asarray(x) for x in motion.sample(t)]
    later = t >= LEARN_S
    for j in held:
        at = states[0][np.argmax(later), j]
        for values, value in zip(states, (at, 0.0, 0.0), strict=True):
            values[later, j] = value
    tau = torque(model, t - LEARN_S, states, changes)
    rng = np.random.default_rng(seed)
    assert model.inertial is not None
    std = TORQUE_NOISE * torque_scale(model, model.inertial)
    tau += std * rng.standard_normal(tau.shape) + correlated_noise(rng, count, RATE_HZ, CORRELATED * std)
    q = np.round(states[0] / ENCODER) * ENCODER
    estimator = OnlineEstimator(model, SETTINGS, RATE_HZ, base=base)
    outcome = Outcome([], watcher(estimator, **(detector or {})))
    learned = round(LEARN_S * RATE_HZ)
    for k in range(count):
        if k == learned:
            theta, covariance = estimator.theta, estimator.covariance
            estimator.adopt(theta, covariance)
            outcome.detector.set_model(True, payload_information(payload_columns(base, model), covariance))
        estimator.step(round(t[k] * 1e9), k, q[k], tau[k])
        if k % _LOOK == 0 and k > learned:
            for change in outcome.detector.observe(estimator.take_evidence(), round(t[k] * 1e9)):
                outcome.told.append((float(t[k]) - LEARN_S, change))
    return outcome


def watcher(estimator: OnlineEstimator, **settings: Any) -> ChangeDetector:
    """Return a detector for an estimator."""
    joints = tuple(joint.name for joint in estimator.model.joints)
    watched = Watched(tuple(estimator.base.names), joints, estimator.base.layout)
    return ChangeDetector(watched, estimator.update_s, estimator.settings.cutoff_hz, ChangeSettings(**settings))
