"""A segment of simulated drives at an interface, told over stdin what to do; run as a program by the tests.

Arguments: a JSON object.  Each line on stdin is a JSON list, a name and arguments, answered by one line on stdout.
"""

import contextlib
import json
import os
import select
import struct
import sys
import time
from functools import partial
from typing import Any

from sim_backend.ethercat._axis import Mounting
from sim_backend.ethercat._clock import ClockSettings
from sim_backend.ethercat._communication import build_dictionary
from sim_backend.ethercat._controller import SlaveController
from sim_backend.ethercat._machine import DriveFitting, Machine
from sim_backend.ethercat._profile import load_profile
from sim_backend.ethercat._segment import Segment
from sim_backend.ethercat.server import open_interface
from tests.lab.arms.simulated import random_arm
from tests.lab.ethercat.spoiling import Spoiler

_COMMAND, _DATA, _LRW = 16, 26, 12  # places of the first datagram's command and data, and that of process data


def signature(number: int, drive: int) -> tuple[int, int]:
    """Position and velocity of a drive in the answer with this number."""
    return number + drive * 1_000_000, 3 * number + drive


class Process:
    """The segment, its server, and what can be asked of them."""

    def __init__(self, interfaces: list[str], devices: list[str], aliases: list[int], serials: list[int],
                 drifts_ppm: list[float], mountings: list[dict[str, Any]]) -> None:  # fmt: skip
        profiles = [load_profile(name) for name in devices]
        dictionaries = [build_dictionary(p, serial) for p, serial in zip(profiles, serials, strict=True)]
        mounted = [Mounting(**mounting) for mounting in mountings]
        fittings = [DriveFitting(*parts) for parts in zip(profiles, dictionaries, mounted, strict=True)]
        self.machine = Machine(random_arm(len(devices), 3), fittings)
        controllers = [
            partial(SlaveController, profile=profile, dictionary=dictionary, alias=alias, serial=serial)
            for profile, dictionary, alias, serial in zip(profiles, dictionaries, aliases, serials, strict=True)
        ]
        clocks = [ClockSettings(ppm=ppm) for ppm in drifts_ppm]
        ring = len(interfaces) == 2
        self.segment = Segment(controllers, self.machine, ring=ring, clocks=clocks, now_ns=time.monotonic_ns())
        self.segment.warm_up()
        self.segment.begin(time.monotonic_ns())
        self._drifts_ppm = drifts_ppm
        self.sockets = [open_interface(name) for name in interfaces]
        self._process_data_to_drop = 0
        self._cut_in, self._cut_counts_all = 0, True
        self._held: dict[tuple[int, int], tuple[int, int]] = {}
        self._spoiler: Spoiler | None = None
        self._signed: tuple[int, int, int] | None = None
        self._signature = 0

    def power_off(self, slave: int) -> None:
        self.segment.power_off(slave)
        self.machine.power_off(slave)

    def power_on(self, slave: int) -> None:
        self.machine.power_on(slave)
        self.segment.power_on(slave)

    def refuse_op(self, slave: int, refuse: bool) -> None:
        self.segment.controllers[slave].refuse_op = refuse

    def mute(self, slave: int, muted: bool) -> None:
        """Let a mailbox take requests and answer none."""
        mailbox = self.segment.controllers[slave]._mailbox
        if muted:
            mailbox.request = lambda data, state: None
        else:
            del mailbox.request

    def unpadded(self, slave: int, unpadded: bool) -> None:
        """Let complete access give subindex 0 in its own size."""
        dictionary = self.segment.controllers[slave].dictionary
        vars(dictionary).pop("read_complete", None)
        if unpadded:
            dictionary.read_complete = lambda index, first, state: b"".join(
                entry.encode() for entry in dictionary.object(index).entries.values() if entry.subindex >= first
            )

    def state(self, slave: int, index: int, subindex: int, value: int) -> None:
        """Let an object have another value."""
        self.segment.controllers[slave].dictionary.entry(index, subindex).value = value

    def plug_in(self, *interfaces: str) -> None:
        """Go on at interfaces of the same names that are new."""
        self.sockets = [open_interface(name) for name in interfaces]

    def poke(self, slave: int, address: int, data: str) -> None:
        """Write memory of a slave, given in hexadecimal, as the device itself does."""
        raw = bytes.fromhex(data)
        self.segment.memory[slave, address : address + len(raw)] = list(raw)

    def hold(self, slave: int, address: int, value: int, mask: int = 0xFF) -> None:
        """Let bits of a register keep a value, whatever is written."""
        self._held[slave, address] = (value, mask)

    def let_go(self) -> None:
        """Undo `hold`."""
        self._held.clear()

    def drop_process_data(self, count: int) -> None:
        """Lose the next `count` frames with process data."""
        self._process_data_to_drop = count

    def cut_after(self, frames: int, process_data: bool = False) -> None:
        """Break the cable at the master after so many more frames, or frames with process data."""
        self._cut_in, self._cut_counts_all = frames, not process_data

    def heal(self) -> None:
        """Undo every fault and switch all drives off and on."""
        self.let_go()
        self.leave_whole()
        self._process_data_to_drop = self._cut_in = 0
        segment = self.segment
        segment.mend()
        segment.drop_frames(0)
        segment.drop_replies(0)
        segment.delay_replies(0, 0)
        for slave, controller in enumerate(segment.controllers):
            self.refuse_op(slave, False)
            self.show_mode(slave, 0)
            vars(controller._mailbox).pop("request", None)
            segment.deaf(slave, 0)
            self.power_off(slave)
            self.power_on(slave)
            segment.drift_clock(slave, self._drifts_ppm[slave])

    def sign(self, first: int, each: int, at: int) -> None:
        """Put a number that counts answers into each drive's inputs, and what `signature` makes of it behind it.

        Inputs begin with byte `first` of the process data, and have `each` bytes a drive; the numbers lie at `at`.
        """
        self._signed = first, each, at

    def spoil(self, kind: str, share: float, seed: int) -> None:
        """Damage answers from now on; see `Spoiler`."""
        self._spoiler = Spoiler(kind, share, seed)

    def leave_whole(self) -> int:
        """Damage no more answers; returns how many frames were damaged, or not asked for."""
        spoiler, self._spoiler = self._spoiler, None
        return 0 if spoiler is None else spoiler.damaged

    def show_mode(self, slave: int, mode: int) -> None:
        """Let a drive stay in a mode of operation; 0: it obeys again."""
        drive = self.machine.drives[slave]
        if mode:
            drive._select_mode = lambda: setattr(drive, "mode", mode)
        else:
            vars(drive).pop("_select_mode", None)

    def states(self) -> list[int]:
        return [int(controller.al_state) for controller in self.segment.controllers]

    def dc_time_ns(self) -> int:
        return int(self.segment.clocks.system_ns(0, time.monotonic_ns()))

    def truth(self) -> dict[str, list[float]]:
        sample = self.machine.sample
        return {"x": sample.x.tolist(), "v": sample.v.tolist(), "u": sample.u.tolist()}

    def drive_states(self) -> list[str]:
        return [drive.state.name for drive in self.machine.drives]

    def obey(self, line: str) -> Any:
        name, *arguments = json.loads(line)
        for owner in (self, self.segment, self.machine):
            if hasattr(owner, name):
                return getattr(owner, name)(*arguments)
        raise LookupError(name)

    def serve(self) -> int:
        """Answer what has come, do what is due; return when something will be."""
        for port, raw in enumerate(self.sockets):
            while True:
                try:
                    frame = raw.recv(2048)
                except (BlockingIOError, OSError):
                    break
                if self._cut_in and (self._cut_counts_all or frame[_COMMAND] == _LRW):
                    self._cut_in -= 1
                    if not self._cut_in:
                        self.segment.cut(0)
                if self._process_data_to_drop and frame[_COMMAND] == _LRW:
                    self._process_data_to_drop -= 1
                    continue
                self.send(self.segment.exchange(frame, port, time.monotonic_ns()))
                for (slave, address), (value, mask) in self._held.items():
                    register = self.segment.memory[slave, address]
                    self.segment.memory[slave, address] = int(register) & ~mask & 0xFF | value & mask
        now_ns = time.monotonic_ns()
        self.send(self.segment.released(now_ns))
        return self.segment.tick(now_ns)

    def send(self, answers: list[tuple[int, bytes]]) -> None:
        for port, frame in answers:
            whole = frame if self._signed is None or frame[_COMMAND] != _LRW else self._sign(frame, *self._signed)
            for sent in [whole] if self._spoiler is None else self._spoiler(whole):
                with contextlib.suppress(OSError):  # the link is down, or nobody takes so many
                    self.sockets[port].send(sent)

    def _sign(self, frame: bytes, first: int, each: int, at: int) -> bytes:
        self._signature = (self._signature + 1) % 1_000_000
        signed = bytearray(frame)
        for drive in range(len(self.machine.drives)):
            place = _DATA + first + drive * each + at
            signed[place : place + 8] = struct.pack("<ii", *signature(self._signature, drive))
        return bytes(signed)

    def run(self) -> None:
        os.set_blocking(0, False)
        pending = b""
        while True:
            wait_s = min(max((self.serve() - time.monotonic_ns()) * 1e-9, 0.0), 0.1)
            if 0 not in select.select([*self.sockets, 0], [], [], wait_s)[0]:
                continue
            data = os.read(0, 4096)
            if not data:
                return
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                print(json.dumps(self.obey(line.decode())), flush=True)


if __name__ == "__main__":
    process = Process(**json.loads(sys.argv[1]))
    print("ready", flush=True)
    process.run()
