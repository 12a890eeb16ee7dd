"""Starts of the daemon that fail on a network: one error line, an exit code, and drives in a safe state.

Each way in which a start fails, at the driver: test_start.py.
"""

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.daemon.ethercat_rig import ROOT, Drives, arm, network, write_segment

pytestmark = pytest.mark.slow
HANG_S = 60.0  # a requirement of 10 s on each start is that of test_start.py
#: A fault waits for the watchdog to be set to another time than before, also where a test is repeated.
WATCHDOGS_MS = itertools.count(50)


@pytest.fixture(scope="module")
def bench(folder: Path) -> Iterator[Drives]:
    with network(), Drives(write_segment(folder)) as drives:
        yield drives


@pytest.fixture(autouse=True)
def sound(bench: Drives) -> Iterator[None]:
    """After each test nothing of its faults is left."""
    yield
    bench.tell("heal")


class Serve:
    """`thetad serve` as a user starts it."""

    def __init__(self, folder: Path, prefix: tuple[str, ...] = (), **driver: Any) -> None:
        ports = dict.fromkeys(("frames_port", "estimates_port", "control_port"), 0) | {"http": False}
        daemon = {"state_dir": str(folder / "other"), "runtime_dir": str(folder / "o"), **ports}
        path = folder / "config.json"
        path.write_text(json.dumps({"daemon": daemon, "arm": [arm(folder, **driver)]}), encoding="utf-8")
        command = [*prefix, sys.executable, "-m", "service.cli.main", "serve", "-c", str(path)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def refused(self, *words: str) -> None:
        """Wait for the end; assert that it was refused in one line with all `words`."""
        try:
            out, err = self._process.communicate(timeout=HANG_S)
        finally:
            self._process.kill()
        assert self._process.returncode == 3, err  # systemd tries again: at power-on the drives may come later
        assert out == ""
        assert "Traceback" not in err
        log = [json.loads(line) for line in err.splitlines() if line.startswith("{")]
        (line,) = [line for line in err.splitlines() if not line.startswith("{")]
        assert line.startswith("thetad")
        for word in words:
            assert word in line, f"{word!r} is not in: {line}"
        failed = [entry for entry in log if entry["event"] == "failed"]
        assert all(entry["process"] == "acquisition" and "restarts" not in entry for entry in failed)
        assert len(failed) <= 1, failed


def test_a_drive_is_missing(bench: Drives, folder: Path) -> None:
    bench.fault("cut", after=2)
    Serve(folder).refused("position 2: joint 'joint_3'", "is missing", "2 slaves found, 3 configured")
    bench.fault("mend")
    bench.safe()


def test_the_cable_is_pulled_while_process_data_is_mapped(bench: Drives, folder: Path) -> None:
    """The library neither returns nor lets the interpreter run: the supervisor ends the process."""
    bench.tell("cut_mapping", 4)
    serve = Serve(folder, watchdog_ms=float(next(WATCHDOGS_MS)))
    serve.refused("the start did not come to an end within 5.5 s", "look at the cable")
    assert all(al != 8 and drive != "ENABLED" for al, _, drive in bench.tell("states"))
