"""Pictures by URL through the front door."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.batch.harness import batch
from tests.media.pictures import plain, strip
from tests.media.site import CA, answer, redirect, site
from tests.serving.harness import Service, environment, picture, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.media.site import Site

PNG = picture(5)


def error_of(response: Any) -> Any:
    assert response.status_code == 400
    return response.json()["error"]


def url_part(url: str, **fields: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **fields}}


@pytest.fixture(scope="module")
def web() -> Iterator[Site]:
    """A site in a loop of its own."""
    loop = asyncio.new_event_loop()
    made = site("img.test", "other.test")
    served = loop.run_until_complete(made.__aenter__())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield served
    asyncio.run_coroutine_threadsafe(made.__aexit__(None, None, None), loop).result(10)

    async def drop() -> None:
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    asyncio.run_coroutine_threadsafe(drop(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


@contextlib.contextmanager
def fetching_from(web: Site, folder: Path) -> Iterator[Service]:
    """A service that may fetch from that site; `folder` is for its authority's certificate."""
    CA.cert_pem.write_to_path(str(folder / "ca.pem"))
    path = os.pathsep.join((str(Path(__file__).parent / "urls"), environment()["PYTHONPATH"]))
    environ = {"SSL_CERT_FILE": str(folder / "ca.pem"), "PYTHONPATH": path}
    hosts = f"img.test:{web.port},inner.test:{web.port},closed.test:9"
    with serving("--url-hosts", hosts, "--url-timeout-s", "1.5", environ=environ) as running:
        yield running


@pytest.fixture(scope="module")
def fetching(web: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that may fetch from that site."""
    with fetching_from(web, tmp_path_factory.mktemp("ca")) as running:
        yield running


def test_the_same_picture_by_url_and_data_uri_is_one(fetching: Service, web: Site) -> None:
    web.pages["/a.png"] = answer(PNG, content_type="text/plain")
    inside = url_part("data:image/png;base64," + base64.b64encode(PNG).decode())
    first = fetching.chat("what is it?", inside, seed=1).json()
    hits = fetching.metric('twinlens_pictures_total{hit="yes"}')
    second = fetching.chat("what is it?", url_part(f"https://img.test:{web.port}/a.png"), seed=1).json()
    assert second["choices"] == first["choices"]
    assert second["usage"] == first["usage"]
    assert second["twinlens"] == first["twinlens"]
    assert fetching.metric('twinlens_pictures_total{hit="yes"}') == hits + 1  # the same key
    assert fetching.metric('twinlens_url_fetches_total{outcome="fetched"}') >= 1


def test_one_picture_by_every_way_has_the_same_pixels_tokens_and_key(
    fetching: Service, web: Site, tmp_path: Path
) -> None:
    """A phone's photograph, turned by its EXIF: data URI, bare base64, file, upload, URL, in tasks and in a batch."""
    data = strip(6, "JPEG")
    web.pages["/phone.jpg"] = answer(data)
    (tmp_path / "phone.jpg").write_bytes(data)
    text = base64.b64encode(data).decode()
    upload = fetching.http.post("/v1/files", files={"file": ("a", data)}, data={"purpose": "vision"}).json()
    url = f"https://img.test:{web.port}/phone.jpg"
    first, (pixels,) = fetching.seen("what?", url_part(f"data:image/jpeg;base64,{text}"))
    assert pixels.shape[0] > pixels.shape[1]
    objects = fetching.folder / "store" / "objects"
    (kept,) = objects.iterdir()
    hits = fetching.metric('twinlens_pictures_total{hit="yes"}')
    ways: list[dict[str, Any]] = [
        url_part(text),
        url_part(url),
        {"type": "file", "file": {"file_id": upload["id"]}},
        {"type": "file", "file": {"file_data": f"data:image/jpeg;base64,{text}", "filename": "x"}},
    ]
    for way in ways:
        told = fetching.chat("what?", way).json()
        assert (told["usage"], told["twinlens"]["images"]) == (
            first.json()["usage"],
            first.json()["twinlens"]["images"],
        )
    tasks = [f"data:image/jpeg;base64,{text}", url, {"file_id": upload["id"]}]
    for image in tasks:
        assert fetching.http.post("/v1/tasks/receipt", json={"images": [image]}).status_code == 200
    done = batch(tmp_path, "phone.jpg", "--task", "receipt", "--url", fetching.url, "--out", "r.jsonl")
    assert done.returncode == 0, done.stderr
    assert list(objects.iterdir()) == [kept]
    assert fetching.metric('twinlens_pictures_total{hit="yes"}') == hits + len(ways) + len(tasks) + 1


def test_the_same_url_twice_in_one_request_is_fetched_once(fetching: Service, web: Site) -> None:
    web.pages["/twice.png"] = answer(picture(6))
    before = len(web.seen)
    part = url_part(f"https://img.test:{web.port}/twice.png")
    assert fetching.chat("a", part, "b", part).status_code == 200
    assert len(web.seen) == before + 1


def test_the_seed_style_call_takes_urls(fetching: Service, web: Site) -> None:
    web.pages["/a.png"] = answer(PNG)
    body = {"image": f"https://img.test:{web.port}/a.png", "prompt": "x"}
    assert fetching.http.post("/v1/inference", json=body).status_code == 200


def test_tasks_take_urls_and_refuse_them_alike(fetching: Service, web: Site) -> None:
    web.pages["/a.png"] = answer(PNG)
    url = f"https://img.test:{web.port}/a.png"
    for image in (url, {"url": url, "detail": "low"}):
        told = fetching.http.post("/v1/tasks/receipt", json={"images": [image]})
        assert told.status_code == 200, told.text
    assert fetching.chat(url_part(url), model="task:receipt").status_code == 200
    for bad in ("https://elsewhere.test/a.png", "file:///etc/passwd", "http://127.0.0.1/a.png"):
        error = error_of(fetching.http.post("/v1/tasks/receipt", json={"images": [bad]}))
        assert (error["code"], error["param"]) == ("image_url_not_allowed", "images[0]")
        assert "images[0]" in error["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_url_09_what_cannot_be_had_is_a_400_that_names_the_part(fetching: Service, web: Site, stream: bool) -> None:
    web.pages["/page"] = answer(b"<!doctype html><html>no picture</html>", content_type="image/png")
    web.pages["/empty"] = answer(b"")
    web.pages["/cut"] = answer(PNG[: len(PNG) // 2])
    for path, code in (
        ("/missing", "image_fetch_failed"),
        ("/page", "unsupported_image_format"),
        ("/empty", "invalid_image"),
        ("/cut", "invalid_image"),
    ):
        error = error_of(fetching.chat("x", url_part(f"https://img.test:{web.port}{path}"), stream=stream))
        assert (error["code"], error["param"]) == (code, "messages[0].content[1]")


def test_url_02_redirects_are_checked(fetching: Service, web: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as inner:
        inner.settimeout(0.2)
        port = inner.getsockname()[1]
        for where in (
            f"http://127.0.0.1:{port}/x",
            f"https://127.0.0.1:{port}/x",
            f"https://[::ffff:127.0.0.1]:{port}/",
            f"https://inner.test:{web.port}/",
            "file:///etc/hostname",
        ):
            web.pages["/go"] = redirect(where)
            error = error_of(fetching.chat("x", url_part(f"https://img.test:{web.port}/go")))
            assert error["code"] in ("image_url_not_allowed", "image_fetch_failed")
            assert str(port) not in error["message"]
        with pytest.raises(TimeoutError):
            inner.accept()


def test_url_01_addresses_inside_are_refused_whether_a_port_is_open_or_not(service: Service) -> None:
    with socket.create_server(("127.0.0.1", 0)) as inner:
        inner.settimeout(0.2)
        opened = inner.getsockname()[1]
        answers = set()
        for scheme in ("http", "https"):
            for host in ("127.0.0.1", "localhost", "[::1]", "2130706433", "0x7f.1", "169.254.169.254", "10.0.0.5"):
                for port in (opened, 9):
                    error = error_of(service.chat("x", url_part(f"{scheme}://{host}:{port}/x.png")))
                    assert error["code"] == "image_url_not_allowed"
                    answers.add(error["message"])
        assert len(answers) == 1  # off: one text for all
        with pytest.raises(TimeoutError):
            inner.accept()


def test_url_06_url_07_every_route_refuses_alike(service: Service, tmp_path: Path) -> None:
    secret = tmp_path / "secret.png"
    secret.write_bytes(PNG)
    for url in ("https://example.org/a.png", secret.as_uri(), str(secret), "file://localhost/etc/passwd", "ftp://a/b"):
        codes = {
            error_of(service.chat("x", url_part(url)))["code"],
            error_of(service.chat("x", url_part(url), stream=True))["code"],
            error_of(service.chat("x", {"type": "image_url", "image_url": url}))["code"],
            error_of(service.http.post("/v1/inference", json={"image": url, "prompt": "x"}))["code"],
        }
        assert codes == {"image_url_not_allowed"}, url
        error = error_of(service.chat("x", {"type": "file", "file": {"file_data": url}}))
        assert error["code"] in ("image_url_not_allowed", "invalid_field")
        assert "secret" not in error["message"]


def test_url_08_hosts_that_do_not_answer_harm_nobody_else(fetching: Service, web: Site) -> None:
    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read(1)

    web.pages["/silent"] = silent
    part = url_part(f"https://img.test:{web.port}/silent")
    with ThreadPoolExecutor(15) as pool:
        jobs = [pool.submit(fetching.chat, "x", part) for _ in range(15)]
        slowest = 0.0
        for _ in range(10):
            start = time.monotonic()
            assert fetching.http.get("/livez").status_code == 200
            assert fetching.chat("only text").status_code == 200
            slowest = max(slowest, time.monotonic() - start)
            time.sleep(0.05)
        for job in jobs:
            assert error_of(job.result())["code"] == "image_fetch_timeout"
    assert slowest < 1.0


def test_url_11_endless_bodies_end_at_the_limit(fetching: Service, web: Site) -> None:
    async def endless(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for _piece in range(4000):  # 256 MB
            if writer.is_closing():
                return
            writer.write(b"\0" * 65536)
            await writer.drain()

    web.pages["/endless"] = endless
    (worker,) = fetching.workers
    before = worker.memory_info().rss
    error = error_of(fetching.chat("x", url_part(f"https://img.test:{web.port}/endless")))
    assert error["code"] in ("image_too_large", "image_fetch_timeout")  # a slow machine reaches the clock first
    assert worker.memory_info().rss - before < 80 << 20


def test_api_20_too_many_pictures_are_refused_before_any_is_fetched(fetching: Service, web: Site) -> None:
    before = len(web.seen)
    parts = [url_part(f"https://img.test:{web.port}/{number}") for number in range(33)]
    assert error_of(fetching.chat("x", *parts))["code"] == "too_many_images"
    assert len(web.seen) == before


def test_cache_13_a_page_that_changed_gives_its_new_picture(fetching: Service, web: Site) -> None:
    """By whatever the site says of keeping it: pixels are known by the bytes, never by where they came from."""
    url = f"https://img.test:{web.port}/changing.png"
    for keep in ("no-store", "max-age=60", "public, max-age=31536000, immutable"):
        answers = []
        for colour in ((255, 0, 0), (0, 0, 255)):
            web.pages["/changing.png"] = answer(plain("PNG", (56, 56), colour), cache_control=keep, etag='"one"')
            told, (pixels,) = fetching.seen("what?", url_part(url))
            assert told.status_code == 200
            assert tuple(pixels.reshape(-1, 3).mean(axis=0).round()) == colour
            answers.append(told.json()["choices"][0]["message"]["content"])
        assert answers[0] != answers[1]
