"""The queue's file: what was committed is there after a kill, and what is wrong with it or its disk is said."""

import contextlib
import itertools
import random
import sqlite3
import time
from pathlib import Path

import pytest

from service.jobs.queue.queue import Queue, Submission
from service.jobs.queue.salvage import salvage
from service.jobs.queue.store import Event, Store, StoreCorruptError, StoreError, StoreVersionError, Transaction
from tests.lab.jobs.store_run import start, text_of

KILLS, PATIENCE_S = 12, 60.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.db"


def read_back(path: Path, said: list[list[str]]) -> int:
    """Compare the file with what its writer has said; returns how many jobs there are."""
    store = Store(path)
    try:
        with store.read() as tx:
            jobs = {job.id: job for job in tx.jobs()}
            events = [event for event in tx.events(limit=-1) if event.kind == "test"]
    finally:
        store.close()
    assert list(jobs) == list(range(1, len(jobs) + 1))  # none is missing or half there
    told = list(dict.fromkeys(event.t_ns for event in events))  # twice, where a kill came before the job
    assert told[: len(jobs)] == list(jobs)
    assert len(told) <= len(jobs) + 1
    assert all(event.text == text_of(event.t_ns) for event in events)
    for id, job in jobs.items():
        assert job.parameters["text"] == text_of(id)
        assert (job.state == "succeeded") == (job.outcome is not None)
        assert job.outcome is None or job.outcome["summary"] == text_of(id)
    order = {"submitted": 0, "queued": 0, "claimed": 1, "running": 1, "succeeded": 2}
    newest = {int(id): (what, numbers) for what, id, *numbers in said}
    for id, (what, numbers) in newest.items():
        assert order[jobs[id].state] >= order[what]
        assert jobs[id].token >= int(numbers[0] if numbers else 0)
    return len(jobs)


@pytest.mark.slow
def test_what_was_committed_survives_kills(path: Path) -> None:
    """One file, and a writer that is killed at any moment, again and again."""
    rng = random.Random(11)
    said: list[list[str]] = []
    for _ in range(KILLS):
        process = start("commit", path)
        said += [line.split() for line in itertools.islice(process.stdout, rng.randrange(1, 25))]
        time.sleep(rng.uniform(0.0, 0.005))  # into one of the commits that follow
        process.kill()
        said += [line.split() for line in process.stdout if line.endswith("\n")]
        process.communicate(timeout=PATIENCE_S)
        there = read_back(path, said)
    assert there >= KILLS


@pytest.mark.parametrize("seed", range(3))
def test_a_kill_while_the_file_is_made(tmp_path: Path, seed: int) -> None:
    """Wherever it stops, the next one goes on with a file that is whole."""
    rng = random.Random(seed)
    process = start("make", tmp_path)
    process.stdout.readline()
    time.sleep(rng.uniform(0.0, 0.02))
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    store = Store(tmp_path / "queue.db")
    (job,) = Queue(store).submit(Submission("test", {}))
    assert job.id == 1
    store.close()


def test_two_that_make_the_file_at_once(path: Path) -> None:
    """The second waits for the first, and finds the tables made."""

    class Overtaken(Store):
        def write(self) -> contextlib.AbstractContextManager[Transaction]:
            Store(path).close()
            return super().write()

    Overtaken(path).close()


def test_two_processes_claim_each_job_once(path: Path) -> None:
    queue = Queue(Store(path))
    queue.submit(*(Submission("test", {}) for _ in range(100)))
    processes = [start("claim", path, owner) for owner in ("one", "other")]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:  # both are there before either begins
        process.stdin.write("\n")
        process.stdin.flush()
    said = [process.communicate(timeout=PATIENCE_S)[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert sorted(int(id) for ids in said for id in ids) == list(range(1, 101))
    for owner, ids in zip(("one", "other"), said, strict=True):
        for job in map(queue.job, map(int, ids)):
            assert (job.state, job.token, (job.outcome or {})["summary"]) == ("succeeded", 1, owner)
    queue.store.close()


def test_a_newer_file_is_refused_and_left_alone(path: Path) -> None:
    Store(path).close()
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 99")
    database.close()
    before = path.read_bytes()
    with pytest.raises(StoreVersionError, match="version 99, this thetad knows 1: a newer thetad made it"):
        Store(path)
    assert path.read_bytes() == before


def test_files_that_are_none_of_ours(path: Path) -> None:
    with pytest.raises(StoreError, match=r"missing.*cannot be opened; the state directory is missing"):
        Store(path.parent / "missing" / "queue.db")
    path.write_text("not a database at all\n" * 100)
    with pytest.raises(StoreCorruptError, match="is damaged"):
        Store(path)
    path.unlink()
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE theirs (a)")
    database.close()
    with pytest.raises(StoreCorruptError, match="is not a queue of thetad"):
        Store(path)


def test_an_empty_file_with_a_log_is_damaged(path: Path) -> None:
    store = Store(path)
    Queue(store).submit(Submission("test", {}))
    log = path.with_name("queue.db-wal")
    content = log.read_bytes()
    store.close()
    path.write_bytes(b"")
    log.write_bytes(content)
    with pytest.raises(StoreCorruptError, match="is empty, and its log is not"):
        Store(path)
    assert log.read_bytes() == content  # SQLite would have deleted it
    log.unlink()
    Store(path).close()  # one that is only empty is new


def test_a_flipped_bit_of_the_log_undoes_no_later_commit(path: Path) -> None:
    """Wherever it is: it is noticed, and every job comes back."""
    store = Store(path)
    queue = Queue(store)
    for number in range(8):
        queue.submit(Submission("test", {"number": number}))
    log = path.with_name("queue.db-wal")
    content, main = log.read_bytes(), path.read_bytes()
    store.close()
    rng = random.Random(0)
    for at in [rng.randrange(len(content)) for _ in range(20)] + [3, 10, 17, 26, 36, 41, 52]:
        flipped = bytearray(content)
        flipped[at] ^= 1 << rng.randrange(8)
        path.write_bytes(main)
        log.write_bytes(flipped)
        with pytest.raises(StoreCorruptError, match="log is damaged"):
            Store(path)
        salvage(path)
        store = Store(path)
        assert Queue(store).counts() == {"queued": 8}, at
        store.close()
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE jobs SET state = 'done' WHERE id = 1")  # a column, which has no checksum
    with pytest.raises(StoreCorruptError, match="found as another one"):
        Store(path)


@pytest.mark.parametrize(("what", "last"), [("job", b"b"), ("event", b"b"), ("job", b"\xff")])
def test_a_row_that_was_altered_is_noticed(path: Path, what: str, last: bytes) -> None:
    """Also where the file's structure is whole."""
    store = Store(path)
    if what == "job":
        Queue(store).submit(Submission("test", {"text": "a" * 50}))
    else:
        Queue(store).note(Event(1, "test", "a" * 50))
    store.close()
    path.write_bytes(path.read_bytes().replace(b"a" * 50, b"a" * 49 + last))
    with pytest.raises(StoreCorruptError, match="holds a row that cannot be read: its checksum is wrong"):
        Store(path)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET body = CAST(body AS BLOB)",  # another type
        "ALTER TABLE jobs RENAME COLUMN due_ns TO dud_ns",  # a name in the file's description of its tables
    ],
)
def test_other_damage_that_leaves_the_structure_whole(path: Path, statement: str) -> None:
    store = Store(path)
    Queue(store).note(Event(1, "test", "a"))
    store.close()
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute(statement)
    with pytest.raises(StoreCorruptError, match=str(path)):
        Store(path)


def test_numbers_that_are_not_finite_do_not_spoil_lists(path: Path) -> None:
    """JSON has none, and SQLite reads what is stored as JSON."""
    store = Store(path)
    queue = Queue(store)
    queue.submit(Submission("test", {"a": float("nan"), "text": "\ud800 \u0000 é"}))
    job = queue.claim("me", 60.0)
    queue.finish(job.id, job.token, {"verdict": "ok", "summary": "", "metrics": {"z": float("inf")}})
    (job,) = queue.recent(kind="test")
    assert job.parameters == {"a": None, "text": "\ud800 \u0000 é"}
    assert job.outcome["metrics"] == {"z": None}
    store.close()


def test_backup_over_an_older_one_and_never_over_a_queue(path: Path, tmp_path: Path) -> None:
    store = Store(path)
    queue = Queue(store)
    copy = tmp_path / "copy.db"
    for count in (1, 2):
        queue.submit(Submission("test", {}))
        store.backup(copy)
        copied = Store(copy)
        assert len(list(Queue(copied).recent())) == count
        copied.close()
    with pytest.raises(StoreError, match="is a queue in use"):
        store.backup(path)
    other = Store(copy)
    Queue(other).submit(Submission("test", {}))
    with pytest.raises(StoreError, match="is a queue in use"):
        store.backup(copy)
    other.close()
    store.close()
