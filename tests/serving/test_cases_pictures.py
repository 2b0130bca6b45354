"""Field cases of pictures through the front door: what the model sees is looked up in the store."""

from __future__ import annotations

import io
import struct
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image, ImageCms

from tests.media import pictures
from tests.media.pictures import BLACK, FOREIGN, LIME, RED, WHITE, animation, chunk, plain, png, saved, uri
from tests.serving.harness import serving
from tests.serving.test_api import error_of
from twinlens.media import decode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.serving.harness import Service

WHERE = "messages[0].content[1]"
MIB = 1 << 20


def part(data: bytes, kind: str = "image/png", **fields: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": uri(data, kind), **fields}}


def seen(service: Service, data: bytes, kind: str = "image/png") -> np.ndarray[Any, Any]:
    """The pixels (height, width, 3) that the model sees of a picture."""
    answer, found = service.seen("what?", part(data, kind))
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["prompt_tokens_details"]["image_tokens"] > 0
    (pixels,) = found
    return pixels


def near(pixel: Sequence[int], colour: Sequence[int], most: int = 12) -> bool:
    return bool(np.abs(np.asarray(pixel, int) - np.asarray(colour, int)).max() <= most)


def refused(service: Service, data: bytes, code: str = "invalid_image", kind: str = "image/png") -> str:
    """The message of a refusal, the same plain and as a stream; the engine hears nothing of it."""
    before = service.metric("twinlens_tokens_total")
    for stream in (False, True):
        answer = service.chat("what?", part(data, kind), stream=stream)
        error = error_of(answer)
        assert (answer.status_code, error["code"], error["param"]) == (400, code, WHERE)
    assert service.metric("twinlens_tokens_total") == before
    return str(error["message"])


def test_img_01_a_phones_photograph_stands_upright(service: Service) -> None:
    image = Image.new("RGB", (112, 56), WHITE)
    image.paste(RED, (0, 0, 112, 14))
    exif = Image.Exif()
    exif[0x0112] = 6
    found = seen(service, saved(image, "JPEG", exif=exif, quality=95, subsampling=0), "image/jpeg")
    height, width, _ = found.shape
    assert height == 2 * width
    assert near(found[height // 2, -6], RED)
    assert near(found[height // 2, 6], WHITE)


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_img_03_transparency_lies_on_white(service: Service, kind: str) -> None:
    image = Image.new("RGBA", (56, 56), (255, 0, 0, 0))
    image.paste((0, 0, 0, 255), (20, 20, 36, 36))
    found = seen(service, saved(image, kind, **({"lossless": True, "exact": True} if kind == "WEBP" else {})))
    assert tuple(found[5, 5]) == WHITE
    assert tuple(found[len(found) // 2, len(found) // 2]) == BLACK


def test_img_05_sixteen_bits_are_scaled(service: Service) -> None:
    row = b"\0" + b"".join(struct.pack(">H", value) * 42 for value in (0, 200, 30000, 65535))
    found = seen(service, png(168, 168, row * 168, depth=16))
    assert found[84, 21::42, 0].tolist() in ([0, 0, 117, 255], [0, 1, 117, 255])
    assert (found == found[:, :, :1]).all()


def test_img_07_an_embedded_profile_becomes_srgb(service: Service) -> None:
    p3 = pictures.display_p3()
    image = Image.new("RGB", (168, 168), (30, 220, 40))
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))
    expected = ImageCms.profileToProfile(image, ImageCms.ImageCmsProfile(io.BytesIO(p3)), srgb)
    assert expected is not None
    assert np.abs(seen(service, saved(image, "PNG", icc_profile=p3)).astype(int) - np.asarray(expected)).max() < 3


def test_img_09_a_phones_jpeg_with_several_pictures(service: Service) -> None:
    frames = [Image.new("RGB", (56, 56), colour) for colour in (RED, LIME)]
    data = saved(frames[0], "MPO", save_all=True, append_images=frames[1:])
    assert near(seen(service, data, "image/mpo")[28, 28], RED)


@pytest.mark.parametrize(("name", "there"), [("HEIF", decode.HEIC), ("AVIF", "AVIF" in decode.FORMATS)])
def test_img_10_pictures_of_phones_are_taken_or_named(service: Service, name: str, there: bool) -> None:
    data = plain(name, (56, 56)) if there else FOREIGN["HEIC" if name == "HEIF" else "AVIF"]
    if there:
        assert near(seen(service, data, "image/jpeg")[28, 28], RED)
    else:
        assert name[:2] in refused(service, data, "unsupported_image_format", "image/jpeg")


@pytest.mark.parametrize("kind", ["GIF", "WEBP"])
def test_img_12_of_an_animation_the_first_frame_by_every_way(service: Service, kind: str) -> None:
    data = animation(kind, size=56)
    file = service.http.post("/v1/files", files={"file": ("a", data)}, data={"purpose": "vision"}).json()
    for given in (part(data), {"type": "file", "file": {"file_id": file["id"]}}):
        answer, found = service.seen("what?", given)
        assert near(found[0][28, 28], RED)
        assert answer.json()["twinlens"]["warnings"] == [f"{WHERE}: the first of 3 frames is used."]


def test_img_14_cut_off_and_damaged_files_are_a_400(service: Service) -> None:
    jpeg = pictures.noise("JPEG", 64, 64, quality=90)
    whole = pictures.noise("PNG", 64, 64)
    for data in (jpeg[: len(jpeg) // 2], whole[: whole.index(b"IDAT") + 500], jpeg[:200]):
        assert "truncated or damaged" in refused(service, data)
    assert "empty" in refused(service, b"")


@pytest.mark.parametrize(("long", "status"), [(1000, 200), (1005, 400), (1093, 400)])
def test_img_16_sides_in_a_ratio_of_200_and_no_more(service: Service, long: int, status: int) -> None:
    for size in ((long, 5), (5, long)):
        if status == 200:
            assert seen(service, plain("PNG", size)).size
        else:
            message = refused(service, plain("PNG", size), "image_aspect_ratio")
            assert f"{long / 5:.1f}".removesuffix(".0") in message
            assert "200" in message


@pytest.mark.parametrize("size", [(1, 1), (3, 3), (1, 3), (3, 1), (26, 28), (27, 500)])
def test_img_17_img_18_tiny_pictures_are_scaled_up_and_keep_their_colour(
    service: Service, size: tuple[int, int]
) -> None:
    found = seen(service, plain("PNG", size, (255, 10, 0)))
    assert found.shape[0] >= 28
    assert found.shape[1] >= 28
    assert near(found.reshape(-1, 3).mean(axis=0), (255, 10, 0), 2)


def test_img_17_a_line_of_pixels_is_refused_and_nobody_else_notices(service: Service) -> None:
    refused(service, plain("PNG", (499, 1)), "image_aspect_ratio")
    assert service.chat("fine").status_code == 200


def test_img_19_bombs_are_refused_by_their_header(service: Service) -> None:
    bomb = png(20000, 20000, (b"\0" * 2501) * 20000, depth=1)
    claim = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0))
    (worker,) = service.workers
    refused(service, claim, "image_too_large")
    before = worker.memory_info().rss
    for data, words in ((bomb, "20000 x 20000"), (claim, "60000 x 60000")):
        spent = sum(worker.cpu_times()[:2])
        assert words in refused(service, data, "image_too_large")
        assert sum(worker.cpu_times()[:2]) - spent < 0.2
    assert worker.memory_info().rss - before < 20 * MIB


def test_img_21_text_that_inflates_is_no_fault_of_the_server(service: Service) -> None:
    text = chunk(b"zTXt", b"Comment\0\0" + zlib.compress(b"A" * 2_000_000, 9))
    refused(service, png(1, 1, b"\0\0", extra=text))


def test_img_22_no_picture_is_answered_as_if_it_were_not_there(service: Service) -> None:
    image = Image.new("RGB", (168, 168), WHITE)
    image.paste(BLACK, (60, 30, 90, 140))
    data = saved(image, "WEBP", lossless=True)
    assert np.array_equal(seen(service, data, "image/webp"), np.asarray(image))
    refused(service, data[: len(data) // 2], kind="image/webp")


def test_img_26_the_operators_bounds_decide_the_tokens() -> None:
    tokens = []
    for bound in (200704, 1003520):
        with serving("--max-pixels", str(bound)) as bounded:
            answer = bounded.chat("x", part(plain("PNG", (2000, 2000)))).json()
            tokens.append(answer["usage"]["prompt_tokens_details"]["image_tokens"])
            refusal = bounded.chat("x", part(plain("PNG", (56, 56))), mm_processor_kwargs={"max_pixels": 1})
            assert (refusal.status_code, refusal.json()["error"]["param"]) == (400, "mm_processor_kwargs")
    assert 200 < tokens[0] <= 256
    assert 1200 < tokens[1] <= 1280


def test_sec_02_sec_14_what_is_no_picture_is_named_and_nothing_of_the_decoder_is_told(service: Service) -> None:
    for name, data in FOREIGN.items():
        if name in ("HEIC", "AVIF", "PDF"):
            continue  # may be taken
        message = refused(service, data, "unsupported_image_format")
        assert name in message
    for kind, made in pictures.KINDS.items():
        data = made()
        for broken in (data[:40], data[:20] + b"\xff" * 200, data[:10] + data[40:]):
            answer = service.chat("what?", part(broken))
            if answer.status_code != 200:
                assert error_of(answer)["param"] == WHERE, kind
                assert answer.status_code == 400
