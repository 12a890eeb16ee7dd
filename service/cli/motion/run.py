"""`thetad run`: run a trajectory on an arm, record it, and queue its identification."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rt_core.identification.methods import METHODS
from service.cli._common import CliError, Exit, add_run, fail, printed_json
from service.cli._remote import add_control_flag, connected_control, is_wrong
from service.cli.motion._motion_session import ArmRecording, run_session
from service.protocol.endpoints import ANSWER_S

if TYPE_CHECKING:
    from service.client import Control


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add = parser.add_argument
    add("arm", metavar="ARM", help="which arm of the daemon")
    add("file", metavar="FILE", type=Path, help="trajectory.json of a design, or a table (.csv)")
    add("--permit", required=True, metavar="TOKEN", help="what `thetad control arm` gave")
    add("--periods", type=int, default=1, metavar="N", help="how often (default: %(default)s)")
    add("--hold", action="store_true", help="stay armed at the end, until the permit expires")
    add("--no-record", action="store_true", help="do not start the arm's recorder for the run")
    add("--identify", choices=[*METHODS, "none"], default="wls", metavar="METHOD",
        help="queue an identification of what was recorded, or none (default: %(default)s)")  # fmt: skip
    add("--average", action="store_true", help="identify from the mean over the periods; needs two at least")
    add("--changed-robot", action="store_true",
        help="run it although the robot's description is another version than that of the design")  # fmt: skip
    add_control_flag(parser)
    add_run(parser, run)


def run(args: argparse.Namespace) -> int:
    """Run, record, identify, print."""
    from service.client import ControlError
    from service.io.trajectory_file import read_trajectory

    if args.average and args.periods < 2:
        raise CliError("--average: give --periods 2 or more")
    message = read_trajectory(args.file).as_message()
    with connected_control(args) as control:
        try:
            return _run(args, control, message)
        except ControlError as error:
            if is_wrong(error):
                raise CliError(f"{args.file}: {error.message.removeprefix('run_trajectory: ')}") from error
            raise


def _run(args: argparse.Namespace, control: Control, message: Mapping[str, Any]) -> int:
    from service.client import Runs

    recording = ArmRecording(control, args.arm, wanted=not args.no_record)
    runs, display = Runs(control, args.arm), _Display()
    with display as show:
        session = run_session(
            control, args.arm, "run", recording,
            lambda progress: runs.run(
                message, args.permit, periods=args.periods, hold=args.hold, name=args.file.name,
                changed_robot=args.changed_robot, on_progress=progress,
            ),
            show,
        )  # fmt: skip
    done, path = session.done, session.path
    wanted = session.code == Exit.OK and args.identify != "none" and recording.made
    if wanted and recording.started and not path:
        wanted = False
        fail(f"{args.arm}: the identification was not queued: what was recorded is not known")
    job = _submit(control, args, done, path if recording.started else "") if wanted else None
    document = {"arm": args.arm, **done, "unchecked": display.unchecked, "recording": path or None, "identify": job}
    if not printed_json(args, document) and session.code == Exit.OK:
        each_s = done["duration_s"] / done["periods"]
        print(f"{args.arm}: {args.file.name} completed, {done['periods']} x {each_s:g} s")
        if path:
            print(f"recording  {path}")
        if job is not None:
            print(f"identify   job {job}: thetad jobs wait {job}")
    if session.code != Exit.OK:
        fail(f"{args.arm}: stopped after {done['t_s']:.2f} s of the trajectory: {session.reason}")
        if path:
            fail(f"what was recorded until then: {path}")
    return session.code


def _submit(control: Control, args: argparse.Namespace, done: Mapping[str, Any], path: str) -> int | None:
    """Queue the identification of a run from its own recording or the last frames; return the job's number."""
    from service.client import ControlError, UnreachableError

    source = path or f"live:{math.ceil(done['approach_s'] + done['duration_s'] + 1.0)}"
    parameters: dict[str, Any] = {"recording": source, "method": args.identify}
    if args.average:
        parameters["period_s"] = done["duration_s"] / done["periods"]
    try:
        answer = control.request("submit", ANSWER_S, kind="identify", parameters=parameters, arm=args.arm)
    except (ControlError, UnreachableError) as error:
        fail(f"{args.arm}: the identification was not queued: {error}")
        return None
    return int(answer["id"])


class _Display:
    """Unchecked quantities and progress of a run: a bar on a terminal, elsewhere a line for each phase."""

    def __init__(self) -> None:
        from service.cli._progress import Progress

        self.unchecked: list[str] = []
        self._live = sys.stderr.isatty()
        self._bar = Progress("approach")
        self._shown = ""

    def __enter__(self) -> Callable[[Mapping[str, Any]], None]:
        self._bar.__enter__()
        return self._show

    def __exit__(self, *_: object) -> None:
        self._bar.__exit__(None, None, None)

    def _show(self, report: Mapping[str, Any]) -> None:
        found = report["run"]
        if "unchecked" in report:  # only in the first reply, before anything moves
            self.unchecked = list(report["unchecked"])
            sys.stderr.write("".join(f"not judged: {text}\n" for text in self.unchecked))
            sys.stderr.flush()
        state = str(report["state"])
        what = f"period {found['period']} of {found['periods']}" if state == "running" else state
        if self._live:
            self._bar.step(found["t_s"], found["duration_s"], what)
        elif what != self._shown:
            self._shown = what
            print(what, file=sys.stderr, flush=True)
