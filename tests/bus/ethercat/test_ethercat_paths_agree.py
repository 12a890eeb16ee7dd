"""One motion of the same simulated arm in process, over EtherCAT and over ADS: frames and estimates agree.

The arms are free of noise.  The same noise, by cycle of the motion, is added to the torque of all three; cycles that
one path missed are taken from all of them.
"""

from __future__ import annotations

import dataclasses
import json
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.files.recordings.data import Recording
from drivers.files.recordings.format import RecordingMeta
from drivers.files.robots.file import load_robot
from rt_core.model.base import base_parameters
from rt_core.types import FloatArray, IntArray
from service.config.load import parse_config
from service.demo.hardware import Bus, bus_configuration, simulated_drives, simulated_plc
from service.motion.motion_player import MotionPlayer
from service.operations.identify import identify_recording, signal_settings
from sim_backend.arm.trajectory import Motion
from sim_backend.drive.drive_arm import DRIVE_ARM_SETTINGS, DriveArm
from sim_backend.drive.modes import CSP
from tests.lab.daemon.ethercat_rig import ROOT, network
from tests.lab.daemon.path_run import CYCLE_S, STOPPED

pytestmark = pytest.mark.slow
ROBOT = "arm9"
SECONDS = 15.0
TRIES = 3
NOISE = 0.05  # of the effort limits: far above the resolution of the drives' torque, a thousandth of the rated one
#: Cycles by which the arm is behind the set position of its frame.  A set position is reached one cycle after the PLC
#: has played it; a drive takes it at the SYNC0 after the frame, and inputs are those of a SYNC0 before.
BEHIND = {"EtherCAT": 2, "ADS": 1}
SLOWEST = [0.05] * 6 + [0.06] * 3


def configuration(bus: Bus) -> dict[str, Any]:
    table, _ = bus_configuration(bus, ROBOT)
    if bus == "ethercat":
        table["driver"]["cycle_hz"] = round(1.0 / CYCLE_S)
    motion = {"kind": "fourier", "duration_s": SECONDS, "seed": 3, "candidates": 1, "approach": 0.5}
    ports = dict.fromkeys(("frames_port", "estimates_port", "control_port"), 0) | {"http": False}
    return {"daemon": ports, "arm": [table | {"motion": motion}]}


def without_noise(bus: Bus, folder: Path) -> Path:
    """The shipped hardware at the test's cycle, its sensors free of noise."""
    _, path = bus_configuration(bus, ROBOT)
    values = "torque_noise = 0.0" + (f"\ncycle_us = {CYCLE_S * 1e6:.0f}" if bus == "ads" else "")
    text, count = re.subn("(?m)^torque_noise = .*$", values, path.read_text(encoding="utf-8"))
    assert count == 1
    quiet = folder / path.name
    quiet.write_text(text, encoding="utf-8")
    return quiet


def run(bus: Bus, folder: Path) -> dict[str, Any]:
    """Follow the motion over a bus, in a process of its own; once more where the machine was elsewhere for too long."""
    config, out = folder / f"{bus}.json", folder / f"{bus}.npz"
    config.write_text(json.dumps(configuration(bus)), encoding="utf-8")
    command = [sys.executable, "-m", "tests.lab.daemon.path_run", str(config), str(out)]
    hardware = without_noise(bus, folder)
    for _ in range(TRIES):
        with simulated_plc(hardware) if bus == "ads" else simulated_drives(hardware, 50):
            code = subprocess.run(command, cwd=ROOT, check=False, timeout=200.0).returncode
        if code != STOPPED:
            break
    assert code == 0
    return dict(np.load(out))


def planned() -> Motion:
    config = parse_config(configuration("ethercat"), "test", Path.cwd())
    assert config.arm[0].motion is not None
    return MotionPlayer(load_robot(ROBOT).model, config.arm[0].motion, CYCLE_S).motion


def in_process(motion: Motion, cycles: int) -> dict[str, Any]:
    """The same drives and arm without anything between."""
    model = load_robot(ROBOT).model
    arm = DriveArm(model, DRIVE_ARM_SETTINGS.model_copy(update={"torque_noise": 0.0}), CYCLE_S, motion.centre)
    wanted = [motion.sample(k * CYCLE_S)[0] for k in range(cycles)]
    samples = [arm.step([CSP] * model.n, target) for target in wanted]
    return {
        "q": np.array([sample.q for sample in samples]),
        "tau": np.array([sample.tau for sample in samples]),
        "setpoint": np.array(wanted),
        "cycle": np.arange(cycles),
    }


def number_cycles(path: dict[str, Any], wanted: FloatArray) -> dict[str, Any]:
    """Keep frames whose set position was commanded on a frame that is there too; "cycle" is its index in the motion."""
    seq, command = path["seq"], path["command"]
    lags = []
    for k in range(len(seq) // 4, len(seq) * 3 // 4, len(seq) // 40):
        apart = np.abs(wanted - path["setpoint"][k]).max(axis=1)
        if apart.min() < 1e-9:  # else the drives went by themselves there
            lags.append(k - int(np.searchsorted(command, np.argmin(apart))))
    lag = statistics.mode(lags)
    whole = path["valid"][lag:] & (seq[lag:] - seq[:-lag] == lag)
    there = {name: path[name][lag:][whole] for name in ("q", "tau", "setpoint")}
    cycle, first = np.unique(command[:-lag][whole], return_index=True)
    return {name: values[first] for name, values in there.items()} | {"cycle": cycle}


def identify(path: dict[str, Any], cycles: IntArray, noise: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Parameters and standard deviations from some of the cycles."""
    robot = load_robot(ROBOT)
    place = np.searchsorted(path["cycle"], cycles)
    names = tuple(joint.name for joint in robot.model.joints)
    meta = RecordingMeta(robot=ROBOT, joint_names=names, units=("rad",) * len(names), rate_hz=1.0 / CYCLE_S,
                         clock="sim", source="test")  # fmt: skip
    recording = Recording(
        t=cycles * CYCLE_S, t_ns=cycles * round(CYCLE_S * 1e9), seq=cycles, meta=meta,
        channels={"q": path["q"][place], "tau": path["tau"][place] + noise[cycles]},
    )  # fmt: skip
    settings = dataclasses.replace(signal_settings(robot), min_velocity=np.array(SLOWEST))
    found = identify_recording(recording, robot, settings, base=base_parameters(robot.model))
    return found.theta, found.std


def test_three_ways_to_the_same_arm(tmp_path: Path) -> None:
    with network() as link:
        link.down()  # the drives bring their own
        ethercat, ads = run("ethercat", tmp_path), run("ads", tmp_path)
    motion = planned()
    cycles = round(SECONDS / CYCLE_S)
    direct = in_process(motion, cycles)
    wanted = direct["setpoint"]
    ethercat, ads = number_cycles(ethercat, wanted), number_cycles(ads, wanted)

    common = np.arange(cycles)
    paths = {"EtherCAT": ethercat, "ADS": ads}
    for path in paths.values():
        path["cycle"] = path["cycle"][path["cycle"] < cycles]
        # Those on the way back to the motion from where drives have gone by themselves are left out.
        on = np.abs(path["setpoint"][: len(path["cycle"])] - wanted[path["cycle"]]).max(axis=1) < 1e-9
        for key, values in path.items():
            path[key] = values[: len(on)][on]
        assert len(path["cycle"]) > 0.5 * cycles
    assert len(ads["cycle"]) == cycles  # a PLC misses none
    for name, path in paths.items():
        off = {k: np.abs(path["q"] - direct["q"][path["cycle"] - k]) for k in range(4)}
        assert min(off, key=lambda k: float(np.median(off[k].max(axis=1)))) == BEHIND[name]
        path["cycle"] = path["cycle"] - BEHIND[name]
        common = np.intersect1d(common, path["cycle"])

    effort = np.array([joint.effort for joint in load_robot(ROBOT).model.joints])
    noise = np.random.default_rng(5).normal(size=wanted.shape) * NOISE * effort
    theta, std = identify(direct, common, noise)
    for name, path in paths.items():
        other, _ = identify(path, common, noise)
        apart = np.abs(other - theta) / std
        print(f"{name}: {len(common)} of {cycles} cycles; parameters differ by at most {apart.max():.3f} of their "
              f"standard deviations, median {np.median(apart):.3f}")  # fmt: skip
        assert apart.max() < 0.1
