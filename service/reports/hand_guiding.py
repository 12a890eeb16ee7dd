"""Figures of a hand guiding session from its recording."""

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from drivers.files.recordings.recording import read_recording
from drivers.files.robots.file import robot_from_source
from rt_core.hand_guiding import ZeroForceSettings
from service.models.hand_guiding_arrays import guiding_model
from service.operations.hand_guiding_replay import GuidingRecordError, record_of
from service.reports.figures import guiding_figure, guiding_torque_figure


def draw_session(
    recording: Path, folder: Path, model: Mapping[str, Any], settings: Mapping[str, Any], session: Mapping[str, Any]
) -> list[Path]:
    """Draw motion and torques of a session into `folder`, which is made if need be; return the files.

    `model` is the answer to the verb `guiding_model`, `settings` those in the answer to `zero_force`, and `session` as
    `service.motion._hand_guiding.HandGuiding.report` gives it.

    Raises `RecordingError` or `GuidingRecordError`: the recording cannot be read, does not hold the session, or the
    session was guided by another model.
    """
    if (model["model"], model["digest"]) != (session["model"], session["digest"]):
        raise GuidingRecordError(
            f"{recording}: no figures: session {session['number']} was guided by model {session['model']:.20}, not by "
            f"{model['model']:.20} as it was when the command began"
        )
    robot = robot_from_source(model["robot"], "robot").model
    lists = {name: tuple(value) for name, value in settings.items() if isinstance(value, list)}
    given = ZeroForceSettings(**dict(settings) | lists)
    record = record_of(read_recording(recording), guiding_model(robot, model["values"]), given, session)
    title = f"guided by model {session['model']:.20}"
    if session["outcome"] == "stopped":
        title = textwrap.fill(f"{title}; {session['reason']}", 90)
    folder.mkdir(parents=True, exist_ok=True)
    motion, torque = folder / "guiding.png", folder / "guiding_torque.png"
    motion.write_bytes(guiding_figure(robot, record, title))
    torque.write_bytes(guiding_torque_figure(robot, record))
    return [motion, torque]
