"""`thetad status`: state of a running daemon."""

import argparse

from service.cli._common import Exit, add_run, columns, printed_json
from service.cli._remote import add_control_flags, request


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_control_flags(parser)
    add_run(parser, run)


def run(arguments: argparse.Namespace) -> int:
    """Print the state of every process."""
    status = request(arguments, "status")
    code = Exit.OK if all(process["state"] == "ready" for process in status["processes"]) else Exit.NO
    if printed_json(arguments, status):
        return code
    daemon = status["daemon"]
    print(f"{daemon['name']}  up {daemon['uptime_s']:.0f} s  {'ready' if daemon['ready'] else 'starting'}")
    head, rows = ("process", "pid", "state", "restarts", "doing", "frames", "lost", "last error"), []
    for process in status["processes"]:
        info = process["info"]
        frames = info.get("frames", info.get("received", ""))
        lost = info.get("lost", info.get("dropped", ""))
        cells = (process["pid"] or "", process["state"], process["restarts"], info.get("state", ""), frames, lost)
        rows.append((process["name"], *map(str, cells), process["last_error"]))
    print(columns(head, rows, ("pid", "restarts", "frames", "lost")))
    for process in (each for each in status["processes"] if each["state"] == "ready"):
        for joint in process["info"].get("clipping", ()):
            where = f"{process['arm']}: the torque of {joint} is at the end of torque_range"
            print(f"{where}: nothing is learned meanwhile")
        for joint in process["info"].get("unconfirmed", ()):
            print(f"{process['arm']}: {joint} came back elsewhere than it stood: see `thetad events`")
        if unknown := ", ".join(process["info"].get("unknown", ())):
            todo = "compare q with the arm, then `thetad control confirm_positions`"
            print(f"{process['arm']}: not known where {unknown} stood before a start: {todo}")
    for name, endpoint in daemon["endpoints"].items():
        print(f"{name:10} {endpoint}")
    return code
