"""Arms whose friction follows temperature, and sweeps of the ambient temperature."""

from dataclasses import replace

import numpy as np

from rt_core.model.friction import Friction
from rt_core.model.robot import RobotModel
from sim_backend.arm.robot import SimulatedArm, SimulatedData
from sim_backend.arm.settings import AmbientSettings, MotionSettings, SimSettings
from tests.lab.arms.simulated import EXACT, random_arm


def warm_arm(law: Friction, n: int = 3, seed: int = 0, *, coupled: bool = False) -> RobotModel:
    """A random arm with `law` and random values of its friction and of how it follows temperature."""
    arm = random_arm(n, 60 + seed, coupled=coupled)
    rng = np.random.default_rng([seed, 11])
    coulomb = rng.uniform(2.0, 4.0, n)
    dynamics = replace(
        arm.dynamics, coulomb=coulomb, viscous=rng.uniform(2.0, 4.0, n), breakaway=coulomb * rng.uniform(1.5, 1.8, n),
        stribeck_velocity=rng.uniform(0.04, 0.08, n), tanh_torque=rng.uniform(0.5, 1.0, n),
        tanh_velocity=rng.uniform(0.05, 0.1, n), coulomb_temperature=-0.01 * coulomb,
        breakaway_temperature=-0.008 * coulomb, viscous_temperature=rng.uniform(-0.02, 0.01, n),
    )  # fmt: skip
    return replace(arm, friction=law, dynamics=dynamics)


def sweep(from_c: float, to_c: float, seconds: float) -> SimSettings:
    """Sensors without error, and an ambient temperature that goes from one to the other, closely followed."""
    points = (AmbientSettings(time_s=0.9 * seconds, ambient_c=to_c),)
    return EXACT.model_copy(update={"ambient_c": from_c, "ambient": points, "thermal_time_s": 2.0})


def simulated(model: RobotModel, settings: SimSettings, seconds: float, seed: int = 1) -> SimulatedData:
    """Motion of `model` under `settings`."""
    return SimulatedArm(model, settings, MotionSettings(seed=seed, candidates=1)).simulate(seconds)
