"""Whatever bytes are called a PDF: pages of the size that was promised, or an error of ours, and the next is read."""

from __future__ import annotations

import contextlib
import random
import re
import sys
import time
from functools import cache
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.media import pdfs
from twinlens.errors import ImageError
from twinlens.media.pdf import Paper, Reader

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

SECONDS = 60.0
LONGEST_S = 2.0  # a command; after it the process is killed
SIZE = (64, 48)
WORDS = (
    b"/Kids[2 0 R]",
    b"/Rotate 91",
    b"/MediaBox[0 0 1e38 -1e38]",
    b"/MediaBox[]",
    b"/UserUnit 1e9",
    b"/Length -1",
    b"/Length 99999999",
    b"/Count 2147483647",
    b"/Filter[/FlateDecode/FlateDecode]",
    b"/Filter/JBIG2Decode",
    b"/Filter/JPXDecode",
    b"<<" * 60,
    b"[" * 200,
    b"10 0 R",
    b"-1 0 R",
    b"4294967295 65535 R",
    b"nan",
    b"\0",
    b"q " * 50,
    b"BI /W 9999999 /H 9999999 /BPC 1 ID ",
    b"/XObject<</X 10 0 R>>",
)


@cache
def seeds() -> tuple[bytes, ...]:
    picture = pdfs.stream(
        bytes(300), b"/Type/XObject/Subtype/Image/Width 10/Height 10/BitsPerComponent 8/ColorSpace/DeviceRGB"
    )
    return (
        pdfs.numbered(3),
        pdfs.document([pdfs.square(0, 0)], page=b"/Rotate 90/CropBox[10 10 300 300]"),
        pdfs.field(appearance=True),
        pdfs.field(appearance=False),
        pdfs.encrypted(""),
        pdfs.document(
            [b"q 100 0 0 100 0 0 cm /I Do Q"], page=b"/Resources<</XObject<</I 10000 0 R>>>>", more={10000: picture}
        ),
    )


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    with contextlib.closing(Reader(LONGEST_S)) as found:
        yield found


def check(reader: Reader, data: bytes) -> None:
    """Raises AssertionError, or whatever got out that should not."""
    paper = Paper(data, "part")
    started = time.monotonic()
    try:
        cover = reader.open(paper).result(60)
        assert cover.pages >= 1
        for number in range(1, min(cover.pages, 3) + 1):
            sheet = reader.page(paper, number, text=True).result(60)
            assert all(side > 0 for side in sheet.size)
            height, width = sheet.pixels(150, 1_000_000)
            assert 1 <= height * width <= 1_000_000
            assert sheet.rotate in (0, 90, 180, 270)
            assert reader.draw(paper, number, SIZE).result(60).shape == (*SIZE, 3)
    except ImageError as error:
        assert error.param == "part"
        assert not re.search(r"0x|pdfium|Traceback|/usr", error.message)
    assert time.monotonic() - started < 60


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_pdf_09_damaged_pdfs(reader: Reader, data: st.DataObject) -> None:
    seed = bytearray(data.draw(st.sampled_from(seeds())))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(seed) - 1))
        if data.draw(st.booleans()):
            seed[at] = data.draw(st.integers(0, 255))
        else:
            word = data.draw(st.sampled_from(WORDS))
            seed[at : at + data.draw(st.integers(0, len(word)))] = word
    check(reader, bytes(seed))


def test_pdf_09_damaged_pdfs_by_the_minute(reader: Reader) -> None:
    """From a fixed seed, for a bounded time: cut, spliced, words exchanged. Afterwards a whole PDF is still read."""
    draw = random.Random(20261207)
    end = time.monotonic() + SECONDS
    done = 0
    while time.monotonic() < end:
        seed = bytearray(draw.choice(seeds()))
        for _ in range(draw.randrange(1, 8)):
            at = draw.randrange(len(seed))
            way = draw.randrange(5)
            if way == 0:
                seed[at] = draw.randrange(256)
            elif way == 1:
                word = draw.choice(WORDS)
                seed[at : at + draw.choice((0, len(word)))] = word
            elif way == 2:
                number = str(draw.choice((0, 1, -1, 2**31 - 1, 2**32, 10**12))).encode()
                spots = [found.span() for found in re.finditer(rb"\d+", bytes(seed))]
                first, last = draw.choice(spots) if spots else (0, 0)
                seed[first:last] = number
            elif way == 3 and draw.random() < 0.3:
                del seed[at:]
                seed += b"x"
            else:
                other = draw.choice(seeds())
                start = draw.randrange(len(other))
                seed[at:at] = other[start : start + draw.randrange(1, 200)]
        check(reader, bytes(seed))
        done += 1
    sys.stdout.write(f"\n{done} damaged PDFs in {SECONDS:g} s\n")
    assert done > 20
    assert reader.open(Paper(pdfs.numbered(2), "whole")).result(60).pages == 2
