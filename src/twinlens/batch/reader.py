"""From inputs to questions, in the stable order, without what is finished. Blocks: it belongs in a thread."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec
import pybase64
from blake3 import blake3

from twinlens.batch import contents
from twinlens.batch.records import Failure
from twinlens.errors import ImageError, TwinlensError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinlens.batch.contents import File
    from twinlens.batch.door import Served
    from twinlens.batch.listing import Listing
    from twinlens.batch.pages import Opener, Page
    from twinlens.batch.spool import Source, Spool
    from twinlens.settings import Settings

MOST_ITEMS = 64  # that are taken at a time
MOST_BYTES = 16 << 20
SOON_S = 0.1  # after which what there is is taken: pages of documents take long to draw


@dataclass(slots=True)
class Item:
    """One question. `asked` is the same for identical ones; `error`: it cannot even be asked."""

    path: str
    page: int
    source: bytes
    member: int
    stat: tuple[int, int]  # size and time of the source
    pages: int = 1  # questions about the same file
    digest: str = ""
    asked: bytes = b""
    body: bytes = b""
    error: Failure | None = None
    owner: bool = False  # it is the one of its identical ones that is asked
    attempts: int = 0  # that ended in trouble of the service

    @property
    def key(self) -> tuple[bytes, int, int]:
        """What tells it apart from all others."""
        return self.source, self.member, self.page


class Reader:
    """`kept` counts what was finished before; `more` what documents and archives hold beyond one item each."""

    def __init__(self, spool: Spool, served: Served, opener: Opener, settings: Settings, listing: Listing) -> None:
        """`settings` bound a file."""
        work = served.work
        asked = {"variables": work.variables} | ({} if work.max_tokens is None else {"max_tokens": work.max_tokens})
        self._tail = b"]," + msgspec.json.encode(asked)[1:]
        self._spool = spool
        self._policy = served.policy
        self._opener = opener
        self._most = contents.bounds(settings)
        self._listing = listing
        self.kept = 0
        self.more = 0
        self._items = self._all()

    def take(self) -> list[Item]:
        """The next questions; none when there are no more."""
        taken: list[Item] = []
        size = 0
        end = time.monotonic() + SOON_S
        for item in self._items:
            taken.append(item)
            size += len(item.body)
            if len(taken) >= MOST_ITEMS or size > MOST_BYTES or time.monotonic() > end:
                break
        return taken

    def _all(self) -> Iterator[Item]:
        for source in self._spool.sources():
            self.more -= 1
            for file in contents.files(source, self._most, self._listing.skip):
                self.more += 1
                yield from self._of(source, file)

    def _of(self, source: Source, file: File) -> Iterator[Item]:
        """The questions about one file that are left."""
        finished, pages = self._spool.finished(source.path, file.member)
        self.kept += finished
        if finished:
            self.more += pages - 1
            if finished == pages:
                return
        item = Item(file.path, 1, source.path, file.member, (source.size, source.mtime))
        try:
            data = file.read()
            item.digest = blake3(data).hexdigest()
            for page in self._opener.pages(data, file.path, self._policy):
                if finished and page.total != pages:
                    raise ImageError(f"{file.path} was changed while the batch stood still.", cure="Ask it anew.")
                if not finished and page.number == 1:
                    self.more += page.total - 1
                if not finished or not self._spool.is_done(source.path, file.member, page.number):
                    yield self._asking(item, page)
        except TwinlensError as error:
            for number in range(1, max(pages, 1) + 1):
                if not self._spool.is_done(source.path, file.member, number):
                    yield replace(item, page=number, pages=max(pages, 1), error=_failure(error))

    def _asking(self, file: Item, page: Page) -> Item:
        item = replace(file, page=page.number, pages=page.total)
        try:
            picture = page.picture()
        except TwinlensError as error:
            item.error = _failure(error)
            return item
        if not picture:
            item.error = Failure("invalid_image", "The file is empty. Check where it came from.")
            return item
        said = b"," + msgspec.json.encode(page.said)[1:] if page.said else b""
        item.asked = blake3(picture + b"\0" + said if said else picture).digest(16)
        coded = b'"' + pybase64.b64encode(picture) + b'"'
        item.body = b'{"images":[' + (b'{"url":' + coded + said if said else coded) + self._tail
        return item


def _failure(error: TwinlensError) -> Failure:
    return Failure(error.code, f"{error.message} {error.cure}".strip())
