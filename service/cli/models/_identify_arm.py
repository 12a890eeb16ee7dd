"""`thetad identify --joints elastic|auto`: a whole arm whose joints may be elastic."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from service.cli._common import EXIT_NO, EXIT_OK, CliError, fail, print_json

if TYPE_CHECKING:
    from drivers.files.recordings.recording import Recording
    from rt_core.elastic.arm import Comparison
    from rt_core.model.robot import RobotModel
    from service.operations.elastic.arm import ElasticArm
    from service.reports.identification_document import IdentificationReport

#: Options that elastic joints do without, by their names in the parsed arguments.
FOREIGN = ("method", "plot", "essential", "loss", "prior", "weight", "period")


@dataclass(frozen=True)
class Choice:
    """What was asked, what the data say, and the elastic arm if that is the answer."""

    asked: str
    arm: ElasticArm | None
    comparison: Comparison | None
    reason: str

    def document(self) -> dict[str, Any]:
        """Plain data for `--json`."""
        from service.operations.elastic.arm import comparison_document

        return {
            "asked": self.asked,
            "chosen": "rigid" if self.arm is None else "elastic",
            "reason": self.reason,
            "comparison": None if self.comparison is None else comparison_document(self.comparison),
        }


def check_joints(asked: str, recording: Recording, model: RobotModel) -> None:
    """Refuse elastic joints that were asked for where the recording or the robot does not allow for them."""
    from service.operations.elastic.arm import why_not_elastic

    if asked == "elastic" and (reason := why_not_elastic(recording, model)) is not None:
        raise CliError(f"--joints elastic: {reason}")


def choose_joints(asked: str, rigid: IdentificationReport) -> Choice:
    """Identify with elastic joints where that is asked for, or where the data call for it.

    `rigid` is the fit with rigid joints, of which the velocity constants of friction are taken.
    """
    from rt_core.identification.preprocess import DataError
    from service.operations.elastic.arm import arm_rows, identify_elastic_arm, why_not_elastic

    result = rigid.result
    recording, robot, settings, span = rigid.recording, rigid.robot, rigid.settings, rigid.span
    model = result.model
    reason = why_not_elastic(recording, model)
    if reason is not None:
        return Choice(asked, None, None, reason)
    try:
        rows, noise = arm_rows(recording, model, settings, span)
    except DataError as error:
        if asked == "elastic":
            raise
        return Choice(asked, None, None, f"elastic joints cannot be tried: {error}")
    comparison = None
    try:
        comparison = rows.compare()
        reason = comparison.reason
    except DataError as error:
        reason = f"too few data to compare: {error}"
    if asked == "auto" and (comparison is None or not comparison.elastic):
        return Choice(asked, None, comparison, reason)
    arm = identify_elastic_arm(
        recording, robot, model, rows, noise, settings, span=span, comparison=comparison, rigid=result
    )
    return Choice(asked, arm, comparison, reason)


def finish_elastic(args: argparse.Namespace, choice: Choice, arm: ElasticArm) -> int:
    """Report and write an arm with elastic joints."""
    import json

    from service.io.atomic_files import write_text
    from service.protocol.json_values import plain
    from service.reports.elastic_arm import elastic_arm_html

    written = None
    if args.output is not None:
        if arm.accepted or args.force:
            write_text(args.output, json.dumps(plain(arm.document), allow_nan=False, indent=1) + "\n")
            written = str(args.output)
        else:
            fail(f"{args.output} is not written: the model does not explain the recording (--force writes it anyway)")
    if args.report is not None:
        write_text(args.report, elastic_arm_html(arm))
    if args.json:
        print_json(arm.document | {"joint_model": choice.document(), "model": written})
    else:
        print_arm(arm)
    return EXIT_OK if arm.accepted else EXIT_NO


def print_arm(arm: ElasticArm) -> None:
    """Print the result for people: verdict first."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from service.reports.identification import VERDICT_TEXT, number

    console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
    console.print(Text(f"{arm.verdict}: {VERDICT_TEXT[arm.verdict]}", style="bold"))
    for reason in arm.reasons:
        console.print(f"  - {reason}", markup=False)
    for name, value in arm.facts():
        console.print(f"{name:21s} {value}", markup=False)
    if not arm.accepted:
        return
    table = Table("parameter", "value", "std", "unit", "status", "stands for", box=None, pad_edge=False)
    for p in arm.document["parameters"]:
        std = None if p["value"] is None else p["std"]
        cells = (p["name"], number(p["value"], 5), number(std, 2), p["unit"], p["status"], p["expression"])
        table.add_row(*(Text(c) for c in cells))
    console.print(table)
