from __future__ import annotations

import io
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from tests.media.pictures import FOREIGN, KINDS, animation, noise, plain, saved, strip
from twinlens.media import decode, signature


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_formats_are_known_by_their_bytes(kind: str) -> None:
    assert signature.sniff(KINDS[kind]()) == kind


@pytest.mark.parametrize("name", sorted(FOREIGN))
def test_other_formats_are_called_by_their_names(name: str) -> None:
    assert signature.sniff(FOREIGN[name]) == name
    assert name not in signature.FORMATS


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF"])
def test_declared_size_is_that_of_the_decoder(kind: str) -> None:
    assert signature.declared_size(KINDS[kind](), kind) == (43, 57)


@pytest.mark.parametrize(
    "options", [{"lossless": True}, {"quality": 80}, {"lossless": True, "exif": b"Exif\0\0II*\0\x08\0\0\0\0\0"}]
)
@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_declared_size_of_every_kind_of_webp(options: dict[str, Any], mode: str) -> None:
    data = saved(Image.new(mode, (300, 7)), "WEBP", **options)
    assert signature.declared_size(data, "WEBP") == (7, 300)


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"icc_profile": b"x" * 70000}, {"comment": b"hello"}])
def test_plain_jpegs(options: dict[str, Any]) -> None:
    data = noise("JPEG", 57, 43, **options)
    assert signature.is_plain(data)
    assert signature.declared_size(data, "JPEG") == (43, 57)


def test_a_jpeg_that_may_be_turned_is_not_plain() -> None:
    assert not signature.is_plain(strip(6, "JPEG"))
    assert not signature.is_plain(plain("PNG"))
    assert not signature.is_plain(b"")


def test_a_jpeg_with_many_segments_is_left_to_a_thread() -> None:
    data = plain("JPEG")
    assert signature.is_plain(data[:2] + b"\xff\xfe\0\2" * 10 + data[2:])
    assert not signature.is_plain(data[:2] + b"\xff\xfe\0\2" * 1000 + data[2:])


@pytest.mark.parametrize("count", [1, 3, 50])
def test_frames_and_pages_are_counted_without_decoding(count: int) -> None:
    frames = [Image.new("L", (9, 9), number) for number in range(count)]
    assert signature.gif_frames(saved(frames[0], "GIF", save_all=True, append_images=frames[1:])) == count
    assert signature.tiff_pages(saved(frames[0], "TIFF", save_all=True, append_images=frames[1:])) == tuple(
        range(count)
    )


def test_big_tiff_pages() -> None:
    frames = [Image.new("L", (9, 9), number) for number in range(3)]
    out = io.BytesIO()
    frames[0].save(out, "TIFF", save_all=True, append_images=frames[1:], big_tiff=True)
    assert signature.sniff(out.getvalue()) == "TIFF"
    assert signature.tiff_pages(out.getvalue()) == (0, 1, 2)


def test_a_tiff_that_runs_in_a_circle_ends() -> None:
    assert signature.tiff_pages(b"II*\0" + struct.pack("<IHI", 8, 0, 8)) == (0,)


def test_exif_behind_the_pixels_of_a_png_is_found() -> None:
    data = strip(6)
    start = data.index(b"eXIf") - 4
    length = struct.unpack_from(">I", data, start)[0] + 12
    exif = data[start : start + length]
    late = data[:start] + data[start + length : -12] + exif + data[-12:]
    assert signature.png_exif(late) == exif[8:-4]
    assert signature.png_exif(plain("PNG")) is None


@given(
    st.binary(max_size=200), st.sampled_from((b"", b"\xff\xd8\xff", b"GIF89a", b"II*\0", b"MM\0+", b"RIFFxxxxWEBPVP8X"))
)
def test_walks_over_anything_end_without_an_error(data: bytes, start: bytes) -> None:
    data = start + data
    signature.sniff(data)
    signature.is_plain(data)
    for name in signature.FORMATS:
        signature.declared_size(data, name)
    assert signature.gif_frames(data) >= 0
    assert signature.tiff_pages(data)[0] >= 0
    signature.png_exif(data)


@pytest.mark.parametrize("kind", ["GIF", "TIFF", "PNG", "JPEG", "WEBP"])
def test_walks_over_cut_files_end_without_an_error(kind: str) -> None:
    data = animation(kind) if kind != "JPEG" else plain(kind)
    for end in range(len(data)):
        cut = data[:end]
        signature.declared_size(cut, kind)
        signature.gif_frames(cut)
        signature.tiff_pages(cut)
        signature.png_exif(cut)


APP1 = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"  # orientation 6


def segments(data: bytes) -> tuple[list[bytes], bytes]:
    """The segments of a JPEG up to its pixels, and the rest."""
    at, found = 2, []
    while data[at + 1] != 0xDA:
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        found.append(data[at:end])
        at = end
    return found, data[at:]


def segment(kind: int, content: bytes) -> bytes:
    return bytes((0xFF, kind)) + (len(content) + 2).to_bytes(2, "big") + content


def test_exif_behind_the_size_turns_a_jpeg_too() -> None:
    before, rest = segments(plain("JPEG", (40, 20)))
    for place in range(len(before) + 1):
        data = b"".join([b"\xff\xd8", *before[:place], segment(0xE1, APP1), *before[place:], rest])
        assert not signature.is_plain(data)
        assert decode.look(data, "x", 10_000).size == (40, 20)
        assert ImageOps.exif_transpose(Image.open(io.BytesIO(data))).size == (20, 40)


PIECES = st.one_of(
    st.sampled_from([segment(0xE1, APP1), b"\xff", b"\xff\xd0", b"\xff\xf0", b"\xff\xe5\0\0", b"\xff\0", b"\0"]),
    st.builds(segment, st.integers(0xC0, 0xFE), st.sampled_from([b"", b"\xff\xe1", segment(0xE1, APP1), b"x" * 9])),
)


@given(st.lists(st.tuples(st.integers(0, 30), PIECES), max_size=4))
def test_a_jpeg_that_is_called_plain_is_upright_for_the_decoder_too(added: list[tuple[int, bytes]]) -> None:
    """Whatever stands between its segments: size and pixels are never decided differently."""
    found, rest = segments(plain("JPEG", (40, 20)))
    for place, piece in added:
        found.insert(place, piece)
    data = b"".join([b"\xff\xd8", *found, rest])
    size = signature.declared_size(data, "JPEG")
    try:
        decoded = Image.open(io.BytesIO(data))
    except (OSError, SyntaxError, struct.error):
        return
    if size is not None:
        assert size == decoded.size[::-1]
        assert decoded.getexif().get(0x0112) is None
