"""The command `thetad`: parse arguments, run one command, turn errors into one line and an exit code."""

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Sequence

from service.cli._common import CliError, Exit, Parser, fail, one_line, read_help
from service.protocol.transient_errors import is_own
from service.worker.thread_limits import SINGLE_THREADED

# Set before NumPy and numba are imported: for the small matrices of an identification several threads are slower.
for _name, _threads in SINGLE_THREADED.items():
    os.environ.setdefault(_name, _threads)

#: Commands by subject, in the order of the help: the module of `service.cli`, and what the command is for.  A module
#: has `add_arguments(parser)`, and beside it a file of the same name with the texts of its help (`_common.read_help`).
COMMANDS = {
    "daemon": {
        "demo": ("daemon.demo", "everything once, with a simulated arm"), "serve": ("daemon.serve", "run the daemon"),
        "status": ("daemon.status", "state of a running daemon"),
        "watch": ("daemon.watch", "live table of the estimates"),
        "control": ("daemon.control", "make a request of a running daemon"),
        "jobs": ("jobs.jobs", "queue long work for a running daemon, and see what comes of it"),
        "events": ("daemon.events", "the history: jobs, models, drift, restarts, losses"),
        "bridge": ("daemon.bridge", "show a running daemon in Foxglove or ROS 2"),
        "keys": ("daemon.keys", "keys of the daemon and its clients"),
        "doctor": ("daemon.doctor", "can this host keep a cycle?"),
        "deploy": ("daemon.deploy", "run as a system service"),
    },
    "data": {
        "import": ("data.importing", "bring a log (CSV, NPZ, NPY, MAT, ...) in as a recording"),
        "record": ("daemon.record", "start or stop recording"),
        "recordings": ("data.recordings", "describe recordings, recover those that were cut off, export them"),
        "replay": ("data.replay", "play a recording through the daemon"),
    },
    "models": {
        "robots": ("models.robots", "list the robots that are known; check and show robot files"),
        "identify": ("models.identify", "fit the dynamic model of a robot to a recording"),
        "validate": ("models.validate", "compare a model's torque with a recording's"),
        "payload": ("models.payload", "mass, centre of mass and inertia of a payload"),
        "models": ("models.models", "show, compare and export models; promote one, or roll back"),
        "compare": ("models.compare", "compare estimators on simulated truth"),
    },
    "motion": {
        "commission": ("motion.commission", "from the description of a robot to a validated model"),
        "excite": ("motion.excite", "design a trajectory on which the parameters of a robot show well"),
        "run": ("motion.run", "run a trajectory on an arm"),
        "guide": ("motion.guide", "guide an arm by hand"),
    },
    "hardware": {
        "ethercat": ("hardware.ethercat", "look at the slaves of an EtherCAT bus"),
        "ads": ("hardware.ads", "look at a TwinCAT controller over ADS"),
        "sim": ("hardware.sim", "simulated servo drives, and a simulated PLC"),
    },
    "calibration": {
        "poses": ("calibration.poses", "plan poses for a calibration, and rehearse their measurement"),
        "calibrate": ("calibration.calibrate", "geometric errors of an arm from measured poses"),
        "compensate": ("calibration.compensate", "joint commands that reach Cartesian targets with a calibrated arm"),
    },
}  # fmt: skip

DESCRIPTION = """\
Real-time identification of robot-arm dynamics: live parameters with honest uncertainties.

Typical sequences:
  thetad demo                                         everything once, with a simulated arm
  thetad commission arm7                              from a robot file to a validated model, simulated
  thetad serve -c configs/demo.toml                   run the daemon; then, elsewhere: thetad watch
  thetad import log.csv --mapping my.toml -o rec.mcap
  thetad identify rec.mcap --robot my.toml -o model.yaml
  thetad validate model.yaml rec.mcap --span 0.6:1
"""


def build_parser(command: str | None = None) -> argparse.ArgumentParser:
    """Build the parser, with the options of one command, of none (""), or of all (None)."""
    lines = [DESCRIPTION]
    parser = Parser(prog="thetad", usage="thetad [-h] [--version] COMMAND ...", epilog="More: thetad COMMAND --help")
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    subparsers = parser.add_subparsers(
        prog="thetad", dest="command", metavar="COMMAND", required=True, parser_class=Parser, help=argparse.SUPPRESS
    )
    for group, commands in COMMANDS.items():
        lines += [f"{group}:", *(f"  {name:11s}  {text}" for name, (_, text) in commands.items()), ""]
        for name, (path, _) in commands.items():
            its = subparsers.add_parser(name)
            if command in (name, None):
                module = importlib.import_module(f".{path}", "service.cli")
                texts = read_help(str(module.__file__))
                its.description, its.epilog = texts["description"], texts.get("epilog")
                module.add_arguments(its)
    parser.description = "\n".join(lines[:-1])
    return parser


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            text = version("thetad")
        except PackageNotFoundError:
            text = "(not installed)"
        parser.exit(message=f"thetad {text}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; `service.cli._common` documents the exit codes."""
    words = sys.argv[1:] if argv is None else argv
    arguments = build_parser(next((word for word in words if not word.startswith("-")), "")).parse_args(words)
    try:
        return int(arguments.run(arguments))
    except CliError as error:
        fail(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still written there is discarded
        return Exit.OK
    except OSError as error:
        fail(one_line(error))
        return Exit.INPUT
    except Exception as error:
        if is_own(error):
            fail(one_line(error))
            return Exit.INPUT
        traceback.print_exc()
        fail("internal error; please report it with the lines above")
        raise SystemExit(Exit.UNAVAILABLE) from error


if __name__ == "__main__":
    sys.exit(main())
