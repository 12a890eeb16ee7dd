"""`thetad identify --joints elastic|auto`: identify an arm whose joints may be elastic."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from service.cli._common import EXIT_NO, EXIT_OK, CliError, columns, json_text, print_verdict, printed_json
from service.cli.models._identify_elastic import write_accepted

if TYPE_CHECKING:
    from drivers.files.recordings.recording import Recording
    from rt_core.elastic.arm import Comparison
    from rt_core.model.robot import RobotModel
    from service.operations.elastic.arm import ElasticArm
    from service.reports.identification_document import IdentificationReport

#: Options that do not apply to elastic joints, by their names in the parsed arguments.
FOREIGN = ("method", "plot", "essential", "loss", "prior", "weight", "period_s")


@dataclass(frozen=True)
class Choice:
    """Requested joint model, the comparison of models, and the elastic arm if chosen."""

    asked: str
    arm: ElasticArm | None
    comparison: Comparison | None
    reason: str

    def document(self) -> dict[str, Any]:
        """Return the choice as JSON values, for `--json`."""
        from service.operations.elastic.arm import comparison_document

        return {
            "asked": self.asked, "chosen": "rigid" if self.arm is None else "elastic", "reason": self.reason,
            "comparison": None if self.comparison is None else comparison_document(self.comparison),
        }  # fmt: skip


def check_joints(asked: str, recording: Recording, model: RobotModel) -> None:
    """Raise `CliError` if elastic joints were requested and the recording or robot does not allow them."""
    if asked != "elastic":
        return
    from service.operations.elastic.arm import why_not_elastic

    if (reason := why_not_elastic(recording, model)) is not None:
        raise CliError(f"--joints elastic: {reason}")


def choose_joints(asked: str, rigid: IdentificationReport) -> Choice:
    """Identify with elastic joints if requested or the data call for it; `rigid` supplies the constants of friction."""
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
    arm = identify_elastic_arm(recording, robot, result, rows, noise, settings, span, comparison)
    return Choice(asked, arm, comparison, reason)


def finish_elastic(args: argparse.Namespace, choice: Choice, arm: ElasticArm) -> int:
    """Report and write an arm with elastic joints."""
    from drivers.files.atomic_write import write_text
    from service.reports.elastic import elastic_arm_html

    why = "the model does not explain the recording"
    written = write_accepted(args, arm.accepted, lambda path: write_text(path, json_text(arm.document)), why)
    if args.report is not None:
        write_text(args.report, elastic_arm_html(arm))
    if not printed_json(args, arm.document | {"joint_model": choice.document(), "model": written}):
        print_arm(arm)
    return EXIT_OK if arm.accepted else EXIT_NO


def print_arm(arm: ElasticArm) -> None:
    """Print the result, verdict first."""
    from service.reports.cells import VERDICT_TEXT, number

    print_verdict(arm.verdict, VERDICT_TEXT[arm.verdict], arm.reasons, arm.facts())
    if not arm.accepted:
        return
    rows = []
    for p in arm.document["parameters"]:
        std = None if p["value"] is None else p["std"]
        rows.append((p["name"], number(p["value"], 5), number(std, 2), p["unit"], p["status"], p["expression"]))
    print(columns(("parameter", "value", "std", "unit", "status", "stands for"), rows))
