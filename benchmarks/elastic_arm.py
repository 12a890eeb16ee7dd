"""How much faster than time an arm with elastic joints is simulated, beside the same arm with rigid ones.

python benchmarks/run.py --only elastic_arm
"""

import statistics
import time
from typing import Any

from drivers.files.robots.file import load_robot
from sim_backend.arm.robot import SimulatedArm
from sim_backend.arm.settings import MotionSettings, SimSettings

ROBOTS = ("arm7", "arm7_elastic")
SECONDS, ROUNDS = 4.0, 9


def real_time_factors(rounds: int = ROUNDS) -> dict[str, float]:
    """Median over rounds, which alternate between the robots, of simulated time over processor time."""
    arms = {name: SimulatedArm(load_robot(name).model, SimSettings(), MotionSettings(seed=1)) for name in ROBOTS}
    for arm in arms.values():
        arm.simulate(0.1)  # compiles
    found: dict[str, list[float]] = {name: [] for name in ROBOTS}
    for _ in range(rounds):
        for name, arm in arms.items():
            begin = time.process_time()
            arm.simulate(SECONDS)
            found[name].append(SECONDS / (time.process_time() - begin))
    return {name: statistics.median(values) for name, values in found.items()}


def run(quick: bool) -> tuple[dict[str, Any], list[str], list[str]]:
    """Result, lines and problems, of which there are none: no speed is promised."""
    factors = real_time_factors(3 if quick else ROUNDS)
    line = ", ".join(f"{name} {factor:.0f} times" for name, factor in factors.items())
    return {"real_time_factor": factors}, [f"simulated at 1 kHz, faster than time: {line}"], []
