"""`thetad replay`: play a recording through a daemon of its own and show the estimates."""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from rt_core.statistics import NORMAL_QUANTILE_95
from service.cli._common import CliError, Exit, UnavailableError, add_run, breakaway_lines, columns, printed_json

SETTLE_S = 60.0  # give up after this time without progress of the source or the estimator


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("recording", type=Path, help="the MCAP file")
    parser.add_argument("--robot", required=True, help="name or path of the robot file")
    parser.add_argument("--arm", default="arm", help="name of the arm in topics (default: %(default)s)")
    parser.add_argument("--speed", default="1", help="times the recorded pace, or max (default: %(default)s)")
    parser.add_argument("--span", help="part to play: fractions (0:0.6) or seconds (0.1s:4.91s)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE",
        help="setting of the estimator, such as memory_s=5; may be repeated",
    )  # fmt: skip
    parser.add_argument("-o", "--model-out", type=Path, metavar="FILE", help="write the final estimate as a model file")
    parser.add_argument("--standard-ports", action="store_true", help="use ports 9870, 9871, 9873 instead of free ones")
    parser.add_argument("--log", type=Path, metavar="FILE", help="write the daemon's log there (default: stderr)")
    add_run(parser, run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    with tempfile.TemporaryDirectory(prefix="thetad-replay-") as directory:
        result = play(arguments, Path(directory))
    if not printed_json(arguments, result):
        _show(result)
    return Exit.NO if result["frames"]["lost"] else Exit.OK


def play(arguments: argparse.Namespace, state_dir: Path) -> dict[str, Any]:
    """Replay the recording, and return the result."""
    from service.client import Control, ControlError, UnreachableError
    from service.config.load import parse_config
    from service.supervisor.launch import DaemonProcess

    free = dict.fromkeys(("frames_port", "estimates_port", "control_port"), 0) | {"http": False}
    ports = {} if arguments.standard_ports else free
    driver = {"kind": "replay", "recording": str(arguments.recording), "speed": _speed(arguments.speed)}
    if arguments.span is not None:
        driver["span"] = arguments.span
    arm = {
        "name": arguments.arm, "robot": arguments.robot, "driver": driver, "estimator": _settings(arguments.set),
        "hold": True,
    }  # fmt: skip
    daemon = {"name": "replay", "state_dir": str(state_dir), "log_level": "warning", **ports}
    config = parse_config({"daemon": daemon, "arm": [arm]}, "thetad replay", Path.cwd())
    launched = DaemonProcess(config, arguments.log)
    try:
        with launched, Control(launched.endpoints["control"]) as control:
            began = time.monotonic()
            control.request("start")
            _await_end(control, launched)
            seconds = time.monotonic() - began
            snapshot = control.request("snapshot", timeout_s=30.0)
            processes = {process["role"]: process for process in control.request("status")["processes"]}
    except (UnreachableError, ControlError) as error:
        raise UnavailableError(str(error)) from error
    if arguments.model_out is not None:
        _write_model(arguments, snapshot)
    sent, received = processes["acquisition"]["info"], processes["estimator"]["info"]
    return _result(arguments, snapshot, sent, received, seconds)


def _speed(text: str) -> float | str:
    if text == "max":
        return text
    try:
        return float(text)
    except ValueError:
        raise CliError(f"--speed {text}: expected a number or max") from None


def _settings(items: list[str]) -> dict[str, Any]:
    import tomllib

    result: dict[str, Any] = {}
    for item in items:
        try:
            result |= tomllib.loads(item)
        except tomllib.TOMLDecodeError:
            raise CliError(f"--set {item}: expected KEY=VALUE, such as memory_s=5") from None
    return result


def _await_end(control: Any, launched: Any) -> None:
    """Wait until the estimator has processed the last frame."""
    progress, since = -1, time.monotonic()
    while True:
        processes = {process["role"]: process for process in control.request("status")["processes"]}
        estimator = processes["estimator"]
        if estimator["info"].get("state") == "drained":
            return
        if (frames := estimator["info"].get("received", 0)) != progress:
            progress, since = frames, time.monotonic()
        elif time.monotonic() - since > SETTLE_S:
            raise UnavailableError(f"no progress for {SETTLE_S:g} s; last error: {estimator['last_error'] or 'none'}")
        try:
            code = launched.wait(0.1)
        except TimeoutError:
            continue
        raise UnavailableError(f"the daemon ended during the replay (exit code {code})")


def _write_model(arguments: argparse.Namespace, snapshot: dict[str, Any]) -> None:
    from drivers.files.robots.file import load_robot
    from service.models.document import online_document, write_model
    from service.operations.identify import signal_settings

    robot = load_robot(arguments.robot, Path.cwd())
    source = {key: snapshot[key] for key in ("t_ns", "frames", "used", "masked", "lost", "resets")}
    source |= {
        "recording": str(arguments.recording), "span": arguments.span, "settings": snapshot["meta"]["settings"],
        "hash": snapshot["meta"]["hash"],
    }  # fmt: skip
    write_model(online_document(robot, signal_settings(robot), snapshot, source), arguments.model_out)


def _result(
    arguments: argparse.Namespace, snapshot: dict[str, Any], sent: dict[str, Any], received: dict[str, Any],
    seconds: float,
) -> dict[str, Any]:  # fmt: skip
    meta = snapshot["meta"]
    units = meta.get("units", [])
    parameters = [
        {
            "name": name, "unit": units[i] if i < len(units) else "", "value": snapshot["theta"][i],
            "std": snapshot["std"][i], "status": snapshot["status"][i], "excited": snapshot["excited"][i],
        }
        for i, name in enumerate(meta["parameters"])
    ]  # fmt: skip
    return {
        "recording": str(arguments.recording), "robot": arguments.robot, "seconds": seconds,
        "frames": {
            "sent": sent["frames"], "received": received["received"], "used": snapshot["used"],
            "masked": snapshot["masked"], "lost": received["lost"] + sent["dropped"], "invalid": received["invalid"],
        },
        "t": snapshot["t_ns"] * 1e-9, "hash": meta["hash"], "temperature": received.get("temperature"),
        "breakaway": received.get("breakaway"), "parameters": parameters,
    }  # fmt: skip


def _show(result: dict[str, Any]) -> None:
    frames = result["frames"]
    print(f"{result['recording']}: {frames['received']} frames in {result['seconds']:.1f} s, {frames['lost']} lost")
    head, rows = ("parameter", "value", "± (95 %)", "unit", "status"), []
    for row in result["parameters"]:
        half = NORMAL_QUANTILE_95 * row["std"]
        rows.append((row["name"], f"{row['value']:.5g}", f"{half:.2g}", row["unit"], row["status"]))
    print(columns(head, rows, ("value", "± (95 %)")))
    reason = (result["temperature"] or {}).get("reason")
    for line in ([reason] if reason else []) + breakaway_lines(result["breakaway"]):
        print(line)
