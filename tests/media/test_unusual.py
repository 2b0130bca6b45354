"""Files that are legal and rare, or broken in ways that people meet: right pixels, or a 400; never a wrong picture."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import time
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.media.pictures import BLUE, LIME, RED, WHITE, chunk, display_p3, noise, photo, plain, png, saved
from twinlens.errors import ImageError, UnsupportedImageFormat
from twinlens.media import decode

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:PIL")
WHERE = "messages[0].content[1]"


def pixels(data: bytes) -> np.ndarray[Any, Any]:
    header = decode.look(data, WHERE, 200_000_000)
    found = np.asarray(decode.pixels(data, header.format, header.size, WHERE))
    assert found.shape == (*header.size, 3)
    return found.astype(int)


def near(found: np.ndarray[Any, Any], colour: tuple[int, int, int], within: int = 3) -> bool:
    return bool(np.abs(found - colour).max() <= within)


def refused(data: bytes) -> ImageError:
    with pytest.raises(ImageError) as caught:
        pixels(data)
    return caught.value


def passes(depth_rows: np.ndarray[Any, Any]) -> bytes:
    """An RGB picture as Adam7 writes it."""
    out = b""
    for top, left, down, right in (
        (0, 0, 8, 8),
        (0, 4, 8, 8),
        (4, 0, 8, 4),
        (0, 2, 4, 4),
        (2, 0, 4, 2),
        (0, 1, 2, 2),
        (1, 0, 2, 1),
    ):
        part = depth_rows[top::down, left::right]
        if part.size:
            out += b"".join(b"\0" + row.tobytes() for row in part)
    return out


def test_interlaced_png() -> None:
    values = np.random.default_rng(0).integers(0, 256, (13, 11, 3), dtype=np.uint8)
    head = struct.pack(">IIBBBBB", 11, 13, 8, 2, 0, 0, 1)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(passes(values))) + chunk(b"IEND", b"")
    assert np.array_equal(pixels(b"\x89PNG\r\n\x1a\n" + body), values)


def test_a_png_with_a_wrong_checksum() -> None:
    data = bytearray(noise("PNG", 20, 20))
    data[29] ^= 1  # of the header
    refused(bytes(data))
    data = bytearray(noise("PNG", 20, 20))
    data[data.index(b"IDAT") + 20] ^= 1
    refused(bytes(data))


def test_png_colours_that_mean_transparent() -> None:
    rows = b"\0" + bytes((10, 10, 10, 255, 0, 0))
    trns = chunk(b"tRNS", struct.pack(">HHH", 10, 10, 10))
    found = pixels(png(2, 1, rows, colour=2, extra=trns))
    assert near(found[0, 0], WHITE)
    assert near(found[0, 1], RED)
    deep = b"\0" + struct.pack(">HH", 1000, 65535)
    assert near(pixels(png(2, 1, deep, depth=16, extra=chunk(b"tRNS", struct.pack(">H", 1000))))[0, 1], WHITE)


def test_sixteen_bit_colours_that_mean_transparent() -> None:
    """The value is one of 16 bits, and the pixels are made of their upper 8."""
    row = b"\0" + struct.pack(">HHHHHH", 30000, 100, 65535, 255, 255, 255)
    found = pixels(png(2, 1, row, depth=16, colour=2, extra=chunk(b"tRNS", struct.pack(">HHH", 30000, 100, 65535))))
    assert near(found[0, 0], WHITE, 0)
    assert near(found[0, 1], (0, 0, 0), 0)
    row = b"\0" + struct.pack(">HH", 1000, 1001)
    found = pixels(png(2, 1, row, depth=16, extra=chunk(b"tRNS", struct.pack(">H", 1000))))
    assert near(found[0, 0], WHITE, 0)
    assert near(found[0, 1], (4, 4, 4), 0)


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_pngs_of_few_bits(depth: int) -> None:
    found = pixels(png(8 // depth, 1, b"\0" + bytes((0b11000000 if depth != 4 else 0b11110000,)), depth=depth))
    assert near(found[0, 0], WHITE)
    assert near(found[0, -1], (0, 0, 0))


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP"])
def test_grey_with_transparency(kind: str) -> None:
    image = Image.new("LA", (8, 8), (0, 0))
    image.paste((0, 255), (0, 0, 4, 8))
    if kind == "WEBP":
        image = image.convert("RGBA")  # lossy, with an alpha channel
    found = pixels(saved(image, kind))
    assert near(found[4, 7], WHITE, 12)
    assert near(found[4, 0], (0, 0, 0), 12)


def test_palettes_with_transparency() -> None:
    image = Image.new("P", (8, 8), 0)
    image.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255])
    image.paste(1, (4, 0, 8, 8))
    for kind in ("PNG", "GIF"):
        found = pixels(saved(image, kind, transparency=0))
        assert near(found[0, 0], WHITE)
        assert near(found[0, 7], LIME)
    found = pixels(saved(image, "PNG", transparency=bytes((0, 128))))
    assert near(found[0, 7], (127, 255, 127), 2)


@pytest.mark.parametrize("order", ["I;16", "I;16B"])
def test_sixteen_bits_in_both_byte_orders(order: str) -> None:
    values = np.array([[0, 30000, 65535]], dtype=">u2" if order == "I;16B" else "<u2")
    image = Image.frombytes(order, (3, 1), values.tobytes())
    assert pixels(saved(image, "TIFF"))[0, :, 0].tolist() == [0, 117, 255]


def test_floats() -> None:
    values = np.linspace(0, 1, 16, dtype=np.float32).reshape(4, 4)
    found = pixels(saved(Image.fromarray(values), "TIFF"))
    assert (found[0, 0, 0], found[3, 3, 0]) == (0, 255)


@pytest.mark.parametrize("compression", ["raw", "tiff_lzw", "packbits", "tiff_deflate", "jpeg"])
def test_tiffs_for_print(compression: str) -> None:
    cmyk = Image.new("CMYK", (16, 16), (0, 255, 255, 0))
    found = pixels(saved(cmyk, "TIFF", compression=compression))
    assert found[8, 8, 0] > 200
    assert found[8, 8, 1] < 60


def test_adobe_cmyk_jpegs() -> None:
    """Four channels are inverted in JPEGs, as Adobe has it, whether its marker stands there or not."""
    data = saved(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG", quality=95)
    at = data.index(b"\xff\xee")
    bare = data[:at] + data[at + 2 + int.from_bytes(data[at + 2 : at + 4], "big") :]
    for found in (pixels(data)[8, 8], pixels(bare)[8, 8]):
        assert found[0] > 200
        assert found[1] < 60


def test_ycck() -> None:
    data = bytearray(saved(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG", quality=95))
    marker = data.index(b"\xff\xeeAdobe"[:2])
    data[marker + 15] = 2  # the colour transform: other colours, but a picture
    assert pixels(bytes(data)).shape == (16, 16, 3)


def test_jpegs_that_no_decoder_here_knows() -> None:
    data = bytearray(photo(64, 48))
    start = data.index(b"\xff\xc0")
    for kind in (0xC3, 0xC5, 0xC9, 0xCB):  # lossless, differential, arithmetic
        data[start + 1] = kind
        try:
            pixels(bytes(data))
        except ImageError as error:
            assert error.param == WHERE
    data[start + 1] = 0xC1
    data[start + 4] = 12  # bits
    refused(bytes(data))


def test_jpegs_with_something_behind_them_or_in_front_of_the_pixels() -> None:
    data = photo(64, 48)
    plain_pixels = pixels(data)
    assert np.array_equal(pixels(data + b"\0" * 100_000), plain_pixels)
    assert np.array_equal(pixels(data + photo(32, 32, seed=1)), plain_pixels)  # a gain map or another picture
    filled = data[:2] + b"\xff\xfe\xff\xff" + b"." * 65533 + data[2:]
    assert np.array_equal(pixels(filled), plain_pixels)


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0, "optimize": True}])
def test_a_jpeg_that_claims_more_than_its_bytes_can_hold(options: dict[str, Any]) -> None:
    """Its decoder would draw the rest in grey: a picture that nobody sent."""
    data = bytearray(saved(Image.new("RGB", (64, 64), RED), "JPEG", **options))
    frame = data.index(b"\xff\xc2" if options.get("progressive") else b"\xff\xc0")
    data[frame + 5 : frame + 9] = struct.pack(">HH", 9000, 9000)
    assert "truncated or damaged" in refused(bytes(data)).message
    # One colour takes the fewest bytes that a picture can have.
    for size in ((4000, 3000), (1, 1), (8, 20000)):
        whole = saved(Image.new("RGB", size, RED), "JPEG", quality=1, **options)
        assert decode.look(whole, WHERE, 10**9).size == size[::-1]


def many_scans(side: int, scans: int) -> bytes:
    """A progressive JPEG whose scans have 113 bytes each and go over the whole picture."""

    def segment(kind: int, body: bytes) -> bytes:
        return bytes((0xFF, kind)) + struct.pack(">H", len(body) + 2) + body

    one = bytes((1, *[0] * 15))  # a table with one code of one bit
    head = segment(0xDB, b"\0" + b"\1" * 64) + segment(0xC2, struct.pack(">BHHB", 8, side, side, 1) + b"\1\x11\0")
    tables = segment(0xC4, b"\0" + one + b"\0") + segment(0xC4, b"\x10" + one + b"\xe0")
    blocks = (side // 8 + 1) ** 2
    means = segment(0xDA, b"\1\1\0\0\0\0") + b"\0" * (blocks // 8 + 1)
    bits = ("0" + "1" * 13 + "0") * (blocks // 32766 + 1)  # runs of 32766 blocks without anything new
    bits += "1" * (-len(bits) % 8)
    runs = int(bits, 2).to_bytes(len(bits) // 8).replace(b"\xff", b"\xff\0")
    return b"\xff\xd8" + head + tables + means + (segment(0xDA, b"\1\1\0\1\x3f\0") + runs) * scans + b"\xff\xd9"


def test_img_19_a_jpeg_of_endless_scans_is_refused_before_it_is_decoded() -> None:
    """A megabyte of them kept a decoder busy for a minute."""
    assert decode.pixels(many_scans(800, 90), "JPEG", (56, 56), WHERE).size == (56, 56)
    data = many_scans(9000, 20_000)
    assert len(data) < 3_000_000
    began = time.process_time()
    assert "100 scans" in refused(data).message
    assert time.process_time() - began < 1
    with_thumbnail = many_scans(80, 60)[:-2] + b"\xff\xd9" + many_scans(80, 60)  # something behind the picture
    assert decode.look(with_thumbnail, WHERE, 10**6).size == (80, 80)


def test_a_jpeg_whose_restart_marks_are_damaged() -> None:
    picture = Image.open(io.BytesIO(photo(160, 120)))
    data = bytearray(saved(picture, "JPEG", restart_marker_rows=1))
    at = data.index(b"\xff\xd2", 600)
    data[at + 1] = 0xD6
    try:
        assert pixels(bytes(data)).shape == (120, 160, 3)
    except ImageError as error:
        assert error.param == WHERE


@pytest.mark.parametrize("size", [(65500, 1), (1, 65500), (65500, 330)])
def test_very_long_pictures_are_measured_by_their_header(size: tuple[int, int]) -> None:
    data = saved(Image.new("L", size, 255), "JPEG")
    assert decode.look(data, WHERE, 200_000_000).size == size[::-1]


def test_img_12_an_animated_png_and_a_tiff_of_pages() -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in (RED, LIME, BLUE)]
    data = saved(frames[0], "PNG", save_all=True, append_images=frames[1:])
    assert "first of 3 frames" in decode.look(data, WHERE, 10**6).warnings[0]
    assert near(pixels(data)[4, 4], RED)
    pages = saved(frames[0], "TIFF", save_all=True, append_images=frames[1:])
    assert decode.look(pages, WHERE, 10**6, 1).warnings == ()
    assert near(np.asarray(decode.pixels(pages, "TIFF", (8, 8), WHERE, 1))[4, 4], LIME)


def test_a_gif_whose_first_picture_does_not_fill_it() -> None:
    body = b"GIF89a" + struct.pack("<HHBBB", 4, 4, 0x80, 0, 0) + bytes((255, 0, 0, 0, 0, 255))  # two colours
    local = b"\x2c" + struct.pack("<HHHHB", 2, 2, 2, 2, 0x80) + bytes((0, 255, 0, 0, 0, 0))  # its own colours
    data = body + b"\x21\xf9\x04\x01\0\0\1\0" + local + b"\x02\x03\x84\x51\x00\x00" + b";"
    try:
        found = pixels(data)
    except ImageError as error:
        assert error.param == WHERE
    else:
        assert found.shape == (4, 4, 3)


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA"])
def test_bmps(mode: str) -> None:
    image = Image.new("RGBA", (9, 5), (255, 0, 0, 255)).convert(mode)
    found = pixels(saved(image, "BMP"))
    assert found.shape == (5, 9, 3)
    if mode in ("RGB", "RGBA", "P"):
        assert near(found[2, 4], RED)


def test_a_bmp_of_os2() -> None:
    row = bytes((0, 0, 255)) * 2 + b"\0\0"  # blue, green, red; filled up to four bytes
    data = b"BM" + struct.pack("<IHHI", 26 + 16, 0, 0, 26) + struct.pack("<IHHHH", 12, 2, 2, 1, 24) + row * 2
    assert near(pixels(data)[0, 0], RED)


def test_a_bmp_of_runs() -> None:
    head = struct.pack("<IiiHHIIiiII", 40, 4, 2, 1, 8, 1, 8, 0, 0, 2, 0)
    palette = bytes((0, 0, 255, 0, 0, 255, 0, 0))
    runs = bytes((4, 0, 0, 0, 4, 1, 0, 1))
    offset = 14 + 40 + len(palette)
    data = b"BM" + struct.pack("<IHHI", offset + len(runs), 0, 0, offset) + head + palette + runs
    found = pixels(data)
    assert near(found[1, 0], RED)
    assert near(found[0, 0], LIME)


@pytest.mark.parametrize(
    "profile", [b"", b"x" * 100, display_p3()[:200], b"\0" * 5_000_000, display_p3().replace(b"RGB ", b"CMYK")]
)
def test_profiles_that_are_none_change_nothing(profile: bytes) -> None:
    image = Image.new("RGB", (16, 16), (40, 200, 60))
    for kind in ("TIFF",) if len(profile) > 1_000_000 else ("PNG", "TIFF"):  # a PNG's text is bounded: IMG-21
        assert near(pixels(saved(image, kind, icc_profile=profile))[8, 8], (40, 200, 60))


def test_orientations_that_are_no_number() -> None:
    for value in (0, 9, 255, 65535):
        exif = Image.Exif()
        exif[0x0112] = value
        assert decode.look(saved(Image.new("RGB", (8, 4)), "JPEG", exif=exif), WHERE, 10**6).size == (4, 8)
    exif = Image.Exif()
    exif[0x010E] = "6"
    assert decode.look(saved(Image.new("RGB", (8, 4)), "JPEG", exif=exif), WHERE, 10**6).size == (4, 8)


def test_pdf_04_a_pdf_with_something_before_it_is_called_one() -> None:
    for start in (b"", b"\r\n" * 50, b"junk " * 20):
        error = refused(start + b"%PDF-1.7\n1 0 obj\n")
        assert "PDF" in error.message
        assert error.code == "unsupported_image_format"


def test_plain_files_of_all_kinds_are_what_they_were() -> None:
    for kind in ("PNG", "BMP", "TIFF", "WEBP", "GIF"):
        assert near(pixels(plain(kind))[5, 5], RED)


def test_a_cameras_raw_file_is_named_and_not_its_thumbnail_served() -> None:
    thumbnail = Image.new("RGB", (16, 12), RED)
    raw = saved(
        thumbnail, "TIFF", tiffinfo={254: 1, 330: 8}
    )  # a copy for showing; the picture is in directories inside
    error = refused(raw)
    assert isinstance(error, UnsupportedImageFormat)
    assert "camera raw" in error.message
    for others in ({254: 1}, {330: 8}, {254: 0, 330: 8}):
        assert near(pixels(saved(thumbnail, "TIFF", tiffinfo=others))[5, 5], RED)


_TIFF = """
import sys
from PIL import Image
from twinlens.errors import ImageError
from twinlens.media import decode
if sys.argv[1] == "quiet":
    decode.check_decoders()
data = sys.stdin.buffer.read()
try:
    decode.pixels(data, decode.look(data, "part", 10**6).format, (56, 56), "part")
except ImageError as error:
    print(error.message)
"""


def test_the_library_for_tiff_writes_nothing_of_its_own() -> None:
    """Its words about a client's file are nobody's news. By itself it has some to say of this one."""
    whole = noise("TIFF", 60, 40, compression="tiff_lzw")
    data = whole[:20] + b"\xff" * 60 + whole[80:]
    for way in ("quiet", "loud"):
        command = [sys.executable, "-W", "error", "-c", _TIFF, way]
        done = subprocess.run(command, input=data, capture_output=True, timeout=60, check=True)
        assert b"truncated or damaged" in done.stdout
        assert bool(done.stderr) == (way == "loud"), done.stderr
