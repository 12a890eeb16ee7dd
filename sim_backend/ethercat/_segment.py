"""A segment: slave controllers, their memory, cables and clocks.  Sans I/O: fed with frames and times.

What is due before a frame is done before it; events of a frame reach the devices after it has passed.  At each step
(`SyncGrid`) every device latches its outputs, the machine moves, and every device publishes its inputs: inputs are the
sample at SYNC0, and outputs written after one SYNC0 act from the next one on.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from rt_core.types import IntArray
from sim_backend.ethercat import registers as reg
from sim_backend.ethercat import wire
from sim_backend.ethercat._access import WAITING, SlaveArrays
from sim_backend.ethercat._clock import Clocks, ClockSettings, SyncGrid, latch_port
from sim_backend.ethercat._controller import SlaveController
from sim_backend.ethercat._datalink import LINE, RING, TAIL, process_frame
from sim_backend.ethercat._machine import Machine
from sim_backend.ethercat._topology import Topology
from sim_backend.ethercat.registers import UInt8Array

#: Steps that a late process makes up for at once; the rest is skipped and counted.
MAX_CATCH_UP = 50
_TYPE = wire.ETHERTYPE.to_bytes(2, "big")
_ONLY_OUTPUTS = 1 << reg.EVENT_OUTPUTS
_TIMING = 1 << reg.EVENT_CLOCK | 1 << reg.EVENT_DC_CHANGED


ControllerFactory: TypeAlias = Callable[[UInt8Array], SlaveController]
"""Returns the device's side of one slave, given its memory (MEMORY_SIZE,)."""


class Segment:
    """Slaves in a line or ring, seen from the master's port 0 and, in a ring, port 1 at the far end.

    `controllers` make one for each slave, along the cable; in a `ring` a cable leads from the last slave back to the
    master. `hop_ns` is the delay from a slave to the next, `now_ns` the host time (CLOCK_MONOTONIC) at power-on.
    `clocks` are those of the first slaves; the others have exact ones. The machine's `steps` were taken, or `skipped`
    because the process was late; `dropped` frames were lost on purpose, there or back. `memory` is (N, MEMORY_SIZE).
    """

    def __init__(
        self, controllers: Sequence[ControllerFactory], machine: Machine | None, *, ring: bool = False,
        hop_ns: int = 600, clocks: Sequence[ClockSettings] = (), now_ns: int = 0,
    ) -> None:  # fmt: skip
        count = len(controllers)
        if not count:
            raise ValueError("a segment needs at least one slave")
        if len(clocks) > count:
            raise ValueError(f"{len(clocks)} clocks for {count} slaves: give at most one each")
        self.memory: UInt8Array = np.zeros((count, reg.MEMORY_SIZE), np.uint8)
        self.controllers = [make(self.memory[k]) for k, make in enumerate(controllers)]
        self.topology = Topology(count, ring=ring)
        self.clocks = Clocks(self.memory, [*clocks, *[ClockSettings()] * (count - len(clocks))])
        self.grid = SyncGrid(self.clocks, now_ns)
        self.steps = self.skipped = self.dropped = 0
        self.machine, self._hop_ns, self._now_ns = machine, hop_ns, now_ns
        self._frame: UInt8Array = np.zeros(2048, np.uint8)
        self._opened: UInt8Array = np.zeros((count, reg.SM_COUNT), np.uint8)
        self._live: UInt8Array = np.ones(count, np.uint8)
        self._events: IntArray = np.zeros(count, np.int64)
        self._arrays = SlaveArrays(
            self.memory, self._opened, self._live, self.clocks.times, self.clocks.rates, self._events,
            np.zeros(3, np.int64), np.zeros_like(self._frame), np.zeros_like(self._frame),
        )  # fmt: skip
        self._waiting: set[int] = set()
        self._deaf: dict[int, int] = {}
        self._to_drop = self._to_lose = 0
        self._slow_ns, self._to_delay = 0, 0
        self._delayed: list[tuple[int, int, bytes]] = []
        self._dues = [now_ns] * count
        for slave in range(count):
            self._start(slave)
        self._show_links()
        if machine is not None:
            machine.connect(self.controllers)
        self._due_ns = now_ns

    def __len__(self) -> int:
        return len(self.controllers)

    def warm_up(self) -> None:
        """Compile or load all kernels, so that the first frames are not late; takes one step."""
        length = wire.DATAGRAM_HEADER + wire.WORKING_COUNTER  # of one datagram with the command NOP, which is all zero
        frame = bytes(wire.ETHERNET_HEADER - 2) + _TYPE + (length | wire.TYPE_COMMANDS << 12).to_bytes(2, "little")
        self.exchange(frame.ljust(wire.FRAME_MIN, b"\0"), 0, self._now_ns)
        self._step()

    def begin(self, now_ns: int) -> None:
        """Set the present to `now_ns`; steps due before are neither taken nor counted."""
        self._now_ns = now_ns
        late = now_ns - self.grid.due_ns
        if late >= 0:
            self.grid.advance(late // self.grid.period_ns + 1)
        self._next_due()

    def exchange(self, frame: bytes | memoryview, port: int, now_ns: int) -> list[tuple[int, bytes]]:
        """Process a frame from a port of the master (0, or 1 at the far end of a ring).

        Returns the replies as (port, frame); none if the frame is no EtherCAT frame, is lost or delayed, or there is no
        link.
        """
        size = len(frame)
        if (
            not wire.FRAME_HEADER <= size <= wire.FRAME_MAX
            or frame[wire.ETHERNET_HEADER - 2 : wire.ETHERNET_HEADER] != _TYPE
        ):
            return []
        if now_ns >= self._due_ns:
            self.tick(now_ns)
        self._now_ns = max(now_ns, self._now_ns)
        topology = self.topology
        slaves, way = (topology.tail, TAIL) if port else (topology.head, RING if topology.intact else LINE)
        if (port and not topology.ring) or (not topology.intact and not len(slaves)):
            return []
        if self._to_drop:
            self._to_drop -= 1
            self.dropped += 1
            return []
        if port and topology.intact:
            self._pass_back(now_ns)
            return self._send(0, bytes(frame), now_ns)
        self._frame[:size] = np.frombuffer(frame, np.uint8)
        first_ns = now_ns + (len(slaves) - 1) * self._hop_ns if way == TAIL else now_ns
        process_frame(self._frame[:size], slaves, self._arrays, way, first_ns, self._hop_ns)
        out = self._frame[:size].tobytes()
        self._deliver(now_ns)
        if self._deaf:
            self._count_deaf()
        return self._send(1 if way in (RING, TAIL) else 0, out, now_ns)

    def tick(self, now_ns: int) -> int:
        """Do everything that is due; return the host time of the next thing due [ns]."""
        self._now_ns = max(now_ns, self._now_ns)
        for slave, due in enumerate(self._dues):
            if due <= now_ns:
                self._tick_controller(slave)
        steps = 0
        while self.grid.due_ns <= now_ns:
            if steps == MAX_CATCH_UP:
                late = (now_ns - self.grid.due_ns) // self.grid.period_ns + 1
                self.skipped += late
                self.grid.advance(late)
                continue
            self._step()
            self.grid.advance()
            steps += 1
        return self._next_due()

    def released(self, now_ns: int) -> list[tuple[int, bytes]]:
        """Return the delayed replies that are due, as (port, frame)."""
        out = [(port, frame) for due, port, frame in self._delayed if due <= now_ns]
        if out:
            self._delayed = [entry for entry in self._delayed if entry[0] > now_ns]
            self._next_due()
        return out

    def cut(self, after: int) -> None:
        """Break the cable behind the first `after` slaves."""
        self.topology.cut(after)
        self._show_links()

    def mend(self) -> None:
        self.topology.mend()
        self._show_links()

    def power_off(self, slave: int) -> None:
        """Switch a slave and its drive off; the cable is open on both sides."""
        self.controllers[slave].power_on()  # clears its state
        if self.machine is not None:
            self.machine.power_off(slave)
        self._power(slave, on=False)

    def power_on(self, slave: int) -> None:
        """Switch a slave and its drive on; its clock restarts."""
        self._start(slave)
        if self.machine is not None:
            self.machine.power_on(slave)
        self._power(slave, on=True)

    def drop_frames(self, count: int) -> None:
        """Lose the next `count` frames before they reach a slave."""
        self._to_drop = count

    def drop_replies(self, count: int) -> None:
        """Lose the next `count` frames on their way back, after the slaves have processed them."""
        self._to_lose = count

    def deaf(self, slave: int, frames: int) -> None:
        """Let a slave forward the next `frames` frames without processing them."""
        self._deaf[slave] = frames
        self._live[slave] = frames <= 0

    def delay_replies(self, by_ns: int, count: int) -> None:
        """Delay the next `count` replies; `released` returns them."""
        self._slow_ns, self._to_delay = by_ns, count

    def al_error(self, slave: int, code: int, fall_to: int = reg.AL_SAFEOP) -> None:
        """Put a slave into a lower AL state with an AL status code."""
        self.controllers[slave].raise_al_error(code, fall_to)
        self._tick_controller(slave)

    def emergency(self, slave: int, code: int, register: int = 0x01, data: bytes = b"") -> None:
        """Send an emergency message from a slave."""
        self.controllers[slave].emergency(code, register, data)
        self._tick_controller(slave)

    def step_clock(self, slave: int, by_ns: int) -> None:
        """Shift a local clock."""
        self.clocks.step(slave, by_ns)
        self._choose_reference()

    def drift_clock(self, slave: int, ppm: float) -> None:
        """Change the drift of a local clock."""
        self.clocks.drift(slave, ppm, self._now_ns)
        self._choose_reference()

    def _step(self) -> None:
        on = [device for device, powered in zip(self.controllers, self.topology.powered, strict=True) if powered]
        for device in on:
            device.latch_outputs()
        if self.machine is not None:
            self.machine.cycle(self.grid.period_ns * 1e-9)
        for device in on:
            device.publish_inputs()
        self.steps += 1
        for slave in range(len(self.controllers)):  # the machine may have raised errors and emergencies
            self._tick_controller(slave)

    def _deliver(self, now_ns: int) -> None:
        retime = False
        for slave, bits in enumerate(self._events.tolist()):
            if not bits:
                continue
            device = self.controllers[slave]
            if bits == _ONLY_OUTPUTS:
                device.on_event(reg.EVENT_OUTPUTS, now_ns)
                if self._dues[slave] == reg.NEVER_NS:
                    self._tick_controller(slave)
                continue
            if bits & WAITING:
                self._waiting.add(slave)
            for kind in range(reg.EVENT_COUNT):
                if bits >> kind & 1:
                    device.on_event(kind, now_ns)
            self._tick_controller(slave)
            retime |= bool(bits & _TIMING)
        self._events[:] = 0
        if retime:
            self._choose_reference()
        self._next_due()

    def _pass_back(self, now_ns: int) -> None:
        """Latch the times of waiting ports as a frame passes all slaves from the far end."""
        for slave in self._waiting:
            at = now_ns + (len(self.controllers) - 1 - slave) * self._hop_ns
            latch_port(self.memory, self.clocks.times, self.clocks.rates, slave, 1, at)
        self._waiting.clear()

    def _send(self, port: int, frame: bytes, now_ns: int) -> list[tuple[int, bytes]]:
        if self._to_lose:
            self._to_lose -= 1
            self.dropped += 1
            return []
        if not self._to_delay:
            return [(port, frame)]
        self._to_delay -= 1
        self._delayed.append((now_ns + self._slow_ns, port, frame))
        self._next_due()
        return []

    def _count_deaf(self) -> None:
        for slave in list(self._deaf):
            self.deaf(slave, self._deaf[slave] - 1)
            if self._live[slave]:
                del self._deaf[slave]

    def _tick_controller(self, slave: int) -> None:
        powered = self.topology.powered[slave]
        self._dues[slave] = self.controllers[slave].tick(self._now_ns) if powered else reg.NEVER_NS

    def _next_due(self) -> int:
        released = min((due for due, _, _ in self._delayed), default=reg.NEVER_NS)
        self._due_ns = min(self.grid.due_ns, released, *self._dues)
        return self._due_ns

    def _start(self, slave: int) -> None:
        self.controllers[slave].power_on()
        self.clocks.power_on(slave, self._now_ns)
        self._opened[slave] = 0

    def _power(self, slave: int, *, on: bool) -> None:
        self.topology.powered[slave] = on
        self.topology.update()
        self._show_links()
        self._tick_controller(slave)
        self._choose_reference()

    def _choose_reference(self) -> None:
        powered = [slave for slave, on in enumerate(self.topology.powered) if on]
        self.grid.choose(powered, self._now_ns)
        self._next_due()

    def _show_links(self) -> None:
        """Update DL status and the lost link counters."""
        for slave, row in enumerate(self.memory):
            before = int.from_bytes(row[reg.DL_STATUS : reg.DL_STATUS + 2].tobytes(), "little")
            status = self.topology.dl_status(slave)
            for port in range(2):
                counter = reg.LOST_LINK_COUNTER + port
                if before & ~status & 0x10 << port and row[counter] < 0xFF:
                    row[counter] += 1
            row[reg.DL_STATUS], row[reg.DL_STATUS + 1] = status & 0xFF, status >> 8
