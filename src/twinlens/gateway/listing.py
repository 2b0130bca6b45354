"""Streams whose text may be a JSON list: the results of pages as they come, null for one that failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from twinlens.errors import TwinlensError
from twinlens.gateway.answers import Frames
from twinlens.gateway.book import Book
from twinlens.gateway.wire import ChunkChoice, Delta
from twinlens.pipeline import Begun, Failed

if TYPE_CHECKING:
    from collections.abc import Callable

    from twinlens.core import FinishReason
    from twinlens.pipeline import Item


class Listing:
    """Makes the text of a stream, piece by piece; of an answer that is the only one, its own text."""

    def __init__(self, read: Callable[[str], Any], *, deltas: bool) -> None:
        """`read` makes the result of a page's text. `deltas`: results are texts, and leave in pieces."""
        self.book = Book(1, read)
        self._read = read
        self._deltas = deltas
        self._held = ""  # that may leave: at the latest with the first page that succeeds
        self._inside = False  # a text that is not closed yet
        self._left = False  # something of it has left

    def of(self, item: Item) -> str:
        """The text that leaves with this item."""
        self.book.add(item)
        if isinstance(item, Begun):
            return ""
        if isinstance(item, Failed):
            self._held += '"' if self._inside else self._comma() + "null"
            self._inside = False
            return self._flushed() if self._left else ""
        if not self.book.paged:
            return item.text
        self._held += self._said(item.text, last=item.usage is not None)
        return self._flushed() if self._deltas or item.usage is not None else ""

    def end(self) -> str:
        """What closes it; empty where nothing has left."""
        return "]" if self.book.paged and self._left else ""

    def _said(self, text: str, *, last: bool) -> str:
        if not self._deltas:
            whole = self.book.whole.texts()[0]
            return self._comma() + msgspec.json.encode(self._read(whole)).decode() if last else ""
        said = "" if self._inside else self._comma() + '"'
        self._inside = not last
        return said + msgspec.json.encode(text).decode()[1:-1] + ('"' if last else "")

    def _comma(self) -> str:
        return "[" if len(self.book.leaves) == 1 else ","

    def _flushed(self) -> str:
        text, self._held = self._held, ""
        self._left = self._left or bool(text)
        return text


class ListFrames(Frames):
    """Frames of a chat whose answer may be such a list."""

    def __init__(self, answer_id: str, model: str, listing: Listing, *, include_usage: bool) -> None:
        super().__init__(answer_id, model, logprobs=False, include_usage=include_usage)
        self._listing = listing

    def of(self, item: Item) -> bytes:
        """See `Frames.of`."""
        text = self._listing.of(item)
        if isinstance(item, Begun) or not self._listing.book.paged:
            return super().of(item)
        return self._told(text) if text else b""

    def end(self) -> bytes:
        """See `Frames.end`. Raises what the first failed page raised, where nothing has left."""
        book = self._listing.book
        if not book.paged:
            return b""
        frames = b""
        if text := self._listing.end():
            frames = self._told(text, book.reason) + self._spent(book.usage)
        try:
            book.check()
        except TwinlensError as error:
            if not frames:
                raise
            frames += self.error(error)
        return frames

    def _told(self, text: str, reason: FinishReason | None = None) -> bytes:
        delta = Delta(content=text) if self._seen else Delta(role="assistant", content=text)
        self._seen.add(0)
        return self._frame(self._chunk_of(ChunkChoice(index=0, delta=delta, finish_reason=reason)))
