"""Documents inside a request: their pages as sights, and the pixels of PDF pages. Works on one document at a time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from twinlens.core import PagePlace
from twinlens.errors import InvalidField, TooManyPages
from twinlens.media import pages, signature
from twinlens.media.pdf import MOST_TEXT, Paper, Reader

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from twinlens.core import ImageRef, Sight
    from twinlens.settings import Settings


@dataclass(frozen=True, slots=True)
class Leaf:
    """A page before its picture is looked at: `size` is (height, width) in pixels at the setting page_dpi."""

    place: PagePlace
    size: tuple[int, int]
    warnings: tuple[str, ...] = ()


class Leaves:
    """The pages of PDFs, for one gateway process."""

    def __init__(self, settings: Settings) -> None:
        self._reader = Reader(settings.page_timeout_s)
        self._dpi = settings.page_dpi
        self._most_pixels = settings.max_image_pixels
        self._text = settings.page_text

    async def of_pdf(self, ref: ImageRef, data: bytes, most: int) -> list[Leaf]:
        """The pages of a PDF that are meant, at most `most`. Raises the errors of PDFs, NoSuchPage, TooManyPages."""
        paper = Paper(data, ref.where, ref.password)
        cover = await asyncio.wrap_future(self._reader.open(paper))
        chosen = pages.numbers(ref.pages, cover.pages, ref.where, most, ref.first)
        leaves = [await self._leaf(ref, paper, number, cover.pages) for number in chosen]
        said = tuple(f"{ref.where}: {text}" for text in cover.warnings)
        said += unused(len(chosen), ref.where, cover.pages)
        return [replace(leaves[0], warnings=(*said, *leaves[0].warnings)), *leaves[1:]]

    async def draw(self, sight: Sight) -> NDArray[np.uint8]:
        """The pixels of a PDF page at the size that the model sees. Raises the errors of PDFs."""
        assert sight.page is not None  # noqa: S101 - made by `of_pdf`
        paper = Paper(sight.data, sight.where, sight.page.password)
        return await asyncio.wrap_future(self._reader.draw(paper, sight.page.number, sight.size))

    def close(self) -> None:
        """End the process that reads PDFs."""
        self._reader.close()

    async def _leaf(self, ref: ImageRef, paper: Paper, number: int, total: int) -> Leaf:
        wanted = self._text if ref.text is None else ref.text
        sheet = await asyncio.wrap_future(self._reader.page(paper, number, text=wanted))
        text = sheet.text[:MOST_TEXT]
        said: tuple[str, ...] = ()
        if len(sheet.text) > MOST_TEXT:
            said = (f"{ref.where}: the text of page {number} is cut after {MOST_TEXT} characters.",)
        place = PagePlace(number, total, sheet.box, sheet.rotate, text, ref.password)
        return Leaf(place, sheet.pixels(self._dpi, self._most_pixels), said)


def of_tiff(ref: ImageRef, data: bytes, most: int) -> list[tuple[int, PagePlace]]:
    """(which picture of the file, page) of the pages of a TIFF that are meant. Raises NoSuchPage, TooManyPages."""
    frames = signature.tiff_pages(data)
    chosen = pages.numbers(ref.pages, len(frames), ref.where, most, ref.first)
    return [(frames[number - 1], PagePlace(number, len(frames))) for number in chosen]


def unused(used: int, where: str, total: int) -> tuple[str, ...]:
    """What to say where not all pages are used."""
    return (f"{where}: {used} of {total} pages are used.",) if used < total else ()


class Budget:
    """How many pages the documents of one request may still bring, and how much text."""

    def __init__(self, settings: Settings, pictures: int, *, each: bool) -> None:
        """`pictures` that the request names; `each`: pages are asked one by one, so that they do not add up there."""
        limit = settings.max_pages if each else min(settings.max_pages, max(settings.max_images, pictures))
        self._left = limit - pictures
        self._chars = settings.max_text_chars

    @property
    def most(self) -> int:
        """Pages that the next document may bring."""
        return max(self._left + 1, 1)

    def take(self, found: Sequence[Sight], where: str) -> None:
        """Raises TooManyPages, InvalidField."""
        self._left -= len(found) - 1
        if self._left < 0 and len(found) > 1:
            raise TooManyPages(f"{where}: its pages are too many beside the other pictures.", param=where)
        self._chars -= sum(len(sight.page.text) for sight in found if sight.page)
        if self._chars < 0:
            raise InvalidField(
                f"{where}: the text of its pages is longer than max_text_chars.",
                param=where,
                cure="Choose fewer pages with “pages”, or leave their text out with “page_text”: false.",
            )
