"""Parquet, by the extra “parquet”: typed columns, found by going through the answers once before."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any

import msgspec

from twinlens.batch.output import cell_of, last_of, titles_of
from twinlens.errors import BatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from twinlens.batch.output import Columns, Writes
    from twinlens.batch.records import Record

GROUP = 1000  # rows that are in memory at once
LAST_KINDS = ("string", "string", "string", "double", "int64", "int64")


def parquet() -> Writes:
    """The writer. Raises BatchError where the extra is not installed: before anything is asked."""
    try:
        import pyarrow  # noqa: ICN001, PLC0415
        import pyarrow.parquet  # noqa: F401, PLC0415
    except ImportError as error:
        raise BatchError(
            "Parquet needs the extra “parquet”.", cure="pip install 'twinlens[parquet]', or use .jsonl or .csv."
        ) from error
    return _write


def _write(file: IO[bytes], records: Callable[[], Iterator[Record]], columns: Columns) -> None:
    import pyarrow as arrow  # noqa: ICN001, PLC0415
    from pyarrow.parquet import ParquetWriter  # noqa: PLC0415

    kinds = _kinds(records, columns)
    names = titles_of(columns)
    types = ["string", "int64", "string", *kinds, *LAST_KINDS]
    schema = arrow.schema([(name, arrow.type_for_alias(kind)) for name, kind in zip(names, types, strict=True)])
    with ParquetWriter(file, schema) as writer:
        rows: list[list[Any]] = []

        def flush() -> None:
            arrays = [
                arrow.array(list(column), field.type)
                for column, field in zip(zip(*rows, strict=True), schema, strict=True)
            ]
            writer.write_table(arrow.table(arrays, schema=schema))
            rows.clear()

        for record in records():
            cells = [_as(cell_of(record, steps), kind) for (_, steps), kind in zip(columns, kinds, strict=True)]
            rows.append([record.path, record.page, record.digest, *cells, *last_of(record)])
            if len(rows) >= GROUP:
                flush()
        if rows:
            flush()


def _kinds(records: Callable[[], Iterator[Record]], columns: Columns) -> list[str]:
    kinds: list[set[str]] = [set() for _ in columns]
    for record in records():
        for (_, steps), found in zip(columns, kinds, strict=True):
            value = cell_of(record, steps)
            if value is not None:
                found.add(_kind(value))
    return [
        "double" if found == {"int64", "double"} else found.pop() if len(found) == 1 else "string" for found in kinds
    ]


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int) and abs(value) < 1 << 53:
        return "int64"
    return "double" if isinstance(value, float) else "string"


def _as(value: Any, kind: str) -> Any:
    if value is None:
        return None
    if kind == "string":
        return value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return float(value) if kind == "double" else value
