"""Exported C, compiled without a warning and called."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import numpy as np

STRICT = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-O2")


def c_torque(source: str, *states: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Torque (N, n) of exported C at states (N, n), and what it returned."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "arm.c")
        file.write_text(source)
        subprocess.run(["cc", *STRICT, "-shared", "-fPIC", file, "-lm", "-o", f"{folder}/arm.so"], check=True)
        torque = ctypes.CDLL(f"{folder}/arm.so").thetad_torque
    found = np.zeros_like(states[0])
    torque.argtypes = [np.ctypeslib.ndpointer(np.float64, flags="C")] * (len(states) + 1)
    returned = [torque(*map(np.ascontiguousarray, row), found[k]) for k, row in enumerate(zip(*states, strict=True))]
    return found, returned
