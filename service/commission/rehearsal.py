"""Rehearsal of a commissioning: a simulated arm in a daemon of its own, which differs from the description."""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import numpy as np

from drivers.files.atomic_write import write_text
from drivers.files.robots.file import RobotFile, robot_from_source
from rt_core.commissioning.torque_constant import payload_parameters
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray
from service.client import Control
from service.commission._site import Site
from service.commission.errors import CommissionError
from service.commission.settings import Payload
from service.config.load import Config, parse_config
from service.io.toml_text import toml_text
from service.supervisor.launch import DaemonProcess

ARM = "rehearsal"
#: Largest relative deviation of the simulated arm's masses and other values from the description.
_MASS, _REST = 0.15, 0.25
#: Friction and rotor inertia if the description has none: shares of the effort limit, at the velocity limit.
_DRY, _VISCOUS, _ARMATURE = 0.03, 0.05, 0.01
_UNKNOWN_EFFORT = 50.0
_CURRENT = 10.0  # of a motor at the effort limit [A], without a known torque constant
#: Distance of the initial posture from mid-range, as a share of the range, so that gravity shows.
_BENT = 0.1
#: Half the usual rate, so that a busy machine does not stop a simulated arm.
_RATE_HZ = 500.0
_SAFETY = {"silence_s": 3.0, "heartbeat_s": 3.0, "permit_max_s": 3600.0}


class Rehearsal:
    """A simulated arm in a daemon of its own; a context manager.

    The robot needs link parameters; the folder takes recordings, jobs and the daemon's log. `seed` is that of sensor
    noise and of the arm's deviation from its description. With `current_only` it delivers the motors' current and no
    torque, if the description has a transmission.

    Raises `CommissionError`: the description has no link parameters to simulate.
    """

    rehearsal = True

    def __init__(self, robot: RobotFile, folder: Path, seed: int = 1, *, current_only: bool = False) -> None:
        if robot.model.inertial is None:
            raise CommissionError(
                f"robot {robot.model.name} has no link parameters: a rehearsal simulates the arm and needs masses; add "
                "them to the robot file, or commission the real arm of a running daemon by --arm"
            )
        self._robot, self._folder, self._seed = robot, folder, seed
        self._current_only = current_only and robot.model.transmission is not None
        self._payload: Payload | None = None
        self._open = ExitStack()
        self._site: Site | None = None

    def site(self) -> Site:
        """Return the arm; starts the daemon the first time."""
        if self._site is None:
            daemon = self._open.enter_context(DaemonProcess(self._config(), self._folder / "daemon.log"))
            control = self._open.enter_context(Control(daemon.endpoints["control"]))
            self._site = Site(control, ARM)
        return self._site

    def mount(self, payload: Payload | None) -> None:
        """Restart with or without the payload on the flange."""
        self.close()
        self._payload = payload

    def close(self) -> None:
        """Stop the daemon."""
        self._site = None
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _config(self) -> Config:
        robot, truth = self._folder / "robot.toml", self._folder / "simulated.toml"
        model = self._robot.model
        write_text(robot, toml_text(self._robot.source))
        source = disturbed(self._robot, self._seed)
        write_text(truth, toml_text(source if self._payload is None else loaded(source, self._payload)))
        lower, upper = (np.array([getattr(joint, name) for joint in model.joints]) for name in ("lower", "upper"))
        settings: dict[str, Any] = {"seed": self._seed, "rate_hz": _RATE_HZ}
        if self._current_only:
            settings["channels"] = ["q", "dq", "current", "setpoint"]
        arm = {
            "name": ARM, "robot": str(robot),
            "driver": {
                "kind": "sim", "mode": "csp", "start": (0.5 * (lower + upper) + _BENT * (upper - lower)).tolist(),
                "robot": str(truth), "settings": settings,
            },
            "safety": _SAFETY, "recorder": {"enabled": False, "directory": str(self._folder / "recordings")},
            "state": {"resume": False},
        }  # fmt: skip
        ports = dict.fromkeys(("frames_port", "estimates_port", "control_port"), 0) | {"http": False}
        daemon = {"name": "commission", "state_dir": str(self._folder / "state"), "log_level": "warning", **ports}
        table = {"daemon": daemon, "jobs": {"priority": "low"}, "arm": [arm]}
        return parse_config(table, "thetad commission", self._folder)


def disturbed(robot: RobotFile, seed: int) -> dict[str, Any]:
    """Return the source of an arm that deviates from its description, reproducibly by the seed."""
    rng = np.random.default_rng(seed)
    model, source = robot.model, json.loads(json.dumps(robot.source))
    given = {joint["name"]: joint for joint in source["joint"]}
    tables = []
    for k, joint in enumerate(model.joints):
        table: dict[str, Any] = given.get(joint.name, {"name": joint.name})
        mass, rest = 1.0 + _MASS * rng.uniform(-1.0, 1.0), 1.0 + _REST * rng.uniform(-1.0, 1.0, 3)
        if source["kinematics"] == "urdf":
            assert model.inertial is not None
            phi = mass * model.inertial[k]
            table.pop("com", None)
            table |= {"mass": float(phi[0]), "first_moment": phi[1:4].tolist(), "inertia": phi[4:].tolist()}
            table["inertia_about"] = "origin"
        else:
            for key in ("mass", "first_moment", "inertia"):
                if key in table:
                    table[key] = (mass * np.array(table[key])).tolist()
        table |= _drive(model, k, rest.tolist())
        tables.append(table)
    source["joint"] = tables
    if "transmission" in source and not source["transmission"].get("torque_constant"):
        assert model.transmission is not None
        effort = np.array([joint.effort if np.isfinite(joint.effort) else _UNKNOWN_EFFORT for joint in model.joints])
        constants = effort / np.abs(np.diag(model.transmission.matrix)) / _CURRENT * rng.uniform(0.8, 1.2, model.n)
        source["transmission"]["torque_constant"] = constants.tolist()
    return dict(source)


def loaded(source: dict[str, Any], payload: Payload) -> dict[str, Any]:
    """Return the source of the arm with a point mass on its flange."""
    model = robot_from_source(source).model
    assert model.inertial is not None
    carried: dict[str, Any] = json.loads(json.dumps(source))
    table = carried["joint"][-1]
    for key in ("com", "first_moment", "inertia", "inertia_about"):
        table.pop(key, None)

    def link(phi: FloatArray) -> FloatArray:
        """Return the model's link parameters for those of the file, whatever their frame in the file."""
        table.update(mass=float(phi[0]), first_moment=phi[1:4].tolist(), inertia=phi[4:].tolist())
        table["inertia_about"] = "origin"
        inertial = robot_from_source(carried).model.inertial
        assert inertial is not None
        return np.asarray(inertial[-1])

    one = np.eye(1, 10)[0]
    columns = [link(one)] + [link(one + unit) - link(one) for unit in np.eye(10)[1:]]
    wanted = model.inertial[-1] + payload_parameters(model, payload.mass, payload.centre)
    link(np.linalg.solve(np.array(columns).T, wanted))
    return carried


def _drive(model: RobotModel, k: int, factors: list[float]) -> dict[str, float]:
    """Return rotor inertia and friction of a joint, with usual values for unknown ones."""
    joint, dynamics = model.joints[k], model.dynamics
    effort = joint.effort if np.isfinite(joint.effort) else _UNKNOWN_EFFORT
    dry, viscous, armature = _DRY * effort, _VISCOUS * effort / joint.velocity, _ARMATURE * effort / joint.velocity
    breakaway = 0.0
    if dynamics is not None:
        known = (dynamics.coulomb[k], dynamics.viscous[k], dynamics.armature[k])
        dry, viscous, armature = (float(v) or other for v, other in zip(known, (dry, viscous, armature), strict=True))
        breakaway = float(dynamics.breakaway[k])
    fields = {field for _, _, field in model.friction.terms}
    values = {"coulomb": factors[0] * dry, "viscous": factors[1] * viscous, "breakaway": factors[0] * breakaway}
    found = {name: value for name, value in values.items() if name in fields and value > 0.0}
    return found | ({"armature": factors[2] * armature} if model.armature else {})
