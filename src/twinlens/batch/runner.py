"""Asks all questions of a batch, as many at once as the service takes, and keeps every answer as it comes.

A bad picture fails by itself. Trouble of the service fails nobody at first: the item is asked again, then alone with
nothing else under way. What fails even so is doubtful until the service has answered something else; when too many are,
the service is to blame, the run stops, and they stay undone.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from twinlens.batch import door as doors
from twinlens.batch.records import Done, Failure, Record
from twinlens.errors import TwinlensError

if TYPE_CHECKING:
    from twinlens.batch.door import Door, Served
    from twinlens.batch.keeper import Keeper
    from twinlens.batch.level import Level
    from twinlens.batch.reader import Item, Reader

IN_COMPANY, ALONE = 2, 2  # times that an item is asked, trouble or not
MOST_DOUBTFUL = 5
MOST_BYTES = 256 << 20  # of questions under way
MOST_TWINS = 5000  # items that wait for the answer to an identical one
_STEP_S = 2.0


@dataclass(slots=True)
class Counts:
    """Of this run; `kept` were finished before."""

    answered: int = 0
    copied: int = 0
    failed: int = 0
    began: float = field(default_factory=time.monotonic)

    @property
    def finished(self) -> int:
        """Records that this run made."""
        return self.answered + self.copied + self.failed


class Runner:
    """One run. `stop` ends it early; `stopped` then says why."""

    def __init__(  # noqa: PLR0913 - its parts
        self, reader: Reader, door: Door, served: Served, keeper: Keeper, level: Level, *, wait_s: float
    ) -> None:
        """`wait_s`: longest wait for a service that is not ready, or that answers nothing but “busy”."""
        self._reader = reader
        self._door = door
        self._served = served
        self._keeper = keeper
        self._level = level
        self._wait_s = wait_s
        self.counts = Counts()
        self.stopped = ""
        self._again: deque[Item] = deque()
        self._doubtful: list[tuple[Item, Failure]] = []
        self._under_way: dict[asyncio.Task[None], int] = {}
        self._twins: dict[bytes, list[Item]] = {}
        self._waiting_twins = 0
        self._bytes = 0
        self._changed = asyncio.Event()
        self._check = False  # the service has to be looked at before it is asked again
        self._heard = time.monotonic()  # when the service last answered something
        self._next: asyncio.Future[list[Item]] | None = None
        self._read: deque[Item] = deque()
        self._broken: BaseException | None = None

    def stop(self, why: str) -> None:
        """Ask nothing more; what is under way is awaited."""
        self.stopped = self.stopped or why
        self._changed.set()

    def leave(self) -> None:
        """Do not even wait for what is under way."""
        for task in list(self._under_way):
            task.cancel()

    async def run(self) -> None:
        """Until everything is finished, or it was stopped. Raises BatchError when nothing can be kept."""
        try:
            while not self.stopped and (item := await self._take()) is not None:
                await self._one(item)
            await self._drained()
            if not self.stopped:
                await self._settle(service_works=self.counts.answered > 0)
        finally:
            self.leave()
            await asyncio.gather(*self._under_way, return_exceptions=True)
            if self._next is not None:
                with contextlib.suppress(TwinlensError):
                    await self._next
        if self._broken:
            raise self._broken

    async def _one(self, item: Item) -> None:
        if item.error:
            await self._fail(item, item.error)
        elif not await self._is_known(item):
            alone = item.attempts >= IN_COMPANY
            await self._place(len(item.body), alone=alone)
            if self.stopped:
                return
            self._start(item)
            if alone:
                await self._drained()

    async def _take(self) -> Item | None:
        """The next item: one that is to be asked again first. None when there is nothing more."""
        while not self.stopped:
            if self._again:
                return self._again.popleft()
            if not self._read and self._next is None:
                self._next = asyncio.ensure_future(asyncio.to_thread(self._reader.take))
            if not self._read and self._next is not None:
                found = await self._next
                self._read.extend(found)
                self._next = asyncio.ensure_future(asyncio.to_thread(self._reader.take)) if found else None
            if self._read:
                return self._read.popleft()
            if not self._under_way and not self._again:
                return None
            await self._change()
        return None

    async def _is_known(self, item: Item) -> bool:
        """Whether an identical item has its answer, which is then taken, or is being asked, which is then awaited."""
        if item.owner:
            return False
        while self._waiting_twins > MOST_TWINS and not self.stopped:
            await self._change()
        if item.asked in self._twins:
            self._twins[item.asked].append(item)
            self._waiting_twins += 1
            item.body = b""
            return True
        at = self._keeper.spool.answered(item.asked)
        if at is None:
            self._twins[item.asked] = []
            item.owner = True
            return False
        await self._copy(item, (await self._keeper.read(at)).record)
        return True

    async def _place(self, size: int, *, alone: bool) -> None:
        """Wait until one more may be asked."""
        while not self.stopped:
            if self._check:
                await self._look()
            elif (pause := self._level.paused_until - time.monotonic()) > 0:
                await self._change(min(pause, _STEP_S))
            elif self._under_way and (
                alone or len(self._under_way) >= self._level.now or self._bytes + size > MOST_BYTES
            ):
                await self._change()
            else:
                return

    async def _look(self) -> None:
        """After trouble: wait until the service is ready again, and is what it was."""
        try:
            await self._door.until_ready(self._wait_s)
            work = self._served.work
            now = await self._door.served(work.variables, work.max_tokens, work.page_dpi)
        except TwinlensError as error:
            self.stop(error.message)
            return
        self._check = False
        if now.work != work:
            self.stop("The service now has another task file or other weights.")

    def _start(self, item: Item) -> None:
        task = asyncio.create_task(self._ask(item))
        self._under_way[task] = len(item.body)
        self._bytes += len(item.body)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._bytes -= self._under_way.pop(task)
        self._changed.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._broken = self._broken or error
            self.stop("What is finished cannot be kept.")

    async def _change(self, limit_s: float | None = None) -> None:
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), limit_s)

    async def _drained(self) -> None:
        while self._under_way:
            await self._change()

    async def _ask(self, item: Item) -> None:
        began = time.monotonic()
        said = await self._door.ask(item.body)
        if isinstance(said, doors.Answer | doors.Refused):
            self._heard = time.monotonic()
            self._level.answered(began)
            if isinstance(said, doors.Refused) and said.failure.code not in doors.OF_THE_ANSWER:
                await self._fail(item, said.failure, time.monotonic() - began)
                return
            if self._doubtful:
                await self._settle(service_works=True)
            if isinstance(said, doors.Refused):
                await self._fail(item, said.failure, time.monotonic() - began)
            else:
                await self._answered(item, said, time.monotonic() - began)
        elif isinstance(said, doors.Closed):
            self.stop(said.failure.message)
        else:
            await self._not_now(item, said, began)

    async def _not_now(self, item: Item, said: doors.Busy | doors.Trouble, began: float) -> None:
        self._level.busy(began, said.wait_s)
        if isinstance(said, doors.Busy):
            if time.monotonic() - self._heard > max(self._wait_s, 2 * said.wait_s):
                self.stop(f"The service has had no room for long: {said.failure.message}")
            self._again.append(item)
            return
        self._check = True
        item.attempts += 1
        if item.attempts < IN_COMPANY + ALONE:
            self._again.append(item)
            return
        self._doubtful.append((item, said.failure))
        if len(self._doubtful) >= MOST_DOUBTFUL:
            self.stop(f"The service fails again and again: {said.failure.message}")

    async def _settle(self, *, service_works: bool) -> None:
        """Items that made trouble alone have failed if others did not; otherwise the service is to blame."""
        doubtful, self._doubtful = self._doubtful, []
        if not service_works and doubtful:
            self._doubtful = doubtful
            self.stop(f"The service answered nothing: {doubtful[0][1].message}")
            return
        for item, failure in doubtful:
            await self._fail(item, failure)

    async def _answered(self, item: Item, said: doors.Answer, took: float) -> None:
        if said.said.get("version") != self._served.work.version:
            self.stop("The service now has another task file.")
            return
        record = Record(
            path=item.path,
            page=item.page,
            digest=item.digest,
            answer=said.said["result"],
            usage=said.said["usage"],
            time=round(took, 4),
            warnings=tuple(said.said.get("warnings") or ()),
        )
        await self._keep(item, record)
        self.counts.answered += 1
        for twin in self._twins_of(item):
            await self._copy(twin, record)

    def _twins_of(self, item: Item) -> list[Item]:
        twins = self._twins.pop(item.asked, [])
        self._waiting_twins -= len(twins)
        return twins

    async def _copy(self, item: Item, record: Record) -> None:
        """The answer to an identical item."""
        copied = Record(
            path=item.path,
            page=item.page,
            digest=item.digest,
            answer=record.answer,
            same_as=record.same_as or record.path,
            warnings=record.warnings,
        )
        await self._keep(item, copied)
        self.counts.copied += 1

    async def _fail(self, item: Item, failure: Failure, took: float = 0.0) -> None:
        for one in (item, *self._twins_of(item)):
            record = Record(path=one.path, page=one.page, digest=one.digest, time=round(took, 4), error=failure)
            await self._keep(one, record)
            self.counts.failed += 1

    async def _keep(self, item: Item, record: Record) -> None:
        place = {"member": item.member, "pages": item.pages}
        await self._keeper.keep(Done(record, item.source, *item.stat, item.asked, **place))
