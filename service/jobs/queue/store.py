"""The queue's file: jobs, models, promotions and events in SQLite, each a row with its whole content as JSON.

The file is in WAL mode: a commit is durable when it returns, and after a kill all or nothing of it is there. Columns
beside `body` only serve to find it.
"""

import contextlib
import errno
import os
import sqlite3
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from drivers.files.atomic_write import sync_folder
from service.jobs.queue._checked_row import Row, RowError, pack, unpack
from service.jobs.queue.state import Job

VERSION = 1  # of the tables; an older file is migrated, a newer one is refused
FILE_NAME = "queue.db"
_APPLICATION = 0x74686574  # "thet": distinguishes these files from other programs'
_BUSY_MS = 250
_LOG_HEAD, _LOG_FRAME = 32, 24  # bytes of the log before its frames, and before the page of each
_PAGE = 16384  # most rows fit in one page, which helps when the file is damaged; each commit writes whole pages

_TABLES = """
CREATE TABLE jobs (id INTEGER PRIMARY KEY AUTOINCREMENT, state TEXT NOT NULL, parent INTEGER, priority INTEGER NOT NULL,
    due_ns INTEGER NOT NULL, finished_ns INTEGER NOT NULL, body TEXT NOT NULL);
CREATE INDEX jobs_by_state ON jobs (state, priority DESC, id);
CREATE INDEX jobs_by_parent ON jobs (parent, id) WHERE parent IS NOT NULL;
CREATE TABLE models (id TEXT NOT NULL, arm TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (id, arm));
CREATE TABLE promotions (id INTEGER PRIMARY KEY AUTOINCREMENT, arm TEXT NOT NULL, body TEXT NOT NULL);
CREATE INDEX promotions_by_arm ON promotions (arm, id);
CREATE TABLE events (id INTEGER PRIMARY KEY AUTOINCREMENT, t_ns INTEGER NOT NULL, arm TEXT, job INTEGER,
    body TEXT NOT NULL);
CREATE INDEX events_by_time ON events (t_ns);
"""


class StoreError(RuntimeError):
    """The queue's file cannot be used now; the message has reason and remedy. Nothing was changed."""


class StoreCorruptError(StoreError):
    """The queue's file is damaged."""


class StoreVersionError(StoreError):
    """The queue's file was made by a newer version of thetad."""


@dataclass(frozen=True)
class Event:
    """An event of the history; `id` is 0 until it is stored."""

    t_ns: int
    kind: str
    text: str
    arm: str | None = None
    job: int | None = None
    data: dict[str, Any] = field(default_factory=dict)
    id: int = 0


@dataclass(frozen=True)
class Model:
    """A model kept for an arm; `id` is the SHA-256 of its file, which is an artifact."""

    id: str
    arm: str
    created_ns: int
    job: int | None = None
    method: str = ""
    verdict: str = ""
    relative_error: float | None = None
    origin: str = ""


@dataclass(frozen=True)
class Promotion:
    """A change of an arm's active model, from `previous` to `model`; None: no model."""

    t_ns: int
    arm: str
    model: str | None
    previous: str | None
    action: str  # "promoted", "rolled_back"
    job: int | None = None
    reason: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    id: int = 0


T = TypeVar("T", Job, Event, Promotion)
_TABLE_OF: dict[type, str] = {Job: "jobs", Model: "models", Promotion: "promotions", Event: "events"}
_ADAPTERS: dict[str, TypeAdapter[Any]] = {table: TypeAdapter(kind) for kind, table in _TABLE_OF.items()}
#: Columns of each table beside `body`: fields of its items.
_COLUMNS = {
    "jobs": ("id", "state", "parent", "priority", "due_ns", "finished_ns"), "models": ("id", "arm"),
    "promotions": ("id", "arm"), "events": ("id", "t_ns", "arm", "job"),
}  # fmt: skip
#: What is done where a table has an item of the same key: of a model the first one stays.
_CONFLICT = {
    table: "(id) DO UPDATE SET " + ", ".join(f"{name} = excluded.{name}" for name in (*names[1:], "body"))
    for table, names in _COLUMNS.items()
} | {"models": "DO NOTHING"}


class Transaction:
    """Reads and writes of one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection

    def add(self, item: T) -> T:
        """Store a new item; return it with its number. Numbers are never reused."""
        table = _TABLE_OF[type(item)]
        names = _COLUMNS[table][1:]
        cursor = self._db.execute(
            f"INSERT INTO {table} ({', '.join(names)}, body) VALUES ({'?, ' * len(names)}'{{}}')",
            [getattr(item, name) for name in names],
        )
        item = replace(item, id=int(cursor.lastrowid or 0))
        self.put(item)
        return item

    def put(self, item: Job | Event | Model | Promotion) -> None:
        """Store a changed item, or one that was recovered with its number."""
        table = _TABLE_OF[type(item)]
        names, revision, conflict = _COLUMNS[table], 0, _CONFLICT[table]
        if table == "jobs":
            found = self._db.execute("SELECT json_extract(body, '$.rev') FROM jobs WHERE id = ?", (item.id,)).fetchone()
            revision = 1 + ((found[0] or 0) if found is not None else 0)
        self._db.execute(
            f"INSERT INTO {table} ({', '.join(names)}, body) VALUES ({'?, ' * len(names)}?) ON CONFLICT {conflict}",
            [*(getattr(item, name) for name in names), pack(table, item, revision)],
        )

    def _items(self, table: str, rest: str, values: Sequence[object]) -> list[Any]:
        """Return the items of a table by the rest of a query; raises `RowError` or `ValidationError`."""
        rows = self._db.execute(f"SELECT body FROM {table} {rest}", values)
        return [_ADAPTERS[table].validate_python(unpack(body).content) for (body,) in rows]

    # ------------------------------------------------------------ jobs

    def job(self, id: int) -> Job | None:
        """Return a job, None if there is none."""
        return next(iter(self.jobs("id = ?", (id,))), None)

    def jobs(self, where: str = "1", values: Sequence[object] = (), order: str = "id", limit: int = -1) -> list[Job]:
        """Return jobs, by a condition on the columns."""
        return self._items("jobs", f"WHERE {where} ORDER BY {order} LIMIT ?", (*values, limit))

    def ids(self, where: str, values: Sequence[object] = (), order: str = "id", limit: int = -1) -> list[int]:
        """Return the numbers of jobs, by a condition on the columns."""
        rows = self._db.execute(f"SELECT id FROM jobs WHERE {where} ORDER BY {order} LIMIT ?", (*values, limit))
        return [id for (id,) in rows]

    def states(self, ids: Iterable[int]) -> dict[int, Any]:
        """Return the states of those of the jobs that exist."""
        wanted = tuple(ids)
        marks = ", ".join("?" * len(wanted))
        return dict(self._db.execute(f"SELECT id, state FROM jobs WHERE id IN ({marks})", wanted).fetchall())

    def count(self, where: str, values: Sequence[object] = ()) -> int:
        """Count jobs, by a condition on the columns."""
        return int(self._db.execute(f"SELECT count(*) FROM jobs WHERE {where}", values).fetchone()[0])

    def part_counts(self, parent: int) -> dict[str, int]:
        """Count the parts of a job by state."""
        rows = self._db.execute("SELECT state, count(*) FROM jobs WHERE parent = ? GROUP BY state", (parent,))
        return dict(rows.fetchall())

    def seconds(self, where: str, values: Sequence[object] = (), order: str = "id", limit: int = -1) -> list[float]:
        """Return how long jobs ran that have ended [s], by a condition on the columns."""
        rows = self._db.execute(
            f"SELECT finished_ns - json_extract(body, '$.started_ns') FROM jobs WHERE {where} ORDER BY {order} LIMIT ?",
            (*values, limit),
        )
        return [1e-9 * ran_ns for (ran_ns,) in rows]

    def counts(self) -> dict[str, int]:
        """Count jobs by state, parts counted."""
        return dict(self._db.execute("SELECT state, count(*) FROM jobs GROUP BY state").fetchall())

    def counts_by_kind(self) -> dict[str, dict[str, int]]:
        """Count jobs by kind and state."""
        found: dict[str, dict[str, int]] = {}
        rows = "SELECT json_extract(body, '$.kind'), state, count(*) FROM jobs GROUP BY 1, 2"
        for kind, state, count in self._db.execute(rows):
            found.setdefault(kind, {})[state] = count
        return found

    def delete_jobs(self, ids: Iterable[int]) -> None:
        """Delete jobs."""
        self._db.executemany("DELETE FROM jobs WHERE id = ?", [(id,) for id in ids])

    def check(self) -> None:
        """Read every row; raises `StoreCorruptError` if one is unreadable.

        Damage that is not found when the file is opened is met again with the next request for that row.
        """
        names = _COLUMNS["jobs"]
        for *columns, body in self._db.execute(f"SELECT {', '.join(names)}, body FROM jobs"):
            job = _ADAPTERS["jobs"].validate_python(unpack(body).content)
            if columns != [getattr(job, name) for name in names]:  # they have no checksum of their own
                raise RowError(f"job {job.id} is found as another one")
        self.models()
        self.promotions()
        self.events(limit=-1)

    # ------------------------------------------------------------ models

    def models(self, arm: str | None = None) -> list[Model]:
        """Return models, oldest first."""
        return sorted(self._items("models", "WHERE ? IS NULL OR arm = ?", (arm, arm)), key=lambda m: m.created_ns)

    def delete_models_without_use(self) -> None:
        """Delete models that were never active and whose job has been deleted."""
        self._db.execute(
            "DELETE FROM models WHERE id NOT IN (SELECT json_extract(body, '$.model') FROM promotions "
            "WHERE json_extract(body, '$.model') IS NOT NULL) "
            "AND json_extract(body, '$.job') NOT IN (SELECT id FROM jobs)"
        )

    def promotions(self, arm: str | None = None) -> list[Promotion]:
        """Return the changes of active models, oldest first."""
        return self._items("promotions", "WHERE ? IS NULL OR arm = ? ORDER BY id", (arm, arm))

    # ------------------------------------------------------------ events

    def events(self, arm: str | None = None, job: int | None = None, limit: int = 1000, after: int = 0) -> list[Event]:
        """Return events, oldest first: the newest `limit`, or the `limit` that follow the one numbered `after`."""
        where = "(? IS NULL OR arm = ?) AND (? IS NULL OR job = ?) AND id > ?"
        rest = f"WHERE {where} ORDER BY id {'ASC' if after else 'DESC'} LIMIT ?"
        return sorted(self._items("events", rest, (arm, arm, job, job, after, limit)), key=lambda event: event.id)

    def newest_event(self, arm: str, kind: str) -> Event | None:
        """Return the newest event of a kind that concerns an arm, None if there is none."""
        rest = "WHERE arm = ? AND json_extract(body, '$.kind') = ? ORDER BY id DESC LIMIT 1"
        return next(iter(self._items("events", rest, (arm, kind))), None)

    def delete_events(self, before_ns: int) -> int:
        """Delete events older than that; returns how many."""
        return self._db.execute("DELETE FROM events WHERE t_ns < ?", (before_ns,)).rowcount

    # ------------------------------------------------------------ recovery

    def put_row(self, row: Row) -> None:
        """Store a recovered row, in a file that has none of its key; raises `ValidationError`."""
        self.put(_ADAPTERS[row.table].validate_python(row.content))

    def last_numbers(self) -> dict[str, int]:
        """Return the highest number ever used in each numbered table."""
        return dict(self._db.execute("SELECT name, seq FROM sqlite_sequence").fetchall())

    def use_up_numbers(self, table: str, last: int) -> None:
        """Have new rows of a table numbered beyond `last`."""
        if last > self.last_numbers().get(table, 0):
            self._db.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
            self._db.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, last))


class Store:
    """An open queue file.

    Raises `StoreCorruptError` if it is damaged (`service.jobs.queue.salvage` recovers readable rows),
    `StoreVersionError` if it is of a newer version, `StoreError` if it cannot be used for another reason: locked,
    read-only, no space.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        log = path.with_name(path.name + "-wal")
        if _size(path) == 0 and _size(log) > 0:
            raise StoreCorruptError(f"{path}: is empty, and its log is not")  # which SQLite would delete
        if lost := lost_commits(log, _PAGE):  # which SQLite would silently undo
            raise StoreCorruptError(f"{path}: its log is damaged, and {lost} changes in it would be lost")
        with self._translated():
            self._db = sqlite3.connect(path, isolation_level=None, timeout=_BUSY_MS / 1000)
            self._db.text_factory = lambda text: text.decode("utf-8", "replace")  # which a checksum finds
        try:
            with self._translated():
                self._prepare()
        except BaseException:
            self._db.close()
            raise

    def _prepare(self) -> None:
        new = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        application = self._db.execute("PRAGMA application_id").fetchone()[0]
        version = int(self._db.execute("PRAGMA user_version").fetchone()[0])
        if not new and application != _APPLICATION:
            raise StoreCorruptError(f"{self.path}: is not a queue of thetad")
        if version > VERSION:
            raise StoreVersionError(
                f"{self.path}: has version {version}, this thetad knows {VERSION}: a newer thetad made it; use that one"
            )
        if not new and self._db.execute("PRAGMA integrity_check(1)").fetchone()[0] != "ok":
            raise StoreCorruptError(f"{self.path}: is damaged")
        if not new and version == VERSION:
            with self.read() as transaction:
                transaction.check()
        if new:
            self._db.execute(f"PRAGMA page_size = {_PAGE}")
            # SQLite's default once more: of a new file it has counted the pages in its cache by a smaller size of page
            self._db.execute("PRAGMA cache_size = -2000")
        if self._db.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
            raise StoreError(f"{self.path}: this file system has no shared memory for SQLite's WAL; use a local disk")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("PRAGMA secure_delete = ON")  # deleted rows do not come back when the file is salvaged
        if new or version < VERSION:
            with self.write() as _:
                self._migrate()

    def _migrate(self) -> None:
        """Migrate the tables to the present version, inside a transaction."""
        if self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
            for statement in _TABLES.split(";\n"):
                if statement.strip():
                    self._db.execute(statement)
            self._db.execute(f"PRAGMA application_id = {_APPLICATION}")
        self._db.execute(f"PRAGMA user_version = {VERSION}")

    @property
    def changes(self) -> int:
        """Number of rows written since the file was opened; while it is unchanged, so is the content."""
        return self._db.total_changes

    @contextlib.contextmanager
    def write(self) -> Iterator[Transaction]:
        """Run a block as one transaction; raises `StoreError`."""
        with self._translated():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield Transaction(self._db)
                self._db.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def read(self) -> Iterator[Transaction]:
        """Read from one state of the file; raises `StoreError`."""
        with self._translated():
            self._db.execute("BEGIN")
            try:
                yield Transaction(self._db)
            finally:
                with contextlib.suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")

    def backup(self, target: Path) -> None:
        """Copy the file atomically while it is in use, in any thread."""
        temporary = target.with_name(target.name + ".new")
        if target.exists() and (target.samefile(self.path) or _size(target.with_name(target.name + "-wal")) > 0):
            raise StoreError(f"{target}: is a queue in use; back up to another folder")
        try:
            temporary.unlink(missing_ok=True)
            with (
                _translated(temporary),
                # the other connection belongs to the thread that opened it
                contextlib.closing(sqlite3.connect(self.path)) as source,
                contextlib.closing(sqlite3.connect(temporary)) as copy,
            ):
                source.backup(copy)
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
        sync_folder(target.parent)

    def tidy(self) -> None:
        """Remove deleted rows from the file's log, as far as possible now."""
        with contextlib.suppress(sqlite3.Error):
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _translated(self) -> contextlib.AbstractContextManager[None]:
        return _translated(self.path)


@contextlib.contextmanager
def _translated(path: Path) -> Iterator[None]:
    """Translate SQLite's errors into `StoreError` with the remedy."""
    try:
        yield
    except sqlite3.Error as error:
        raise _translate(error, path) from error
    except (RowError, UnicodeDecodeError) as error:  # also of a name in SQLite's own words
        raise StoreCorruptError(f"{path}: holds a row that cannot be read: {error}") from error
    except ValidationError as error:
        raise StoreCorruptError(f"{path}: holds a row that cannot be read: {error.error_count()} errors") from error


def _translate(error: sqlite3.Error, path: Path) -> StoreError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    # SQLITE_ERROR: a statement does not fit the tables, whose names are damaged then.
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_ERROR):
        return StoreCorruptError(f"{path}: is damaged: {error}")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreError(f"{path}: another program has locked it; close that program")
    if code == sqlite3.SQLITE_FULL:
        return StoreError(f"{path}: {os.strerror(errno.ENOSPC)}; make room on that disk")
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return StoreError(f"{path}: cannot be written: the file or its file system is read-only")
    if code == sqlite3.SQLITE_CANTOPEN:
        return StoreError(f"{path}: cannot be opened; the state directory is missing, read-only or full")
    if code == sqlite3.SQLITE_IOERR:
        return StoreError(f"{path}: the disk fails or is full: {error}")
    return StoreError(f"{path}: {error}")


def _size(path: Path) -> int:
    """Return the bytes of a file; 0 if there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def lost_commits(log: Path, page: int) -> int:
    """Return how many commits stand in the log of pages of `page` bytes, and SQLite will not replay.

    It takes the first frame with a wrong checksum for the end of the log (https://sqlite.org/fileformat2.html#walformat):
    one flipped bit undoes all later commits.
    """
    content = log.read_bytes() if log.exists() else b""
    if len(content) < _LOG_HEAD:  # SQLite begins it anew
        return 0
    order, salts, size, lost = "<>"[content[3] & 1], content[16:24], _LOG_FRAME + page, 0
    sums = _checksum(order, content[:24], (0, 0))
    head = whole = content[24:_LOG_HEAD] == struct.pack(">II", *sums)
    for at in range(_LOG_HEAD, len(content) - size + 1, size):
        frame = content[at : at + size]
        if whole:
            sums = _checksum(order, frame[:8] + frame[_LOG_FRAME:], sums)
            whole = frame[8:_LOG_FRAME] == salts + struct.pack(">II", *sums)
        # one half of the salts is new by chance in each round: frames that an earlier one has left have neither
        current = not head or frame[8:12] == salts[:4] or frame[12:16] == salts[4:]
        lost += current and not whole and any(frame[4:8])
    return lost


def _checksum(order: str, data: bytes, sums: tuple[int, int]) -> tuple[int, int]:
    a, b = sums
    for x, y in struct.iter_unpack(f"{order}II", data):
        a = (a + x + b) & 0xFFFFFFFF
        b = (b + y + a) & 0xFFFFFFFF
    return a, b
