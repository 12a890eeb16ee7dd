"""Exported Python, run."""

import json
import subprocess
import sys

import numpy as np

CALL = """
import json, sys
names = {}
exec(compile(sys.stdin.readline().encode().decode("unicode_escape"), "model", "exec"), names)
states = json.loads(sys.stdin.readline())
assert not {"numpy", "site"} & set(sys.modules), sorted(sys.modules)
print(json.dumps([names["torque"](q, dq, ddq) for q, dq, ddq in states]))
"""


def run_bare(source: str, states: tuple[np.ndarray, ...]) -> np.ndarray:
    """Torque of an exported module in an interpreter without site-packages."""
    lines = source.encode("unicode_escape").decode() + "\n"
    lines += json.dumps([[x.tolist() for x in state] for state in zip(*states, strict=True)]) + "\n"
    command = [sys.executable, "-I", "-S", "-c", CALL]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=60.0)
    assert done.returncode == 0, done.stderr
    return np.array(json.loads(done.stdout))
