"""The pages of a file: the one place that knows how many questions there are, and what is sent for each.

A file whose pages are asked one by one is opened here, and each page is sent as a picture of its own: so each has its
record, and none is sent twice. Pages that are asked about together go to the service as the file that they are in; so
does a page of which the task wants to know more than its picture, with its number.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from twinlens.errors import ImageError, PdfBadPassword, PdfEncrypted, TooManyPages
from twinlens.media import signature

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from twinlens.media.documents import Document, Documents

MOST_PAGES = 100_000  # of one file; what says that it has more is no document that somebody made


@dataclass(frozen=True, slots=True)
class Policy:
    """What a task says of pages: each by itself or `together`; at most the first `most`.

    `document`: it wants the page of the PDF itself, because its boxes are in points of it.
    """

    together: bool = False
    most: int | None = None
    document: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """What one question is about: `number` from 1, of `total` questions about the file.

    `picture` gives the file that is sent; raises ImageError and its kinds. `said` is said of it to the service.
    """

    number: int
    total: int
    picture: Callable[[], bytes]
    said: Mapping[str, str] = field(default_factory=dict, repr=False)


class Opener:
    """Tells the pages of files apart. Its methods wait and belong in a thread."""

    def __init__(self, documents: Documents, passwords: tuple[str, ...] = ()) -> None:
        """`passwords` are tried in turn on PDFs that need one."""
        self._documents = documents
        self._passwords = passwords

    def pages(self, data: bytes, where: str, policy: Policy) -> Iterator[Page]:
        """The questions about one file. Raises ImageError and its kinds where it cannot be opened."""
        if not _has_pages(data):
            yield Page(1, 1, lambda: data)
            return
        document, password = self._opened(data, where)
        locked = {"password": password} if password else {}
        if policy.together:
            yield Page(1, 1, lambda: data, locked)
            return
        total = document.pages if policy.most is None else min(document.pages, policy.most)
        if total > MOST_PAGES:
            raise TooManyPages(f"{where} has {total} pages.", cure=f"Cut it into files of at most {MOST_PAGES}.")
        for number in range(1, total + 1):
            if policy.document and signature.sniff(data) == "PDF":
                yield Page(number, total, lambda: data, {"pages": str(number), **locked})
            else:
                yield Page(number, total, partial(_png, document, number))

    def document(self, data: bytes, where: str) -> Document:
        """The open file, whatever it is. Raises ImageError and its kinds."""
        return self._opened(data, where)[0]

    def _opened(self, data: bytes, where: str) -> tuple[Document, str]:
        try:
            return self._documents.opened(data, where), ""
        except PdfEncrypted:
            for password in self._passwords:
                try:
                    return self._documents.opened(data, where, password), password
                except PdfBadPassword:
                    continue
            raise


def _has_pages(data: bytes) -> bool:
    """Whether this is opened here: a PDF, a TIFF of several pictures. Anything else the service can judge alone."""
    try:
        name = signature.sniff(data)
    except ImageError:
        return False
    return name == "PDF" or (name == "TIFF" and len(signature.tiff_pages(data)) > 1)


def _png(document: Document, number: int) -> bytes:
    out = io.BytesIO()
    document.page(number).save(out, "PNG", compress_level=1)
    return out.getvalue()
