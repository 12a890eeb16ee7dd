"""`thetad guide`: let an arm be guided by hand, and show the session."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.cli._common import CliError, Exit, add_run, fail, printed_json
from service.cli._remote import add_control_flag, connected_control
from service.cli.motion._motion_session import ArmRecording, run_session
from service.protocol.endpoints import ANSWER_S

if TYPE_CHECKING:
    from service.client import Control

_PHASES = {
    "ramping": "taking over: hands off", "ending": "going to the hold: hands off",
    "guiding": "guiding: the arm may be pushed", "alarm": "alarm", "hold": "hold by the drives",
}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("arm", metavar="ARM", help="which arm of the daemon")
    parser.add_argument("--permit", required=True, metavar="TOKEN", help="what `thetad control arm` gave")
    parser.add_argument(
        "--for", type=float, dest="for_s", metavar="S", help="how long (default: until Ctrl-C, or the permit expires)"
    )
    parser.add_argument("--friction", type=float, metavar="SHARE", help="share of the friction that is compensated")
    parser.add_argument("--damping", type=float, metavar="S", help="time in which damping alone slows a joint to 1/e")
    parser.add_argument("--speed", type=float, metavar="SHARE", help="speed limit, at most the configuration's")
    parser.add_argument("--model", type=Path, metavar="FILE", help="model file, in place of the arm's active model")
    parser.add_argument("--record", action="store_true", help="start the arm's recorder meanwhile")
    parser.add_argument("--figures", type=Path, metavar="FOLDER", help="record, and draw the session into this folder")
    add_control_flag(parser)
    add_run(parser, run)


def run(args: argparse.Namespace) -> int:
    """Guide, record, draw, print."""
    model = None if args.model is None else _model(args.model)
    if args.figures is not None and args.figures.exists() and not args.figures.is_dir():
        raise CliError(f"--figures: {args.figures} is not a folder")
    with connected_control(args, "zero_force: ") as control:
        return _run(args, control, model)


def _model(path: Path) -> dict[str, Any]:
    """Return a model file as the arguments of a request."""
    from service.models.document import load_model

    file = load_model(path)
    verdict = file.document["verdict"]
    if verdict != "ok":
        raise CliError(f"{path}: its verdict is {verdict!r}, and only one that is ok may carry an arm: identify again")
    return file.values | {"robot": file.robot.sha256, "name": path.name}


def _run(args: argparse.Namespace, control: Control, model: Mapping[str, Any] | None) -> int:
    from service.client import Runs

    drawn = None
    if args.figures is not None:  # before guiding, because another model may be active afterwards
        drawn = control.request("guiding_model", ANSWER_S, arm=args.arm, **(model or {}))
    recording = ArmRecording(control, args.arm, wanted=args.record or args.figures is not None)
    if args.figures is not None and recording.made and not recording.started:
        raise CliError(
            f"--figures: {args.arm} is being recorded already, and what is being written cannot be drawn; first "
            f"`thetad control record arm={args.arm} action=stop`"
        )
    runs, show = Runs(control, args.arm), _Display()
    session = run_session(
        control, args.arm, "guiding", recording,
        lambda progress: runs.guide(
            args.permit, for_s=args.for_s, friction_share=args.friction, damping_time_s=args.damping,
            speed_share=args.speed, model=model, on_progress=progress,
        ),
        show,
    )  # fmt: skip
    done, path = session.done, session.path
    figures = [] if drawn is None or not path else _draw(path, args.figures, drawn, show.settings, done)
    if not printed_json(args, {"arm": args.arm, **done, "recording": path or None, "figures": figures}):
        if session.code == Exit.OK:
            print(f"{args.arm}: guided for {done['t_s']:.1f} s")
        for name in ([path] if path else []) + figures:
            print(name)
    if session.code != Exit.OK:
        fail(f"{args.arm}: guiding was stopped after {done['t_s']:.2f} s: {session.reason}")
        for later in done["later"]:
            fail(f"found after that: {later}")
    return session.code


def _draw(
    path: str, folder: Path, model: Mapping[str, Any], settings: Mapping[str, Any], done: Mapping[str, Any]
) -> list[str]:
    """Draw a session; failures are reported on stderr."""
    from drivers.files.recordings.recording import RecordingError
    from service.operations.hand_guiding_replay import GuidingRecordError
    from service.reports.hand_guiding import draw_session

    if done["began_ns"] is None:
        return []
    try:
        return [str(figure) for figure in draw_session(Path(path), folder, model, settings, done)]
    except (OSError, ValueError, RecordingError, GuidingRecordError) as error:
        fail(f"no figures: {error}")
        return []


class _Display:
    """Phases of guiding, one line each; keeps the settings of the session."""

    def __init__(self) -> None:
        self.settings: dict[str, Any] = {}
        self._shown = ""

    def __call__(self, report: Mapping[str, Any]) -> None:
        self.settings = report.get("settings", self.settings)
        for text in report.get("unchecked", ()):
            sys.stderr.write(f"not judged: {text}\n")
        phase = str(report["guiding"]["phase"])
        if phase == "ramping" and report["guiding"]["outcome"] == "stopping":
            phase = "ending"
        if phase != self._shown and phase in _PHASES:
            sys.stderr.write(_PHASES[phase] + "\n")
        self._shown = phase
        sys.stderr.flush()
