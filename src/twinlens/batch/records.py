"""What a batch keeps: one record for every picture or page, and the lines of its journal.

Head     what work this is: task, weights, variables. Another one follows when the work was changed
Listed   an input that was found; ListEnd when all were
Done     a finished record, and where it came from
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why there is no answer. `code` as in docs/errors.md, `raw` what the model wrote, where it is kept."""

    code: str
    message: str
    raw: str | None = None


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One picture or page. `page` counts from 1; `digest` is BLAKE3 of the file; `time` is of asking, in seconds.

    `same_as` names the first of several identical files: only that one was asked, and has the usage.
    """

    path: str
    page: int
    digest: str
    answer: Any = None
    usage: dict[str, Any] | None = None
    time: float = 0.0
    error: Failure | None = None
    same_as: str | None = None
    warnings: tuple[str, ...] = ()


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What makes two answers about the same bytes the same work."""

    task: str
    version: str  # digest of the task's files
    weights: str  # identity of the model's weights
    variables: dict[str, Any]
    max_tokens: int | None = None
    page_dpi: float = 150.0  # at which pages of PDFs are drawn
    private: bool = False  # the service hides something in the answers


class Head(msgspec.Struct, frozen=True, tag="head", tag_field="kind"):
    """`count` of the work in this journal, from 1; `format` of the lines."""

    work: Work
    number: int
    started: float  # unix time
    format: int = 1


class Listed(msgspec.Struct, frozen=True, tag="listed", tag_field="kind", array_like=False):
    """An input. `path` is base64 of its bytes, `size` in bytes, `mtime` in ns."""

    path: bytes
    size: int
    mtime: int


class ListEnd(msgspec.Struct, frozen=True, tag="list-end", tag_field="kind"):
    """All inputs were listed: so many; `skipped` were found and are none."""

    count: int
    skipped: int


class Done(msgspec.Struct, frozen=True, tag="done", tag_field="kind", omit_defaults=True):
    """A finished record. `source` is the path of the file in bytes, `member` its place in an archive, from 1."""

    record: Record
    source: bytes
    size: int
    mtime: int
    asked: bytes  # what identical questions have in common
    member: int = 0
    pages: int = 1  # records about the same file


Line: TypeAlias = Head | Listed | ListEnd | Done

encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Line)


def decode(data: bytes) -> Line:
    """The reverse of `encode`. Raises msgspec.DecodeError."""
    return _decoder.decode(data)
