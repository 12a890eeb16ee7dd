"""The command `thetad`: parse arguments, run one command, turn errors into one line and an exit code."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Sequence

from service.cli._common import (
    EXIT_INPUT,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_UNAVAILABLE,
    CliError,
    Parser,
    fail,
    is_own,
    mute_stdout,
    one_line,
)

# Set before NumPy is imported: for the small matrices of an identification several BLAS threads are slower.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

#: Modules of `service.cli` in the order of the help; each registers its commands with `add_parser(subparsers)`.
COMMANDS = (
    "daemon.demo", "motion.commission", "daemon.serve", "daemon.watch", "data.replay", "daemon.record", "daemon.bridge",
    "daemon.control", "daemon.keys", "motion.run", "motion.guide", "hardware.ethercat", "hardware.ads", "hardware.sim",
    "data.importing", "data.recordings", "motion.excite", "models.identify", "models.validate", "models.compare",
    "models.payload", "calibration.poses", "calibration.calibrate", "calibration.compensate", "models.models",
    "jobs.jobs", "daemon.events", "daemon.doctor", "daemon.deploy",
)  # fmt: skip

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


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of all commands; the modules it imports must be fast to import."""
    parser = Parser(prog="thetad", description=DESCRIPTION, epilog="More: thetad COMMAND --help")
    parser.add_argument("--version", action="version", version=_version())
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    for name in COMMANDS:
        importlib.import_module(f"service.cli.{name}").add_parser(subparsers)
    return parser


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"thetad {version('thetad')}"
    except PackageNotFoundError:
        return "thetad (not installed)"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; `service.cli._common` documents the exit codes."""
    arguments = build_parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except CliError as error:
        fail(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        mute_stdout()
        return EXIT_OK
    except OSError as error:
        fail(one_line(error))
        return EXIT_INPUT
    except Exception as error:
        if is_own(error):
            fail(one_line(error))
            return EXIT_INPUT
        traceback.print_exc()
        fail("internal error; please report it with the lines above")
        raise SystemExit(EXIT_UNAVAILABLE) from error


if __name__ == "__main__":
    sys.exit(main())
