"""A daemon for tests of HTTP: an arm at work, and one at the end of its recording."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.lab.daemon.daemons import make_recording, replayed
from tests.lab.daemon.shared import Site, site
from tests.lab.web.http_client import Answer, await_answer


@dataclass
class Running(Site):
    """With the answer to /readyz before the source was let go."""

    held: Answer | None = None


@contextlib.contextmanager
def two_arms(path: Path) -> Iterator[Running]:
    """An arm that is replayed for ever and recorded, held at first, and one whose recording is soon at its end."""
    recording = make_recording(path / "rec.mcap")
    recorder = {"directory": str(path / "recorded")}
    arms = (
        replayed(recording, loop=True, hold=True, recorder=recorder, publish={"estimate_hz": 2.0}),  # one is always due
        replayed(recording, "over", speed="max"),
    )
    with site(path, *arms, http=True, http_port=0) as found:
        held = await_answer(found.url, "/readyz", lambda answer: b"is held" in answer.body)
        with found.control() as control:
            control.request("start", arm="axis")
        await_answer(found.url, "/readyz", lambda answer: answer.status == 200)
        yield Running(found.daemon, path, held=held)
