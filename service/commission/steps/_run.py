"""Step `run`: the designed trajectory, first slowly, then at full speed; and the one for validation."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from drivers.files.atomic_write import write_bytes
from drivers.files.recordings.recording import write_recording
from drivers.files.robots.file import RobotFile, robot_from_source
from rt_core.excitation.fourier import FourierSeries
from rt_core.types import FloatArray
from service.commission._signals import states_constants, torque, torque_source
from service.commission._site import Move
from service.commission.context import Context, Step
from service.commission.errors import StepFailedError
from service.commission.steps._design import FOLDER
from service.io.trajectory_file import Trajectory, TrajectoryError, read_trajectory

_EACH_S = 12.0  # approach and overhead of a run


def _run(context: Context) -> tuple[str, dict[str, Any]]:
    settings, folder = context.settings, context.folder.path / FOLDER
    try:
        excitation, validation = (read_trajectory(folder / name) for name in ("trajectory.json", "validation.json"))
    except TrajectoryError as error:
        raise StepFailedError(f"{error}: repeat the design by --from design") from error
    found: dict[str, Any] = {}
    slow = slower(excitation, settings.first_speed, context.rate_hz)
    runs: list[tuple[str, Trajectory, int, str]] = [
        ("slow", slow, 1, f"at {100.0 * settings.first_speed:.3g} % of its speed"),
        ("excitation", excitation, settings.periods, "at full speed"),
        ("validation", validation, settings.validation_periods, "at full speed"),
    ]
    if settings.first_speed >= 1.0:
        runs = runs[1:]
    total_s = sum(_length(trajectory, periods) for _, trajectory, periods, _ in runs)
    before_s = 0.0
    for name, trajectory, periods, how in runs:
        length_s = _length(trajectory, periods)
        what = "validation trajectory" if name == "validation" else "trajectory"

        def follow(
            progress: Mapping[str, Any], before_s: float = before_s, length_s: float = length_s,
            what: str = f"{what} {how}",
        ) -> None:  # fmt: skip
            run = progress["run"] or {"t_s": 0.0, "duration_s": 1.0}
            share = min(run["t_s"] / max(run["duration_s"], 1e-9), 1.0)
            context.report((before_s + share * length_s) / total_s, f"{what}, {progress['state']}")

        move = context.moved(
            f"Run the {what} {how}, {periods} x {trajectory.period_s:g} s? It uses the range of all joints.",
            trajectory, periods * trajectory.period_s, name=f"{name}.json", found=found,
            start=trajectory.positions(np.zeros(1))[0], near=False, periods=periods, on_progress=follow,
        )  # fmt: skip
        found[name] = {"recording": str(move.path), "periods": periods, "period_s": trajectory.period_s}
        move.check(f"the {what} {how}", found)
        if name != "slow":
            found[name]["recording"] = str(kept(context, move))
        before_s += length_s
    seconds = settings.periods * excitation.period_s + settings.validation_periods * validation.period_s
    return f"{seconds:g} s of motion recorded", found


def slower(trajectory: Trajectory, share: float, rate_hz: float) -> Trajectory:
    """Return the same path at about `share` of its speed, with a period of a whole number of the arm's cycles."""
    series = trajectory.series
    assert series is not None  # every design has one
    f0_hz = rate_hz / np.ceil(series.period_s / share * rate_hz)
    return replace(trajectory, series=FourierSeries.from_plain(float(f0_hz), series.q0, *series.plain))


def measured_robot(context: Context) -> RobotFile:
    """Return the description, completed by the torque constants that were found."""
    payload = context.found("payload")
    from_current = context.found("signals")["torque_from"] == "current"
    if not from_current or "motors" not in payload or states_constants(context.robot):
        return context.robot
    source = dict(context.robot.source)
    constants = [row["torque_constant"] for row in payload["motors"]]
    source["transmission"] = dict(source["transmission"]) | {"torque_constant": constants}
    return robot_from_source(source, context.robot.model.name)


def kept(context: Context, move: Move) -> Path:
    """Return a copy of a recording in the folder, with torque, from the current if need be; or `StepFailedError`."""
    recording = move.recording()
    folder = context.folder.path / "recordings"
    if "tau" in recording.channels:
        if move.path.is_relative_to(context.folder.path):
            return move.path
        write_bytes(folder / move.path.name, move.path.read_bytes())
        return folder / move.path.name
    robot = measured_robot(context)
    source = torque_source(robot, recording.channels)
    if source is None or not source.scaled:
        raise StepFailedError(f"{move.path}: holds no torque, and the torque constants are not known")
    channels: dict[str, FloatArray] = {**recording.channels, "tau": torque(robot, source, recording.channels)}
    path = folder / f"{move.path.stem}-tau.mcap"
    folder.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    write_recording(path, replace(recording, channels=channels))
    return path


def _length(trajectory: Trajectory, periods: int) -> float:
    return periods * trajectory.period_s + _EACH_S


def _seconds(context: Context) -> float:
    s = context.settings
    slow = s.period_s / s.first_speed + _EACH_S if s.first_speed < 1.0 else 0.0
    return slow + (s.periods + s.validation_periods) * s.period_s + 2.0 * _EACH_S


RUN = Step("run", "the trajectory, first slowly, then at its speed, and the one to validate on", _run, _seconds)
