"""Salvage of a damaged queue file.

The damaged file is renamed and never written again. Rows for a new one are read from the tables, as far as SQLite can,
and by searching the bytes; those with a wrong checksum are dropped.
"""

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from drivers.files.atomic_write import sync_folder
from service.jobs.queue._checked_row import TABLES, Row, RowError, find, unpack
from service.jobs.queue.store import Store, StoreError, Transaction

_FILES = ("-wal", "-shm", "")  # in the order in which they are set aside
_FAR = 10_000  # largest plausible distance of the count of numbers in use beyond the rows that were found


@dataclass
class Salvaged:
    """Result of a salvage."""

    damaged: Path  # the damaged file, renamed
    rows: dict[str, int] = field(default_factory=dict)  # number of saved rows by table
    missing: tuple[int, ...] = ()  # numbers of jobs below the highest known one: unreadable, or deleted before


def salvage(path: Path) -> Salvaged:
    """Set the damaged file at `path` aside and make a new one with every readable row.

    Raises `StoreError` or `OSError` if the new file cannot be written; the damaged one keeps its name then.
    """
    for left in path.parent.glob("salvage-*"):  # by a kill
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="salvage-", dir=path.parent) as name:
        copy = Path(name) / path.name
        for suffix in ("-wal", ""):
            if _beside(path, suffix).exists():
                shutil.copyfile(_beside(path, suffix), _beside(copy, suffix))
        read = list(_by_bytes(copy))  # first, for SQLite may change the copy
        numbers = _numbers(copy, read)
        found = _newest([*read, *_by_tables(copy, numbers)])
        result = Salvaged(_free_name(path))
        fresh = Path(name) / "fresh.db"
        _fill(fresh, found, numbers, result)
        fresh.rename(_beside(path, ".salvaged"))
    finish_salvage(path)
    return result


def finish_salvage(path: Path) -> None:
    """Put the new file of a salvage in its place, if there is one: also after a kill in the middle of it."""
    fresh = _beside(path, ".salvaged")
    if not fresh.exists():
        return
    sync_folder(path.parent)  # before the damaged file is moved, the new one is durable
    damaged = _free_name(path)
    for suffix in _FILES:  # the log first: it must never meet the new file
        if _beside(path, suffix).exists():
            _beside(path, suffix).rename(_beside(damaged, suffix))
    fresh.rename(path)
    sync_folder(path.parent)


def _fill(fresh: Path, found: Iterable[Row], numbers: dict[str, int], result: Salvaged) -> None:
    with contextlib.closing(Store(fresh)) as store:
        with store.write() as transaction:
            for row in found:
                with contextlib.suppress(ValidationError):
                    transaction.put_row(row)
                    result.rows[row.table] = result.rows.get(row.table, 0) + 1
            known = set(transaction.ids("1"))
            last = max(*_named(transaction), *known, 0, 0)
            numbers["jobs"] = max(numbers["jobs"], last)
            for table in ("jobs", "promotions", "events"):
                transaction.use_up_numbers(table, numbers[table])
        result.missing = tuple(sorted(set(range(min(known, default=1), last + 1)) - known))
        store.tidy()
    if _beside(fresh, "-wal").exists():
        raise StoreError(f"{fresh}: what was saved of the damaged queue cannot be written completely")


def _named(transaction: Transaction) -> Iterator[int]:
    """Yield the numbers of jobs that the saved rows refer to."""
    for job in transaction.jobs():
        yield from (*job.after, job.parent or 0)
    yield from (model.job or 0 for model in transaction.models())
    yield from (promotion.job or 0 for promotion in transaction.promotions())
    yield from (event.job or 0 for event in transaction.events(limit=-1))


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _free_name(path: Path) -> Path:
    """Return a free name for the damaged file; the same one after a kill halfway."""
    number = 1
    while True:
        damaged = _beside(path, f".bad{number}")
        both = (_beside(path, suffix).exists() and _beside(damaged, suffix).exists() for suffix in _FILES)
        if not (damaged.exists() or any(both)):
            return damaged
        number += 1


def _numbers(path: Path, rows: Iterable[Row]) -> dict[str, int]:
    """Return the highest number in each table, from the rows and the damaged file's own count."""
    highest = dict.fromkeys(TABLES, 0)
    for row in rows:
        if row.table == "models":
            highest["models"] += 1
        else:
            highest[row.table] = max(highest[row.table], int(row.content["id"]))
    sequences: dict[object, object] = {}
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(path)) as database:
        sequences = dict(database.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
    for table, number in highest.items():
        count = sequences.get(table, 0)
        # a count that is far from the rows is damaged itself
        highest[table] = max(number, count) if isinstance(count, int) and count <= number + _FAR else number + _FAR
    return highest


def _by_tables(path: Path, numbers: dict[str, int]) -> Iterator[Row]:
    """Yield rows that SQLite can read, one by one where it cannot read them all."""
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(path)) as database:
        database.text_factory = lambda text: text.decode("ascii", "replace")
        for table in TABLES:
            for body in _bodies(database, table, numbers[table]):
                with contextlib.suppress(RowError):
                    row = unpack(str(body))
                    if row.table == table:
                        yield row


def _bodies(database: sqlite3.Connection, table: str, last: int) -> Iterator[object]:
    try:
        rows = database.execute(f"SELECT body FROM {table}").fetchall()
    except sqlite3.Error:
        number = 1
        while number <= last:
            try:
                row = database.execute(
                    f"SELECT rowid, body FROM {table} WHERE rowid >= ? ORDER BY rowid LIMIT 1", (number,)
                ).fetchone()
            except sqlite3.Error:
                number += 1
                continue
            if row is None:
                return
            number = max(number, row[0]) + 1  # damaged pages can be out of order
            yield row[1]
    else:
        yield from (body for (body,) in rows)


def _by_bytes(path: Path) -> Iterator[Row]:
    """Yield the rows in the bytes of the file and of its log."""
    for suffix in ("", "-wal"):
        if _beside(path, suffix).exists():
            yield from find(_beside(path, suffix).read_bytes())


def _newest(rows: Iterable[Row]) -> list[Row]:
    """Keep the latest of several states of each row."""
    best: dict[tuple[str, str, str], Row] = {}
    for row in rows:
        arm = str(row.content.get("arm")) if row.table == "models" else ""
        key = (row.table, str(row.content.get("id")), arm)
        if key not in best or row.revision > best[key].revision:
            best[key] = row
    return sorted(best.values(), key=lambda row: (TABLES.index(row.table), str(row.content.get("id"))))
