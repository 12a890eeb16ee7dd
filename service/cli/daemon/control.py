"""`thetad status` and `thetad control`: query a running daemon."""

from __future__ import annotations

import argparse
import json
from typing import Any

from service.cli._common import EXIT_NO, EXIT_OK, CliError, add_run, print_json, printed_json
from service.cli._remote import add_control_flags, request
from service.protocol.endpoints import ANSWER_S

EPILOG = """\
verbs:
  ping                    answer at once
  status                  state and counters of every process
  start                   let a held arm send its first frame
  snapshot                save the estimator's state; print parameters, covariance and meta data
  reset_estimator         forget everything that was estimated
  activate model=FILE     predict torque by this model file; theta=null: by the estimate
  enable, disable         switch the drives of a real arm on, or stop them and switch them off
  arm for_s=120           switch the drives on; prints the permit that `thetad run` and
                          `thetad guide` need
  disarm, abort           stop within the acceleration limits, and switch the drives off
  record action=start     start (or stop) recording
  shutdown                stop the daemon in order

examples:
  thetad control ping
  thetad control reset_estimator arm=panda
  thetad control shutdown
"""


def add_parser(subparsers: Any) -> None:
    """Register the commands."""
    status: argparse.ArgumentParser = subparsers.add_parser(
        "status",
        help="state of a running daemon",
        description="Show the processes of a running daemon.  Exit code 1 if one of them is not ready.",
    )
    add_control_flags(status)
    add_run(status, run_status)
    control: argparse.ArgumentParser = subparsers.add_parser(
        "control", help="make a request of a running daemon",
        description="Make one request of a running daemon and print its answer as JSON.", epilog=EPILOG,
    )  # fmt: skip
    control.add_argument("verb", help="what to ask for; see below")
    control.add_argument(
        "arguments", nargs="*", metavar="NAME=VALUE", help="arguments of the verb; arm=NAME where there are several"
    )
    add_control_flags(control)
    add_run(control, run_control)


def run_control(arguments: argparse.Namespace) -> int:
    """Make the request and print its result."""
    from service.protocol.control import VERBS

    values: dict[str, Any] = {}
    for text in arguments.arguments:
        name, equals, value = text.partition("=")
        if not equals or name in ("verb", "timeout_s"):
            raise CliError(f"argument {text!r}: expected NAME=VALUE")
        try:
            values[name] = json.loads(value)
        except json.JSONDecodeError:
            values[name] = value
    if arguments.verb == "activate" and "model" in values:
        from service.models.document import load_model

        model = load_model(str(values.pop("model")))
        values["theta"] = model.theta.tolist()
        values["constants"] = model.base.layout.shape[:, 0].tolist()
        values |= model.limits
    if arguments.timeout == ANSWER_S and arguments.verb in VERBS and VERBS[arguments.verb].within_s > ANSWER_S:
        request(arguments, "ping")  # first check that a daemon is there, because the request itself may take long
        arguments.timeout = VERBS[arguments.verb].within_s
    print_json(request(arguments, arguments.verb, **values))
    return EXIT_OK


def run_status(arguments: argparse.Namespace) -> int:
    """Print the state of every process."""
    status = request(arguments, "status")
    code = EXIT_OK if all(process["state"] == "ready" for process in status["processes"]) else EXIT_NO
    if printed_json(arguments, status):
        return code
    from rich.console import Console
    from rich.table import Table

    daemon = status["daemon"]
    title = f"{daemon['name']}  up {daemon['uptime_s']:.0f} s  {'ready' if daemon['ready'] else 'starting'}"
    table = Table(title=title, title_justify="left")
    for name in ("process", "pid", "state", "restarts", "doing", "frames", "lost", "last error"):
        right = name in ("pid", "restarts", "frames", "lost")
        table.add_column(name, justify="right" if right else "left", no_wrap=name != "last error")
    for process in status["processes"]:
        info = process["info"]
        frames = info.get("frames", info.get("received", ""))
        lost = info.get("lost", info.get("dropped", ""))
        cells = (process["pid"] or "", process["state"], process["restarts"], info.get("state", ""), frames, lost)
        table.add_row(process["name"], *(str(cell) for cell in cells), process["last_error"])
    console = Console()
    console.print(table)
    for process in (each for each in status["processes"] if each["state"] == "ready"):
        for joint in process["info"].get("clipping", ()):
            where = f"{process['arm']}: the torque of {joint} is at the end of torque_range"
            console.print(f"{where}: nothing is learned meanwhile", highlight=False, markup=False)
    for name, endpoint in daemon["endpoints"].items():
        console.print(f"{name:10} {endpoint}", highlight=False)
    return code
