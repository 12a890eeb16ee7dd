"""`thetad payload`: identify a payload from a model without it and a recording or an estimate with it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from service.cli._common import CliError, Exit, add_run, print_verdict, printed_json

if TYPE_CHECKING:
    from service.operations.payload import PayloadResult


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options: the parameters of the job `payload`."""
    from service.cli._options import add_options
    from service.jobs.kinds.payload import KIND

    add = parser.add_argument
    add("model", metavar="MODEL", type=Path, help="model file of the arm without payload (.yaml)")
    add("loaded", metavar="REC", type=Path, help="recording, model file or snapshot with payload")
    add_options(parser, KIND)
    add("--report", metavar="FILE", type=Path, help="write a self-contained HTML report here")
    add_run(parser, run)


def run(args: argparse.Namespace) -> int:
    """Identify the payload and report."""
    from drivers.files.atomic_write import write_text
    from drivers.files.recordings.recording import read_recording
    from service.cli._options import given
    from service.jobs.kinds.payload import KIND
    from service.models.document import load_model
    from service.operations.inputs import span_of
    from service.operations.payload import load_after, payload_between, payload_in_recording, with_torque_scale
    from service.reports.payload import payload_facts, payload_page, payload_summary

    p = KIND.read(given(args, KIND) | {"model": str(args.model), "recording": str(args.loaded)}, flags=True)
    before, span = load_model(args.model), span_of(p.span)
    if args.loaded.suffix in (".yaml", ".yml", ".json"):
        if span is not None:
            raise CliError(f"--span is for a recording, and {args.loaded} is an estimate")
        theta, covariance = load_after(args.loaded, before)
        result = payload_between(before, theta, covariance, refit_effects=p.refit_effects)
    else:
        recording = read_recording(args.loaded)
        result = payload_in_recording(before, recording, span=span, refit_effects=p.refit_effects)
    result = with_torque_scale(result, 0.01 * p.torque_std_percent, p.known)
    if args.report is not None:
        write_text(args.report, payload_page(result, before, args.loaded))
    if not printed_json(args, payload_summary(result, before, args.loaded, span, p.refit_effects)):
        print_result(result, payload_facts(result, before, args.loaded))
    return Exit.OK if result.known else Exit.NO


def print_result(result: PayloadResult, facts: list[tuple[str, str]]) -> None:
    """Print the result, verdict first."""
    from rt_core.model.inertia import mass_com_inertia
    from service.reports.cells import number
    from service.reports.payload import VERDICT_TEXT

    print_verdict(result.verdict, VERDICT_TEXT[result.verdict], result.reasons, facts)
    if not result.present:
        return
    print(f"{'quantity':14s}{'value':>12s}{'95 % from':>12s}{'to':>12s}  {'unit':8s}status")
    for q in result.quantities:
        cells = "".join(f"{number(x, 5):>12s}" for x in (q.value, q.lower, q.upper))
        print(f"{q.name:14s}{cells}  {q.unit:8s}{q.status}{'' if q.reason is None else f': {q.reason}'}")
    if result.body is not None:
        mass, com, inertia = mass_com_inertia(result.body)
        print("nearest real body, for a controller's settings:")
        print(f"  mass {mass:.5g} kg, centre of mass {' '.join(f'{x:.5g}' for x in com)} m")
        print(f"  inertia about it {'; '.join(' '.join(f'{x:.4g}' for x in row) for row in inertia)} kg*m^2")
