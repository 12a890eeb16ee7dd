"""Frames of a network interface, captured by dumpcap."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def captured(interface: str, condition: str, path: Path) -> Iterator[None]:
    """Store the frames of an interface, both ways, that fulfil a condition of libpcap."""
    command = ["dumpcap", "-q", "-i", interface, "-f", condition, "-w", str(path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        said = []
        try:
            for line in process.stderr:
                said.append(line)
                if line.startswith("File:"):
                    break
            else:
                raise RuntimeError(f"dumpcap ended: {''.join(said)}")
            yield
        finally:
            process.terminate()
            process.communicate(timeout=20)
