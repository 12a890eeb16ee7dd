"""Identification of robot arms from a script or a notebook, without a daemon; docs/python.md has examples.

Where to start: `load_robot`, and `read_recording` or `import_table`, give what `identify`, `validate`, `payload`,
`calibrate`, `excite` and `simulate` take; `run` does a job of any kind; `Model` predicts torque and is exported;
`connect` listens to a running daemon.  Everything is in SI units, on the joint side, and keeps its meaning within a
major version.  Nothing is imported before it is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drivers.files.recordings.recording import Recording, read_recording
    from drivers.files.robots.file import RobotFile, load_robot
    from service.client import Subscriber
    from thetad._api import Calibration, Excitation, Identification, Model, Payload, Validation, calibrate, connect
    from thetad._api import excite, identify, import_table, payload, run, simulate, validate

__all__ = [
    "Calibration", "Excitation", "Identification", "Model", "Payload", "Recording", "RobotFile", "Subscriber",
    "Validation", "calibrate", "connect", "excite", "identify", "import_table", "load_robot", "payload",
    "read_recording", "run", "simulate", "validate",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'thetad' has no attribute {name!r}")
    return getattr(import_module("thetad._api"), name)
