"""A segment of simulated drives as described by its file, at the far end of the cable, controlled over stdin.

python -m tests.lab.daemon.ethercat_segment SEGMENT.toml

Each line on stdin is a JSON list, a name and arguments, answered by one line on stdout; ends when stdin does.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from sim_backend.ethercat import registers as reg
from sim_backend.ethercat._faults import Fault, slave_number
from sim_backend.ethercat.build import apply_fault, build_segment
from sim_backend.ethercat.link import SEGMENT_END
from sim_backend.ethercat.server import Scheduling, Server
from sim_backend.ethercat.settings import load_segment

_PRIORITY = 50  # of SCHED_FIFO: below the loop that the drives answer


class Bench:
    """The segment, its server, and the methods that can be called over stdin."""

    def __init__(self, path: Path) -> None:
        settings = load_segment(path)
        self.names = [drive.joint for drive in settings.drive]
        self.simulated = build_segment(settings, time.monotonic_ns(), str(path))
        self.server = Server(self.simulated.segment, (SEGMENT_END,))
        self._pending = b""
        self._cut_at: int | None = None
        self._cut_mapping: tuple[bytes, int] | None = None
        self._states = self._now()
        self._history = [self._states]

    def fault(self, fault: dict[str, Any]) -> None:
        """Apply one entry of a fault script now."""
        entry: Fault = TypeAdapter(Fault).validate_python(fault | {"at_s": 0.0})
        apply_fault(entry, slave_number(entry, self.names), self.simulated.segment, self.simulated.machine)

    def heal(self) -> None:
        """Undo what faults have left behind in segment and drives."""
        segment, machine = self.simulated.segment, self.simulated.machine
        segment.mend()
        for k in range(len(self.names)):
            segment.deaf(k, 0)
            if not segment.topology.powered[k]:
                segment.power_on(k)
            machine.stuck_encoder(k, False)
            machine.safe_torque_off(k, False)
            self.fault({"kind": "refuse_op", "slave": k, "refuse": False})

    def cut_after(self, frames: int) -> None:
        """Break the cable at the first slave after so many more frames."""
        self._cut_at = self.server.frames + frames

    def cut_mapping(self, frames: int) -> None:
        """Break the cable at the first slave so many frames after the last slave's watchdog was set."""
        self._cut_mapping = self._watchdog(), frames

    def _watchdog(self) -> bytes:
        return self.simulated.segment.memory[-1, 0x0420:0x0422].tobytes()

    def frames(self) -> int:
        """Return how many frames have come."""
        return self.server.frames

    def states(self) -> list[list[Any]]:
        """Return AL state, AL status code and drive state of each slave."""
        return [list(each) for each in self._now()]

    def history(self) -> list[list[list[Any]]]:
        """Return all that `states` has been since the last call."""
        seen, self._history = self._history, [self._states]
        return [[list(each) for each in states] for states in seen]

    def speed(self) -> float:
        """Return the velocity of the fastest joint [rad/s]."""
        return float(np.abs(self.simulated.machine.sample.v).max())

    def _now(self) -> list[tuple[int, int, str]]:
        segment, drives = self.simulated.segment, self.simulated.machine.drives
        states = []
        for k, drive in enumerate(drives):
            code = int.from_bytes(segment.memory[k, reg.AL_STATUS_CODE :][:2].tobytes(), "little")
            state = drive.state.name if segment.topology.powered[k] else "WITHOUT_POWER"
            states.append((int(segment.controllers[k].al_state), code, state))
        return states

    def turn(self, now_ns: int) -> None:
        """Do what is due in each turn of the server's loop."""
        self.simulated.turn(now_ns)
        if self._cut_at is not None and self.server.frames >= self._cut_at:
            self._cut_at = None
            self.simulated.segment.cut(0)
        if self._cut_mapping is not None and self._watchdog() != self._cut_mapping[0]:
            self.cut_after(self._cut_mapping[1])
            self._cut_mapping = None
        states = self._now()
        if states != self._states:
            self._states = states
            self._history.append(states)
        try:
            data = os.read(0, 4096)
        except BlockingIOError:
            return
        if not data:
            self.server.stop()
            return
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines:
            name, *arguments = json.loads(line)
            print(json.dumps(getattr(self, name)(*arguments)), flush=True)

    def run(self) -> None:
        """Answer frames and requests until stdin ends."""
        os.set_blocking(0, False)
        try:
            self.server.run(Scheduling(_PRIORITY), ready=lambda: print("ready", flush=True), turn=self.turn)
        finally:
            self.server.close()


if __name__ == "__main__":
    Bench(Path(sys.argv[1])).run()
