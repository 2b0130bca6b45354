"""Files as their pages, for whoever works on files instead of requests: how many there are, and each as a picture."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from PIL import Image as Pillow

from twinlens.errors import ImageError, NoSuchPage
from twinlens.media import decode, signature
from twinlens.media.pdf import Paper, Reader

if TYPE_CHECKING:
    from collections.abc import Callable

    from twinlens.settings import Settings


@dataclass(frozen=True, slots=True)
class Document:
    """An open file: `pages` of them, numbered from 1."""

    where: str
    pages: int
    _draw: Callable[[int], Pillow.Image] = field(repr=False)

    def page(self, number: int) -> Pillow.Image:
        """A page, upright and in RGB, at the size of the file; a PDF's at the setting page_dpi.

        Raises NoSuchPage besides.
        """
        if not 1 <= number <= self.pages:
            raise NoSuchPage(f"{self.where} has {self.pages} pages; page {number} was asked for.", param=self.where)
        return self._draw(number)


class Documents:
    """Opens files by the bounds of the settings. Threads may share it; it is a context manager, or has to be closed.

    A PDF, a TIFF of several pages and a plain picture are all alike: a picture is a document with one page. Methods
    wait and belong in threads. They raise ImageError and its kinds, which name `where`: what errors call the file, its
    path or a part of a request.
    """

    def __init__(self, settings: Settings) -> None:
        decode.check_decoders()
        self._most_pixels = settings.max_image_pixels
        self._dpi = settings.page_dpi
        self._profiles = settings.icc_to_srgb
        self._reader = Reader(settings.page_timeout_s)

    def opened(self, data: bytes, where: str, password: str = "") -> Document:
        """The document. Nothing is kept between two pages but the bytes and the open PDF itself."""
        name = _name(data, where)
        if name == "PDF":
            paper = Paper(data, where, password)
            return Document(where, self._reader.open(paper).result().pages, partial(self._sheet, paper))
        if name == "TIFF":
            frames = signature.tiff_pages(data)
            return Document(where, len(frames), lambda number: self._frame(data, where, frames[number - 1]))
        decode.look(data, where, self._most_pixels)
        return Document(where, 1, lambda _: self._frame(data, where, 0))

    def count(self, data: bytes, where: str, password: str = "") -> int:
        """How many pages."""
        return self.opened(data, where, password).pages

    def page(self, data: bytes, number: int, where: str, password: str = "") -> Pillow.Image:
        """One page of a file of which no other is wanted."""
        return self.opened(data, where, password).page(number)

    def _sheet(self, paper: Paper, number: int) -> Pillow.Image:
        size = self._reader.page(paper, number).result().pixels(self._dpi, self._most_pixels)
        return Pillow.fromarray(self._reader.draw(paper, number, size).result())

    def _frame(self, data: bytes, where: str, frame: int) -> Pillow.Image:
        header = decode.look(data, where, self._most_pixels, frame)
        return decode.pixels(data, header.format, header.size, where, frame, profiles=self._profiles)

    def close(self) -> None:
        """End the process that reads PDFs."""
        self._reader.close()

    def __enter__(self) -> Documents:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def frame_of(data: bytes, number: int) -> int:
    """Which picture of the file is page `number`."""
    return signature.tiff_pages(data)[number - 1] if signature.sniff(data) == "TIFF" else 0


def _name(data: bytes, where: str) -> str:
    if not data:
        raise ImageError(f"{where} is empty.", param=where)
    return signature.sniff(data)
