"""A three-joint arm with a friction law that has constants, and recordings of it with known torque."""

from dataclasses import replace

import numpy as np

from rt_core.identification.preprocess import SignalPiece, Signals, SignalSettings
from rt_core.model.friction import Friction
from rt_core.model.parameters import standard_layout, standard_parameters
from rt_core.model.regressor import regressor
from rt_core.model.robot import JointDynamics, RobotModel
from rt_core.types import FloatArray
from tests.lab.arms.batch import arm

SIGMA = np.array([0.4, 0.5, 0.2])


def stribeck_arm(vb: tuple[float, float, float] = (0.05, 0.04, 0.08), *, load: bool = False) -> RobotModel:
    """The arm of the batch tests, slower, with breakaway friction well above Coulomb's."""
    plain = arm()
    dynamics = JointDynamics(
        np.array([0.5, 0.4, 0.2]), np.array([4.0, 5.0, 2.0]), np.array([5.0, 6.0, 3.0]), np.zeros(3),
        breakaway=np.array([7.5, 8.0, 4.5]), stribeck_velocity=np.array(vb),
        quadratic_friction=np.array([0.5, -0.3, 0.2]), cubic_friction=np.array([-0.1, 0.05, -0.05]),
        load_friction=np.full(3, 0.02 if load else 0.0),
    )  # fmt: skip
    joints = tuple(replace(joint, velocity=2.0) for joint in plain.joints)
    friction = Friction("stribeck", load=load)
    return replace(plain, name="stribeck", joints=joints, dynamics=dynamics, friction=friction, offset=False)


def harmonic_arm() -> RobotModel:
    """The same with the law of a harmonic drive's input side."""
    model = stribeck_arm()
    dynamics = replace(
        model.dynamics, tanh_torque=np.array([3.0, 2.5, 2.0]), tanh_velocity=np.array([0.06, 0.08, 0.05]),
        decaying_viscous=np.array([6.0, 8.0, 5.0]), decay_velocity=np.array([0.3, 0.25, 0.4]),
    )  # fmt: skip
    return replace(model, dynamics=dynamics, friction=Friction("harmonic_drive_input"))


def settings_of(model: RobotModel, share: float | None = 0.5) -> SignalSettings:
    """Settings with `min_velocity` as a share of the standstill velocity."""
    return SignalSettings(min_velocity=None if share is None else share * model.standstill_velocity)


def recording(
    model: RobotModel, *, seconds: float = 60.0, rate_hz: float = 200.0, seed: int = 0, noise: float = 1.0
) -> Signals:
    """Exact states of sums of sines, slow ones among them, and torque with white noise `noise * SIGMA`."""
    rng = np.random.default_rng(seed)
    t = np.arange(int(seconds * rate_hz)) / rate_hz
    q, dq, ddq = np.zeros((3, t.size, model.n))
    for j in range(model.n):
        for frequency, reach in ((0.03, 0.5), (0.011, 0.7), *((f, 0.25) for f in rng.uniform(0.1, 0.6, 3))):
            w, phase = 2 * np.pi * frequency, rng.uniform(0, 2 * np.pi)
            # the fast part comes and goes, so that the slow part shows alone
            q[:, j] += reach * np.sin(w * t + phase)
            dq[:, j] += reach * w * np.cos(w * t + phase)
            ddq[:, j] -= reach * w**2 * np.sin(w * t + phase)
    return Signals(
        (SignalPiece(t, q, dq, ddq, torque(model, q, dq, ddq) + noise * SIGMA * rng.standard_normal(q.shape)),),
        rate_hz, float(t[0]), float(t[-1]), 0, 0, 0, 0, True,
    )  # fmt: skip


def torque(model: RobotModel, q: FloatArray, dq: FloatArray, ddq: FloatArray) -> FloatArray:
    """Torque of the model's own parameters."""
    layout = standard_layout(model)
    load = np.zeros_like(q)
    if layout.has_load:
        links = layout.take(np.flatnonzero(layout.is_link))
        load = regressor(model, links, q, dq, ddq) @ standard_parameters(model, links)
    return np.asarray(regressor(model, layout, q, dq, ddq, load=load) @ standard_parameters(model, layout))
