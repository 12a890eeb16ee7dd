"""What Wireshark reads in captured frames, by its programs dumpcap and tshark."""

import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

LOGICAL = (10, 11, 12)  # LRD, LWR, LRW


@dataclass(frozen=True)
class Seen:
    """A datagram as the dissector shows it; a logical address has no device and no register."""

    command: int
    device: int
    register: int
    logical: int
    counter: int


def tshark(path: Path, *arguments: str) -> list[str]:
    """Return the lines that tshark prints about a capture."""
    done = subprocess.run(["tshark", "-r", str(path), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"tshark: {done.stderr}")
    return done.stdout.splitlines()


def column(path: Path, field: str, condition: str = "") -> Counter[str]:
    """Count the values of a field in the frames that fulfil a condition."""
    lines = tshark(path, "-Y", condition or field, "-T", "fields", "-e", field, "-E", "aggregator=\t")
    return Counter(value for line in lines for value in line.split("\t") if value)


def count(path: Path, condition: str) -> int:
    """Count the frames that fulfil a condition."""
    return len(tshark(path, "-Y", condition, "-T", "fields", "-e", "frame.number"))


def datagrams(path: Path, condition: str) -> list[list[Seen]]:
    """Return the datagrams of each frame that fulfils a condition."""
    options = [option for part in ("cmd", "cnt", "adp", "ado", "lad") for option in ("-e", f"ecat.{part}")]
    found = []
    for line in tshark(path, "-Y", condition, "-T", "fields", *options, "-E", "separator=/t"):
        commands, counters, *addresses = [
            [int(each, 0) for each in part.split(",") if each] for part in line.split("\t")
        ]
        devices, registers, logicals = map(iter, addresses)
        found.append(
            [
                Seen(command, 0, 0, next(logicals), counter)
                if command in LOGICAL
                else Seen(command, next(devices), next(registers), 0, counter)
                for command, counter in zip(commands, counters, strict=True)
            ]
        )
    return found
