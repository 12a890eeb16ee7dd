"""Faults for a soak, drawn by a seed, one after the other: each has to be got over before the next one comes."""

import contextlib
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.soak_clients import Client
from service.client import Subscriber

#: What is counted so soon after a fault may still be its consequence [s]: status and clients tell once a second.
AFTER_S = 5.0
#: What a recording lacks so long before a fault may be lost by it [s]: the chunk that was being filled, of half a
#: second, and frames that waited for the recorder.
BEFORE_S = 3.0
#: A subscriber that slept finds out later: first it has to work off what was kept for it.
DRAIN_S = 60.0
VISITORS = 50
CONNECTIONS = 10
#: Roles of which no process is ended in the first half of a soak, and in the second: the memory of a process says
#: something only where it lives for long.
SPARED = (("recorder", "jobs", "web"), ("acquisition", "estimator", "gateway"))
KINDS = ("kill", "pause", "hang", "torn state", "visitors", "noise", "sleeping subscriber")

Processes = Mapping[str, Mapping[str, Any]]


@dataclass
class Fault:
    """One fault: `until_s` is infinite as long as it is not over; times on CLOCK_MONOTONIC."""

    kind: str
    target: str
    touches: tuple[str, ...]  # who may lose messages, or get no answer, by it
    at_s: float
    until_s: float = float("inf")
    after_s: float = AFTER_S
    pid: int = 0  # of the process that ends by it; 0: none does

    def explains(self, reader: str, since_s: float, t_s: float) -> bool:
        """Tell whether what `reader` has lost between two looks may be due to it."""
        return reader in self.touches and self.at_s <= t_s and since_s <= self.until_s + self.after_s


def windows(faults: Sequence[Fault], reader: str) -> list[tuple[float, float]]:
    """Begin and end [s] of the times in which a reader may lack frames, in order; joined where they overlap."""
    found: list[tuple[float, float]] = []
    for fault in sorted((fault for fault in faults if reader in fault.touches), key=lambda fault: fault.at_s):
        begin, end = fault.at_s - BEFORE_S, fault.until_s + fault.after_s
        if found and begin <= found[-1][1]:
            begin, end = found[-1][0], max(end, found.pop()[1])
        found.append((begin, end))
    return found


class Faults:
    """Brings faults about.

    Parameters
    ----------
    seed : int
    endpoints : mapping
        The daemon's.
    state : Path
        The daemon's state directory.
    clients : mapping of str to Client
    spacing_s : float
        Mean time from the end of a fault to the next.
    patience_s : float
        Longest time until all is as before; a process may have to be noticed as hanging first.
    """

    def __init__(
        self,
        seed: int,
        endpoints: Mapping[str, str],
        state: Path,
        clients: Mapping[str, Client],
        spacing_s: float,
        patience_s: float,
    ) -> None:
        self.done: list[Fault] = []
        self.problems: list[str] = []
        self._random = random.Random(seed)
        self._endpoints, self._state, self._clients = endpoints, state, clients
        self._spacing_s, self._patience_s = spacing_s, patience_s
        self._ways: dict[str, Callable[[Processes], Fault]] = {
            "kill": self._kill,
            "pause": self._pause,
            "hang": self._hang,
            "torn state": self._tear,
            "visitors": self._visit,
            "noise": self._send_noise,
            "sleeping subscriber": self._let_sleep,
        }
        self.spared: tuple[str, ...] = ()  # roles whose processes are not ended for the time being
        self._left: list[str] = []  # kinds that are still to come in this round
        self._next_s = time.monotonic() + self._wait()
        self._sleep: tuple[threading.Timer, int] | None = None  # which process stands, and what lets it go on
        self._gone = 0  # process that has to be replaced by another

    def explained(self, reader: str, since_s: float, t_s: float) -> bool:
        """Tell whether a fault explains what `reader` has lost between two looks."""
        return any(fault.explains(reader, since_s, t_s) for fault in self.done[-20:])

    @property
    def under_way(self) -> Fault | None:
        """The fault that is not over."""
        return self.done[-1] if self.done and self.done[-1].until_s == float("inf") else None

    def step(self, processes: Processes, *, more: bool = True) -> None:
        """Look at the present fault, and bring the next about when its time has come and `more` are wanted."""
        now = time.monotonic()
        if self._sleep is not None and not self._sleep[0].is_alive():
            self._sleep = None
        fault = self.under_way
        if fault is not None:
            self._look(fault, processes, now)
        elif more and now >= self._next_s and _all_ready(processes):
            if not self._left:
                self._left = self._random.sample(KINDS, len(KINDS))
            kind = self._left.pop()
            if kind != "torn state" or "estimator" not in self.spared:  # it ends an estimator as well
                self.done.append(self._ways[kind](processes))

    def release(self) -> None:
        """Let everything go on that still stands."""
        if self._sleep is not None:
            self._sleep[0].cancel()
            _signal(self._sleep[1], signal.SIGCONT)
            self._sleep = None

    def _look(self, fault: Fault, processes: Processes, now: float) -> None:
        replaced = not self._gone or processes.get(fault.target, {}).get("pid") != self._gone
        if self._sleep is None and replaced and _all_ready(processes):
            fault.until_s = now
            self._gone = 0
            self._next_s = now + self._wait()
        elif now - fault.at_s > self._patience_s:
            states = ", ".join(f"{name} {p['state']}" for name, p in processes.items() if p["state"] != "ready")
            late = f"not got over within {self._patience_s:g} s"
            self.problems.append(f"{late}: {fault.kind} of {fault.target} ({states})")
            fault.until_s = now
            self._next_s = now + self._wait()

    def _wait(self) -> float:
        return self._random.uniform(0.5, 1.5) * self._spacing_s

    def _draw(self, processes: Processes, role: str = "", *, spare: bool = True) -> tuple[str, int]:
        spared = self.spared if spare else ()
        names = sorted(name for name in processes if name.endswith(role) and name.rpartition("/")[2] not in spared)
        name = self._random.choice(names)
        return name, int(processes[name]["pid"])  # never 0, which is the soak's own group: all are ready

    # ------------------------------------------------------------ kinds

    def _kill(self, processes: Processes) -> Fault:
        name, self._gone = self._draw(processes)
        _signal(self._gone, signal.SIGKILL)
        return Fault("kill", name, _touched(name, processes), time.monotonic(), pid=self._gone)

    def _pause(self, processes: Processes) -> Fault:
        """Too short to be taken for a hang, and for anything to be lost: what comes meanwhile waits."""
        name, pid = self._draw(processes, spare=False)
        self._let_stand(pid, self._random.uniform(0.2, 2.0))
        return Fault("pause", name, (), time.monotonic())

    def _hang(self, processes: Processes) -> Fault:
        name, self._gone = self._draw(processes)
        _signal(self._gone, signal.SIGSTOP)
        return Fault("hang", name, _touched(name, processes), time.monotonic(), pid=self._gone)

    def _tear(self, processes: Processes) -> Fault:
        """The saved state of an estimator loses its end, as if power had failed, and the estimator is killed."""
        name, self._gone = self._draw(processes, "/estimator")
        _signal(self._gone, signal.SIGSTOP)  # so that it does not save once more
        path = self._state / name.partition("/")[0] / "estimator.state"
        with contextlib.suppress(FileNotFoundError):
            os.truncate(path, self._random.randrange(path.stat().st_size + 1))
        _signal(self._gone, signal.SIGKILL)
        return Fault("torn state", name, _touched(name, processes), time.monotonic(), pid=self._gone)

    def _let_stand(self, pid: int, for_s: float) -> None:
        """Stop a process for a while: a turn of the soak's loop may take longer, as when it recovers a recording."""
        timer = threading.Timer(for_s, _signal, (pid, signal.SIGCONT))
        timer.daemon = True
        self._sleep = timer, pid
        _signal(pid, signal.SIGSTOP)
        timer.start()

    def _visit(self, processes: Processes) -> Fault:  # noqa: ARG002
        lane = self._random.choice(("frames", "estimates"))
        began = time.monotonic()
        for _ in range(VISITORS):
            with Subscriber(self._endpoints[lane], [""]):
                pass
        return Fault("visitors", lane, (), began)

    def _send_noise(self, processes: Processes) -> Fault:  # noqa: ARG002
        """Random bytes to every public port."""
        began = time.monotonic()
        for endpoint in self._endpoints.values():
            place = urlsplit(endpoint)
            for _ in range(CONNECTIONS):
                with contextlib.suppress(OSError), socket.create_connection((place.hostname, place.port), 5.0) as raw:
                    raw.sendall(self._random.randbytes(self._random.randrange(1, 3000)))
        return Fault("noise", "every port", (), began)

    def _let_sleep(self, processes: Processes) -> Fault:  # noqa: ARG002
        client = self._clients["sleeper"]
        self._let_stand(client.process.pid, self._random.uniform(5.0, 15.0))
        return Fault("sleeping subscriber", client.name, ("sleeper",), time.monotonic(), after_s=DRAIN_S)


def _all_ready(processes: Processes) -> bool:
    """Tell whether each process is there; one that waits for its next start has the id 0."""
    return all(process["state"] == "ready" and int(process["pid"]) > 0 for process in processes.values())


def _signal(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process, which may have ended since it was asked for."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _touched(name: str, processes: Processes) -> tuple[str, ...]:
    """Who may lack something when a process is killed or stands still."""
    arm, _, role = name.rpartition("/")
    if role == "gateway":
        return "frames", "estimates", "sleeper"
    if role == "web":
        return "browser", "dashboard"
    if role == "acquisition":
        readers = [reader for reader in processes if reader in (f"{arm}/estimator", f"{arm}/recorder")]
        return *readers, "frames", "sleeper"
    return (name,) if role in ("estimator", "recorder") else ()
