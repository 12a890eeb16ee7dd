"""Joint result of the calibrations of several arms, as plain data and as text."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from rt_core.calibration.cell.arms import Cell, CellArm, held_in_base
from rt_core.calibration.uncertainty import half_interval
from service.operations.kind import Outcome
from service.reports.calibration import VERDICT_TEXT
from service.reports.cells import number

FORMAT = "thetad-cell/1"
CELL_VERDICT_TEXT = {
    "ok": "all arms are calibrated, and nothing speaks against the instrument having stood still",
    "arms": "not all arms could be calibrated",
    "moved": "the arms disagree about where the instrument stood",
}
_NOT_CHECKED = "not checked: no two{} arms were measured from the same two places, so nothing can disagree"
_MM = 1e3


@dataclass(frozen=True, eq=False)
class ArmResult:
    """One arm: its calibration, its input, and the folder of its own results."""

    arm: CellArm
    outcome: Outcome
    robot: str
    files: Sequence[str]
    folder: str


def cell_document(cell: Cell, results: Sequence[ArmResult], created: str) -> dict[str, Any]:
    """Return the joint result as plain data; results of one arm are in its own `calibration.json`."""
    network = cell.agreement
    freedom = {result.arm.name: result.arm.found.freedom for result in results}
    return {
        "format": FORMAT, "created": created, "verdict": cell.verdict, "reasons": cell.reasons,
        "arms": [
            {
                "name": result.arm.name, "robot": result.robot, "files": result.files, "stations": result.arm.stations,
                "verdict": result.outcome.verdict, "summary": result.outcome.summary,
                "residual": result.outcome.metrics["residual"], "left_out": cell.left_out.get(result.arm.name),
                "base_holds": held_in_base(result.arm), "folder": result.folder,
            }
            for result in results
        ],
        "bases": [
            {
                "arm": pair.arm, "of": pair.of, "translation": pair.placement.translation,
                "translation_std": pair.translation_std, "rotation": pair.placement.rotation,
                "rotation_std": pair.rotation_std, "freedom": min(freedom[pair.arm], freedom[pair.of]),
            }
            for pair in cell.bases
        ],
        "places": {
            "checked": cell.checked, "agree": network.agrees if network is not None and cell.checked else None,
            "loops": 0 if network is None else network.loops,
            "chi_squared": network.square if network is not None and cell.checked else None,
            "limit": network.limit if network is not None and cell.checked else None,
        },
        "suspects": [
            {"arm": arm, "station": station, "distance_mm": _MM * distance, "angle_mrad": _MM * angle}
            for arm, station, distance, angle in cell.suspects
        ],
    }  # fmt: skip


def cell_lines(document: dict[str, Any]) -> list[str]:
    """Return the document as text, a line each."""
    out = [f"{document['verdict']}: {CELL_VERDICT_TEXT[document['verdict']]}"]
    out += [f"  - {reason}" for reason in document["reasons"]]
    for arm in document["arms"]:
        places = ", ".join(map(str, arm["stations"]))
        out.append(f"{arm['name']:22s}{arm['summary']}")
        if arm["verdict"] != "ok":
            out.append(f"{'':22s}{VERDICT_TEXT[arm['verdict']]}")
        out.append(f"{'':22s}measured from station {places}; written to {arm['folder']}")
    for pair in document["bases"]:
        half = half_interval(pair["freedom"])
        turn = np.degrees(Rotation.from_matrix(np.array(pair["rotation"])).as_rotvec())
        shift = [
            f"{name} {number(_MM * value, 7)} ± {number(_MM * half * std, 2)}"
            for name, value, std in zip("xyz", pair["translation"], pair["translation_std"], strict=True)
        ]
        turned = ", ".join(number(float(v), 6) for v in turn)
        deviation = ", ".join(number(math.degrees(half * std), 2) for std in pair["rotation_std"])
        out.append(f"{pair['arm']} in the base of {pair['of']}")
        out.append(f"{'  place [mm]':22s}{', '.join(shift)}")
        out.append(f"{'  rotation [deg]':22s}vector ({turned}), ± ({deviation}) about the base's own axes")
    places = document["places"]
    if places["checked"]:
        verb = "agree" if places["agree"] else "disagree"
        size = f"chi-squared {places['chi_squared']:.1f}, at most {places['limit']:.1f} by chance"
        out.append(f"{'places':22s}{verb}: {size}")
    else:
        some_left_out = any(arm["left_out"] for arm in document["arms"])
        out.append(f"{'places':22s}{_NOT_CHECKED.format(' calibrated' if some_left_out else '')}")
    held = [f"{', '.join(arm['base_holds'])} of {arm['name']}" for arm in document["arms"] if arm["base_holds"]]
    if document["bases"] and held:
        out.append(f"{'in the bases':22s}errors of {'; '.join(held)}: measurements do not tell them from the base")
    return out
