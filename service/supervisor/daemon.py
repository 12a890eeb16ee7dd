"""A daemon from its configuration file, and its announcements on stdout.

One JSON line when every process is ready: `{"event": "ready", "endpoints": {..}}`; `main` also prints `{"event":
"failed", "message": ..}` if the daemon cannot start.
"""

import argparse
import faulthandler
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from service.config.load import Config, load_config
from service.io.log import LineWriter, crash_fd
from service.protocol.transient_errors import is_own, is_transient
from service.supervisor.supervisor import StartError, Supervisor
from service.worker.resources import allow_files, die_with_parent

EXIT_INPUT = 2
EXIT_UNAVAILABLE = 3


class RunError(RuntimeError):
    """An unexpected error of the running daemon; the message is that of the error."""

    again = True


def announce(event: str, **content: Any) -> None:
    """Print an event as one JSON line on stdout, without waiting for its reader."""
    LineWriter(1).write(json.dumps({"event": event, **content}).encode() + b"\n")


def serve(config: Config) -> None:
    """Run a daemon until it is stopped; raises what `Supervisor` raises.

    Also raises `RunError` if the running supervisor failed with an error of the project's own, which says nothing
    against the configuration.
    """

    def on_ready(endpoints: Mapping[str, str]) -> None:
        announce("ready", endpoints=dict(endpoints))

    faulthandler.enable(crash_fd())  # systemd's watchdog ends a hung daemon by SIGABRT: its stack goes to the log
    allow_files()
    supervisor = Supervisor(config)
    try:
        supervisor.run(on_ready)
    except StartError:
        raise
    except Exception as error:
        if not is_own(error):
            raise
        supervisor.log.exception("failed")
        raise RunError(str(error) or type(error).__name__) from error


def exit_code(error: Exception) -> int:
    """Return the exit code of a daemon that has failed.

    It is 3 if a later start may succeed (something is in use, absent or unreadable at the moment, or the running daemon
    failed), and 2 if the configuration is wrong.
    """
    return EXIT_UNAVAILABLE if is_transient(error) else EXIT_INPUT


def main() -> int:
    """Run a daemon for the process that started this one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--parent", type=int, required=True)
    arguments = parser.parse_args()
    die_with_parent(arguments.parent)
    try:
        serve(load_config(arguments.config))
    except Exception as error:
        if not is_own(error):
            raise
        announce("failed", message=str(error))
        return exit_code(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
