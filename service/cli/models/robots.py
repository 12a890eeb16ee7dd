"""`thetad robots list`, `check` and `show`."""

from __future__ import annotations

import argparse
import math
import sys
from typing import TYPE_CHECKING, Any

from service.cli._common import Exit, add_action, add_run, columns, fail, printed_json, read_help

if TYPE_CHECKING:
    from drivers.files.robots.file import RobotFile

HELP = read_help(__file__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add_run(add_action(actions, "list", "the robots that a name stands for", HELP), run_list)
    check = add_action(actions, "check", "say what is wrong with robot files", HELP)
    check.add_argument("robots", metavar="ROBOT", nargs="+", help="name, .toml file or URDF")
    add_run(check, run_check)
    show = add_action(actions, "show", "joints, limits and parameters of a robot", HELP)
    show.add_argument("robot", metavar="ROBOT", help="name, .toml file or URDF")
    add_run(show, run_show)


def _summary(name: str) -> dict[str, Any]:
    """Read a robot file: what it describes, or `problems`, a list of field and fault."""
    from drivers.files.robots.file import RobotError, load_robot

    try:
        robot = load_robot(name)
    except RobotError as error:
        problems = [{"field": field, "problem": what} for field, what in error.problems]
        return {"name": name, "robot": name, "problems": problems or [{"field": "", "problem": str(error)}]}
    return {
        "name": name, "robot": robot.model.name, "path": robot.path, "joints": robot.model.n,
        "payload_kg": robot.model.payload,
        "description": str(robot.source.get("description", "")), "warnings": robot.warnings, "problems": [],
    }  # fmt: skip


def run_list(args: argparse.Namespace) -> int:
    """List the robots that `load_robot` finds by name."""
    from drivers.files.robots.file import known_robots

    found = {name: _summary(name) for name in known_robots()}
    if not printed_json(args, {"robots": list(found.values())}):
        rows = [
            (
                name,
                str(r.get("joints", "")),
                r.get("description") or ("CANNOT BE USED: see check" if r["problems"] else ""),
            )
            for name, r in found.items()
        ]
        print(columns(("robot", "joints", "description"), rows, right=("joints",)))
    return Exit.OK


def run_check(args: argparse.Namespace) -> int:
    """Check robot files."""
    found = [_summary(name) for name in args.robots]
    bad = any(r["problems"] for r in found)
    if not printed_json(args, {"robots": found}):
        for name, r in zip(args.robots, found, strict=True):
            for problem in r["problems"]:
                fail(": ".join(filter(None, (name, problem["field"], problem["problem"]))))
            if not r["problems"]:
                print(f"{name}: robot {r['robot']}, {r['joints']} joints, can be used")
                sys.stdout.write("".join(f"  warning  {text}\n" for text in r["warnings"]))
    return Exit.INPUT if bad else Exit.OK


def run_show(args: argparse.Namespace) -> int:
    """Show what a robot file describes, and the base parameters of the arm."""
    from drivers.files.robots.file import load_robot
    from rt_core.model.base import base_parameters

    robot = load_robot(args.robot)
    base = base_parameters(robot.model)
    document = _description(robot) | {
        "parameters": [{"name": n, "stands_for": e} for n, e in zip(base.names, base.expressions, strict=True)]
    }
    if printed_json(args, document):
        return Exit.OK
    gravity = ", ".join(f"{g:g}" for g in document["gravity_m_s2"])
    print(f"robot {document['robot']}" + (f": {document['description']}" if document["description"] else ""))
    print(f"file     {robot.path}\ngravity  {gravity} m/s^2 in the base frame")
    if robot.model.payload is not None:
        print(f"payload  at most {robot.model.payload:g} kg")
    print(f"friction {robot.model.friction.law}\n")
    rows = []
    for j in document["joints"]:
        unit, force = ("rad", "N*m") if j["kind"] == "revolute" else ("m", "N")
        limits = ("", "") if j["lower"] is None else (f"{j['lower']:.4g}", f"{j['upper']:.4g}")
        speed, effort = (
            "" if j[k] is None else f"{j[k]:g} {u}" for k, u in (("velocity", f"{unit}/s"), ("effort", force))
        )
        rows.append((j["name"], j["kind"], *limits, unit, speed, effort))
    print(columns(("joint", "kind", "from", "to", "unit", "speed at most", "effort at most"), rows))
    print(f"\n{len(base)} base parameters, of {len(base.standard)} standard ones:")
    print(columns(("parameter", "stands for"), [(p["name"], p["stands_for"]) for p in document["parameters"]]))
    sys.stdout.write("".join(f"warning  {text}\n" for text in robot.warnings))
    return Exit.OK


def _description(robot: RobotFile) -> dict[str, Any]:
    """Return what a robot file says as plain values; limits that it does not give are None."""

    def given(value: float) -> float | None:
        return value if math.isfinite(value) else None

    model = robot.model
    joints = [
        {"name": j.name, "kind": j.kind} | {k: given(getattr(j, k)) for k in ("lower", "upper", "velocity", "effort")}
        for j in model.joints
    ]
    return {
        "robot": model.name, "path": robot.path, "description": str(robot.source.get("description", "")),
        "sha256": robot.sha256, "gravity_m_s2": model.gravity.tolist(), "payload_kg": model.payload,
        "friction": model.friction.law, "joints": joints, "warnings": robot.warnings,
    }  # fmt: skip
