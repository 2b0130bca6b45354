from __future__ import annotations

import asyncio
import base64
import io
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image as Pillow

from tests.media import pdfs
from tests.media.pictures import FOREIGN, LIME, RED, animation, grey16, noise, photo, plain, strip, uri
from twinlens.core import ImageRef
from twinlens.engines import canonical
from twinlens.errors import (
    ImageAspectRatio,
    ImageError,
    ImageTooLarge,
    ImageUrlNotAllowed,
    InvalidBase64,
    InvalidField,
    SettingsError,
    StoreError,
    UnsupportedImageFormat,
)
from twinlens.media import Loader, datauri, decode, loader
from twinlens.model.pictures import PictureRule
from twinlens.settings import Settings
from twinlens.store import Store, resolve

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from twinlens.core import Image, Sight

RULE = PictureRule(patch=14, merge=2, temporal=2, min_pixels=3136, max_pixels=1003520)


class Room:
    """A loader over a store of its own."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.root = root
        self.store = Store(root, 1 << 28)
        self.loader = Loader(RULE, self.store, Settings(**settings))

    async def look(self, *urls: str | ImageRef) -> tuple[Sight, ...]:
        refs = [url if isinstance(url, ImageRef) else ImageRef(f"images[{n}]", url) for n, url in enumerate(urls)]
        return await self.loader.look(refs)

    async def load(self, *urls: str | ImageRef) -> tuple[Image, ...]:
        sights = await self.look(*urls)
        with self.store.lease() as lease:
            return await self.loader.load(sights, lease)

    def pixels(self, image: Image) -> np.ndarray[Any, Any]:
        return resolve(self.root, image.reference)


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    made = Room(tmp_path / "store")
    yield made
    made.loader.close()
    made.store.close()


async def test_a_picture_from_reference_to_pixels(room: Room) -> None:
    (sight,) = await room.look(uri(plain("PNG", (100, 50))))
    assert (sight.source_format, sight.source_size, sight.size) == ("PNG", (50, 100), (56, 112))
    assert (sight.grid, sight.tokens, sight.warnings) == ((1, 4, 8), 8, ())
    with room.store.lease() as lease:
        (image,) = await room.loader.load([sight], lease)
        assert (image.key, image.size, image.grid, image.tokens) == (sight.key, sight.size, sight.grid, sight.tokens)
        assert not image.hit
        found = room.pixels(image)
    assert found.dtype == np.uint8
    assert found.shape == (56, 112, 3)
    assert (found == RED).all()
    assert not found.flags.writeable


async def test_nothing_gives_nothing(room: Room) -> None:
    assert await room.look() == ()
    assert await room.load() == ()


async def test_the_second_time_is_a_hit(room: Room) -> None:
    first, second = await room.load(uri(plain("PNG"))), await room.load(uri(plain("PNG")))
    assert [first[0].hit, second[0].hit] == [False, True]
    assert first[0].key == second[0].key


async def test_the_same_picture_twice_in_one_request_is_decoded_once(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    real = decode.pixels

    def spy(*arguments: Any, **more: Any) -> Any:
        calls.append(arguments[3])
        return real(*arguments, **more)

    monkeypatch.setattr(decode, "pixels", spy)
    one, other = uri(plain("PNG")), uri(plain("BMP"))
    images = await room.load(one, other, one)
    assert [image.hit for image in images] == [False, False, True]
    assert [image.where for image in images] == ["images[0]", "images[1]", "images[2]"]
    assert sorted(calls) == ["images[0]", "images[1]"]


async def test_many_pictures_keep_their_order(room: Room) -> None:
    urls = [uri(plain("PNG", (56, 56), (number, 0, 0))) for number in range(20)]
    images = await room.load(*urls)
    assert [int(room.pixels(image)[0, 0, 0]) for image in images] == list(range(20))
    assert all(image.hit for image in await room.load(*urls))


async def test_much_base64_is_looked_at_in_parallel(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "MUCH", 1000)
    monkeypatch.setattr(loader, "SMALL", 0)
    sights = await room.look(*(uri(noise("JPEG", 64, 64, seed)) for seed in range(5)))
    assert [sight.where for sight in sights] == [f"images[{n}]" for n in range(5)]
    assert len({sight.key for sight in sights}) == 5


@pytest.mark.parametrize("small", [0, 256 << 10])
async def test_looking_on_the_spot_and_in_a_thread_see_the_same(
    room: Room, monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    urls = [uri(photo(200, 100)), uri(strip(6, "JPEG")), uri(plain("PNG"))]
    expected = await room.look(*urls)
    monkeypatch.setattr(loader, "SMALL", small)
    assert await room.look(*urls) == expected
    assert [(await room.look(url))[0].key for url in urls] == [sight.key for sight in expected]


async def test_plain_jpegs_are_looked_at_without_waking_a_thread(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room.loader, "_pool", None)
    (sight,) = await room.look(uri(photo(200, 100)))
    assert sight.source_size == (100, 200)


async def test_the_event_loop_neither_decodes_nor_hashes_much(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    here = threading.get_ident()
    seen: list[int] = []
    for module, name in ((datauri, "read"), (decode, "look"), (decode, "pixels")):
        real = getattr(module, name)

        def spy(*arguments: Any, real: Any = real, **more: Any) -> Any:
            seen.append(threading.get_ident())
            return real(*arguments, **more)

        monkeypatch.setattr(module, name, spy)
    large = noise("JPEG", 700, 700, quality=95)
    assert len(large) > 256 << 10
    await room.load(uri(large))
    assert len(seen) == 3
    assert here not in seen


KEYS = {
    "bytes": (ImageRef("x", uri(plain("PNG"))), ImageRef("x", uri(plain("PNG", colour=LIME)))),
    "container": (ImageRef("x", uri(plain("PNG"))), ImageRef("x", uri(plain("BMP")))),
    "size": (ImageRef("x", uri(plain("PNG"))), ImageRef("x", uri(plain("PNG")), min_pixels=100_000)),
    "detail": (ImageRef("x", uri(photo(900, 900))), ImageRef("x", uri(photo(900, 900)), detail="low")),
}


@pytest.mark.parametrize("name", sorted(KEYS))
async def test_keys_of_different_pixels_differ(room: Room, name: str) -> None:
    one, other = await room.look(*KEYS[name])
    assert one.key != other.key


async def test_keys_depend_on_the_recipe_and_not_on_the_place(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    url = uri(plain("PNG"))
    one, other = await room.look(ImageRef("a", url), ImageRef("b", url, detail="high"))
    assert one.key == other.key
    monkeypatch.setattr(decode, "RECIPE", decode.RECIPE + "!")
    assert (await room.look(url))[0].key != one.key


async def test_padding_of_base64_does_not_make_another_key(room: Room) -> None:
    data = plain("PNG")
    one, other = await room.look(uri(data), base64.b64encode(data).decode().rstrip("="))
    assert one.key == other.key


async def test_img_26_bounds_and_detail_decide_the_tokens(room: Room) -> None:
    url = uri(photo(2000, 2000, quality=40))
    low, bounded, high = await room.look(
        ImageRef("a", url, detail="low"), ImageRef("b", url, max_pixels=200704), ImageRef("c", url, detail="high")
    )
    assert low.tokens == bounded.tokens == 256
    assert 1200 < high.tokens <= 1280
    assert low.key == bounded.key


@pytest.mark.parametrize("bounds", [{"max_pixels": 10**9}, {"min_pixels": 1}, {"min_pixels": 9000, "max_pixels": 8000}])
async def test_img_26_bounds_that_cannot_be_name_the_part(room: Room, bounds: dict[str, Any]) -> None:
    with pytest.raises(InvalidField) as caught:
        await room.look(ImageRef("messages[0].content[1]", uri(plain("PNG")), **bounds))
    assert caught.value.param == "messages[0].content[1]"


async def test_bounds_of_the_operator(tmp_path: Path) -> None:
    room = Room(tmp_path / "s", max_pixels=200704)
    assert (await room.look(uri(photo(2000, 2000, quality=40))))[0].tokens == 256
    with pytest.raises(InvalidField):
        await room.look(ImageRef("x", uri(plain("PNG")), max_pixels=1003520))
    room.loader.close()
    with pytest.raises(SettingsError):
        Loader(RULE, room.store, Settings(max_pixels=10**9))


REFUSED: dict[str, tuple[str, type[ImageError], str]] = {
    "IMG-10 HEIC named a.jpg": (uri(FOREIGN["HEIC"], "image/jpeg"), ImageError, "invalid_image"),
    "IMG-14 cut": (uri(noise("JPEG", 64, 64)[:2000], "image/jpeg"), ImageError, "invalid_image"),
    "IMG-16 ratio": (uri(plain("PNG", (1005, 5))), ImageAspectRatio, "image_aspect_ratio"),
    "B64-08 text": (uri(b"plain text, not an image"), UnsupportedImageFormat, "unsupported_image_format"),
    "B64-11 no comma": ("data:image/png;base64", InvalidBase64, "invalid_base64"),
    "API-15 empty": ("", ImageError, "invalid_image"),
    "API-15 spaces": ("  ", ImageError, "invalid_image"),
    "URL": ("https://example.com/cat.jpg", ImageUrlNotAllowed, "image_url_not_allowed"),
    "reference of a client": ("twinlens:" + "0" * 64, ImageUrlNotAllowed, "image_url_not_allowed"),
    "file": ("file:///etc/passwd", ImageUrlNotAllowed, "image_url_not_allowed"),
    "path": ("/etc/passwd.txt", ImageUrlNotAllowed, "image_url_not_allowed"),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
async def test_a_bad_picture_among_good_ones_is_named_and_nothing_is_loaded(room: Room, name: str) -> None:
    url, kind, code = REFUSED[name]
    good = uri(photo(100, 100))
    with pytest.raises(kind) as caught:
        await room.load(ImageRef("a", good), ImageRef("messages[3].content[7]", url), ImageRef("b", good))
    assert type(caught.value) is kind
    assert caught.value.code == code
    assert caught.value.param == "messages[3].content[7]"
    assert caught.value.status == 400


async def test_too_many_bytes(tmp_path: Path) -> None:
    room = Room(tmp_path / "s", max_image_bytes=1024)
    with pytest.raises(ImageTooLarge):
        await room.look(uri(noise("BMP", 64, 64)))
    room.loader.close()


@pytest.mark.parametrize("declared", ["image/png", "image/jpeg", "application/octet-stream", "text/html", "image/heic"])
async def test_b64_08_the_bytes_decide(room: Room, declared: str) -> None:
    jpeg, png = await room.look(uri(plain("JPEG"), declared), uri(plain("PNG"), declared))
    assert (jpeg.source_format, png.source_format) == ("JPEG", "PNG")


async def test_img_12_the_warning_goes_with_the_image(room: Room) -> None:
    (image,) = await room.load(uri(animation("GIF")))
    assert image.warnings == ("images[0]: the first of 3 frames is used.",)


async def test_img_05_through_the_whole_step(room: Room) -> None:
    (image,) = await room.load(uri(grey16([65535, 65535, 0, 0])))
    found = room.pixels(image)
    assert found[0, 0].tolist() == [255] * 3
    assert found[-1, -1].tolist() == [0] * 3


async def test_pixels_do_not_depend_on_what_else_runs(room: Room) -> None:
    urls = [uri(photo(320, 240, seed)) for seed in range(8)]
    images = await room.load(*urls)
    for url, image in zip(urls, images, strict=True):
        (sight,) = await room.look(url)
        alone = np.asarray(decode.pixels(sight.data, sight.source_format, sight.size, "x"))
        assert np.array_equal(room.pixels(image), alone)


async def test_leaving_in_the_middle_waits_for_its_threads(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    started, release = threading.Event(), threading.Event()
    done: list[str] = []
    real = decode.pixels

    def slow(*arguments: Any, **more: Any) -> Any:
        started.set()
        release.wait(10)
        done.append(arguments[3])
        return real(*arguments, **more)

    monkeypatch.setattr(decode, "pixels", slow)
    sights = await room.look(*(uri(noise("PNG", 40, 40, seed)) for seed in range(12)))
    with room.store.lease() as lease:
        task = asyncio.create_task(room.loader.load(sights, lease))
        await asyncio.to_thread(started.wait)
        task.cancel()
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.sleep(0.05)
        assert not task.done()
        release.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        finished = len(done)
        await asyncio.sleep(0.1)
        assert len(done) == finished < 12


async def test_one_damaged_picture_stops_the_others_that_wait(room: Room) -> None:
    damaged = noise("PNG", 60, 60)[:-200]
    urls = [uri(noise("PNG", 60, 60, seed)) for seed in range(1, 10)]
    sights = await room.look(*urls[:4], uri(damaged), *urls[4:])
    with room.store.lease() as lease:
        with pytest.raises(ImageError) as caught:
            await room.loader.load(sights, lease)
        assert caught.value.param == "images[4]"


async def test_large_pictures_are_decoded_one_at_a_time(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "LARGE", 1000)
    inside, most = 0, 0
    real = decode.pixels

    def watched(*arguments: Any, **more: Any) -> Any:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        found = real(*arguments, **more)
        inside -= 1
        return found

    monkeypatch.setattr(decode, "pixels", watched)
    await room.load(*(uri(noise("PNG", 200, 200, seed)) for seed in range(6)))
    assert most == 1


async def test_large_pictures_that_wait_hold_up_no_small_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They wait outside of the threads, so that a second large one does not park the last of them."""
    room = Room(tmp_path / "s", load_threads=2)
    monkeypatch.setattr(loader, "LARGE", 1000)
    go_on, begun = threading.Event(), threading.Event()
    real = decode.pixels

    def held(data: bytes, name: str, size: tuple[int, int], where: str, frame: int, **more: Any) -> Any:
        if where == "large":
            begun.set()
            assert go_on.wait(20)
        return real(data, name, size, where, frame, **more)

    monkeypatch.setattr(decode, "pixels", held)
    large = [asyncio.create_task(room.load(ImageRef("large", uri(noise("PNG", 200, 200, seed))))) for seed in range(3)]
    try:
        assert await asyncio.to_thread(begun.wait, 20)
        await asyncio.wait_for(room.load(ImageRef("small", uri(plain("PNG", (20, 20))))), 5)
        assert not any(task.done() for task in large)
    finally:
        go_on.set()
        await asyncio.gather(*large)
        room.loader.close()
        room.store.close()


async def test_a_full_store_is_an_answer(tmp_path: Path) -> None:
    store = Store(tmp_path / "s", 1 << 20)
    small = Loader(RULE, store, Settings())
    sights = await small.look([ImageRef("x", uri(photo(1500, 1500)))])
    with store.lease() as lease, pytest.raises(StoreError) as caught:
        await small.load(sights, lease)
    assert caught.value.status == 507
    small.close()


async def test_after_close_no_thread_is_left(tmp_path: Path) -> None:
    room = Room(tmp_path / "s")
    await room.load(uri(noise("PNG", 50, 50)), uri(noise("PNG", 50, 50, 1)))
    names = [thread.name for thread in threading.enumerate()]
    assert any(name.startswith("twinlens-load") for name in names)
    room.loader.close()
    assert not any(thread.name.startswith("twinlens-load") for thread in threading.enumerate())


async def test_pages_and_pictures_go_to_other_engines_as_png(room: Room) -> None:
    refs = [
        ImageRef("a", uri(pdfs.document([pdfs.square(0, 0)]))),
        ImageRef("b", uri(plain("BMP", (56, 28)))),
        ImageRef("c", uri(plain("JPEG", (56, 28)))),
    ]
    sights = await room.loader.look(refs)
    with room.store.lease() as lease:
        images = await room.loader.load(sights, lease)
        sent = canonical.data_uris(room.root, images)
    assert [url.partition(";")[0] for url in sent] == ["data:image/png"] * 3
    page = Pillow.open(io.BytesIO(base64.b64decode(sent[0].partition(",")[2])))
    assert (page.height, page.width) == sights[0].size
    assert page.getpixel((5, page.height - 5)) == (0, 0, 0)
