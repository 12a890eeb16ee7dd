"""The examples do what they say, against a daemon with a simulated arm."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.client import Control
from service.config import parse_config
from service.launch import DaemonProcess

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
LINES = 3
#: What a line of each example looks like.
PATTERNS = {
    "subscribe_plain.py": r" *[\d.]+ s  frames \d+  lost 0  theta \[.*\]",
    "subscribe_client.py": r" *[\d.]+ s  age [\d.]+ ms  lost 0  (\w+ = [-\de.+]+ ± [\de.+-]+(, )?)*",
}


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Estimates of a running daemon whose arm is called "demo"."""
    folder = tmp_path_factory.mktemp("examples")
    ports = dict.fromkeys(("frames_port", "estimates_port", "control_port"), 0)
    arm = {"name": "demo", "robot": "space6", "driver": {"kind": "sim"}, "state": {"resume": False}}
    table = {"daemon": {"name": "examples", "state_dir": str(folder / "state"), **ports}, "arm": [arm]}
    with DaemonProcess(parse_config(table, "test", folder), folder / "log").start(timeout_s=240.0) as daemon:
        with Control(daemon.endpoints["control"]) as control:
            assert control.request("status")["processes"]
        yield daemon.endpoints["estimates"]


def test_every_example_is_tested() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(PATTERNS)


@pytest.mark.parametrize("name", PATTERNS)
def test_example_prints_estimates(name: str, endpoint: str) -> None:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-u", str(EXAMPLES / name), endpoint, "demo"]
    process = subprocess.Popen(
        command, env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline().rstrip("\n") for _ in range(LINES)]
    finally:
        process.kill()
        _, errors = process.communicate(timeout=30.0)
    for line in lines:
        assert re.fullmatch(PATTERNS[name], line), (line, errors)
    times = [float(line.split()[0]) for line in lines]
    assert times == sorted(times)


def test_the_plain_one_is_short_and_needs_two_packages() -> None:
    code = (EXAMPLES / "subscribe_plain.py").read_text(encoding="utf-8").split('"""', 2)[2]
    lines = [line for line in code.splitlines() if line.strip()]
    assert sum(not line.startswith(("import", "from")) for line in lines) <= 10
    imported = set(re.findall(r"^(?:import|from) (\w+)", code, re.MULTILINE))
    assert imported <= {"sys", "zmq", "msgpack"}
