"""Follow a configuration's motion with its driver alone: python -m tests.lab.daemon.path_run CONFIG OUT.npz.

Exit code STOPPED: the bus did not start, or the motion was stopped, as happens on a machine that stalls.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import numpy as np

from drivers.driver import Commandable, DriverConnectionError, DriverTimeoutError
from service.acquisition.sources import make_driver
from service.config.arm_robot import load_arm_robot
from service.config.arm_tables import RealtimeConfig
from service.config.load import load_config
from service.motion.motion_player import MotionPlayer
from service.worker.realtime import apply_realtime

STOPPED = 75
CYCLE_S = 2e-3
AFTER = 1000  # frames after the last command: until it has been carried out


def follow(config_path: Path, out: Path) -> None:
    """Run the motion of the only arm from its start to its end."""
    config = load_config(config_path)
    (arm,) = config.arm
    model = load_arm_robot(arm, config.base).model
    assert arm.motion is not None
    driver = make_driver(arm, model)
    assert isinstance(driver, Commandable)
    player = MotionPlayer(model, arm.motion, CYCLE_S, getattr(arm.driver, "bridge_cycles", 0))
    apply_realtime(arm.realtime or RealtimeConfig())
    frames, commands, after = [], [], 0
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(driver)
        except DriverConnectionError as error:
            print(error, file=sys.stderr)
            sys.exit(STOPPED)
        while after < AFTER:
            try:
                frame = driver.read()
            except DriverTimeoutError:
                continue
            target = player.step(frame, driver.enabled)
            if player.state == "stopped":
                print(f"{config_path.stem}: {player.reason}", file=sys.stderr)
                sys.exit(STOPPED)
            if target is not None:
                driver.command(target)
            if player.state in ("running", "ended"):
                frames.append(frame)
                commands.append(round(player.time_s / CYCLE_S))
            after += player.state == "ended"
    np.savez(
        out,
        command=np.array(commands),  # cycle of the motion that was commanded on the frame
        seq=np.array([frame.seq for frame in frames]),
        valid=np.array([frame.valid is None or bool(frame.valid.all()) for frame in frames]),
        **{name: np.array([getattr(frame, name) for frame in frames]) for name in ("q", "tau", "setpoint")},
    )


if __name__ == "__main__":
    follow(Path(sys.argv[1]), Path(sys.argv[2]))
