"""Field cases of what is kept between requests, through the front door: pixels in the store, prefixes in the engine."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import subprocess
import zipfile
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from tests.media.pictures import WHITE, noise, plain, saved, uri
from tests.serving.harness import image_part, serving, until
from twinlens.store.header import SIZE, unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.serving.harness import Service

COLOURS = {"red": (220, 30, 30), "green": (30, 160, 40), "blue": (30, 60, 220)}
HITS, MISSES = 'twinlens_pictures_total{hit="yes"}', 'twinlens_pictures_total{hit="no"}'


def objects(service: Service) -> list[Path]:
    return list((service.folder / "store" / "objects").iterdir())


def part(data: bytes) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": uri(data)}}


def square(colour: tuple[int, int, int]) -> dict[str, Any]:
    image = Image.new("RGB", (336, 336), WHITE)
    ImageDraw.Draw(image).rectangle((90, 90, 230, 230), fill=colour)
    return part(saved(image, "PNG"))


def test_cache_01_sizes_with_the_same_bytes_are_pictures_of_their_own(service: Service) -> None:
    """Red all over: the bytes of 30 x 150 and 150 x 30 pixels are the same ones."""
    before = service.metric(MISSES)
    answer, (wide,) = service.seen("what?", part(plain("PNG", (150, 30))))
    assert service.metric(MISSES) == before + 1
    high = service.chat("what?", part(plain("PNG", (30, 150))))
    assert service.metric(MISSES) == before + 2
    shapes = {
        unpack(path.read_bytes()[:SIZE], key=path.name, file_size=path.stat().st_size).shape
        for path in objects(service)
    }
    assert len(shapes) == 2
    (one,), (two,) = answer.json()["twinlens"]["images"], high.json()["twinlens"]["images"]
    assert (one["seen_width"], one["seen_height"]) == (two["seen_height"], two["seen_width"]) == wide.shape[1::-1]


@pytest.fixture(scope="module")
def seeing() -> Iterator[Service]:
    """The demo model behind a store that holds two large pictures."""
    with serving("--engine", "openvino", "--store-bytes", str(6 << 20), "--workers", "2") as running:
        yield running


def colour_of(service: Service, *parts: Any) -> str:
    answer = service.chat(*parts, "What colour is the square?", temperature=0, max_tokens=12)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["message"]["content"])


@pytest.mark.slow
def test_cache_09_the_same_words_about_other_pictures_are_answered_from_those(seeing: Service) -> None:
    """The prompts differ in nothing but the pixels: one after the other, together, and the first one once more."""
    for name in (*COLOURS, *reversed(COLOURS)):
        assert colour_of(seeing, square(COLOURS[name])) == name
    with ThreadPoolExecutor(6) as pool:
        names = [*COLOURS, *COLOURS]
        assert list(pool.map(lambda name: colour_of(seeing, square(COLOURS[name])), names)) == names


@pytest.mark.slow
def test_cache_10_a_store_too_small_for_what_runs_fails_single_requests_and_nothing_else(seeing: Service) -> None:
    """Pictures come and go while others need them: each request is answered, or told to come again."""
    engine = seeing.engine.pid

    def ask(number: int) -> int:
        parts = [part(noise("JPEG", 1000, 900, seed=number % 7 + at)) for at in range(number % 3 + 1)]
        answer = seeing.chat(*parts, "What is this?", max_tokens=2)
        assert answer.status_code in (200, 503, 507), answer.text
        if answer.status_code != 200:
            assert answer.json()["error"]["code"] in ("store_unusable", "store_miss", "overloaded")
        return answer.status_code

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(ask, range(20)))
    assert 200 in found
    for name, colour in COLOURS.items():
        assert colour_of(seeing, square(colour)) == name
    assert seeing.engine.pid == engine
    until(lambda: not seeing.leases(), 5)
    assert seeing.metric("twinlens_store_bytes") <= 6 << 20


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "4"])
def test_cache_14_the_same_picture_is_made_once_for_all_workers_and_restarts(tmp_path: Path, workers: str) -> None:
    hits = 0.0
    trial: set[Path] = set()  # what the service asks itself at its start
    for _ in range(2):
        with serving("--workers", workers, folder=tmp_path) as service:
            trial = trial or set(objects(service))
            for _ in range(5):
                body = {"model": "demo", "messages": [{"role": "user", "content": [image_part(14)]}]}
                answer = service.http.post("/v1/chat/completions", json=body, headers={"connection": "close"})
                assert answer.status_code == 200
            assert len(set(objects(service)) - trial) == 1
            hits += service.metric(HITS)
    assert hits == 9


def pickled(marker: Path) -> bytes:
    class Evil:
        def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
            return os.system, (f"touch {marker}",)

    return pickle.dumps(Evil())


def foreign(marker: Path) -> dict[str, bytes]:
    """Files of kinds that other programs would run something of."""
    numpy = io.BytesIO()
    np.save(numpy, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    torch = io.BytesIO()
    with zipfile.ZipFile(torch, "w") as archive:
        archive.writestr("archive/data.pkl", pickled(marker))
    return {"pickle": pickled(marker), "numpy": numpy.getvalue(), "torch": torch.getvalue(), "empty": b""}


def test_sec_09_what_somebody_else_wrote_under_a_valid_key_is_never_run_or_believed(
    service: Service, tmp_path: Path
) -> None:
    marker = tmp_path / "marker"
    for name, data in foreign(marker).items():
        _, (right,) = service.seen("what?", image_part(9))
        (path,) = objects(service)
        damaged = service.metric("twinlens_store_damaged")
        path.write_bytes(data)
        assert service.chat("what?", image_part(9)).status_code == 200, name
        (again,) = objects(service)
        assert again.name == path.name
        assert np.array_equal(np.frombuffer(again.read_bytes()[SIZE:], np.uint8), right.reshape(-1)), name
        assert service.metric("twinlens_store_damaged") > damaged
    assert not marker.exists()


@pytest.mark.parametrize("way", ["folder", "link", "pipe", "unreadable", "longer", "gone"])
def test_sec_09_whatever_lies_where_an_object_should_be_nobody_waits_or_fails_for_it(
    service: Service, way: str
) -> None:
    _, _ = service.seen("what?", image_part(90))
    (path,) = objects(service)
    whole = path.read_bytes()
    path.unlink()
    if way == "folder":
        path.mkdir()
    elif way == "link":
        path.symlink_to("/etc/passwd")
    elif way == "pipe":
        os.mkfifo(path)
    elif way == "unreadable":
        path.touch(mode=0)
    elif way == "longer":
        path.write_bytes(whole + b"\0" * 9)
    try:
        answer = service.chat("what?", image_part(90))
        assert answer.status_code in (200, 507), answer.text
        assert service.chat("what?", image_part(91)).status_code == 200
    finally:
        with contextlib.suppress(OSError):
            path.rmdir()
        path.unlink(missing_ok=True)
    assert service.chat("what?", image_part(90)).status_code == 200


def test_a_store_that_somebody_removes_is_made_again() -> None:
    with serving() as running:
        running.chat("what?", image_part(1))
        subprocess.run(["rm", "-rf", str(running.folder / "store")], check=True)
        statuses = [running.chat("what?", image_part(1)).status_code for _ in range(2)]
        assert statuses[-1] in (200, 507)
        assert running.chat("only text").status_code == 200


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes in memory."""
    made = tmp_path / "disk"
    made.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", str(made)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"needs to mount a file system: {done.stderr.strip()}")
    try:
        yield made
    finally:
        subprocess.run(["umount", "-l", str(made)], check=False)


@pytest.mark.slow
def test_ops_18_a_full_store_makes_room_or_says_so_and_gives_no_wrong_picture(small_disk: Path) -> None:
    with serving("--store", str(small_disk / "store")) as running:
        for number in range(12):  # each takes some 600 kB: three fit
            answer = running.chat("what?", image_part(number, (560, 392)))
            assert answer.status_code == 200, answer.text
        stored = small_disk / "store" / "objects"
        for path in stored.iterdir():
            path.unlink()
        filler = small_disk / "filler"
        with contextlib.suppress(OSError), filler.open("wb") as file:  # somebody else takes all of it
            while True:
                file.write(b"\0" * 4096)
        for number in range(4):
            answer = running.chat("what?", image_part(20 + number, (560, 392)))
            assert (answer.status_code, answer.json()["error"]["code"]) == (507, "store_unusable")
        assert running.chat("only text").status_code == 200
        assert not list(stored.iterdir())
        filler.unlink()
        assert running.chat("what?", part(plain("PNG", (560, 392), (10, 200, 30)))).status_code == 200
        (path,) = stored.iterdir()
        pixels = np.frombuffer(path.read_bytes()[SIZE:], np.uint8).reshape(-1, 3)
        assert (pixels == (10, 200, 30)).all()


@pytest.mark.slow
def test_ops_18_uploads_on_a_full_disk_are_refused_and_leave_nothing(small_disk: Path) -> None:
    with serving(environ={"TWINLENS_DATA": str(small_disk / "data")}) as running:

        def post(data: bytes) -> Any:
            return running.http.post("/v1/files", files={"file": ("a.bin", data)}, data={"purpose": "user_data"})

        kept = post(os.urandom(500_000))
        assert kept.status_code == 200
        statuses = {post(os.urandom(900_000)).status_code for _ in range(4)}
        assert statuses == {200, 507}
        content = running.http.get(f"/v1/files/{kept.json()['id']}/content").content
        assert len(content) == 500_000
        assert not list((small_disk / "data" / "files" / "temporary").iterdir())
        assert running.chat("only text").status_code == 200
