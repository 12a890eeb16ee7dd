"""Saving what can be read of a damaged queue: everything outside of the damage, in its newest state."""

import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.jobs._job_storage import JobStorage
from service.jobs.queue import salvage as salvage_module
from service.jobs.queue import state
from service.jobs.queue.queue import Queue, Submission
from service.jobs.queue.retention import purge
from service.jobs.queue.salvage import finish_salvage, salvage
from service.jobs.queue.store import Model, Promotion, Store, StoreCorruptError, StoreError, lost_commits

NAMES = ("queue.db", "queue.db-wal")
DAY_NS = 86_400_000_000_000
PAGE = 16384
FRAME = PAGE + 24  # of the log, behind a head of 32 bytes

Rows = dict[tuple[str, str], Any]
Places = dict[tuple[str, str], list[tuple[str, int, bytes]]]
Lived = tuple[Path, Rows, set[int], Places]


class Clock:
    def __init__(self) -> None:
        self.now_ns = 1_000 * DAY_NS

    def __call__(self) -> int:
        self.now_ns += 1_000_000
        return self.now_ns


def text(rng: random.Random) -> str:
    return "".join(rng.choices('abcdefgh "\\\n{}é€', k=rng.randrange(20, 900)))


def live(queue: Queue, rng: random.Random, clock: Clock, jobs: int) -> None:
    """Use a queue in all ways."""
    for k in range(jobs):
        arm = f"arm{k % 2}"
        submission = Submission("test", {"text": text(rng)}, arm, parts=[{}] * (3 if k % 9 == 0 else 0))
        (job,) = queue.submit(submission)
        for _ in range(rng.randrange(3)):
            held = queue.claim("me", 60.0)
            if held is None:
                break
            clock.now_ns += 10**9
            queue.renew({held.id: held.token}, 60.0)
            match rng.randrange(5):
                case 0:
                    queue.fail(held.id, held.token, text(rng), text(rng), final=rng.random() < 0.3)
                case 1:
                    queue.interrupt(held.id, held.token, text(rng))
                case 2:
                    continue  # runs on
                case _:
                    sha = f"{held.id:064x}"
                    outcome = {"verdict": "ok", "summary": text(rng), "part": {}}
                    model = Model(sha, arm, clock(), held.id, "wls", "ok", 0.1)
                    promotion = Promotion(clock(), arm, sha, queue.history.active(arm), "promoted", held.id)
                    alone = held.parent is None
                    queue.finish(
                        held.id, held.token, outcome, model=model if alone else None,
                        promotion=promotion if alone and k % 4 == 0 else None,
                    )  # fmt: skip
        if k % 13 == 5 and not queue.job(job.id).finished:
            queue.cancel(job.id)
            if queue.job(job.id).state == "cancelled" and k % 2:
                queue.retry(job.id)
        if k % 17 == 3 and queue.history.active(arm) is not None:
            queue.history.roll_back(arm, text(rng))


def truth(store: Store) -> Rows:
    with store.read() as tx:
        rows: Rows = {("jobs", str(job.id)): job for job in tx.jobs()}
        rows |= {("models", f"{model.id} {model.arm}"): model for model in tx.models()}
        rows |= {("promotions", str(entry.id)): entry for entry in tx.promotions()}
        return rows | {("events", str(event.id)): event for event in tx.events(limit=-1)}


@pytest.fixture(scope="module")
def lived(folder: Path) -> Lived:
    """Folder with a queue as a kill leaves it, a part of it in the log only; what is in it; what was purged."""
    rng, clock = random.Random(5), Clock()
    store = Store(folder / "at_work.db")
    queue = Queue(store, clock)
    live(queue, rng, clock, 120)
    clock.now_ns += 100 * DAY_NS
    before = {int(id) for table, id in truth(store) if table == "jobs"}
    live(queue, rng, clock, 100)
    purge(queue.store, queue.clock(), 50.0, 10_000)
    live(queue, rng, clock, 80)
    rows = truth(store)
    for name in NAMES:
        shutil.copyfile(folder / name.replace("queue", "at_work"), folder / name)
    store.close()
    purged = before - {int(id) for table, id in rows if table == "jobs"}
    assert len(purged) > 20
    assert sum(table == "jobs" for table, _ in rows) > 200
    return folder, rows, purged, places_of(folder / "queue.db")


@pytest.fixture
def path(lived: Lived, tmp_path: Path) -> Path:
    for name in NAMES:
        shutil.copyfile(lived[0] / name, tmp_path / name)
    return tmp_path / NAMES[0]


def spoil(path: Path, *marks: str) -> None:
    """Write zeros over the beginning of each of these texts."""
    content = bytearray(path.read_bytes())
    for mark in marks:
        at = content.find(mark.encode())
        content[at : at + 4] = b"\0" * 4
    path.write_bytes(content)


def contents(path: Path) -> dict[str, bytes]:
    return {
        s: path.with_name(path.name + s).read_bytes() for s in ("", "-wal") if path.with_name(path.name + s).exists()
    }


def places_of(path: Path) -> Places:
    """Where in the undamaged files the newest text of each row stands in one piece."""
    folder = path.parent / "look"
    shutil.copytree(path.parent, folder)
    database = sqlite3.connect(folder / path.name)
    found = {}
    for table, key in {"jobs": "id", "models": "id || ' ' || arm", "promotions": "id", "events": "id"}.items():
        for id, body in database.execute(f"SELECT {key}, body FROM {table}").fetchall():
            there = ((suffix, content.find(body.encode()), body.encode()) for suffix, content in contents(path).items())
            found[table, str(id)] = [place for place in there if place[1] >= 0]
    database.close()
    shutil.rmtree(folder)
    return found


def header(rng: random.Random, main: bytearray, log: bytearray) -> None:
    """Of the file, and of its newer copies in the log."""
    main[:100] = rng.randbytes(100)
    for frame in range(32, len(log), FRAME):
        if int.from_bytes(log[frame : frame + 4]) == 1:
            log[frame + 24 : frame + 124] = rng.randbytes(100)


def pages_zeroed(rng: random.Random, main: bytearray, log: bytearray) -> None:
    for page in rng.sample(range(1, len(main) // PAGE), 6):
        main[page * PAGE : (page + 1) * PAGE] = bytes(PAGE)


def random_bytes(rng: random.Random, main: bytearray, log: bytearray) -> None:
    for content in (main, log):
        for _ in range(200):
            content[rng.randrange(len(content))] = rng.randrange(256)


def log_torn(rng: random.Random, main: bytearray, log: bytearray) -> None:
    """Both: SQLite takes a torn log for one that ends there, which is no damage."""
    del log[rng.randrange(len(log) // 2, len(log)) :]
    header(rng, main, log)


def emptied(rng: random.Random, main: bytearray, log: bytearray) -> None:
    main.clear()


def other_text(rng: random.Random, main: bytearray, log: bytearray) -> None:
    main[:] = b"This is no queue.\n" * 1000


DAMAGES = [header, pages_zeroed, random_bytes, log_torn, emptied, other_text]
Damage = Callable[[random.Random, bytearray, bytearray], None]


@pytest.mark.parametrize("size", [0, 1, 5, 31])
def test_a_log_that_has_hardly_begun_holds_nothing(size: int, tmp_path: Path) -> None:
    log = tmp_path / "queue.db-wal"
    log.write_bytes(b"\x37" * size)
    assert lost_commits(log, 4096) == 0


def damage(path: Path, how: Damage) -> None:
    main, log = (bytearray(content) for content in contents(path).values())
    how(random.Random(0), main, log)
    path.write_bytes(main)
    path.with_name("queue.db-wal").write_bytes(log)


def as_it_is(path: Path) -> Rows | None:
    """What is read when the file is opened as it is; None if the damage is noticed."""
    keep = path.parent / "keep"
    keep.mkdir()
    for name in NAMES:
        shutil.copyfile(path.with_name(name), keep / name)
    try:
        store = Store(keep / path.name)
        try:
            return truth(store)
        finally:
            store.close()
    except StoreCorruptError:
        return None
    finally:
        shutil.rmtree(keep)


@pytest.mark.slow
@pytest.mark.parametrize("how", DAMAGES)
def test_what_is_outside_of_the_damage_comes_back(how: Damage, path: Path, lived: Lived) -> None:
    _, rows, purged, places = lived
    damage(path, how)
    if (rows_as_it_is := as_it_is(path)) is not None:
        assert rows_as_it_is == rows  # the damage was where nothing was, or the log has a newer page
        assert how is pages_zeroed
    before = contents(path)
    there = {
        key
        for key, where in places.items()
        if any(before[suffix][at : at + len(body)] == body for suffix, at, body in where)
    }
    result = salvage(path)

    assert contents(result.damaged) == before  # unchanged
    store = Store(path)
    found = truth(store)
    assert result.rows == {t: n for t in ("jobs", "models", "promotions", "events")
                           if (n := sum(table == t for table, _ in found))}  # fmt: skip
    lost = {key for key, row in rows.items() if found.get(key) != row}
    assert not lost & there  # what is lost is what was damaged
    older = {key for key in lost if key in found}
    for key in older:  # only where just an older state was left; it is one that was
        assert key[0] == "jobs"
        assert found[key].created_ns == rows[key].created_ns
    assert set(found) <= set(rows)  # nothing that never was or was deleted
    assert not purged & {int(id) for table, id in found if table == "jobs"}
    if how is header:
        assert len(lost) < 0.3 * len(rows)
    jobs = {int(id) for table, id in rows if table == "jobs"}
    saved = {int(id) for table, id in found if table == "jobs"}
    if saved:
        assert set(result.missing) >= {id for id in jobs - saved if min(saved) < id < max(saved)}

    for arm in ("arm0", "arm1"):  # promotions keep their order
        order = [entry.t_ns for entry in Queue(store).history.promotions(arm)]
        assert order == sorted(order)
    (new,) = Queue(store).submit(Submission("test", {}))
    assert new.id > max(saved, default=0)
    if found:
        assert new.id > max(jobs) or how in (log_torn, emptied, other_text)  # numbers go on
    store.close()


def test_rows_that_are_spread_over_pages_are_read_by_sqlite(tmp_path: Path) -> None:
    """Longer than a page: in pieces, which a search of the bytes does not put together."""
    path = tmp_path / "queue.db"
    store = Store(path)
    queue = Queue(store)
    rng = random.Random(1)
    for k in range(40):
        queue.submit(Submission("test", {"text": text(rng) * (100 if k % 2 else 1)}))
    rows = truth(store)
    store.close()
    spoil(path, '"id":20,"kind"')
    assert salvage(path).rows["jobs"] == 39
    store = Store(path)
    found = truth(store)
    store.close()
    assert {key for key in rows if found.get(key) != rows[key]} == {("jobs", "20")}


def test_a_kill_in_the_middle_of_a_salvage(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it stops, opening goes on from there, and the damaged file stays whole."""
    damage(path, header)
    before = contents(path)

    class Killed(BaseException):
        pass

    steps = 0
    rename = Path.rename

    def stop(self: Path, target: Path) -> Path:
        nonlocal steps
        steps += 1
        if steps == last:
            raise Killed
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", stop)
    for last in range(1, 5):
        steps = 0
        folder = path.parent / str(last)
        folder.mkdir()
        for name in NAMES:
            shutil.copyfile(path.with_name(name), folder / name)
        with pytest.raises(Killed):
            JobStorage.open(folder)
        steps = -100
        storage = JobStorage.open(folder)
        rows = truth(storage.queue.store)
        storage.close()
        assert contents(folder / "queue.db.bad1") == before
        assert len(rows) > 100
        assert not list(folder.glob("*.bad2*"))


def test_a_second_damage_is_set_aside_beside_the_first(path: Path) -> None:
    for number in (1, 2):
        damage_main(path)
        assert salvage(path).damaged.name == f"queue.db.bad{number}"
    assert not path.with_name("queue.db.salvaged").exists()
    finish_salvage(path)  # which has nothing to do
    assert path.exists()


def damage_main(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[:50] = bytes(50)
    path.write_bytes(content)


def test_without_room_the_damaged_file_keeps_its_name(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damage_main(path)
    before = contents(path)

    def full(*_: object) -> None:
        raise StoreError("no room")

    monkeypatch.setattr(salvage_module, "_fill", full)
    with pytest.raises(StoreError, match="no room"):
        salvage(path)
    assert contents(path) == before
    assert {file.name for file in path.parent.iterdir()} == set(NAMES)


def test_jobs_whose_parts_were_lost_end_and_can_be_retried(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    store = Store(path)
    queue = Queue(store)
    queue.submit(Submission("test", {"name": "divided"}, parts=[{}, {}, {}]))
    queue.submit(Submission("test", {"name": "lost"}, parts=[{}, {}]))
    queue.submit(Submission("test", {"name": "later"}))
    store.close()
    spoil(path, '"id":3,"kind"', '"id":5,"kind"')  # a part of the first, and the whole of the second
    assert salvage(path).missing == (3, 5)
    store = Store(path)
    queue = Queue(store)
    later = queue.claim("me", 60.0)
    assert later.id == 8
    queue.hand_back(later.id, later.token, "for the others")
    assert {job.id: job.state for job in queue.recent()} == {1: "cancelled", 8: "queued"}
    assert queue.job(1).reason == "1 of its 3 parts were lost when the queue was damaged; retry it"
    assert queue.job(6).reason == "job 5, of which it is a part, is gone"
    queue.retry(1)
    while (held := queue.claim("me", 60.0)) is not None and held.id != later.id:  # which comes last
        queue.finish(held.id, held.token, {"verdict": "ok", "summary": "", "part": {"was": held.part}})
    assert [(part.outcome or {})["part"] for part in queue.parts(1)] == [{"was": 0}, {"was": 1}, {"was": 2}]
    assert queue.job(1).state == "succeeded"
    store.close()


def test_rolling_back_when_promotions_were_lost(tmp_path: Path) -> None:
    store = Store(tmp_path / "queue.db")
    queue = Queue(store)
    with store.write() as tx:  # "a" to "b" is missing, and so is "b" to "c"
        tx.add(Promotion(1, "arm", "a", None, "promoted"))
        tx.add(Promotion(4, "arm", "b", "c", "rolled_back"))
        tx.add(Promotion(5, "arm", "d", "b", "promoted"))
    assert [queue.history.roll_back("arm", "").model for _ in range(3)] == ["b", "a", None]
    with pytest.raises(state.JobStateError, match="arm arm: no model is active"):
        queue.history.roll_back("arm", "")
    store.close()
