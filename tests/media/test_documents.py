"""Files as pages: how many, each upright, and what is said of those that cannot be used."""

from __future__ import annotations

import io
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image as Pillow
from PIL.TiffImagePlugin import AppendingTiffWriter

from tests.media import pdfs, pictures
from twinlens.errors import (
    ImageError,
    NoSuchPage,
    PdfBadPassword,
    PdfEncrypted,
    PdfInvalid,
    PdfTimeout,
    UnsupportedImageFormat,
)
from twinlens.media.documents import Documents
from twinlens.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

WHERE = "messages[0].content[1]"


@pytest.fixture(scope="module")
def documents() -> Iterator[Documents]:
    with Documents(Settings(page_dpi=72)) as made:
        yield made


def dark(picture: Pillow.Image, left: int, top: int, right: int, bottom: int) -> bool:
    """Whether all of a box is dark; a pixel at its rim is left to the smoothing."""
    return bool((np.asarray(picture)[top + 1 : bottom - 1, left + 1 : right - 1] < 10).all())


def test_a_pdf_gives_its_pages_one_by_one(documents: Documents) -> None:
    data = pdfs.document([pdfs.square(10, 20), pdfs.square(300, 700)])
    assert documents.count(data, WHERE) == 2
    first, second = documents.page(data, 1, WHERE), documents.page(data, 2, WHERE)
    assert (first.size, first.mode) == ((595, 842), "RGB")
    assert dark(first, 10, 722, 110, 822)
    assert dark(second, 300, 42, 400, 142)
    assert np.asarray(first)[0, 0].tolist() == [255, 255, 255]


def test_red_is_red(documents: Documents) -> None:
    page = documents.page(pdfs.document([b"1 0 0 rg 0 0 595 842 re f"]), 1, WHERE)
    assert page.getpixel((300, 400)) == (255, 0, 0)


@pytest.mark.parametrize(
    ("rotate", "size", "corner"),
    [
        (0, (595, 842), (0, 742)),
        (90, (842, 595), (0, 0)),
        (180, (595, 842), (495, 0)),
        (270, (842, 595), (742, 495)),
        (-90, (842, 595), (742, 495)),
        (450, (842, 595), (0, 0)),
    ],
)
@pytest.mark.parametrize("inherited", [False, True])
def test_a_rotated_page_is_shown_as_its_reader_sees_it(
    documents: Documents, rotate: int, size: tuple[int, int], corner: tuple[int, int], inherited: bool
) -> None:
    entry = b"/Rotate %d" % rotate
    content = [pdfs.square(0, 0)]
    data = pdfs.document(content, tree=entry) if inherited else pdfs.document(content, page=entry)
    page = documents.page(data, 1, WHERE)
    assert page.size == size
    left, top = corner
    assert dark(page, left, top, left + 100, top + 100)
    assert (np.asarray(page) < 128).all(axis=2).sum() == pytest.approx(10_000, rel=0.03)


def test_only_the_crop_box_is_shown(documents: Documents) -> None:
    data = pdfs.document([pdfs.square(100, 100)], page=b"/CropBox[100 50 300 250]")
    page = documents.page(data, 1, WHERE)
    assert page.size == (200, 200)
    assert dark(page, 0, 50, 100, 150)


@pytest.mark.parametrize("appearance", [True, False])
def test_form_fields_are_drawn(documents: Documents, appearance: bool) -> None:
    page = documents.page(pdfs.field(appearance=appearance), 1, WHERE)
    inside = np.asarray(page)[842 - 655 : 842 - 605, 105:395]
    assert (inside < 100).all(axis=2).sum() > 200


def test_annotations_are_drawn(documents: Documents) -> None:
    mark = b"<</Type/Annot/Subtype/Square/Rect[100 100 200 200]/F 4/AP<</N 10001 0 R>>>>"
    look = pdfs.stream(b"0 g 0 0 100 100 re f", b"/Type/XObject/Subtype/Form/BBox[0 0 100 100]")
    data = pdfs.document(page=b"/Annots[10000 0 R]", more={10000: mark, 10001: look})
    assert dark(documents.page(data, 1, WHERE), 100, 642, 200, 742)


def test_a_pdf_that_only_its_owner_may_change_opens(documents: Documents) -> None:
    data = pdfs.encrypted("")
    assert documents.count(data, WHERE) == 1
    assert (np.asarray(documents.page(data, 1, WHERE)) < 100).any()


def test_a_password_opens_a_pdf_and_a_wrong_one_does_not(documents: Documents) -> None:
    data = pdfs.encrypted("open sesame")
    for password, kind in (("", PdfEncrypted), ("wrong", PdfBadPassword)):
        with pytest.raises(PdfEncrypted, match=r"messages\[0\]\.content\[1\]") as raised:
            documents.count(data, WHERE, password)
        assert type(raised.value) is kind
        assert "password" in raised.value.cure
        assert "wrong" not in raised.value.message
    assert documents.count(data, WHERE, "open sesame") == 1
    assert (np.asarray(documents.page(data, 1, WHERE, "open sesame")) < 100).any()
    with pytest.raises(PdfEncrypted):  # what is open for one who knows it is not open for the next
        documents.page(data, 1, WHERE)


def circle() -> bytes:
    return pdfs.pdf({1: b"<</Type/Catalog/Pages 2 0 R>>", 2: b"<</Type/Pages/Kids[2 0 R]/Count 1>>"})


BROKEN: dict[str, bytes] = {
    "stub": b"%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF".ljust(77),
    "cut": pdfs.numbered(3)[:300],
    "no pages": pdfs.document([]),
    "junk": b"%PDF-1.7\n" + os.urandom(5000),
    "only a head": b"%PDF-1.7",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_pdf_is_refused(documents: Documents, name: str) -> None:
    with pytest.raises(PdfInvalid) as raised:
        documents.page(BROKEN[name], 1, WHERE)
    assert raised.value.param == WHERE
    assert documents.count(pdfs.numbered(3), WHERE) == 3  # and nothing of it is left


def test_a_page_tree_that_runs_in_a_circle_ends(documents: Documents) -> None:
    started = time.monotonic()
    with pytest.raises(PdfInvalid):
        documents.page(circle(), 1, WHERE)
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("content", [b"BI /W 10 /H 10 /BPC 8 /CS /G ID " + b"x" * 50, b"q " * 50_000, b"\xff" * 1000])
def test_content_that_makes_no_sense_is_an_empty_page(documents: Documents, content: bytes) -> None:
    assert documents.page(pdfs.document([content]), 1, WHERE).size == (595, 842)


def test_junk_before_a_pdf_does_not_matter(documents: Documents) -> None:
    assert documents.count(b"\r\njunk mail\r\n" * 8 + pdfs.numbered(2), WHERE) == 2


def test_a_pdf_that_takes_too_long_is_given_up() -> None:
    with Documents(Settings(page_timeout_s=1.0)) as documents:
        assert documents.count(pdfs.bomb(), WHERE) == 1  # the process has started
        started = time.monotonic()
        with pytest.raises(PdfTimeout, match="page 1 of"):
            documents.page(pdfs.bomb(), 1, WHERE)
        assert time.monotonic() - started < 4
        assert documents.count(pdfs.numbered(2), WHERE) == 2


def test_a_process_that_dies_is_replaced() -> None:
    with Documents(Settings()) as documents:
        data = pdfs.numbered(2)
        documents.page(data, 1, WHERE)
        process: Any = documents._reader._process
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert documents.page(data, 2, WHERE).mode == "RGB"


def test_the_process_ends_with_its_owner() -> None:
    documents = Documents(Settings())
    documents.count(pdfs.numbered(1), WHERE)
    process: Any = documents._reader._process
    documents.close()
    assert process.poll() == -signal.SIGKILL


def test_threads_may_share_it(documents: Documents) -> None:
    papers = [pdfs.document([pdfs.square(10 * at, 10)] * 3) for at in range(6)]
    with ThreadPoolExecutor(6) as pool:
        pages = list(pool.map(lambda data: documents.page(data, 3, WHERE), papers * 2))
    for at, page in enumerate(pages):
        left = 10 * (at % 6)
        assert dark(page, left, 732, left + 100, 832)


@pytest.mark.parametrize(
    ("box", "size"),
    [
        ((0, 0, 14400, 14400), (1000, 1000)),  # 5 m
        ((0, 0, 1e9, 1e9), (1000, 1000)),
        ((0, 0, 200, 14400), (118, 8474)),
        ((0, 0, 0.001, 0.001), None),
    ],
)
def test_pages_without_measure_are_drawn_smaller(box: tuple[float, ...], size: tuple[int, int] | None) -> None:
    side = box[3]
    data = pdfs.document([b"0 g 0 0 %.4f %.4f re f" % (box[2], side / 20)], box=box)
    with Documents(Settings(max_image_pixels=1_000_000, page_dpi=300)) as documents:
        page = documents.page(data, 1, WHERE)
    assert page.width * page.height <= 1_000_000
    if size:
        assert page.size == pytest.approx(size, abs=1)
        assert dark(page, 0, page.height - page.height // 20 + 1, page.width, page.height)  # the far end is there


def tiff(*frames: Pillow.Image, **options: Any) -> bytes:
    out = io.BytesIO()
    frames[0].save(out, "TIFF", save_all=True, append_images=frames[1:], **options)
    return out.getvalue()


def test_every_picture_of_a_tiff_is_a_page(documents: Documents) -> None:
    colours = ["red", "lime", "blue"]
    data = tiff(*(Pillow.new("RGB", (30 + at, 20), colour) for at, colour in enumerate(colours)))
    assert documents.count(data, WHERE) == 3
    for at, wanted in enumerate([(255, 0, 0), (0, 255, 0), (0, 0, 255)]):
        page = documents.page(data, at + 1, WHERE)
        assert (page.size, page.getpixel((5, 5))) == ((30 + at, 20), wanted)


def test_a_smaller_copy_in_a_tiff_is_no_page(documents: Documents) -> None:
    out = io.BytesIO()
    with AppendingTiffWriter(out) as writer:
        for size, kind in ((40, 0), (10, 1), (50, 2), (40, 4)):
            Pillow.new("RGB", (size, 20), "red").save(writer, "TIFF", tiffinfo={254: kind})
            writer.newFrame()
    data = out.getvalue()
    assert documents.count(data, WHERE) == 2
    assert [documents.page(data, number, WHERE).width for number in (1, 2)] == [40, 50]


@pytest.mark.parametrize("name", ["JPEG", "PNG", "GIF", "WEBP", "BMP"])
def test_a_picture_is_a_document_with_one_page(documents: Documents, name: str) -> None:
    data = pictures.plain(name, (40, 30))
    assert documents.count(data, WHERE) == 1
    assert documents.page(data, 1, WHERE).size == (40, 30)
    with pytest.raises(NoSuchPage):
        documents.page(data, 2, WHERE)


@pytest.mark.parametrize("number", [0, -1, 4, 10**9])
def test_a_page_that_is_not_there_is_named(documents: Documents, number: int) -> None:
    with pytest.raises(NoSuchPage, match="3 pages"):
        documents.page(pdfs.numbered(3), number, WHERE)


@pytest.mark.parametrize(("data", "kind"), [(b"", ImageError), (b"plain words", UnsupportedImageFormat)])
def test_what_is_no_document_is_refused(documents: Documents, data: bytes, kind: type[ImageError]) -> None:
    with pytest.raises(kind):
        documents.count(data, WHERE)
