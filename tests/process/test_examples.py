"""The examples, run against a daemon with a simulated arm."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from drivers.files.robots.file import load_robot
from service.client import Control
from service.config.load import parse_config
from service.supervisor.launch import DaemonProcess
from tests.lab.node import installed

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLES = ROOT / "examples"
LINES = 3
#: What a line of each example looks like.
PATTERNS = {
    "subscribe_plain.py": r" *[\d.]+ s  frames \d+  lost 0  theta \[.*\]",
    "subscribe_client.py": r" *[\d.]+ s  age [\d.]+ ms  lost 0  (\w+ = [-\de.+]+ ± [\de.+-]+(, )?)*",
    "subscribe_torque.py": r"[\d.]+ s  measured -?[\d.]+ N\*m  predicted -?[\d.]+ N\*m",
}
#: And of those for Node.js, which prints a list without brackets.
NODE_PATTERN = r" *[\d.]+ s  frames \d+  lost 0  theta [-\de.,+]+"


@pytest.fixture(scope="module")
def endpoints(folder: Path) -> Iterator[dict[str, str]]:
    """Endpoints of a running daemon whose arm is called "demo"."""
    ports = dict.fromkeys(("frames_port", "estimates_port", "control_port"), 0) | {"http": False}
    arm = {"name": "demo", "robot": "space6", "driver": {"kind": "sim"}, "state": {"resume": False}}
    table = {
        "daemon": {"name": "examples", "state_dir": str(folder / "state"), **ports},
        "jobs": {"priority": "normal"},  # of the lowest, a job waits for the other tests
        "arm": [arm],
    }
    with DaemonProcess(parse_config(table, "test", folder), folder / "log").start(timeout_s=240.0) as daemon:
        with Control(daemon.endpoints["control"]) as control:
            assert control.request("status")["processes"]
        yield daemon.endpoints


def environment() -> dict[str, str]:
    """Surroundings in which an example finds the packages."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return os.environ | {"PYTHONPATH": path}


def prints_estimates(command: list[str], pattern: str) -> None:
    """Check the first lines that a subscriber prints."""
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        lines = [process.stdout.readline().rstrip("\n") for _ in range(LINES)]
    finally:
        process.kill()
        _, errors = process.communicate(timeout=30.0)
    for line in lines:
        assert re.fullmatch(pattern, line), (line, errors)
    times = [float(line.split()[0]) for line in lines]
    assert times == sorted(times)


@pytest.mark.slow
@pytest.mark.parametrize("name", PATTERNS)
def test_example_prints_estimates(name: str, endpoints: dict[str, str]) -> None:
    """Of the others, one ends by itself, and one needs a key: tests/daemon/sockets/test_with_keys.py."""
    prints_estimates([sys.executable, "-u", str(EXAMPLES / name), endpoints["estimates"], "demo"], PATTERNS[name])


def test_so_does_the_one_for_node(endpoints: dict[str, str], tmp_path: Path) -> None:
    script = installed(EXAMPLES / "node", tmp_path) / "subscribe_plain.mjs"
    prints_estimates(["node", str(script), endpoints["estimates"], "demo"], NODE_PATTERN)


@pytest.mark.slow
def test_example_identifies_in_a_job(endpoints: dict[str, str], space6_recording: Path) -> None:
    """The friction that it prints is that of the simulated arm, within three times the stated interval."""
    command = [sys.executable, str(EXAMPLES / "submit_job.py"), space6_recording.name, "space6", endpoints["control"]]
    done = subprocess.run(
        command, env=environment(), cwd=space6_recording.parent, capture_output=True, text=True, timeout=600.0
    )
    assert done.returncode == 0, done
    first, second, *parameters, last = done.stdout.splitlines()
    assert re.fullmatch(r"job \d+ is queued", first)
    assert re.fullmatch(r"succeeded: ok: relative torque error 0\.\d+ %", second)
    assert Path(last.removeprefix("model file: ")).is_file()
    truth = load_robot("space6").model.dynamics
    for joint in range(6):
        found = next(line for line in parameters if line.startswith(f"fc{joint + 1} = "))
        value, half = re.fullmatch(r"fc\d = (\S+) ± (\S+) N\*m", found).groups()  # type: ignore[union-attr]
        assert abs(float(value) - truth.coulomb[joint]) < 3.0 * float(half)
