"""Beginning a batch, or going on with one: same inputs, task and weights are the same work; anything else is told."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from blake3 import blake3

from twinlens.batch.keeper import remember
from twinlens.batch.listing import is_archive
from twinlens.batch.records import Head, Listed, ListEnd, Work
from twinlens.errors import BatchError

if TYPE_CHECKING:
    from twinlens.batch.journal import Journal
    from twinlens.batch.spool import Source, Spool

GROUP = 1000
_NAMES = {
    "task": "the task",
    "version": "the task's file",
    "weights": "the model's weights",
    "variables": "the variables",
    "max_tokens": "--max-tokens",
    "page_dpi": "page_dpi",
    "private": "whether answers are redacted",
}


@dataclass(frozen=True, slots=True)
class Wish:
    """How the operator wants to begin."""

    resume: bool = False
    overwrite: bool = False
    accept_changes: bool = False
    retry_failed: bool = False


@dataclass(slots=True)
class _Known:
    work: Work | None = None
    number: int = 0
    whole: bool = False  # the listing


def begin(journal: Journal, spool: Spool, work: Work, out: Path, wish: Wish, skipped: int) -> None:  # noqa: PLR0913, PLR0917
    """Take up what the journal holds. `spool` knows the inputs. Raises BatchError, saying what changed."""
    if wish.overwrite:
        journal.clear()
    _check_new(journal, out, wish)
    known = _replayed(journal, spool)
    if known.work is None:
        _write_head(journal, spool, work, 1, skipped)
        return
    told = _differences(known.work, work)
    if known.whole:
        told += _of_inputs(spool)
    if told and not wish.accept_changes:
        raise BatchError(
            f"This is not the work that {journal.path} began: {'; '.join(told)}.",
            cure="Make it as it was; or --accept-changes keeps the answers that are still right and asks the rest; "
            "or --overwrite begins anew.",
        )
    if known.work != work:
        spool.forget()
    spool.forget_gone()
    if wish.retry_failed:
        spool.forget_failed()
    if told or not known.whole:
        _write_head(journal, spool, work, known.number + 1, skipped)


def _check_new(journal: Journal, out: Path, wish: Wish) -> None:
    if journal.size and not wish.resume:
        raise BatchError(
            f"There is a batch in {journal.path} already.",
            cure="--resume goes on with it; --overwrite begins anew and forgets it.",
        )
    if not journal.size and not wish.overwrite and out.exists() and out.stat().st_size:
        raise BatchError(
            f"{out} is there already, without a journal beside it.", cure="Choose another --out, or --overwrite it."
        )


def _replayed(journal: Journal, spool: Spool) -> _Known:
    known = _Known()
    for at, line in journal.replay():
        if isinstance(line, Head):
            if line.work != known.work:
                spool.forget()
            spool.forget_listing()
            known = _Known(line.work, line.number)
        elif isinstance(line, Listed):
            spool.listed(line.path, line.size, line.mtime)
        elif isinstance(line, ListEnd):
            known.whole = True
        else:
            remember(spool, line, at)
    return known


def _write_head(journal: Journal, spool: Spool, work: Work, number: int, skipped: int) -> None:
    journal.append([Head(work, number, time.time())])
    group: list[Listed] = []
    count = 0
    for source in spool.sources():
        group.append(Listed(source.path, source.size, source.mtime))
        count += 1
        if len(group) >= GROUP:
            journal.append(group)
            group.clear()
    journal.append([*group, ListEnd(count, skipped)])


def _differences(before: Work, now: Work) -> list[str]:
    old, new = msgspec.structs.asdict(before), msgspec.structs.asdict(now)
    return [f"{said} changed" for name, said in _NAMES.items() if old[name] != new[name]]


def _of_inputs(spool: Spool) -> list[str]:
    new, gone, suspects = spool.changes()
    changed = sum(not _is_as_it_was(spool, source) for source in suspects)
    counts = ((new, "new"), (gone, "gone"), (changed, "changed"))
    return [f"{count} input{'s' if count > 1 else ''} {word}" for count, word in counts if count]


def _is_as_it_was(spool: Spool, source: Source) -> bool:
    """Whether nothing was finished of an input whose time or size is another, or its bytes are still the same."""
    return not spool.has(source.path) or same_bytes(spool, source)


def same_bytes(spool: Spool, source: Source) -> bool:
    """Whether a file has the digest that its records say; then the index takes its new time."""
    digest = spool.digest_of(source.path)
    if is_archive(source.path) or not digest:
        return False
    found = blake3()
    try:
        with Path(os.fsdecode(source.path)).open("rb") as file:
            while block := file.read(1 << 20):
                found.update(block)
    except OSError:
        return False
    if found.digest() != digest:
        return False
    spool.retell(source.path, source.size, source.mtime)
    return True
