"""The table of a batch, made from its journal: JSON lines or CSV; written beside the place, then renamed to it.

So a file under the name that was asked for is always whole; a full disk leaves the one that was there.
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
from typing import IO, TYPE_CHECKING, Any, Protocol

import msgspec

from twinlens.batch.journal import unwritable
from twinlens.errors import BatchError
from twinlens.finish import pointers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from twinlens.batch.records import Record

Columns = tuple[tuple[str, tuple[str, ...]], ...]
MOST_COLUMNS = 1000
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
FIXED = ("path", "page", "digest")
LAST = ("error", "message", "same_as", "seconds", "prompt_tokens", "completion_tokens")


class Writes(Protocol):
    """Writes records to an open file."""

    def __call__(self, file: IO[bytes], records: Callable[[], Iterator[Record]], columns: Columns) -> None:
        """`records` can be gone through several times."""
        ...


def columns_of(said: Sequence[tuple[str, str]], records: Callable[[], Iterator[Record]]) -> Columns:
    """The task's columns; where it names none, the keys of the answers, as they first come."""
    if said:
        return tuple((name, pointers.parsed(path, name)) for name, path in said)
    names: dict[str, None] = {}
    for record in records():
        keys = record.answer if isinstance(record.answer, dict) else () if record.answer is None else ("answer",)
        names |= dict.fromkeys(keys)
        if len(names) > MOST_COLUMNS:
            raise BatchError(
                f"The answers have more than {MOST_COLUMNS} different keys.",
                cure="Give the task columns, or use .jsonl.",
            )
    return tuple((name, (name,)) for name in names)


def titles_of(columns: Columns) -> list[str]:
    """The titles of a table, each only once: a column of a task may be called as one of ours, or as another."""
    seen: set[str] = set()
    found = []
    for name in (*FIXED, *(name for name, _ in columns), *LAST):
        title = name
        while title in seen:
            title += "_"
        seen.add(title)
        found.append(title)
    return found


def cell_of(record: Record, steps: tuple[str, ...]) -> Any:
    """The value of one column."""
    if not isinstance(record.answer, dict | list):
        return record.answer if steps == ("answer",) else None
    found = pointers.got(record.answer, steps)
    return found if "*" in steps else found[0] if found else None


def jsonl(file: IO[bytes], records: Callable[[], Iterator[Record]], columns: Columns) -> None:
    """One JSON object a line, the answer as it is."""
    del columns
    encode = msgspec.json.Encoder().encode
    for record in records():
        said = msgspec.structs.asdict(record)
        for name in ("same_as", "warnings"):
            if not said[name]:
                del said[name]
        file.write(encode(said) + b"\n")


def comma_separated(file: IO[bytes], records: Callable[[], Iterator[Record]], columns: Columns) -> None:
    """CSV with a byte order mark, without which spreadsheets take UTF-8 for something else."""
    text = io.TextIOWrapper(file, "utf-8-sig", newline="")
    rows = csv.writer(text)
    rows.writerow(titles_of(columns))
    for record in records():
        cells = [_text(cell_of(record, steps)) for _, steps in columns]
        rows.writerow([_text(record.path), record.page, record.digest, *cells, *map(_text, last_of(record))])
    text.flush()
    text.detach()


def last_of(record: Record) -> list[Any]:
    """The values of the columns LAST."""
    error, usage = record.error, record.usage or {}
    told = [error.code, error.message] if error else [None, None]
    return [*told, record.same_as, record.time, usage.get("prompt_tokens"), usage.get("completion_tokens")]


def _text(value: Any) -> Any:
    """A value for a spreadsheet. A text that it would take for a formula is quoted: answers come from pictures."""
    if value is None:
        return ""
    if isinstance(value, dict | list | bool):
        return msgspec.json.encode(value).decode()
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value


def writer_of(path: Path) -> Writes:
    """By the ending. Raises BatchError."""
    kinds: dict[str, Writes] = {".jsonl": jsonl, ".csv": comma_separated}
    if path.suffix.lower() == ".parquet":
        from twinlens.batch.parquet import parquet  # noqa: PLC0415 - needs the extra

        return parquet()
    if path.suffix.lower() not in kinds:
        raise BatchError(f"--out {path.name}: the ending is not known.", cure="Use .jsonl, .csv or .parquet.")
    return kinds[path.suffix.lower()]


def replaced(path: Path, write: Callable[[IO[bytes]], None]) -> None:
    """Write a file whole or not at all. Raises BatchError."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with fresh.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            fresh.unlink()
