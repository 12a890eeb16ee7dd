"""The real sets as their mapping and robot files say, without the service."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from drivers.files.importing.importer import load_data
from drivers.files.recordings.data import Recording
from drivers.files.robots.file import RobotFile, load_robot
from rt_core.identification.preprocess import Signals, SignalSettings, prepare


@dataclass(frozen=True)
class RealSet:
    robot: RobotFile
    settings: SignalSettings
    signals: Signals
    recording: Recording


def load_set(folder: Path, file: str, name: str) -> RealSet:
    """Robot, settings and filtered signals of one file; mapping and robot file have the same name."""
    robot = load_robot(name)
    given = robot.identification
    velocity = robot.model.standstill_velocity if given.min_velocity is None else np.asarray(given.min_velocity)
    settings = SignalSettings(
        10.0 if given.cutoff_hz is None else given.cutoff_hz, given.rate_hz, trim_s=given.trim_s, min_velocity=velocity
    )
    recording = load_data(folder / file, name)[0]
    channels = recording.channels
    signals = prepare(recording.t, channels["q"], channels["tau"], settings, dq=channels.get("dq"))
    return RealSet(robot, settings, signals, recording)
