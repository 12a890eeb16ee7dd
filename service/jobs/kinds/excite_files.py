"""Output of the job `excite`: trajectories as coefficients and as tables."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from drivers.files.robots.file import RobotFile
from rt_core.excitation.design import ExcitationDesign
from rt_core.excitation.fourier import FourierSeries
from service.io.trajectory_file import FORMAT, column, series_digest
from service.operations.workspace import Workspace

FORMULA = "q_i(t) = q0_i + sum_k [a_ik sin(w_k t) - b_ik cos(w_k t)] / w_k, w_k = 2 pi k f0_hz, k = 1..harmonics"
#: Names of all files that a design can write.
FILES = (
    "trajectory.json", "trajectory.csv", "points.csv", "validation.json", "validation.csv", "report.html",
    "metrics.json",
)  # fmt: skip


def clear(ws: Workspace) -> None:
    """Remove the files of an earlier design from the folder."""
    for name in FILES:
        (ws.folder / name).unlink(missing_ok=True)


def write_motion(
    robot: RobotFile, design: ExcitationDesign, rate_hz: float, ws: Workspace, name: str, known: dict[str, Any]
) -> None:
    """Write a trajectory as coefficients, with its properties `known`, and as a table."""
    document = _document(robot, design, rate_hz, ws.created)
    ws.write_json(f"{name}.json", document | {"design": known})
    ws.write(f"{name}.csv", trajectory_table(design.series, rate_hz, document["joints"], document["units"]))


def _document(robot: RobotFile, design: ExcitationDesign, rate_hz: float, created: str) -> dict[str, Any]:
    """Return everything that the trajectory can be evaluated from."""
    series = design.series
    document = {
        "format": FORMAT, "created": created, "robot": {"name": robot.model.name, "sha256": robot.sha256},
        "joints": [joint.name for joint in robot.model.joints],
        "units": ["rad" if joint.kind == "revolute" else "m" for joint in robot.model.joints], "formula": FORMULA,
        **series.as_dict(), "harmonics": series.harmonics, "period_s": series.period_s, "start": series.sample(0.0)[0],
        "rate_hz": rate_hz,
    }  # fmt: skip
    return document | {"series_sha256": series_digest(document)}


def trajectory_table(series: FourierSeries, rate_hz: float, joints: Sequence[str], units: Sequence[str]) -> str:
    """Return one period of `series` as CSV, including both ends: `t`, and `q`, `dq`, `ddq` of each joint, in SI units.

    The first line names joints and units, as `service.io.trajectory_file` reads them.
    """
    count = round(series.period_s * rate_hz)
    times = np.arange(count + 1) / rate_hz
    states = series.sample(times)
    each = list(zip(joints, units, strict=True))
    names = [column(joint, symbol, unit) for symbol in ("q", "dq", "ddq") for joint, unit in each]
    lines = [",".join(["t [s]", *names])]
    lines += [",".join(map(repr, row)) for row in np.column_stack((times, *states)).tolist()]
    return "\n".join(lines) + "\n"
