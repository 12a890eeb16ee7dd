"""`thetad commission`: commission an arm, from its robot description to a validated model."""

from __future__ import annotations

import argparse
import math
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rt_core.identification.methods import METHODS
from service.cli._common import CliError, Exit, UnavailableError, add_run, fail, json_text, number, printed_json
from service.cli._remote import add_control_flag, key_of
from service.cli.jobs.values import read_parameters
from service.commission.settings import CommissionSettings, Payload

if TYPE_CHECKING:
    from service.commission.commissioning import CommissionResult, StepProgress
    from service.commission.context import Ask, Context

_BETWEEN_LINES_S = 10.0
_STEPS = ("robot", "signals", "joints", "friction", "payload", "design", "run", "identify", "validate")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add = parser.add_argument
    add("robot", metavar="ROBOT", nargs="?", help="robot file, URDF, or the name of one in configs/robots")
    add("--arm", metavar="NAME", help="commission this arm of the running daemon")
    add("--output", "-o", metavar="DIR", type=Path, help="folder of all results (default: runs/commission-NAME)")
    add("--yes", action="store_true", help="allow all motions of --arm without being asked")
    add("--from", dest="again_from", choices=_STEPS, metavar="STEP", help="do this step and those after it again")
    add("--payload", metavar="KG[:X,Y,Z]",
        help="known payload for torque constants; its centre in the flange frame [m]")  # fmt: skip
    add("--least-r", dest="least_R", type=number(0.0, 1.0), default=0.97, metavar="R",
        help="correlation of torque that each joint needs on the validation run (default: %(default)s)")  # fmt: skip
    add("--promote", action="store_true", help="make the model the arm's active one if it is validated")
    motion = parser.add_argument_group("motion")
    add_motion = motion.add_argument
    add_motion("--small", type=number(0.1, 30.0), default=3.5, metavar="DEG",
               help="first motion of a joint (default: %(default)s degrees)")  # fmt: skip
    add_motion("--speeds", type=number(1e-4, 1.0), nargs="+", metavar="SHARE",
               help="of the friction sweep, as shares of the velocity limits (default: 0.006 to 0.2)")  # fmt: skip
    add_motion("--sweep", type=number(0.5, 60.0), default=2.5, metavar="S",
               help="time at each constant speed (default: %(default)s s)")  # fmt: skip
    add_motion(
        "--room", type=number(0.01, 0.9), default=0.4, metavar="SHARE",
        help="of each joint's range that the sweep may use, about where the arm stands (default: %(default)s)",
    )  # fmt: skip
    add_motion("--first-speed", type=number(0.01, 1.0), default=0.33, metavar="SHARE",
               help="at which the trajectory is run first; 1: not slowly first (default: %(default)s)")  # fmt: skip
    often = number(1, 1000, whole=True)
    add_motion("--periods", type=often, default=3, metavar="N", help="of the trajectory (default: %(default)s)")
    add_motion("--validation-periods", type=often, default=2, metavar="N",
               help="of the one to validate on (default: %(default)s)")  # fmt: skip
    model = parser.add_argument_group("design and identification")
    add_model = model.add_argument
    add_model("--period", dest="period_s", type=number(0.5, 100.0), default=10.0, metavar="S",
              help="of the trajectory (default: 10 s)")  # fmt: skip
    harmonics, starts, seed = number(1, 50, whole=True), number(1, 256, whole=True), number(0, whole=True)
    add_model("--harmonics", type=harmonics, default=5, metavar="N", help="(default: %(default)s)")
    add_model("--starts", type=starts, default=1, metavar="N", help="searches (default: %(default)s)")
    add_model("--seed", type=seed, default=0, metavar="N", help="of everything random (default: %(default)s)")
    add_model("--set", metavar="NAME=VALUE", dest="pairs", nargs="+", action="extend", default=[],
              help="any other parameter of the design, as of `thetad excite`")  # fmt: skip
    add_model("--method", choices=METHODS, default="wls", metavar="M", help="(default: %(default)s)")
    add_control_flag(parser)
    add_run(parser, run)


def run(args: argparse.Namespace) -> int:
    """Commission, report, print."""
    from service.client import ClientError, ControlError, UnreachableError
    from service.commission.errors import DeclinedError
    from service.supervisor.launch import LaunchError

    settings = read_settings(args)
    if args.robot is None and args.arm is None:
        raise CliError("name a ROBOT to rehearse with, or the --arm of a running daemon")
    ask = _ask(args)
    try:
        with ExitStack() as stack:
            return _commission(args, _open(args, settings, ask, stack))
    except DeclinedError:
        fail("declined; the same command goes on from there")
        return Exit.INTERRUPTED
    except (UnreachableError, ClientError, ControlError, LaunchError) as error:
        raise UnavailableError(str(error)) from error


def read_settings(args: argparse.Namespace) -> CommissionSettings:
    """Check the options; raises `CliError`."""
    from service.jobs.kinds import find_kind

    speeds = CommissionSettings.speeds if args.speeds is None else tuple(sorted(args.speeds))
    excite = read_parameters(find_kind("excite"), args.pairs)
    own = sorted({"robot", "period_s", "f0_hz", "harmonics", "starts", "seed", "validation", "rest"} & set(excite))
    if own:
        raise CliError(f"--set {own[0]}=...: is an option of this command, or is needed as it is")
    return CommissionSettings(
        small_rad=math.radians(args.small), speeds=speeds, sweep_s=args.sweep, room=args.room, period_s=args.period_s,
        harmonics=args.harmonics, starts=args.starts, seed=args.seed, excite=excite, first_speed=args.first_speed,
        periods=args.periods, validation_periods=args.validation_periods, method=args.method, least_R=args.least_R,
        payload=_payload(args.payload), promote=args.promote,
    )  # fmt: skip


def _payload(text: str | None) -> Payload | None:
    if text is None:
        return None
    mass, _, centre = text.partition(":")
    try:
        numbers = [float(mass), *(float(part) for part in (centre or "0,0,0").split(","))]
    except ValueError:
        numbers = []
    if len(numbers) != 4 or not all(math.isfinite(v) for v in numbers) or not 0.0 < numbers[0] < 1e4:
        raise CliError(f"--payload {text!r}: expected a mass [kg], or mass and centre [m] such as 2.5:0.1,0,0.08")
    return Payload(numbers[0], (numbers[1], numbers[2], numbers[3]))


def _open(args: argparse.Namespace, settings: CommissionSettings, ask: Ask | None, stack: ExitStack) -> Context:
    """Return the context of the commissioning, whose folder is begun, or gone on with."""
    from drivers.files.robots.file import load_robot
    from service.client import Control
    from service.commission.commissioning import STEP_NAMES
    from service.commission.context import ArmAccess, Context, RunningArm
    from service.commission.errors import CommissionError
    from service.commission.folder import Folder, simulated_seed
    from service.commission.rehearsal import Rehearsal
    from service.operations.inputs import open_robot

    if args.arm is None:
        robot = load_robot(args.robot)
        path = (args.output or Path("runs") / f"commission-{robot.model.name}").absolute()
        more: dict[str, Any] = {"simulated_seed": simulated_seed(path, args.seed + 1)}
        rehearsal = Rehearsal(robot, path, more["simulated_seed"], current_only=args.payload is not None)
        place: ArmAccess = stack.enter_context(rehearsal)
    else:
        place = RunningArm(stack.enter_context(Control(args.control, key_of(args))), args.arm, ask)
        robot = open_robot(place.site().robot_text())
        if args.robot is not None and load_robot(args.robot).sha256 != robot.sha256:
            raise CommissionError(
                f"{args.robot}: is not the description that arm {args.arm} has in its daemon: leave ROBOT out, or "
                "restart the daemon with this one"
            )
        path = (args.output or Path("runs") / f"commission-{args.arm}").absolute()
        place.site().journal, more = path / "recording.txt", {"drives": place.site().drives}
    folder, described = Folder(path, STEP_NAMES), {"name": robot.model.name, "sha256": robot.sha256}
    folder.begin({"robot": described, "arm": args.arm, "settings": settings.as_dict()} | more, args.again_from)
    return Context(robot, settings, folder, place, ask)


def _commission(args: argparse.Namespace, context: Context) -> int:
    from drivers.files.atomic_write import write_text
    from service.commission.commissioning import commission
    from service.commission.report import commission_html, summary

    robot, path = context.robot, context.folder.path
    with _Display(asks=context.ask is not None) as display:
        result = commission(context, display)
        display.line("report")
        write_text(path / "report.html", commission_html(robot, result, rehearsal=context.place.rehearsal))
    found = summary(robot, result, [("report", path / "report.html"), ("folder", path)])
    write_text(path / "result.json", json_text(found))
    if not printed_json(args, found):
        show(result, context)
    if result.failed:
        fail(f"{result.failed}: {result.reason}")
    return Exit.OK if result.validated else Exit.NO


def show(result: CommissionResult, context: Context) -> None:
    """Print the result."""
    from service.reports.cells import number

    for step in result.steps:
        print(f"{step['step']:10s}{step['state']:9s}{step['summary']}")
    rows = result.find("validate").get("joints", [])
    if rows:
        print(f"\n{'joint':12s}{'R':>9s}{'RMSE':>10s}")
        for row in rows:
            print(f"{row['name']:12s}{number(row['R'], 5):>9s}{number(row['rmse']):>10s}")
    model = result.find("identify")
    if model.get("model"):
        print(f"\nmodel     {model['model']} (job {model['job']})")
    print(f"report    {context.folder.path / 'report.html'}")
    for text in result.open:
        print(f"not told  {text}")
    print("VALIDATED" if result.validated else "NOT VALIDATED")


def _ask(args: argparse.Namespace) -> Ask | None:
    """Return a function that asks before a motion, None if all are allowed; `CliError` without a terminal."""
    if args.arm is None or args.yes:
        return None
    if not sys.stdin.isatty():
        raise CliError("a motion needs a confirmation, and input is not a terminal: --yes allows all motions")

    def ask(question: str) -> bool:
        print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    return ask


class _Display:
    """Progress and time left: a bar on a terminal, elsewhere a line for each change."""

    def __init__(self, *, asks: bool) -> None:
        from service.cli._progress import Progress

        self._live = sys.stderr.isatty() and not asks  # a bar and questions would overwrite each other
        self._bar = Progress("commission")
        self._shown, self._next_s = "", 0.0
        self._began_s = time.monotonic()

    def __enter__(self) -> _Display:
        if self._live:
            self._bar.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._live:
            self._bar.__exit__(*error)

    def __call__(self, progress: StepProgress) -> None:
        head = f"{progress.number}/{progress.of} {progress.step.name}: {progress.what}"
        if self._live:
            passed_s = time.monotonic() - self._began_s
            self._bar.step(passed_s, passed_s + progress.left_s, head)
            return
        now_s, brief = time.monotonic(), head.rpartition(": ")[0] if progress.what.count(": ") else head
        if brief != self._shown or now_s >= self._next_s:  # changing figures of a search are not worth a line
            self._shown, self._next_s = brief, now_s + _BETWEEN_LINES_S
            self.line(f"{head}; about {_time(progress.left_s)} left")

    def line(self, text: str) -> None:
        """Print a line, unless a bar is shown."""
        if not self._live:
            print(text, file=sys.stderr, flush=True)


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
