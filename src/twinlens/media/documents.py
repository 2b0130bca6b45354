"""Files as their pages, for whoever works on files instead of requests: how many there are, and each as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PIL import Image as Pillow

from twinlens.errors import ImageError, NoSuchPage
from twinlens.media import decode, signature
from twinlens.media.pdf import Paper, Reader

if TYPE_CHECKING:
    from twinlens.settings import Settings


class Documents:
    """Opens files by the bounds of the settings. Threads may share it; it is a context manager, or has to be closed.

    A PDF, a TIFF of several pages and a plain picture are all alike: a picture is a document with one page. Methods
    wait and belong in threads. They raise ImageError and its kinds, which name `where`.
    """

    def __init__(self, settings: Settings) -> None:
        decode.check_decoders()
        self._most_pixels = settings.max_image_pixels
        self._dpi = settings.page_dpi
        self._reader = Reader(settings.page_timeout_s)

    def count(self, data: bytes, where: str, password: str = "") -> int:
        """How many pages. `where` is what errors call the file: its path, or a part of a request."""
        name = _name(data, where)
        if name == "PDF":
            return self._reader.open(Paper(data, where, password)).result().pages
        if name == "TIFF":
            return len(signature.tiff_pages(data))
        decode.look(data, where, self._most_pixels)
        return 1

    def page(self, data: bytes, number: int, where: str, password: str = "") -> Pillow.Image:
        """Page `number`, from 1, upright and in RGB, at the size of the file; a PDF's at the setting page_dpi.

        Nothing is kept between two pages but the open PDF itself. Raises NoSuchPage besides.
        """
        total = self.count(data, where, password)
        if not 1 <= number <= total:
            raise NoSuchPage(f"{where} has {total} pages; page {number} was asked for.", param=where)
        if _name(data, where) == "PDF":
            paper = Paper(data, where, password)
            size = self._reader.page(paper, number).result().pixels(self._dpi, self._most_pixels)
            return Pillow.fromarray(self._reader.draw(paper, number, size).result())
        frame = frame_of(data, number)
        header = decode.look(data, where, self._most_pixels, frame)
        return decode.pixels(data, header.format, header.size, where, frame)

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
