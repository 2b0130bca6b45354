"""From inputs to questions, in the stable order, without what is finished. Blocks: it belongs in a thread."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import msgspec
import pybase64
from blake3 import blake3

from twinlens.batch import contents, pages
from twinlens.batch.listing import DOCUMENTS, Listing
from twinlens.batch.records import Failure
from twinlens.errors import TwinlensError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinlens.batch.contents import File
    from twinlens.batch.pages import Page
    from twinlens.batch.records import Work
    from twinlens.batch.spool import Source, Spool

MOST_ITEMS = 64  # that are taken at a time
MOST_BYTES = 16 << 20
_PAGED = DOCUMENTS | {".tif", ".tiff"}


@dataclass(slots=True)
class Item:
    """One question. `asked` is the same for identical ones; `error`: it cannot even be asked."""

    path: str
    page: int
    source: bytes
    member: int
    stat: tuple[int, int]  # size and time of the source
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

    def __init__(self, spool: Spool, work: Work, policy: pages.Policy, *, most: int, listing: Listing) -> None:
        """`most`: bytes of one file."""
        asked = {"variables": work.variables} | ({} if work.max_tokens is None else {"max_tokens": work.max_tokens})
        self._tail = b'"],' + msgspec.json.encode(asked)[1:]
        self._spool = spool
        self._policy = policy
        self._most = most
        self._listing = listing
        self.kept = 0
        self.more = 0
        self._items = self._all()

    def take(self) -> list[Item]:
        """The next questions; none when there are no more."""
        taken: list[Item] = []
        size = 0
        for item in self._items:
            taken.append(item)
            size += len(item.body)
            if len(taken) >= MOST_ITEMS or size > MOST_BYTES:
                break
        return taken

    def _all(self) -> Iterator[Item]:
        for source in self._spool.sources():
            count = 0
            for file in contents.files(source, self._most, self._listing.skip):
                for item in self._of(source, file):
                    count += 1
                    if item is None:
                        self.kept += 1
                    else:
                        yield item
            self.more += count - 1

    def _of(self, source: Source, file: File) -> Iterator[Item | None]:
        """The questions about one file; None for one that is finished."""
        ending = PurePosixPath(file.path).suffix.lower()
        if ending not in _PAGED and self._spool.is_done(source.path, file.member, 1):
            yield None
            return
        item = Item(file.path, 1, source.path, file.member, (source.size, source.mtime))
        try:
            data = file.read()
            item.digest = blake3(data).hexdigest()
            for page in pages.pages(data, self._policy):
                yield self._asking(item, page, single=page.pictures == (data,))
        except TwinlensError as error:
            done = self._spool.is_done(source.path, file.member, 1)
            item.error = Failure(error.code, f"{error.message} {error.cure}".strip())
            yield None if done else item

    def _asking(self, file: Item, page: Page, *, single: bool) -> Item | None:
        if self._spool.is_done(file.source, file.member, page.number):
            return None
        item = Item(file.path, page.number, file.source, file.member, file.stat, file.digest)
        if not all(page.pictures):
            item.error = Failure("invalid_image", "The file is empty. Check where it came from.")
            return item
        hashed = [file.digest] if single else [blake3(data).hexdigest() for data in page.pictures]
        item.asked = blake3(" ".join(hashed).encode()).digest(16)
        pictures = b'","'.join(pybase64.b64encode(data) for data in page.pictures)
        item.body = b'{"images":["' + pictures + self._tail
        return item
