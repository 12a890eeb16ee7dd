"""Processes that use a queue's file, for tests that kill them.

python -m tests.lab.jobs.store_run commit|make|claim FILE [ARGUMENTS]
"""

import functools
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from service.jobs.queue.queue import Queue, Submission
from service.jobs.queue.state import Job
from service.jobs.queue.store import Event, Store, StoreError

ROOT = Path(__file__).resolve().parents[3]


def text_of(number: int) -> str:
    """What job `number` is given, from which it can be told whether it is whole."""
    return f"{number} " * (1 + number * 37 % 400)


def start(*arguments: object) -> subprocess.Popen[str]:
    """Start one of the processes below."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.lab.jobs.store_run", *map(str, arguments)],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def say(*words: object) -> None:
    print(*words, flush=True)


def commit(path: Path) -> None:
    """Submit jobs, run some of them, and print what has been committed, for ever."""
    queue = Queue(Store(path))
    while True:
        with queue.store.write() as tx:  # two rows, which belong together
            last = tx.last_numbers().get("jobs", 0)
            tx.add(Event(last + 1, "test", text_of(last + 1)))
        (job,) = queue.submit(Submission("test", {"text": text_of(last + 1)}))
        say("submitted", job.id)
        if job.id % 3 == 0 and (claimed := queue.claim("writer", 60.0)) is not None:
            say("claimed", claimed.id, claimed.token)
            if claimed.id % 2:
                queue.finish(claimed.id, claimed.token, {"verdict": "ok", "summary": text_of(claimed.id)})
                say("succeeded", claimed.id, claimed.token)


def make(folder: Path) -> None:
    """Make a queue and delete it, for ever."""
    say("ready")
    while True:
        Store(folder / "queue.db").close()
        (folder / "queue.db").unlink()


def claim(path: Path, owner: str) -> None:
    """Claim and finish jobs until there are none; says which."""
    queue = Queue(Store(path))
    say("ready")
    sys.stdin.readline()
    while (job := patiently(lambda: queue.claim(owner, 60.0))) is not None:
        say(job.id)
        time.sleep(0.002)  # so that the other one has a turn
        patiently(functools.partial(queue.finish, job.id, job.token, {"verdict": "ok", "summary": owner}))


def patiently(step: Callable[[], Job | None]) -> Job | None:
    """Do something again while the other process is in the way."""
    while True:
        try:
            return step()
        except StoreError as error:
            if "locked" not in str(error):
                raise


if __name__ == "__main__":
    what: dict[str, Callable[..., None]] = {"commit": commit, "make": make, "claim": claim}
    what[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
