"""Demonstration of the complete workflow with a simulated arm.

A daemon runs the arm through an exciting motion and then an independent one, which the online estimate and the batch
model of the first predict. Both are compared with the arm's true parameters.
"""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from drivers.files.recordings.recording import Recording, Span, read_recording
from drivers.files.robots.file import RobotFile, load_robot
from rt_core.identification.identify import Identification
from rt_core.identification.preprocess import DataError
from rt_core.model.base import base_parameters
from rt_core.model.parameters import standard_parameters
from rt_core.statistics import NORMAL_QUANTILE_95
from rt_core.types import FloatArray
from service.client import ClientTimeoutError, Control, EstimateMessage, Subscriber
from service.client.latency_monitor import LatencyMonitor
from service.config.arm_tables import RealtimeConfig
from service.config.load import Config, parse_config
from service.demo.hardware import Bus, bus_configuration, empty_loop, own_network, simulated_drives, simulated_plc
from service.models.document import batch_document, online_document, write_model, write_text
from service.models.origin import Dataset
from service.operations.identify import Validation, identify_recording, signal_settings, validate_recording
from service.reports.identification import html_report
from service.supervisor.launch import DaemonProcess

#: Criteria of a passed demonstration, for each joint.
MIN_R = 0.97
MIN_COVERAGE = 0.90
_ARM = "arm"
_PAUSE_S = 0.5  # pause after the first motion, in which the estimate is taken
_STALL_S = 30.0
_FINISHED = {"acquisition": "ended", "estimator": "drained", "recorder": "drained"}
_EMPTY_LOOP_S = 10.0
_DRIVES_PRIORITY = 50  # of SCHED_FIFO: below that of the loop


class DemonstrationError(RuntimeError):
    """The daemon did not complete the demonstration; the message says where it stopped."""


@dataclass(frozen=True)
class Demonstration:
    """Settings: the arm, the length of both motions [s], the seed of motion and noise, and the bus."""

    robot: str = "space6"
    excite_s: float = 40.0
    validate_s: float = 20.0
    seed: int = 1
    bus: Bus | None = None

    def config(self, directory: Path) -> Config:
        """Return the daemon's configuration; all its files go to `directory`."""
        segments = [
            {"kind": "fourier", "duration_s": self.excite_s, "seed": self.seed},
            {"kind": "hold", "duration_s": _PAUSE_S},
            {"kind": "fourier", "duration_s": self.validate_s, "seed": self.seed + 1000},
        ]
        motion = {"kind": "schedule", "seed": self.seed, "segments": segments}
        if self.bus is not None:
            table, _ = bus_configuration(self.bus, self.robot)
            source = table | {"motion": motion | {"at_end": "stop"}}
        else:
            source = {"driver": {"kind": "sim", "motion": motion, "settings": {"seed": self.seed}}}
        arm = source | {"name": _ARM, "robot": self.robot, "hold": True, "state": {"resume": False}}
        arm["recorder"] = {"directory": str(directory)}
        ports = dict.fromkeys(("frames_port", "estimates_port", "control_port"), 0) | {"http": False}
        daemon = {"name": "demo", "state_dir": str(directory / "state"), "log_level": "warning", **ports}
        return parse_config({"daemon": daemon, "arm": [arm]}, "thetad demo", Path.cwd())


def coverage(truth: FloatArray, theta: FloatArray, std: FloatArray) -> float:
    """Return the share of parameters whose true value lies within the stated 95 % interval."""
    return float(np.mean(np.abs(theta - truth) <= NORMAL_QUANTILE_95 * std))


def run_demonstration(what: Demonstration, directory: Path, log: Path, report: Callable[[str], None]) -> dict[str, Any]:
    """Run the demonstration; `report` receives a line of progress about every second.

    Returns the result as JSON values.  Recording, model files and report are in `directory`.
    """
    robot = load_robot(what.robot)
    directory.mkdir(parents=True, exist_ok=True)
    before = set(directory.glob("*.mcap"))
    config = what.config(directory)
    report(f"starting a daemon with a simulated {robot.model.name}; the first start compiles, which takes a minute")
    began, quiet = time.monotonic(), {}
    with contextlib.ExitStack() as stack:
        if what.bus == "ads":
            stack.enter_context(simulated_plc(bus_configuration("ads", what.robot)[1]))
        elif what.bus == "ethercat":
            own_network()
            stack.enter_context(simulated_drives(bus_configuration("ethercat", what.robot)[1], _DRIVES_PRIORITY))
            report(f"measuring an empty loop for {_EMPTY_LOOP_S:g} s, to compare with")
            quiet = empty_loop(config.arm[0].realtime or RealtimeConfig(), _EMPTY_LOOP_S)
        daemon = stack.enter_context(DaemonProcess(config, log))
        report(f"ready after {time.monotonic() - began:.1f} s: {what.excite_s:g} s of exciting motion at 1 kHz")
        record = replace(_run_daemon(what, daemon, report), empty_loop_us=quiet)
    recordings = sorted(set(directory.glob("*.mcap")) - before)
    if len(recordings) != 1:
        raise DemonstrationError(f"{directory}: expected one new recording, found {len(recordings)}")
    report(f"identifying from {recordings[0].name} and validating on the second motion")
    try:
        return _evaluate(what, robot, read_recording(recordings[0]), record, directory)
    except DataError as error:
        if not (lost := record.frames["gaps"]):
            raise
        raise DemonstrationError(f"{lost} cycles have no frame, and what is left does not do: {error}") from error


@dataclass(frozen=True)
class RunRecord:
    """Observations of a run: the estimate at the end of the exciting motion, frame counts, bus status."""

    snapshot: dict[str, Any]
    frames: dict[str, Any]
    bus: dict[str, Any] | None
    latency_us: dict[str, float]
    empty_loop_us: dict[str, Any]


def _run_daemon(what: Demonstration, daemon: DaemonProcess, report: Callable[[str], None]) -> RunRecord:
    """Follow the run to its end."""
    snapshot: dict[str, Any] | None = None
    total = what.excite_s + _PAUSE_S + what.validate_s
    with (
        Control(daemon.endpoints["control"]) as control,
        Subscriber(daemon.endpoints["estimates"], [f"{_ARM}/estimate"], timeout_s=1.0) as estimates,
        LatencyMonitor(daemon.endpoints, _ARM) as monitor,
    ):
        control.request("start")
        reported_s = progress = time.monotonic()
        while True:
            now = time.monotonic()
            try:
                message = estimates.newest()
            except ClientTimeoutError:
                message = None
            processes = {p["role"]: p for p in control.request("status")["processes"]}
            position = processes["acquisition"]["info"].get("motion_s")
            if position is None:
                position = processes["estimator"]["info"].get("received", 0) * 1e-3
            if isinstance(message, EstimateMessage):
                progress = now
                if now - reported_s >= 1.0:
                    reported_s = now
                    known = sum(s in ("estimated", "stale", "frozen") for s in message.status)
                    report(
                        f"{min(position, total):5.1f} s of {total:g} s: {message.frames} frames, {message.lost} lost, "
                        f"{known} of {len(message.status)} parameters estimated"
                    )
            if snapshot is None and position >= what.excite_s + 0.5 * _PAUSE_S:
                snapshot = control.request("snapshot", timeout_s=30.0)
            if all(processes[role]["info"].get("state") == state for role, state in _FINISHED.items()):
                break
            if monitor.stopped:
                raise DemonstrationError(f"the motion was stopped: {monitor.stopped}")
            if now - progress > _STALL_S:
                info = processes["estimator"]["info"]
                received, lost = info.get("received", 0), info.get("lost", 0)
                missed = f": {lost} of {received + lost} cycles have no frame" if lost else ""
                raise DemonstrationError(f"no estimate for {_STALL_S:g} s{missed}; the daemon's log tells more")
        if snapshot is None:
            raise DemonstrationError("the motion ended before the estimate was taken")
        sent, received = processes["acquisition"]["info"], processes["estimator"]["info"]
        recorded = processes["recorder"]["info"]["received"]
        frames = {
            "sent": sent["frames"], "received": received["received"], "recorded": recorded,
            "lost": sent["dropped"] + 2 * sent["frames"] - received["received"] - recorded, "gaps": received["lost"],
        }  # fmt: skip
    return RunRecord(snapshot, frames, monitor.bus, monitor.latency_us(), {})


def _evaluate(
    what: Demonstration, robot: RobotFile, recording: Recording, record: RunRecord, directory: Path
) -> dict[str, Any]:
    model, snapshot, frames = robot.model, record.snapshot, record.frames
    base = base_parameters(model)
    truth = base.theta(standard_parameters(model, base.standard))
    settings = signal_settings(robot)
    slowest = what.config(directory).arm[0].estimator.get("min_velocity")
    if slowest is not None:
        settings = replace(settings, min_velocity=np.array(slowest))
    split_s = what.excite_s + 0.5 * _PAUSE_S
    if what.bus is not None:  # the recording begins with the approach to the motion's start
        split_s = (snapshot["t_ns"] - int(recording.t_ns[0])) * 1e-9
    span, held_back = Span.parse(f"0s:{split_s}s"), Span.parse(f"{split_s}s:")
    data, rest = (Dataset(recording, robot, settings, part) for part in (span, held_back))
    batch = identify_recording(data, base=base)
    theta, std = np.asarray(snapshot["theta"]), np.asarray(snapshot["std"])

    def validate(values: FloatArray, fit_error: float | None = None) -> Validation:
        return validate_recording(rest, base, values, fit_error=fit_error)

    results = {"online": validate(theta), "batch": validate(batch.theta, batch.metrics.relative_error)}
    covered = {"online": coverage(truth, theta, std), "batch": coverage(truth, batch.theta, batch.std)}
    paths = _write(data, batch, snapshot, results["batch"], directory)
    passed = (
        frames["lost"] == 0
        and _accounted(frames, record.bus)
        and min(covered.values()) >= MIN_COVERAGE
        and all(bool((r.metrics.R > MIN_R).all()) for r in results.values())
    )
    summary: dict[str, Any] = {
        "passed": passed, "robot": model.name, "joints": [joint.name for joint in model.joints],
        "parameters": len(base), "seconds": {"excite": what.excite_s, "validate": what.validate_s}, "seed": what.seed,
        "frames": frames, "bus": record.bus, "latency_us": record.latency_us, "empty_loop_us": record.empty_loop_us,
        "coverage_95": min(covered.values()), "files": {name: str(path) for name, path in paths.items()},
    }  # fmt: skip
    for name, result in results.items():
        summary[name] = result.metrics.as_dict() | {"verdict": result.verdict, "coverage_95": covered[name]}
    return summary


def _accounted(frames: dict[str, Any], bus: dict[str, Any] | None) -> bool:
    """Return whether each gap in the frames is a cycle that the driver counted as late or unanswered."""
    return bool(frames["gaps"] <= (0 if bus is None else bus.get("overruns", 0) + bus["lost_cycles"]))


def _write(
    data: Dataset, batch: Identification, snapshot: dict[str, Any], validation: Validation, directory: Path
) -> dict[str, Path]:
    paths = {
        "recording": data.recording.path or directory, "online_model": directory / "online.yaml",
        "batch_model": directory / "batch.yaml", "report": directory / "report.html",
    }  # fmt: skip
    document, model = batch_document(batch, data), data.robot.model
    write_model(document, paths["batch_model"])
    source = {key: snapshot[key] for key in ("arm", "t_ns", "frames", "used", "masked", "lost", "resets")}
    source["settings"] = snapshot["meta"]["settings"]
    write_model(online_document(data.robot, data.settings, snapshot, source), paths["online_model"])
    facts = [("robot", model.name), ("recording", paths["recording"].name), ("identified on", str(data.span))]
    facts.append(("relative torque error", f"{100 * validation.metrics.relative_error:.2f} % on the second motion"))
    title, shown = f"{model.name}: batch model on an independent motion", {"parameters": document["parameters"]}
    write_text(paths["report"], html_report(title, model, validation, facts, shown))
    return paths
