"""Journal and index together: what is finished is written first and known afterwards.

Lines are written in groups by a thread, as many as have come while the last group was written.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from twinlens.batch.records import Done
from twinlens.batch.spool import Finished

if TYPE_CHECKING:
    from twinlens.batch.journal import Journal
    from twinlens.batch.spool import Spool


class Keeper:
    """For the runner. When `keep` returns, a killed process does not lose the record any more."""

    def __init__(self, journal: Journal, spool: Spool) -> None:
        self.journal = journal
        self.spool = spool
        self._waiting: list[Done] = []
        self._group: asyncio.Task[None] | None = None  # writes what waits
        self._turn = asyncio.Lock()

    async def keep(self, done: Done) -> None:
        """Write a record, together with those that come meanwhile. Raises BatchError."""
        self._waiting.append(done)
        if self._group is None:
            self._group = asyncio.create_task(self._write())
        await asyncio.shield(self._group)

    async def _write(self) -> None:
        async with self._turn:  # the group before is written; until then this one grows
            group, self._waiting, self._group = self._waiting, [], None
            await asyncio.to_thread(self._put, group)

    def _put(self, group: list[Done]) -> None:
        for done, at in zip(group, self.journal.append(group), strict=True):
            remember(self.spool, done, at)

    async def read(self, at: int) -> Done:
        """A line that was written."""
        line = await asyncio.to_thread(self.journal.read, at)
        if not isinstance(line, Done):
            raise TypeError("not the line of a record")
        return line


def remember(spool: Spool, done: Done, at: int) -> None:
    """Put a line of the journal into the index."""
    record = done.record
    asked = done.asked if record.error is None else None
    key = (done.source, done.member, record.page)
    spool.finish(Finished(key, (done.size, done.mtime), at, asked, bytes.fromhex(record.digest), done.pages))
