"""Simulated PLCs for the tests: nine axes of arm9, small buffers, time from 0."""

import ctypes
from pathlib import Path
from typing import Any

from drivers.ads import layout
from sim_backend.plc._plc import SimulatedPlc
from sim_backend.plc.build import build_plc
from sim_backend.plc.settings import PlcSettings, load_plc, parse_plc
from tests.lab.ads.simple_client import PlainClient

CONFIG = Path(__file__).resolve().parents[3] / "configs/twincat/arm9_plc.toml"
WALL_NS = 1_780_000_000_000_000_000  # 2026-05-28
JOINTS = tuple(f"joint_{k + 1}" for k in range(9))


def settings(**changes: Any) -> PlcSettings:
    """Settings of the shipped PLC with a ring of 4 blocks of 5 samples."""
    small = {"block_samples": 5, "blocks": 4, "setpoints": 50, "clock_ppm": 0.0, "torque_noise": 0.0}
    return load_plc(CONFIG).model_copy(update=small | changes)


def parsed(**changes: Any) -> PlcSettings:
    """Settings of a table with nine plain axes, checked as those of a file are."""
    axes = [{"joint": joint, "torque_unit": "Nm"} for joint in JOINTS]
    return parse_plc({"robot": "arm9", "axis": axes, "block_samples": 5, "blocks": 4} | changes, "plc.toml", Path())


def make(given: PlcSettings | None = None, **changes: Any) -> SimulatedPlc:
    """Make the PLC; its first cycle is at 0 ns."""
    return build_plc(given or settings(**changes), 0, WALL_NS)


class Variables:
    """The layout's variables as a client reads and writes them, by ctypes."""

    def __init__(self, plc: SimulatedPlc) -> None:
        self.client = PlainClient(plc)
        self.sizes = plc.settings.sizes
        self._heartbeat = 0

    def read(self, name: str) -> Any:
        """Return a variable of the list as a structure."""
        kind, lengths = layout.VARIABLES[name]
        shape: Any = layout.structure(kind, self.sizes)
        for length in lengths:
            shape = shape * self.sizes.length(length)
        data = self.client.value(f"GVL_Theta.{name}", ctypes.sizeof(shape))
        return shape.from_buffer_copy(data)

    @property
    def head(self) -> Any:
        """`stHead`."""
        return self.read("stHead")

    def samples(self) -> list[Any]:
        """Samples of all whole blocks in the ring, in order, checked."""
        blocks = [block for block in self.read("aRing") if block.nBlock == block.nBlockEnd and block.aSample[0].nTime]
        found = [sample for block in sorted(blocks, key=lambda each: each.nBlock) for sample in block.aSample]
        for sample in found:
            assert sample.nChecksum == layout.checksum(bytes(sample))
        return found

    def command(self, enable: bool, run: int | None = None) -> None:
        """Write the command with a new heartbeat."""
        self._heartbeat += 1
        command = layout.structure("ST_ThetaCommand", self.sizes)()
        command.nStart = self.head.nStart if run is None else run
        command.nHeartbeat, command.nEnable = self._heartbeat, int(enable)
        self.client.set("GVL_Theta.stCommand", bytes(command))

    def advance(self, cycles: int, enable: bool | None = None) -> None:
        """Let cycles go by; with a heartbeat every ten where `enable` is given."""
        while cycles > 0:
            if enable is not None:
                self.command(enable)
            step = min(cycles, 10)
            self.client.advance(step)
            cycles -= step

    def enable(self) -> None:
        """Switch the axes on."""
        self.advance(10, enable=False)
        self.advance(150, enable=True)
        assert self.head.nState == layout.ENABLED

    def points(self, sequence: int, first: int, points: list[list[float]], **changes: int) -> None:
        """Write a buffer of set positions."""
        buffer = layout.structure("ST_ThetaSetpoints", self.sizes)()
        buffer.nStart, buffer.nFirst = self.head.nStart, first
        buffer.nSequence, buffer.nCount = sequence, len(points)
        for k, point in enumerate(points):
            buffer.aPoint[k][:] = point
        for name, value in changes.items():
            setattr(buffer, name, value)
        if "nChecksum" not in changes:
            buffer.nChecksum = layout.checksum(bytes(buffer))
        self.client.set(f"GVL_Theta.aSetpoints[{sequence % 2}]", bytes(buffer))


def positions(variables: Variables) -> list[float]:
    """Present set positions of all axes."""
    return [axis.fSetpoint for axis in variables.samples()[-1].aAxis]


def play(variables: Variables, points: list[list[float]], lead: int = 20, sequence: int = 1) -> int:
    """Write points for cycles from `lead` cycles on; returns the first cycle."""
    first = variables.head.nSamples + lead
    variables.points(sequence, first, points)
    return first
