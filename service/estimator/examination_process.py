"""The process in which an arm's own recent frames are examined, as `identify` would judge them.

It has what idle processors are there and ends with its answer: its seconds of computing would delay the frames of a
loop in the same process, and its memory is needed for seconds in minutes.
"""

from __future__ import annotations

import fcntl
import json
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.worker.resources import die_with_parent

if TYPE_CHECKING:
    from drivers.files.recordings.recording import Recording
    from rt_core.online.monitors.examination import Examination

_LOCK = "examination.lock"


def examine_window(task: Mapping[str, Any]) -> dict[str, Any]:
    """Examine the frames of a window's file; return what was found, or why there is nothing to say."""
    import numpy as np

    from rt_core.identification.preprocess import DataError
    from rt_core.model.base import base_parameters
    from rt_core.online.monitors.examination import Examination
    from rt_core.online.monitors.frame_diagnosis import examine
    from service.operations.identify import check_recording, prepare_recording, signal_settings
    from service.operations.inputs import open_recording, open_robot

    robot, recording = open_robot(task["robot"]), open_recording(Path(task["window"]))
    slowest = None if task["min_velocity"] is None else np.array(task["min_velocity"])
    settings = signal_settings(robot, cutoff_hz=task["cutoff_hz"], min_velocity=slowest)
    base = base_parameters(robot.model).with_shape(np.array(task["shape"]))
    needed = {"q", "tau"} | ({"temperature"} if robot.model.friction.temperature != "none" else set())
    try:
        check_recording(recording, robot.model)
    except DataError as error:
        text = str(error).removeprefix(f"{recording.path}: ")
        if not needed <= recording.channels.keys():
            return {"reason": text}
        return _state(Examination(np.zeros(len(base)), text, wrong=True), recording)
    try:
        signals = prepare_recording(recording, robot.model, settings)
        found = examine(robot.model, base, signals, settings)
    except DataError as error:
        return {"reason": str(error)}
    return _state(found, recording)


def _state(found: Examination, recording: Recording) -> dict[str, Any]:
    state = found.state() | {"examined_moved": found.moved.tolist()}
    return state | {"seconds": float(recording.t[-1] - recording.t[0]), "cpu_s": time.process_time()}


def main() -> int:
    """Examine what the standard input describes, and print what was found."""
    from service.jobs.execution.runner import yield_processor

    task = json.loads(sys.stdin.read())
    die_with_parent(task["parent"], signal.SIGKILL)
    yield_processor("idle")
    with Path(task["window"]).with_name(_LOCK).open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # ten arms that start together need memory for one
        json.dump(examine_window(task), sys.stdout)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
