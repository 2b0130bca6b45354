"""HEIC and AVIF, where their decoders are installed, and what is said where they are not."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pillow_heif
import pytest
from PIL import Image, features

from tests.media.pictures import BLACK, RED, WHITE, display_p3, saved
from twinlens.errors import ImageError, ImageTooLarge, UnsupportedImageFormat
from twinlens.media import decode
from twinlens.media.orientation import of_file
from twinlens.media.signature import FORMATS

WHERE = "messages[0].content[1]"
KINDS = ["HEIC", *(["AVIF"] if features.check("avif") else [])]
NAMES = {"HEIC": "HEIF", "AVIF": "AVIF"}


def made(image: Image.Image, kind: str, **options: Any) -> bytes:
    return saved(image, NAMES[kind], quality=-1 if kind == "HEIC" else 100, **options)


def pixels(data: bytes) -> tuple[decode.Header, np.ndarray[Any, Any]]:
    header = decode.look(data, WHERE, 100_000_000)
    return header, np.asarray(decode.pixels(data, header.format, header.size, WHERE)).astype(int)


def stripe() -> Image.Image:
    image = Image.new("RGB", (80, 40), WHITE)
    image.paste(RED, (0, 0, 80, 10))
    return image


@pytest.mark.parametrize("kind", KINDS)
def test_img_10_pictures_of_phones(kind: str) -> None:
    header, found = pixels(made(stripe(), kind))
    assert (header.format, header.size, header.warnings) == (kind, (40, 80), ())
    assert np.abs(found[3, 40] - RED).max() < 12
    assert np.abs(found[30, 40] - WHITE).max() < 12


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("orientation", range(1, 9))
def test_img_01_turned_once(kind: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation  # both encoders write it as a turn of the container as well
    header, found = pixels(made(stripe(), kind, exif=exif.tobytes()))
    sideways = orientation >= 5
    assert header.size == ((80, 40) if sideways else (40, 80))
    assert found.shape[:2] == header.size
    top, bottom, left, right = found[3, 20], found[-4, 20], found[20, 3], found[20, -4]
    red = {1: top, 2: top, 3: bottom, 4: bottom, 5: left, 6: right, 7: right, 8: left}[orientation]
    assert np.abs(red - RED).max() < 12
    assert sum(np.abs(side - RED).max() < 12 for side in (found[3, 20], found[-4, 20])) == (not sideways)


def test_img_01_exif_alone_does_not_turn_a_heic() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = made(stripe(), "HEIC", exif=exif)  # this way the encoder writes no turn into the container
    assert b"irot" not in data
    header, found = pixels(data)
    assert header.size == (40, 80)
    assert np.abs(found[3, 40] - RED).max() < 12


@pytest.mark.parametrize("turn", [1, 3, 6])
def test_img_01_boxes_of_a_heic_are_not_turned_by_its_exif(turn: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = turn
    assert of_file(made(stripe(), "HEIC", exif=exif), "HEIC") == 1


@pytest.mark.parametrize("kind", KINDS)
def test_img_03_transparency_lies_on_white(kind: str) -> None:
    image = Image.new("RGBA", (64, 64), (255, 0, 0, 0))
    image.paste((0, 0, 0, 255), (16, 16, 48, 48))
    _, found = pixels(made(image, kind))
    assert np.abs(found[4, 4] - WHITE).max() < 12
    assert np.abs(found[32, 32] - BLACK).max() < 12


@pytest.mark.parametrize("kind", KINDS)
def test_img_07_profiles_are_applied(kind: str) -> None:
    plain = pixels(made(Image.new("RGB", (64, 64), (40, 200, 60)), kind))[1][32, 32]
    wide = pixels(made(Image.new("RGB", (64, 64), (40, 200, 60)), kind, icc_profile=display_p3()))[1][32, 32]
    assert np.abs(plain - wide).max() > 10


@pytest.mark.parametrize("kind", KINDS)
def test_img_19_pixels_are_counted_before_decoding(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = made(stripe(), kind)
    monkeypatch.setattr(Image.Image, "load", lambda _: pytest.fail("decoded"))
    with pytest.raises(ImageTooLarge, match="80 x 40"):
        decode.look(data, WHERE, 3199)


@pytest.mark.parametrize("kind", KINDS)
def test_img_14_damage_is_a_400(kind: str) -> None:
    draw = np.random.default_rng(3)
    noise = Image.fromarray(draw.integers(0, 256, (96, 96, 3), dtype=np.uint8))
    data = made(noise, kind)
    for cut in range(0, len(data), max(1, len(data) // 40)):
        check(data[:cut])
    for _ in range(150):
        broken = bytearray(data)
        for place in draw.integers(0, min(len(data), 600), 4):
            broken[place] = draw.integers(0, 256)
        check(bytes(broken))


def check(data: bytes) -> None:
    try:
        header = decode.look(data, WHERE, 1_000_000)
        image = decode.pixels(data, header.format, (56, 56), WHERE)
    except ImageError as error:
        assert error.param == WHERE
        assert not re.search(r"0x|BytesIO|PIL|heif\b|/usr|libheif", error.message)
        return
    assert np.asarray(image).shape == (56, 56, 3)


@pytest.mark.skipif("AVIF" not in KINDS, reason="Pillow without AVIF")
def test_img_12_an_animated_avif() -> None:
    frames = [Image.new("RGB", (64, 64), colour) for colour in (RED, WHITE, BLACK)]
    header, found = pixels(saved(frames[0], "AVIF", save_all=True, append_images=frames[1:], quality=100))
    assert "first of 3 frames" in header.warnings[0]
    assert np.abs(found[30, 30] - RED).max() < 12


@pytest.mark.parametrize(("kind", "brand"), [("HEIC", b"mif1"), ("AVIF", b"mif1")])
def test_the_kind_is_told_by_all_brands(kind: str, brand: bytes) -> None:
    if kind not in KINDS:
        pytest.skip("no decoder")
    data = made(stripe(), kind)
    general = data[:8] + brand + data[12:]  # the main brand says only that it is a picture
    assert decode.look(general, WHERE, 10**6).format == kind


def test_img_10_without_the_decoder_it_is_named_with_both_cures(monkeypatch: pytest.MonkeyPatch) -> None:
    data = made(stripe(), "HEIC")
    monkeypatch.setattr(decode, "FORMATS", FORMATS)
    with pytest.raises(UnsupportedImageFormat) as caught:
        decode.look(data, WHERE, 10**6)
    text = caught.value.body()["error"]["message"]
    assert "HEIC" in text
    assert "JPEG, PNG, WebP, GIF, BMP or TIFF" in text
    assert "twinlens[heic]" in text


def test_the_key_knows_the_decoders_version() -> None:
    assert pillow_heif.libheif_version() in decode.recipe("HEIC")
    assert decode.recipe("JPEG") == decode.recipe("PNG") == decode.RECIPE
    if "AVIF" in KINDS:
        assert str(features.version("avif")) in decode.recipe("AVIF")
