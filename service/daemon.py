"""A daemon from its configuration file, and what it says on stdout.

One JSON line when every process is ready: `{"event": "ready", "endpoints": {..}}`; if the daemon cannot
start, `{"event": "failed", "message": ..}` where that is asked for.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from service.config import Config, load_config
from service.process import die_with_parent, is_own
from service.supervisor import Supervisor

EXIT_INPUT = 2
EXIT_UNAVAILABLE = 3


def announce(event: str, **content: Any) -> None:
    """Print an event as one JSON line on stdout."""
    sys.stdout.write(json.dumps({"event": event, **content}) + "\n")
    sys.stdout.flush()


def serve(config: Config) -> None:
    """Run a daemon until it is told to stop; raises what `Supervisor` raises."""

    def on_ready(endpoints: Mapping[str, str]) -> None:
        announce("ready", endpoints=dict(endpoints))

    faulthandler.enable()  # where it hung goes to the log, when systemd's watchdog ends it by SIGABRT
    Supervisor(config).run(on_ready)


def exit_code(error: Exception) -> int:
    """Return the exit code for a failed start.

    It is 3 if something is in use or not there, so that a later start may succeed, and 2 if the configuration is wrong.
    """
    return EXIT_UNAVAILABLE if getattr(error, "again", False) else EXIT_INPUT


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
