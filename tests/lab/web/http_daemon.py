"""The daemon that tests of HTTP ask: an arm at work, and one at the end of its recording."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from service.client import Control
from service.supervisor.launch import DaemonProcess
from tests.lab.daemon.daemons import config, make_recording, replayed, start
from tests.lab.web.http_client import Answer, await_answer


@dataclass(frozen=True)
class Running:
    daemon: DaemonProcess
    url: str
    path: Path
    held: Answer  # to /readyz, before the source was let go


@contextlib.contextmanager
def two_arms(path: Path) -> Iterator[Running]:
    """An arm that is replayed for ever and recorded, held at first, and one whose recording is soon at its end."""
    recording = make_recording(path / "rec.mcap")
    recorder = {"directory": str(path / "recorded")}
    arms = (
        replayed(recording, loop=True, hold=True, recorder=recorder, publish={"estimate_hz": 2.0}),  # one is always due
        replayed(recording, "over", speed="max"),
    )
    daemon = start(config(path, *arms, http=True, http_port=0), path)
    url = daemon.endpoints["http"]
    try:
        held = await_answer(url, "/readyz", lambda answer: b"is held" in answer.body)
        with Control(daemon.endpoints["control"]) as control:
            control.request("start", arm="axis")
        await_answer(url, "/readyz", lambda answer: answer.status == 200)
        yield Running(daemon, url, path, held)
    finally:
        daemon.stop()
