"""The index of a batch: which inputs there are and what is finished, in a temporary database of SQLite.

It is made anew from inputs and journal by every run and is gone with the process, so it is never trusted over them. It
keeps memory flat: a hundred thousand inputs take some megabytes of a temporary file ($SQLITE_TMPDIR). Safe for threads.
"""

from __future__ import annotations

import sqlite3
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twinlens.errors import BatchError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CACHE_KIB = 4096
SLICE = 256  # rows that are read at a time
_TABLES = """
CREATE TABLE found (root INTEGER, sort BLOB, path BLOB, size INTEGER, mtime INTEGER, PRIMARY KEY (root, sort, path))
    WITHOUT ROWID;
CREATE TABLE source (number INTEGER PRIMARY KEY, path BLOB UNIQUE, size INTEGER, mtime INTEGER);
CREATE TABLE before (path BLOB PRIMARY KEY, size INTEGER, mtime INTEGER) WITHOUT ROWID;
CREATE TABLE done (path BLOB, member INTEGER, page INTEGER, size INTEGER, mtime INTEGER, at INTEGER, good INTEGER,
    digest BLOB, pages INTEGER, PRIMARY KEY (path, member, page)) WITHOUT ROWID;
CREATE TABLE asked (asked BLOB PRIMARY KEY, at INTEGER) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Source:
    """An input: a picture, a document, an archive. `number` is its place in the stable order, from 1."""

    number: int
    path: bytes
    size: int
    mtime: int


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished record: (path, member, page) and (size, time) of its source; its line is at `at` in the journal.

    `asked`: None for a failure, which nobody copies. `pages`: records about the same file.
    """

    key: tuple[bytes, int, int]
    stat: tuple[int, int]
    at: int
    asked: bytes | None
    digest: bytes
    pages: int = 1


class Spool:
    """All methods raise BatchError when the temporary file cannot be written."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        # An empty name is a private database on disk, which SQLite removes by itself.
        self._db = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        self._db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        self._db.execute("PRAGMA journal_mode = OFF")
        self._db.executescript(_TABLES)
        self._db.execute("BEGIN")  # never committed: nobody else reads it

    def close(self) -> None:
        """Give the file back."""
        self._db.close()

    @contextmanager
    def _used(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                yield self._db
            except sqlite3.Error as error:
                raise BatchError(
                    f"The temporary index of the batch fails: {error}.",
                    cure="Free space in the folder for temporary files, or name another with SQLITE_TMPDIR.",
                ) from error

    def _rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._used() as db:
            return db.execute(sql, values).fetchall()

    def _do(self, sql: str, *values: Any) -> int:
        with self._used() as db:
            return db.execute(sql, values).rowcount

    def found(self, rows: Iterable[tuple[int, bytes, bytes, int, int]]) -> None:
        """Inputs as they are found: (root, sort key, path, size, mtime), in any order."""
        with self._used() as db:
            db.executemany("INSERT OR IGNORE INTO found VALUES (?, ?, ?, ?, ?)", rows)

    def number(self) -> int:
        """Put all inputs in order; a path that was found twice counts where it came first. Returns how many."""
        self._do(
            "INSERT OR IGNORE INTO source (path, size, mtime) SELECT path, size, mtime FROM found "
            "ORDER BY root, sort, path"
        )
        self._do("DELETE FROM found")
        return int(self._rows("SELECT count(*) FROM source")[0][0])

    def sources(self) -> Iterator[Source]:
        """All inputs in order."""
        last = 0
        while rows := self._rows(
            "SELECT number, path, size, mtime FROM source WHERE number > ? ORDER BY number LIMIT ?", last, SLICE
        ):
            for row in rows:
                yield Source(*row)
            last = rows[-1][0]

    def forget_listing(self) -> None:
        """Another listing follows in the journal."""
        self._do("DELETE FROM before")

    def listed(self, path: bytes, size: int, mtime: int) -> None:
        """An input of the listing in the journal."""
        self._do("INSERT OR REPLACE INTO before VALUES (?, ?, ?)", path, size, mtime)

    def changes(self) -> tuple[int, int, list[Source]]:
        """(new, gone, inputs that look changed) of the inputs beside the listing in the journal."""
        new = self._rows("SELECT count(*) FROM source WHERE path NOT IN (SELECT path FROM before)")[0][0]
        gone = self._rows("SELECT count(*) FROM before WHERE path NOT IN (SELECT path FROM source)")[0][0]
        rows = self._rows(
            "SELECT s.number, s.path, s.size, s.mtime FROM source s JOIN before b USING (path) "
            "WHERE s.size != b.size OR s.mtime != b.mtime ORDER BY s.number"
        )
        return new, gone, [Source(*row) for row in rows]

    def finish(self, done: Finished) -> None:
        """A record is finished."""
        at, asked = done.at, done.asked
        with self._used() as db:
            db.execute(
                "INSERT OR REPLACE INTO done VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*done.key, *done.stat, at, asked is not None, done.digest, done.pages),
            )
            if asked is not None:
                db.execute("INSERT OR REPLACE INTO asked VALUES (?, ?)", (asked, at))

    def forget(self) -> None:
        """Nothing is finished: what follows in the journal is other work."""
        self._do("DELETE FROM done")
        self._do("DELETE FROM asked")

    def forget_failed(self) -> int:
        """Failures count as not finished. Returns how many they were."""
        return self._do("DELETE FROM done WHERE NOT good")

    def forget_gone(self) -> None:
        """Leave out what was finished of inputs that are no longer there, or not as they were."""
        self._do(
            "DELETE FROM done WHERE NOT EXISTS (SELECT 1 FROM source s WHERE s.path = done.path AND s.size = done.size "
            "AND s.mtime = done.mtime)"
        )

    def retell(self, path: bytes, size: int, mtime: int) -> None:
        """The bytes of an input are as they were though its time is not."""
        self._do("UPDATE done SET size = ?, mtime = ? WHERE path = ?", size, mtime, path)

    def is_done(self, path: bytes, member: int, page: int) -> bool:
        """Whether this is finished."""
        return bool(self._rows("SELECT 1 FROM done WHERE path = ? AND member = ? AND page = ?", path, member, page))

    def finished(self, path: bytes, member: int) -> tuple[int, int]:
        """(pages of a file that are finished, all that it has); 0, 0 where nobody knows it."""
        row = self._rows(
            "SELECT count(*), coalesce(max(pages), 0) FROM done WHERE path = ? AND member = ?", path, member
        )
        return int(row[0][0]), int(row[0][1])

    def has(self, path: bytes) -> bool:
        """Whether anything of this input is finished."""
        return bool(self._rows("SELECT 1 FROM done WHERE path = ? LIMIT 1", path))

    def digest_of(self, path: bytes) -> bytes:
        """The digest of an input of which something is finished; empty if nobody knows it."""
        rows = self._rows("SELECT digest FROM done WHERE path = ? LIMIT 1", path)
        return bytes(rows[0][0]) if rows else b""

    def answered(self, asked: bytes) -> int | None:
        """Where the answer to the same question is."""
        rows = self._rows("SELECT at FROM asked WHERE asked = ?", asked)
        return int(rows[0][0]) if rows else None

    def counts(self) -> tuple[int, int]:
        """(finished, failed of them)."""
        row = self._rows("SELECT count(*), coalesce(sum(NOT good), 0) FROM done")[0]
        return int(row[0]), int(row[1])

    def offsets(self, *, stable: bool = True, failed: bool | None = None) -> Iterator[int]:
        """Where the lines of finished records are, in the order of the inputs, or as they were finished.

        `failed`: only those that failed, or only the others.
        """
        only = "" if failed is None else "WHERE NOT d.good" if failed else "WHERE d.good"
        order = "s.number, d.member, d.page" if stable else "d.at"
        with self._used() as db:
            cursor = db.execute(f"SELECT d.at FROM done d JOIN source s USING (path) {only} ORDER BY {order}")  # noqa: S608 - our own words
        while True:
            with self._used():
                rows = cursor.fetchmany(SLICE)
            if not rows:
                return
            for (at,) in rows:
                yield int(at)
