"""Clients of a daemon in a soak, each a process of its own: they listen, listen slowly, or look at it by HTTP.

python benchmarks/soak_clients.py {steady,slow,browser,dashboard} ENDPOINT FILE

Each appends one JSON line a second to FILE: the time [s, CLOCK_MONOTONIC], and what it has counted until then; the last
line, after SIGTERM, has the histogram of what it has measured.
"""

import argparse
import contextlib
import http.client
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import urlsplit

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.dashboard_page import AGAIN_S, Page
from service.client import ClientTimeoutError, EstimateMessage, FrameMessage, Subscriber
from service.worker.resources import release_memory

#: What the browser asks for in turn.
PATHS = ("/healthz", "/readyz", "/metrics")
BROWSE_S = 0.5
SLOW_S = 0.002  # for each message: half as fast as the frames of one arm come
GIVE_BACK = 20  # ticks
#: Edges of the bins of a latency [s], one percent apart.
EDGES = np.geomspace(1e-6, 1e3, 2084)
PERCENTILES = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99.9": 99.9}

_ended: list[int] = []


class Diary:
    """Writes what a client counts, once a second, and sorts what it measures into bins."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._next = time.monotonic() + 1.0
        self._ticks = 0
        self._now: list[float] = []  # measured since the last line
        self._bins: np.ndarray[Any, np.dtype[np.int64]] = np.zeros(EDGES.size + 1, dtype=np.int64)
        self._largest = 0.0

    def measure(self, seconds: float) -> None:
        """Take a latency."""
        self._now.append(seconds)

    def tick(self, **counts: Any) -> None:
        """Write a line if a second has passed; now and then give back what messages took that had to wait.

        What is looked for is memory that the client library holds, not what the allocator keeps.
        """
        if time.monotonic() >= self._next:
            self._next += 1.0
            self._ticks += 1
            if self._ticks % GIVE_BACK == 0:
                release_memory()
            self.line(**counts)

    def line(self, **counts: Any) -> None:
        """Write a line."""
        found = np.array(self._now)
        self._now.clear()
        if found.size:
            np.add.at(self._bins, np.searchsorted(EDGES, found), 1)
            self._largest = max(self._largest, float(found.max()))
            counts |= {"p50": float(np.median(found)), "largest": float(found.max())}
        self._file.write(json.dumps({"t": time.monotonic(), **counts}) + "\n")
        self._file.flush()

    def end(self, **counts: Any) -> None:
        """Write the last line."""
        self.line(**counts, percentiles=percentiles(self._bins, self._largest))


def percentiles(bins: np.ndarray[Any, np.dtype[np.int64]], largest: float) -> dict[str, float]:
    """Latencies [s] below which so many percent lie, to one percent; empty if there is none."""
    total = int(bins.sum())
    if not total:
        return {}
    passed = np.cumsum(bins)
    places = {name: int(np.searchsorted(passed, percent / 100.0 * total)) for name, percent in PERCENTILES.items()}
    found = {name: float(min(EDGES[min(place, EDGES.size - 1)], largest)) for name, place in places.items()}
    return found | {"max": largest, "count": float(total)}


def listen(endpoint: str, diary: Diary, pause_s: float) -> None:
    """Receive everything; `pause_s` is slept after each message."""
    with Subscriber(endpoint, [""]) as stream:

        def counted() -> dict[str, int]:
            found = stream.counts.values()
            whole = {"received": sum(c.received for c in found), "repeated": sum(c.repeated for c in found)}
            return whole | {"lost": stream.lost, "invalid": stream.invalid, "epochs": sum(c.epochs for c in found)}

        while not _ended:
            with contextlib.suppress(ClientTimeoutError):
                message = stream.receive(0.2)
                if isinstance(message, (FrameMessage, EstimateMessage)):
                    diary.measure(stream.age_s(message))
                if pause_s:
                    time.sleep(pause_s)
            diary.tick(**counted())
        diary.end(**counted())


def browse(url: str, diary: Diary) -> None:
    """Ask for each of `PATHS` in turn; `missed` counts requests without an answer."""
    place = urlsplit(url)
    answers: Counter[str] = Counter()
    missed = 0
    turn = 0
    while not _ended:
        path = PATHS[turn % len(PATHS)]
        turn += 1
        began = time.monotonic()
        connection = http.client.HTTPConnection(place.netloc, timeout=10.0)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            response.read()
            answers[f"{path} {response.status}"] += 1
            diary.measure(time.monotonic() - began)
        except (OSError, http.client.HTTPException):
            missed += 1
        finally:
            connection.close()
        diary.tick(answers=dict(answers), missed=missed)
        time.sleep(BROWSE_S)
    diary.end(answers=dict(answers), missed=missed)


def look_on(url: str, diary: Diary) -> None:
    """Be a page of the dashboard that stays open; `missed` counts questions without an answer."""
    page = Page(url)
    missed = 0

    def counted() -> dict[str, Any]:
        return {"answers": dict(page.answers), "missed": missed, "updates": page.updates, "epochs": page.epochs}

    while not _ended:
        try:
            took = page.look()
        except (OSError, http.client.HTTPException):
            missed += 1
            page.forget()
            took = None
        if took is None:
            time.sleep(AGAIN_S)
        else:
            diary.measure(took)
        diary.tick(**counted())
    page.close()
    diary.end(**counted())


class Client:
    """A client process as the soak sees it."""

    def __init__(self, name: str, kind: str, endpoint: str, directory: Path) -> None:
        self.name, self.kind = name, kind
        self.path = directory / f"{name.replace(' ', '_')}.jsonl"
        self.path.touch()
        self.process = subprocess.Popen([sys.executable, __file__, kind, endpoint, str(self.path)])

    def lines(self) -> Iterator[dict[str, Any]]:
        """What it has written so far."""
        for line in self.path.read_text(encoding="utf-8").splitlines(keepends=True):
            if line.endswith("\n"):
                yield json.loads(line)

    def newest(self) -> dict[str, Any]:
        """What it wrote last; empty before the first line."""
        with self.path.open("rb") as file:
            file.seek(max(0, self.path.stat().st_size - 20_000))
            whole = [line for line in file.read().split(b"\n")[:-1] if line.startswith(b"{") and line.endswith(b"}")]
        return dict(json.loads(whole[-1])) if whole else {}

    def stop(self) -> dict[str, Any]:
        """End it and return its last line."""
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            self.process.wait(20.0)
        finally:
            self.process.kill()
            self.process.wait()
        return self.newest()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=("steady", "slow", "browser", "dashboard"))
    parser.add_argument("endpoint")
    parser.add_argument("file", type=Path)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: _ended.append(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with arguments.file.open("a", encoding="utf-8") as file:
        diary = Diary(file)
        if arguments.kind == "browser":
            browse(arguments.endpoint, diary)
        elif arguments.kind == "dashboard":
            look_on(arguments.endpoint, diary)
        else:
            listen(arguments.endpoint, diary, SLOW_S if arguments.kind == "slow" else 0.0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
