"""Arms of a daemon that can be guided, and a client that guides one."""

import time
from pathlib import Path
from typing import Any

import numpy as np

from drivers.files.robots.file import load_robot
from rt_core.identification.preprocess import SignalSettings
from rt_core.model.base import base_parameters
from rt_core.model.parameters import standard_parameters
from rt_core.model.robot import RobotModel
from service.models.document import online_document, write_model
from tests.lab.daemon.ethercat_rig import write_robot
from tests.lab.daemon.runs import DEADLINE_S, Client, arm

#: A quick takeover; and room for a machine that is busy with other things.
GUIDING = {"ramp_s": 0.3, "takeover_watch_s": 0.2}
PUSH = {"kind": "push", "after_s": 1.5, "duration_s": 0.5, "force": [80.0, 80.0, 0.0]}


def write_truth(folder: Path, believed: RobotModel | None = None, name: str = "truth.yaml") -> Path:
    """Write a model file with the parameters of the robot as it is simulated, or of another load."""
    robot = load_robot(write_robot(folder))
    base = base_parameters(robot.model)
    theta = base.theta(standard_parameters(believed or robot.model, base.standard))
    source = {"arm": "arm3", "frames": [0, 1]}
    covariance = np.diag((1e-3 * np.maximum(np.abs(theta), 1e-3)) ** 2)
    found = {"theta": theta, "std": np.sqrt(np.diag(covariance)), "covariance": covariance}
    found["status"] = ("estimated",) * len(base)
    settings = SignalSettings(10.0, min_velocity=robot.model.standstill_velocity)
    write_model(online_document(robot, settings, found, source), folder / name)
    return folder / name


def guided_arm(folder: Path, name: str, *faults: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Table of an arm of three joints at 1 kHz whose model is the truth."""
    table = {"guiding": GUIDING, "model": str(folder / "truth.yaml")} | more
    return arm(folder, name, *faults, driver={"settings": {"rate_hz": 1000.0}}, **table)


class Guide(Client):
    """Guides, with a heartbeat as long as it is not told otherwise."""

    def guide(self, **args: Any) -> dict[str, Any]:
        """Arm, and go on until the arm may be pushed."""
        self.arm()
        self.ask("zero_force", permit=self.permit, **args)
        return self.until_phase("guiding")

    def until_phase(self, *phases: str) -> dict[str, Any]:
        deadline = time.monotonic() + DEADLINE_S
        while (found := self.safety())["guiding"]["phase"] not in phases:
            assert found["state"] != "disarmed", found
            assert time.monotonic() < deadline, found
            time.sleep(0.02)
        return found
