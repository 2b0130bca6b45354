"""Small pictures for the report, made from the files that were asked about, with the boxes that lie in them."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from blake3 import blake3

from twinlens.batch import contents
from twinlens.batch.spool import Source
from twinlens.errors import TwinlensError
from twinlens.finish import pointers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinlens.batch.contents import File, Most
    from twinlens.batch.door import Served
    from twinlens.batch.pages import Opener
    from twinlens.batch.records import Done
    from twinlens.media.documents import Document

SIDE = 200  # pixels of the longer side
QUALITY = 60
MOST_BOXES = 100

Box = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Thumb:
    """A picture file, or why there is none; boxes (left, top, right, bottom) in fractions of it."""

    data: bytes = b""
    why: str = ""
    boxes: tuple[Box, ...] = ()


class Thumbs:
    """Makes them one after the other; files are opened once when their records come together. Blocks."""

    def __init__(self, opener: Opener, most: Most, served: Served) -> None:
        """`served` says where boxes are, and whether pictures may be shown at all."""
        self._private = served.work.private
        self._opener = opener
        self._most = most
        self._boxes = [(pointers.parsed(path, path), units) for path, units in served.boxes]
        self._members: tuple[bytes, Iterator[File]] = (b"", iter(()))
        self._open: tuple[tuple[bytes, int], Document | str] = ((b"", -1), "")

    def of(self, done: Done) -> Thumb:
        """The thumbnail of a record."""
        if self._private:
            return Thumb(why="not shown: the task hides what is in it")
        try:
            document = self._document(done)
            if isinstance(document, str):
                return Thumb(why=document)
            picture = document.page(done.record.page)
            size = picture.size
            picture.thumbnail((SIDE, SIDE), reducing_gap=2.0)
        except TwinlensError as error:
            return Thumb(why=f"no picture: {error.code}")
        out = io.BytesIO()
        picture.save(out, "WEBP", quality=QUALITY)
        alone = done.pages > 1 or document.pages == 1  # boxes of pages that were asked together may lie in any of them
        return Thumb(out.getvalue(), boxes=tuple(self._drawn(done.record.answer, size)) if alone else ())

    def _document(self, done: Done) -> Document | str:
        """The open file, or why there is none."""
        key = (done.source, done.member)
        if self._open[0] != key:
            self._open = (key, "")
            self._open = (key, self._opened(done))
        return self._open[1]

    def _opened(self, done: Done) -> Document | str:
        file = self._file(done)
        data = file.read() if file else b""
        if blake3(data).hexdigest() != done.record.digest:
            return "no picture: the file is not what it was"
        return self._opener.document(data, done.record.path)

    def _file(self, done: Done) -> File | None:
        """The file of a record. Members of an archive are come to in their order; one before them means from anew."""
        found = self._next(done) if self._members[0] == done.source else None
        if found is None:
            source = Source(0, done.source, done.size, done.mtime)
            self._members = (done.source, contents.files(source, self._most, lambda why: None))
            found = self._next(done)
        return found

    def _next(self, done: Done) -> File | None:
        return next((file for file in self._members[1] if file.member == done.member), None)

    def _drawn(self, answer: Any, size: tuple[int, int]) -> Iterator[Box]:
        width, height = size
        found = 0
        for steps, units in self._boxes:
            across, down = (width, height) if units == "pixels" else (1, 1)
            for box in pointers.got(answer, steps):
                if _is_box(box) and found < MOST_BOXES:
                    found += 1
                    left, right = sorted(min(max(box[at] / across, 0.0), 1.0) for at in (0, 2))
                    top, bottom = sorted(min(max(box[at] / down, 0.0), 1.0) for at in (1, 3))
                    yield round(left, 4), round(top, 4), round(right, 4), round(bottom, 4)


def _is_box(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 4
        and all(isinstance(one, int | float) and math.isfinite(one) for one in value)
    )
