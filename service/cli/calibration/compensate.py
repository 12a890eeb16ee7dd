"""`thetad compensate`: joint commands that bring a calibrated arm to Cartesian targets."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.cli._common import CliError, Exit, add_run, printed_json, whole_number

if TYPE_CHECKING:
    from drivers.files.robots.file import RobotFile
    from rt_core.calibration.geometry import Geometry
    from rt_core.model.robot import RobotModel
    from rt_core.types import FloatArray

_NAMED = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add = parser.add_argument
    add("targets", metavar="TARGETS", type=Path, help="table of targets (.csv)")
    add("--calibration", metavar="FILE", type=Path, required=True, help="calibration.json")
    add("--robot", metavar="R", required=True, help="the robot that was calibrated")
    add("--output", "-o", metavar="FILE", type=Path, required=True, help="write commands here (.csv)")
    add("--frame", choices=("base", "measured", "joint1"), default="base", help="of the targets (default: base)")
    add("--point", choices=("measured", "tip"), default="measured", help="what is to be there")
    add("--seed", metavar="N", type=whole_number, default=0, help="of the postures tried first (default: 0)")
    add_run(parser, run)


def run(args: argparse.Namespace) -> int:
    """Compute the joint commands and write them."""
    import numpy as np

    from drivers.files.atomic_write import write_text
    from drivers.files.robots.file import load_robot
    from rt_core.calibration.compensation import compensate
    from rt_core.calibration.geometry import Geometry
    from service.operations.calibration.table import read_targets, table_text

    robot = load_robot(args.robot)
    document = read_correction(args.calibration, robot.sha256, robot.model.name)
    try:
        check_frame(document, args.frame, args.calibration)
        calibrated = corrected_geometry(document, Geometry.from_model(robot.model), args.point)
        gives = compliances(document, robot.model.n)
        measured = np.array(document["data"]["joint_range"], dtype=np.float64).reshape(robot.model.n, 2)
        part = document["residual"]["test"] or document["residual"]["training"]
        off = float(part["after"]["mean_mm"])
        deviation = deviations(document, robot, args.frame, args.point)
        hidden = hidden_at_tip(document) if args.point == "tip" else []
    except (KeyError, TypeError, ValueError) as error:
        raise CliError(f"{_broken(args.calibration, 'a part of it')} ({type(error).__name__}: {error})") from None
    # The nominal arm, to the same point of the last link.
    nominal = replace(
        Geometry.from_model(robot.model),
        tip_rotation=calibrated.tip_rotation,
        tip_translation=calibrated.tip_translation,
    )
    positions, rotations, start = read_targets(args.targets, str(args.targets), robot.model.n)
    if args.frame == "measured":
        R, t = np.array(document["base"]["rotation"]), np.array(document["base"]["translation"])
        positions = (positions - t) @ R
        rotations = None if rotations is None else R.T @ rotations
    found = compensate(nominal, calibrated, positions, rotations, start, args.seed)
    commands = found.commands + sag(gives, robot.model, found.commands)
    # An error that the tool stands for has no variance of its own: without it the figure would be too small by an
    # unknown amount.
    std = np.full(len(commands), np.nan) if hidden else 1e3 * deviation(commands)
    why = (
        f"std_mm is left empty: the tool was estimated and holds the errors of {', '.join(hidden)}, so nothing says "
        "how far off the robot file's tip is; calibrate with tool=false at the tip, or give priors"
    )
    commands[~found.reached] = np.nan
    outside = [int(i) for i in np.flatnonzero((commands < measured[:, 0]).any(1) | (commands > measured[:, 1]).any(1))]
    names = [*(f"q{k + 1}" for k in range(robot.model.n)), "left_mm", "avoided_mm", "std_mm"]
    values = np.column_stack((commands, 1e3 * found.left, 1e3 * found.avoided, std))
    write_text(args.output, table_text(names, values))
    missed = [int(i) for i in np.flatnonzero(~found.reached)]
    result = {
        "targets": len(positions), "missed": missed, "largest_left_mm": 1e3 * float(found.left.max()),
        "calibrated_mean_mm": off, "largest_std_mm": None if hidden else float(std.max()),
        "std_unknown": why if hidden else None, "outside_measured_range": outside, "largest_step": found.largest_step,
        "jumps": [{"from": j.start, "to": j.end, "joint": j.joint + 1, "step": j.step} for j in found.jumps],
        "mean_avoided_mm": 1e3 * float(found.avoided.mean()), "output": str(args.output),
    }  # fmt: skip
    if hidden:
        sys.stderr.write(f"{why}\n")
    if not printed_json(args, result):
        print(
            f"{len(positions) - len(missed)} of {len(positions)} targets reached; the nominal commands would have "
            f"missed by {result['mean_avoided_mm']:.3f} mm on average; written to {args.output}"
        )
        print(
            f"the calibrated arm itself was off by {off:.3f} mm on average where it was measured"
            + ("" if hidden else f"; at the targets it may be off by {std.max():.3f} mm (std_mm)")
        )
        if outside:
            print(
                f"  - {len(outside)} targets take joints beyond the measured range, where it may be off by more: "
                + ", ".join(str(i + 1) for i in outside[:_NAMED])
                + (", ..." if len(outside) > _NAMED else "")
            )
        print(f"largest step of a joint from one target to the next: {found.largest_step:.4g} rad or m")
        for jump in found.jumps:
            print(
                f"  - joint {jump.joint + 1} jumps by {jump.step:.4g} rad or m between targets {jump.start + 1} and "
                f"{jump.end + 1}: the motion between them does not lead along the targets; put more between, or "
                f"give q1 to q{robot.model.n} near which to look"
            )
        for i in missed:
            print(f"  - target {i + 1}: not found: the nearest posture found leaves {1e3 * found.left[i]:.3f} mm")
    return Exit.NO if missed else Exit.OK


def check_frame(document: dict[str, Any], frame: str, path: Path) -> None:
    """Raise `CliError` for targets in a frame that the calibration does not determine."""
    base = document["base"]
    shown = base is not None and base["rotation"] is not None and None not in base["translation"]
    if frame == "measured" and not shown:
        other = "joint1" if document["base_frame"] == "joint1" else "base"
        raise CliError(f"{path}: has no base in a measuring frame: give targets in --frame {other}")
    if frame == "base" and document["base_frame"] == "joint1":
        others = "--frame measured or --frame joint1" if shown else "--frame joint1"
        raise CliError(
            f"{path}: does not know the robot's own base: it was estimated, with the nominal zero and height of joint "
            f"1; give targets in {others}, or calibrate with base=false in a known base"
        )
    if frame == "joint1" and document["base_frame"] != "joint1":
        raise CliError(f"{path}: took the robot's base as known: leave --frame joint1 out")


def compliances(document: dict[str, Any], n: int) -> FloatArray:
    """Return the compliance of each joint (n,) [rad/(N*m)] or [m/N]."""
    import numpy as np

    value = {p["name"]: p["value"] or 0.0 for p in document["parameters"]}
    return np.array([float(value.get(f"compliance{k + 1}", 0.0)) for k in range(n)])


def hidden_at_tip(document: dict[str, Any]) -> list[str]:
    """Return the names of the arm's parameters that were held because an estimated tool stands for them.

    They move the robot file's tip otherwise than the measured point.
    """
    if document.get("tool") is None:
        return []
    return [
        item["name"]
        for item in document["fixed"]
        if (item["reason"] == "dependent" and any(name.startswith("tool_") for name in item["on"]))
        or (item["reason"] == "no_effect" and not item["name"].startswith("compliance"))
    ]


def deviations(
    document: dict[str, Any], robot: RobotFile, frame: str, point: str
) -> Callable[[FloatArray], FloatArray]:
    """Return a function of postures (N, n) that gives the calibrated arm's position uncertainty [m] (N,), RMS."""
    import numpy as np

    from rt_core.calibration.error_model import error_model
    from rt_core.calibration.prediction import position_std
    from service.operations.calibration.nominal_geometry import gravity_load, nominal_geometry

    names = list(document["prediction"]["names"])
    covariance = np.array(document["prediction"]["covariance"], dtype=np.float64).reshape(len(names), len(names))
    gives = any(name.startswith("compliance") for name in names)
    model = error_model(nominal_geometry(robot), orientation="tool_rx" in names, compliance=gives)
    # The base matters only in the measuring frame, and the tool only at the measured point.
    left_out = [which for which, out in (("base_", frame != "measured"), ("tool_", point == "tip")) if out]
    used = [k for k, name in enumerate(names) if not name.startswith(tuple(left_out))]
    if frame == "measured":
        model = model.with_frame(
            "base", np.array(document["base"]["rotation"]), np.array(document["base"]["translation"])
        )
    tool = document.get("tool")
    if tool is not None and point == "measured":
        R, t = model.frame("tool", np.zeros(model.size))
        shift = [float(own) if found is None else found for own, found in zip(t, tool["translation"], strict=True)]
        model = model.with_frame("tool", R if tool["rotation"] is None else np.array(tool["rotation"]), np.array(shift))
    value = {p["name"]: p["value"] or 0.0 for p in document["parameters"]}
    x = np.array([float(value.get(name, 0.0)) for name in model.names])
    noise = 3.0 * (1e-3 * float(document["scale"]["position_mm"])) ** 2

    def at(q: FloatArray) -> FloatArray:
        load = gravity_load(robot.model, q) if gives else None
        own = position_std(model, x, q, [names[k] for k in used], covariance[np.ix_(used, used)], load)
        return np.asarray(np.sqrt(own**2 + noise))

    return at


def sag(gives: FloatArray, model: RobotModel, q: FloatArray) -> FloatArray:
    """Return the joint deflections (N, n) at postures `q` (N, n), which the commands have to add."""
    import numpy as np

    from service.operations.calibration.nominal_geometry import gravity_load

    return gives * gravity_load(model, q) if gives.any() else np.zeros_like(q)


def read_correction(path: Path, sha256: str, name: str) -> dict[str, Any]:
    """Read the `calibration.json` of the robot with this hash; raises `CliError` if it cannot be used."""
    from service.operations.calibration.document import FORMAT

    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise CliError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise CliError(f"{path}: not a calibration (format {FORMAT}); `thetad calibrate` writes calibration.json")
    robot = document.get("robot")
    if not isinstance(robot, dict) or not {"name", "sha256"} <= robot.keys():
        raise CliError(_broken(path, "robot"))
    if robot["sha256"] != sha256:
        raise CliError(f"{path}: is of robot {robot['name']}, described otherwise than {name}")
    if document.get("verdict") != "ok":
        raise CliError(f"{path}: its verdict is {document.get('verdict')}: only a calibration that is ok may be used")
    for key, kind in (("geometry", dict), ("parameters", list), ("base_frame", str)):
        if not isinstance(document.get(key), kind):
            raise CliError(_broken(path, key))
    if not (document.get("base") is None or isinstance(document["base"], dict)):
        raise CliError(_broken(path, "base"))
    return {"base": None} | document


def _broken(path: Path, part: str) -> str:
    return f"{path}: {part} is missing or broken: write it again with `thetad calibrate`"


def corrected_geometry(document: dict[str, Any], nominal: Geometry, point: str) -> Geometry:
    """Return the corrected arm's geometry to the measured point, or to the robot file's tip."""
    import numpy as np

    from rt_core.calibration.geometry import Geometry

    joints = tuple(
        replace(
            joint, rotation=np.array(found["rotation"]), translation=np.array(found["translation"]),
            axis=np.array(found["axis"]),
        )
        for joint, found in zip(nominal.joints, document["geometry"]["joints"], strict=True)
    )  # fmt: skip
    tip = document["geometry"]["robot_tip" if point == "tip" else "tip"]
    rotation, translation = np.array(tip["rotation"]), np.array(tip["translation"])
    if rotation.shape != (3, 3) or translation.shape != (3,):
        raise ValueError("the tip has no rotation of 3 x 3 or no translation of 3 numbers")
    return Geometry("placements", joints=joints, tip_rotation=rotation, tip_translation=translation)
