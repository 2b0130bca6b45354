from __future__ import annotations

import contextlib
import io
import re
import struct
import time
import tracemalloc
import zlib
from typing import Any

import numpy as np
import psutil
import pytest
from PIL import Image, ImageCms, ImageDraw, ImageFont, ImageOps, features

from tests.media.pictures import (
    BLACK,
    BLUE,
    FOREIGN,
    KINDS,
    LIME,
    RED,
    WHITE,
    animation,
    chunk,
    display_p3,
    grey16,
    noise,
    photo,
    plain,
    png,
    profile,
    saved,
    strip,
)
from twinlens.errors import ImageError, ImageTooLarge, OperatorError, UnsupportedImageFormat
from twinlens.media import decode
from twinlens.media import resize as resampling
from twinlens.media.signature import FORMATS

# What Pillow says about broken metadata; the service does not listen to it.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:PIL")

WHERE = "messages[0].content[1]"
MOST = 100_000_000


def look(data: bytes, most: int = MOST) -> decode.Header:
    return decode.look(data, WHERE, most)


def pixels(data: bytes, size: tuple[int, int] | None = None) -> np.ndarray[Any, Any]:
    """(height, width, 3), at the picture's own size if none is given."""
    header = look(data)
    image = decode.pixels(data, header.format, size or header.size, WHERE)
    assert image.mode == "RGB"
    return np.asarray(image)


def refused(data: bytes, kind: type[ImageError] = ImageError) -> ImageError:
    with pytest.raises(kind) as caught:
        pixels(data)
    assert type(caught.value) is kind
    assert caught.value.param == WHERE
    no_foreign_text(caught.value)
    return caught.value


def no_foreign_text(error: ImageError) -> None:
    text = str(error.body())
    assert not re.search(r"0x[0-9a-f]|<|BytesIO|PIL|Pillow|/usr|site-packages|Traceback", text), text


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_format_of_the_list(kind: str) -> None:
    data = KINDS[kind]()
    assert look(data) == decode.Header(kind, (43, 57), ())
    expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    assert np.array_equal(pixels(data), expected)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_img_01_upright_whatever_the_orientation(kind: str, orientation: int) -> None:
    data = strip(orientation, kind)
    expected = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    assert look(data).size == (expected.height, expected.width)
    assert np.array_equal(pixels(data), np.asarray(expected))


def test_img_01_the_miniature() -> None:
    upright = pixels(strip(6, "JPEG"))
    assert upright.shape == (40, 20, 3)
    assert np.abs(upright[20, 18].astype(int) - RED).max() < 12
    assert np.abs(upright[20, 2].astype(int) - WHITE).max() < 12


@pytest.mark.parametrize("orientation", range(1, 9))
def test_img_01_resized_and_turned(orientation: int) -> None:
    data = strip(orientation)
    size = look(data).size
    double = pixels(data, (size[0] * 2, size[1] * 2)).astype(int)
    expected = np.asarray(Image.fromarray(pixels(data)).resize((size[1] * 2, size[0] * 2), Image.Resampling.BICUBIC))
    assert np.abs(double - expected).max() <= 3


def test_img_01_exif_behind_the_pixels_of_a_png() -> None:
    data = strip(6)
    start = data.index(b"eXIf") - 4
    length = struct.unpack_from(">I", data, start)[0] + 12
    late = data[:start] + data[start + length : -12] + data[start : start + length] + data[-12:]
    assert look(late).size == (40, 20)
    assert np.array_equal(pixels(late), pixels(data))


def test_img_01_orientation_in_xmp() -> None:
    text = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
    data = saved(Image.new("RGB", (40, 20), RED), "JPEG", xmp=text)
    assert look(data).size == (40, 20)
    assert pixels(data).shape == (40, 20, 3)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data:UserWarning")
@pytest.mark.parametrize(
    "exif", [b"Exif\0\0garbage", b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0MM\0*\0\0\0\x08\xff\xff"]
)
def test_damaged_exif_is_said_and_the_picture_served(exif: bytes) -> None:
    data = plain("JPEG")
    data = data[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + data[2:]
    header = look(data)
    assert header.size == (20, 40)
    assert all("EXIF" in text and text.startswith(WHERE) for text in header.warnings)
    assert pixels(data).shape == (20, 40, 3)


def transparent(mode: str, kind: str) -> bytes:
    image = Image.new("RGBA", (56, 56), (255, 0, 0, 0))
    image.paste((0, 0, 0, 255), (20, 20, 36, 36))
    if mode == "P":
        image = image.quantize(8)
    elif mode == "LA":
        image = image.convert("LA")
    return saved(image, kind, **({"lossless": True, "exact": True} if kind == "WEBP" else {}))


@pytest.mark.parametrize(
    ("mode", "kind"),
    [("RGBA", "PNG"), ("RGBA", "WEBP"), ("LA", "PNG"), ("P", "PNG"), ("RGBA", "GIF"), ("RGBA", "TIFF")],
)
def test_img_03_transparency_lies_on_white(mode: str, kind: str) -> None:
    found = pixels(transparent(mode, kind))
    assert tuple(found[5, 5]) == WHITE
    assert tuple(found[28, 28]) == BLACK


@pytest.mark.parametrize("colour", [(0, 2), (2, 6)])
def test_img_03_one_transparent_colour(colour: tuple[int, int]) -> None:
    kind, width = colour
    value = b"\0\x10" * (width // 2)
    samples = bytes([0x10]) * (1 if kind == 0 else 3)
    data = png(2, 1, b"\0" + samples + bytes(len(samples)), colour=kind, extra=chunk(b"tRNS", value))
    found = pixels(data)
    assert tuple(found[0, 0]) == WHITE
    assert tuple(found[0, 1]) == BLACK


def test_img_03_half_transparent() -> None:
    data = saved(Image.new("RGBA", (8, 8), (0, 0, 0, 128)), "PNG")
    assert abs(int(pixels(data)[0, 0, 0]) - 127) <= 1


def test_img_05_sixteen_bits_are_scaled() -> None:
    found = pixels(grey16([0, 200, 30000, 65535]))[0]
    assert found[:, 0].tolist() in ([0, 0, 117, 255], [0, 1, 117, 255])
    assert (found == found[:, :1]).all()


def test_img_05_sixteen_bits_in_tiff_and_colour() -> None:
    values = np.array([[0, 200, 30000, 65535]], np.uint16)
    assert pixels(saved(Image.fromarray(values), "TIFF"))[0, :, 0].tolist() in ([0, 0, 117, 255], [0, 1, 117, 255])
    colour = png(2, 1, b"\0" + struct.pack(">6H", 0, 30000, 65535, 65535, 0, 30000), depth=16, colour=2)
    assert np.abs(pixels(colour)[0].astype(int) - [[0, 117, 255], [255, 0, 117]]).max() <= 1


@pytest.mark.parametrize("values", [np.array([[0.0, 0.5, 1.0]], np.float32), np.array([[-70000, 0, 70000]], np.int32)])
def test_img_05_other_deep_values_by_their_own_range(values: np.ndarray[Any, Any]) -> None:
    assert np.abs(pixels(saved(Image.fromarray(values), "TIFF"))[0, :, 0].astype(int) - [0, 127, 255]).max() <= 1


def test_img_05_strange_floats() -> None:
    values = np.array([[np.nan, np.inf, -np.inf, 0, 5]], np.float32)
    assert pixels(saved(Image.fromarray(values), "TIFF"))[0, 4, 0] == 255


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "TIFF"])
def test_img_07_an_embedded_profile_becomes_srgb(kind: str) -> None:
    p3 = display_p3()
    colours = [(30, 220, 40), (200, 30, 60), (20, 20, 20), (250, 250, 250)]
    image = Image.new("RGB", (64, 16))
    for index, colour in enumerate(colours):
        image.paste(colour, (index * 16, 0, index * 16 + 16, 16))
    options: dict[str, Any] = {"quality": 100, "subsampling": 0} if kind == "JPEG" else {}
    data = saved(image, kind, icc_profile=p3, **({"lossless": True} if kind == "WEBP" else options))
    opened = Image.open(io.BytesIO(data)).convert("RGB")
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))
    expected = ImageCms.profileToProfile(opened, ImageCms.ImageCmsProfile(io.BytesIO(p3)), srgb)
    assert expected is not None
    found = pixels(data).astype(int)
    assert np.abs(found - np.asarray(expected)).max() < 3
    assert np.abs(found - np.asarray(opened)).max() > 10, "the profile made no difference: the test shows nothing"


def test_img_07_profiles_can_be_left_out_and_the_key_tells() -> None:
    data = saved(Image.new("RGB", (56, 56), (30, 220, 40)), "PNG", icc_profile=display_p3())
    raw = np.asarray(decode.pixels(data, "PNG", (56, 56), WHERE, profiles=False))
    assert tuple(raw[0, 0]) == (30, 220, 40)
    assert tuple(pixels(data)[0, 0]) != (30, 220, 40)
    for name in ("PNG", "AVIF"):
        assert decode.recipe(name) != decode.recipe(name, profiles=False)


def test_img_07_srgb_damaged_and_foreign_profiles_change_nothing() -> None:
    image = Image.new("RGB", (8, 8), (30, 220, 40))
    for icc in (profile(), b"no profile at all", display_p3()[:100], b""):
        assert tuple(pixels(saved(image, "PNG", icc_profile=icc))[0, 0]) == (30, 220, 40)
    grey = saved(Image.new("L", (8, 8), 77), "JPEG", icc_profile=display_p3())
    assert tuple(pixels(grey)[0, 0]) == (77, 77, 77)


def test_cmyk_and_other_colour_spaces() -> None:
    cmyk = Image.new("RGB", (16, 16), (200, 30, 40)).convert("CMYK")
    for kind in ("JPEG", "TIFF"):
        assert np.abs(pixels(saved(cmyk, kind))[8, 8].astype(int) - (200, 30, 40)).max() < 6
    assert pixels(saved(Image.new("1", (9, 9), 1), "PNG"))[0, 0].tolist() == [255] * 3
    assert pixels(saved(Image.new("YCbCr", (16, 16), (100, 128, 128)), "TIFF")).shape == (16, 16, 3)
    assert pixels(saved(Image.new("LAB", (4, 4)), "TIFF")).shape == (4, 4, 3)


def test_img_09_a_phones_jpeg_with_several_pictures() -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in (RED, BLUE)]
    data = saved(frames[0], "MPO", save_all=True, append_images=frames[1:])
    assert data.startswith(b"\xff\xd8\xff")
    header = look(data)
    assert (header.format, header.warnings) == ("JPEG", ())
    assert np.abs(pixels(data)[4, 4].astype(int) - RED).max() < 4


@pytest.mark.parametrize("name", sorted(FOREIGN))
def test_img_10_and_sec_14_other_formats_are_named_and_not_decoded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "FORMATS", FORMATS)  # as if the optional decoders were not there
    error = refused(FOREIGN[name], UnsupportedImageFormat)
    assert (name or "unknown") in error.message
    assert "JPEG, PNG, WebP, GIF, BMP or TIFF" in error.body()["error"]["message"]
    assert error.status == 400


def test_sec_14_only_listed_decoders_are_ever_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    real = Image.open

    def spy(file: Any, formats: Any = None) -> Image.Image:
        asked.append(formats)
        return real(file, formats=formats)

    monkeypatch.setattr(Image, "open", spy)
    for data in (*FOREIGN.values(), *(make() for make in KINDS.values())):
        with contextlib.suppress(ImageError):
            pixels(data)
    assert asked
    assert all(formats and set(formats) <= {*FORMATS, "AVIF", "HEIF"} for formats in asked)


def test_sec_14_decoders_are_checked_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    decode.check_decoders()
    monkeypatch.setattr(features, "version", lambda name: "1.2.4")
    with pytest.raises(OperatorError):
        decode.check_decoders()
    monkeypatch.undo()
    monkeypatch.setattr(features, "check", lambda name: name != "webp")
    with pytest.raises(OperatorError, match="webp"):
        decode.check_decoders()


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_img_12_the_first_frame_is_used_and_said(kind: str) -> None:
    data = animation(kind, (RED, LIME, BLUE))
    header = look(data)
    assert header.warnings == (f"{WHERE}: the first of 3 frames is used.",)
    assert tuple(pixels(data)[4, 4]) == RED


def test_img_12_a_thousand_frames_take_no_more_memory_than_one() -> None:
    def peak(count: int) -> int:
        colours = tuple((n % 256, n // 256, 0) for n in range(count))
        data = animation("GIF", colours, 64)
        tracemalloc.start()
        pixels(data)
        _, high = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return high

    assert peak(1000) < peak(1) + 200_000


def cut(kind: str) -> bytes:
    data = noise(kind, 64, 64)
    return data[: len(data) // 2]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_img_14_a_cut_off_file_is_refused(kind: str) -> None:
    error = refused(cut(kind))
    assert "truncated or damaged" in error.message
    assert error.code == "invalid_image"


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_img_14_a_head_alone_is_refused(kind: str) -> None:
    for length in (3, 8, 12, 20, 30):
        with pytest.raises(ImageError) as caught:
            pixels(noise(kind, 64, 64)[:length])
        no_foreign_text(caught.value)


def test_img_14_damage_in_the_middle_of_a_png() -> None:
    data = bytearray(noise("PNG", 64, 64))
    at = data.index(b"IDAT") + 200
    data[at : at + 50] = bytes(50)
    refused(bytes(data))


@pytest.mark.parametrize("size", [(1, 1), (1, 3), (3, 1), (3, 3), (1, 150)])
def test_img_17_channels_of_tiny_pictures_stay_in_order(size: tuple[int, int]) -> None:
    height, width = size
    found = pixels(plain("PNG", (width, height), (255, 10, 0)), (56, 56))
    assert found.shape == (56, 56, 3)
    assert (found == (255, 10, 0)).all()


def test_img_19_pixels_are_counted_before_anything_is_decoded() -> None:
    bomb = png(20000, 20000, (b"\0" * 2501) * 20000, depth=1)
    claim = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0))
    assert len(bomb) < 60_000
    process = psutil.Process()
    before = process.memory_info().rss
    for data, shown in ((bomb, "20000 x 20000"), (claim, "60000 x 60000")):
        start = time.perf_counter()
        error = refused(data, ImageTooLarge)
        assert time.perf_counter() - start < 0.1
        assert shown in error.message
        assert str(MOST) in error.message
    assert process.memory_info().rss - before < 20 << 20


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_img_19_every_format(kind: str) -> None:
    data = KINDS[kind]()
    assert look(data, 43 * 57).size == (43, 57)
    with pytest.raises(ImageTooLarge):
        look(data, 43 * 57 - 1)


def test_img_19_a_webp_that_claims_much_is_refused_before_its_decoder_allocates() -> None:
    head = b"VP8X" + struct.pack("<IB3x", 10, 0x10) + b"\xff\x3f\0\xff\x3f\0"
    data = b"RIFF" + struct.pack("<I", len(head) + 4) + b"WEBP" + head
    with pytest.raises(ImageTooLarge, match="16384 x 16384"):
        look(data)


def test_img_21_text_that_inflates() -> None:
    text = chunk(b"zTXt", b"Comment\0\0" + zlib.compress(b"A" * 2_000_000, 9))
    data = png(1, 1, b"\0\0", extra=text)
    assert len(data) < 3000
    refused(data)


def test_img_22_webp_is_decoded_here() -> None:
    image = Image.new("RGB", (56, 56), WHITE)
    image.paste(BLACK, (20, 10, 30, 46))
    assert np.array_equal(pixels(saved(image, "WEBP", lossless=True)), np.asarray(image))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_sec_02_errors_hold_nothing_of_the_decoder(kind: str) -> None:
    data = KINDS[kind]()
    for broken in (data[:40], data[:20] + b"\xff" * 200, data[:10] + data[40:]):
        try:
            pixels(broken)
        except ImageError as error:
            no_foreign_text(error)


def test_a_file_that_changes_its_size_while_it_is_decoded_is_damaged() -> None:
    data = plain("JPEG", (64, 64))
    at = data.index(b"\xff\xc0") + 5
    two = data[:at] + struct.pack(">HH", 32, 32) + data[at + 4 :]
    header = look(two)
    assert header.size == (32, 32)


@pytest.mark.parametrize("size", [((480, 640), (476, 644)), ((600, 800), (280, 364)), ((90, 70), (112, 84))])
def test_resampling_is_as_near_to_the_exact_filter_as_pillows(size: tuple[tuple[int, int], tuple[int, int]]) -> None:
    (height, width), goal = size
    source = Image.open(io.BytesIO(photo(width, height)))
    flat = (goal[1], goal[0])
    exact = [np.asarray(band.convert("F").resize(flat, Image.Resampling.BICUBIC)) for band in source.split()]
    reference = np.stack(exact, axis=-1).clip(0, 255)
    ours = np.asarray(resampling.resized(source, flat)).astype(float)
    pillows = np.asarray(source.resize(flat, Image.Resampling.BICUBIC)).astype(float)
    assert np.abs(ours - reference).mean() < np.abs(pillows - reference).mean() + 0.01
    assert np.abs(ours - reference).max() <= np.abs(pillows - reference).max() + 1
    assert np.abs(ours - pillows).max() <= 3


def test_resampling_without_the_fast_library(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Image.open(io.BytesIO(photo(64, 48)))
    fast = np.asarray(resampling.resized(source, (84, 56))).astype(int)
    monkeypatch.setattr(resampling, "fast", None)
    plain_ = np.asarray(resampling.resized(source, (84, 56))).astype(int)
    assert np.abs(fast - plain_).max() <= 3


def page(width: int, height: int) -> Image.Image:
    """Lines of text as a scanner gives them."""
    image = Image.new("RGB", (width, height), (252, 251, 248))
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(size=height // 60)
    for top in range(height // 30, height - height // 30, height // 45):
        draw.text((width // 20, top), "The quick brown fox jumps over the lazy dog 0123456789 " * 2, (20, 20, 25), font)
    return image


@pytest.mark.parametrize("kind", ["photo", "page", "noise"])
@pytest.mark.parametrize("part", [3, 8, 11, 16])
def test_what_is_drafted_differs_by_less_than_a_grey_level(kind: str, part: int) -> None:
    width, height = 1344, 896
    if kind == "photo":
        data = photo(width, height, seed=2, quality=92)
    elif kind == "page":
        data = saved(page(width, height), "JPEG", quality=90)
    else:
        data = noise("JPEG", width, height, quality=95)
    size = height // part, width // part
    drafted = np.asarray(decode.pixels(data, "JPEG", size, WHERE)).astype(int)
    whole = np.asarray(resampling.resized(Image.open(io.BytesIO(data)), (size[1], size[0]))).astype(int)
    difference = float(np.abs(drafted - whole).mean())
    assert difference < 1
    assert (difference > 0) == (part >= 2 * decode.DRAFT_LEAVES)
