"""One batch from its inputs to its table."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Literal

from twinlens.batch import contents, report
from twinlens.batch.door import Door
from twinlens.batch.journal import Journal
from twinlens.batch.keeper import Keeper
from twinlens.batch.level import Level
from twinlens.batch.listing import Listing
from twinlens.batch.output import columns_of, replaced, writer_of
from twinlens.batch.pages import Opener
from twinlens.batch.progress import Progress
from twinlens.batch.reader import Reader
from twinlens.batch.records import Done
from twinlens.batch.runner import Runner
from twinlens.batch.session import Wish, begin
from twinlens.batch.spool import Spool
from twinlens.batch.thumbs import Thumbs
from twinlens.media.documents import Documents

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from twinlens.batch.door import Served
    from twinlens.batch.records import Record
    from twinlens.settings import Settings

MOST_TOLD = 20  # failures that are listed at the end
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Plan:
    """What was asked for. `at_once` bounds requests under way; `passwords` are tried on PDFs that need one."""

    paths: tuple[str, ...]
    task: str
    out: Path
    variables: Mapping[str, Any]
    max_tokens: int | None = None
    order: Literal["stable", "ready"] = "stable"
    wish: Wish = field(default_factory=Wish)
    at_once: int = 256
    wait_s: float = 120.0
    passwords: tuple[str, ...] = field(default=(), repr=False)
    report: Path | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it went. `total` of records are expected, `pending` of them are not finished; `stopped` says why."""

    total: int
    finished: int
    failed: int
    asked: int
    copied: int
    kept: int
    skipped: dict[str, int]
    failures: tuple[Record, ...]  # the first of them
    torn: int
    stopped: str
    signalled: int

    @property
    def pending(self) -> int:
        """Records that are still to be made; at least: what an unopened document holds is not known."""
        return max(0, self.total - self.finished)


class Job:
    """Find the inputs with `prepare`, then `run` against a service."""

    def __init__(self, plan: Plan, settings: Settings, told: IO[str]) -> None:
        """`settings` bound files; `told`: where progress is shown. Raises BatchError for an unknown kind of output."""
        self.plan = plan
        self._settings = settings
        self._told = told
        self._write = writer_of(plan.out)
        self._listing = Listing()
        self._spool = Spool()
        self._documents = Documents(settings)
        self._opener = Opener(self._documents, plan.passwords)
        self._count = 0
        self._signalled = 0

    def prepare(self, lists: Sequence[BinaryIO]) -> int:
        """Find all inputs; returns how many. Raises BatchError."""
        self._count = self._listing.fill(self._spool, self.plan.paths, lists)
        return self._count

    async def run(self, url: str, key: str) -> Outcome:
        """Do what is not done yet, and write the table. Raises BatchError, EngineUnavailable."""
        plan = self.plan
        async with Door(url, key, plan.task) as door:
            await door.until_ready(plan.wait_s)
            served = await door.served(plan.variables, plan.max_tokens, self._settings.page_dpi)
            journal = await asyncio.to_thread(Journal, plan.out.with_name(plan.out.name + ".journal"))
            try:
                skipped = sum(self._listing.skipped.values())
                await asyncio.to_thread(begin, journal, self._spool, served.work, plan.out, plan.wish, skipped)
                outcome = await self._asked(door, served, journal)
                await asyncio.to_thread(self._put, served, journal)
                if plan.report:
                    await asyncio.to_thread(self._report, plan.report, served, journal, outcome)
            finally:
                await asyncio.to_thread(journal.close)
            return outcome

    async def _asked(self, door: Door, served: Served, journal: Journal) -> Outcome:
        plan = self.plan
        reader = Reader(self._spool, served, self._opener, self._settings, self._listing)
        runner = Runner(reader, door, served, Keeper(journal, self._spool), Level(plan.at_once), wait_s=plan.wait_s)
        counts = runner.counts

        def state() -> tuple[int, int, int]:
            return reader.kept + counts.finished, counts.failed, self._count + reader.more

        showing = asyncio.create_task(Progress(self._told, state).run())
        with self._stopping(runner):
            try:
                await runner.run()
            finally:
                showing.cancel()
                await asyncio.gather(showing, return_exceptions=True)
        finished, failed = self._spool.counts()
        return Outcome(
            total=max(finished, self._count + reader.more),
            finished=finished,
            failed=failed,
            asked=counts.answered + counts.failed,
            copied=counts.copied,
            kept=reader.kept,
            skipped=dict(self._listing.skipped),
            failures=tuple(self._failures(journal)),
            torn=journal.torn + journal.damaged,
            stopped=runner.stopped,
            signalled=self._signalled,
        )

    @contextlib.contextmanager
    def _stopping(self, runner: Runner) -> Iterator[None]:
        """Ctrl-C and SIGTERM: finish what is under way; once more: do not."""
        loop = asyncio.get_running_loop()

        def stop(number: int) -> None:
            if self._signalled:
                runner.leave()
                return
            self._signalled = number
            self._told.write("\nStopping: waiting for what is under way; once more to leave it.\n")
            runner.stop("It was interrupted.")

        for number in _SIGNALS:
            loop.add_signal_handler(number, stop, number)
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    def _failures(self, journal: Journal) -> Iterator[Record]:
        for count, at in enumerate(self._spool.offsets(failed=True)):
            if count == MOST_TOLD:
                return
            yield _done(journal, at).record

    def _put(self, served: Served, journal: Journal) -> None:
        """Write the table. Raises BatchError."""

        def records() -> Iterator[Record]:
            for at in self._spool.offsets(stable=self.plan.order == "stable"):
                yield _done(journal, at).record

        columns = () if self.plan.out.suffix == ".jsonl" else columns_of(served.columns, records)
        replaced(self.plan.out, lambda file: self._write(file, records, columns))

    def _report(self, path: Path, served: Served, journal: Journal, outcome: Outcome) -> None:
        """Write the report. Raises BatchError."""

        def dones(failed: bool | None) -> Iterator[Done]:
            for at in self._spool.offsets(failed=failed):
                yield _done(journal, at)

        thumbs = Thumbs(self._opener, contents.bounds(self._settings), served)
        about = report.About(served.work, self.plan.out.name, outcome.pending, outcome.stopped)
        replaced(path, lambda file: report.write(file, dones, thumbs.of, about))

    def close(self) -> None:
        """Give the index back, and end the process that reads PDFs."""
        self._documents.close()
        self._spool.close()


def _done(journal: Journal, at: int) -> Done:
    line = journal.read(at)
    if not isinstance(line, Done):
        raise TypeError("not the line of a record")
    return line
