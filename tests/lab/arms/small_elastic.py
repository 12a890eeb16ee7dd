"""The first joints of the simulated elastic arm: as a robot file, and moved for a while."""

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from drivers.files.recordings.recording import Recording, RecordingMeta
from drivers.files.robots.file import load_robot
from rt_core.model.robot import RobotModel
from sim_backend.arm.robot import SimulatedArm
from sim_backend.arm.settings import MotionSettings, SimSettings
from tests.lab.command_line import ROOT

JOINTS = 3
SOFTER = 0.4  # of the shipped arm's stiffness
LOAD = {"mass": 8.0, "com": [0.12, 0.05, 0.1], "inertia": [0.15, 0.0, 0.0, 0.15, 0.0, 0.15]}
SECONDS = 30.0
RATE_HZ = 500.0


def robot_text() -> str:
    """Robot file of the first joints of `arm7_elastic`, with a load on the last."""
    text = (ROOT / "configs" / "robots" / "arm7_elastic.toml").read_text(encoding="utf-8")
    head, *joints = text.replace('name = "arm7_elastic"', 'name = "arm3_elastic"').split("[[joint]]")
    joints = joints[:JOINTS]
    for name, value in LOAD.items():
        joints[-1], changed = re.subn(rf"(?m)^{name} = .*$", f"{name} = {value}", joints[-1])
        assert changed == 1
    gears = "[transmission]\ngear_ratio = [160.0, 160.0, 120.0]\ntorque_constant = [0.11, 0.15, 0.11]\n"
    return "[[joint]]".join([head, *joints]) + gears


def write_robot(folder: Path) -> Path:
    """Write the robot file into a folder."""
    path = folder / "arm3_elastic.toml"
    path.write_text(robot_text(), encoding="utf-8")
    return path


@cache
def arm(*, elastic: bool) -> RobotModel:
    """Return the arm that is simulated: with soft springs and no friction behind them, or with none."""
    with TemporaryDirectory() as folder:
        model = load_robot(write_robot(Path(folder))).model
    d, none = model.dynamics, np.zeros(JOINTS)
    d = replace(d, stiffness=SOFTER * elastic * d.stiffness, link_viscous=none, link_coulomb=none)
    if not elastic:
        d = replace(d, stiffness_cubic=none, spring_damping=none)
    return replace(model, dynamics=d)


@cache
def moved(*, elastic: bool, seed: int = 3, exact: bool = False) -> Recording:
    """Record the arm in exciting motion."""
    model = arm(elastic=elastic)
    noise = {"encoder_bits": None, "torque_noise": 0.0, "current_noise": 0.0} if exact else {}
    settings = SimSettings(seed=seed, rate_hz=RATE_HZ, **noise)
    data = SimulatedArm(model, settings, MotionSettings(seed=5, candidates=1, base_frequency_hz=0.2)).simulate(SECONDS)
    names = tuple(joint.name for joint in model.joints)
    channels = {name: data.channels[name] for name in ("q", "q_motor", "current", "tau")}
    meta = RecordingMeta(model.name, names, ("rad",) * JOINTS, RATE_HZ)
    return Recording(data.t, np.rint(data.t * 1e9).astype(np.int64), np.arange(data.t.size), channels, meta)
