"""An engine that somebody else runs: found by its address, its absence said, its password shown nowhere."""

from __future__ import annotations

import base64
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

from tests.media.pictures import RED, WHITE, saved, uri
from tests.serving.harness import Service, free_port, image_part, serving, until
from tests.serving.recorder import Recorder, recording

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow


def test_why_a_service_waits_is_shown_and_ends_when_the_engine_comes() -> None:
    port = free_port()
    with serving("--engine-url", f"http://somebody:hidden@127.0.0.1:{port}/v1", ready=False) as service:
        until(lambda: "The engine does not answer." in service.log(), 30)
        until(lambda: "does not answer" in service.http.get("/readyz").text, 10)
        command = [sys.executable, "-m", "twinlens.engines.fake", "--port", str(port)]
        with subprocess.Popen(command) as engine:
            try:
                until(service.ready, 30)
                assert service.chat("say hello").json()["choices"][0]["message"]["content"] == "hello"
            finally:
                engine.kill()
        assert f"http://********@127.0.0.1:{port}" in service.log()
        everything = service.log() + (service.folder / "run" / "service.json").read_text()
        assert "hidden" not in everything + service.http.get("/readyz").text


@pytest.mark.parametrize("url", ["foo", "unix:relative", "http://h:1/other"])
def test_an_address_that_is_none_ends_the_start(url: str) -> None:
    command = [sys.executable, "-m", "twinlens.cli.main", "serve", "--port", "0", "--engine-url", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert f"engine_url: “{url}”" in done.stderr


def test_an_engine_that_knows_the_model_by_another_name_is_told_with_the_cure() -> None:
    with recording() as other:
        other.name = "mine"
        with serving("--engine-url", other.url, ready=False) as service:
            until(lambda: "The engine serves mine, and was asked for" in service.log(), 30)
            until(lambda: "--served-name mine" in service.http.get("/readyz").text, 10)
        with serving("--engine-url", other.url, "--served-name", "mine") as service:
            assert service.chat("hello", model="mine").status_code == 200


@pytest.fixture(scope="module")
def engine() -> Iterator[Recorder]:
    with recording() as made:
        yield made


@pytest.fixture(scope="module")
def attached(engine: Recorder) -> Iterator[Service]:
    with serving("--engine-url", engine.url) as running:
        yield running


def test_img_22_a_foreign_engine_gets_the_very_pixels_whatever_the_client_sent(
    attached: Service, engine: Recorder
) -> None:
    """Upright, in a form that every engine knows, and for uploads and data URIs alike."""
    image = Image.new("RGB", (224, 112), WHITE)
    image.paste(RED, (0, 0, 224, 28))
    exif = Image.Exif()
    exif[0x0112] = 6
    data = saved(image, "WEBP", exif=exif, lossless=True)
    file = attached.http.post("/v1/files", files={"file": ("a", data)}, data={"purpose": "vision"}).json()
    parts = (
        {"type": "image_url", "image_url": {"url": uri(data, "image/webp")}},
        {"type": "image_url", "image_url": {"url": base64.b64encode(data).decode()}},
        {"type": "file", "file": {"file_id": file["id"]}},
    )
    for part in parts:
        answer = attached.chat("what?", part)
        assert answer.status_code == 200, answer.text
        (got,) = engine.pictures()
        assert np.array_equal(got, np.asarray(image.transpose(Image.Transpose.ROTATE_270)))
        assert answer.json()["usage"]["prompt_tokens_details"]["image_tokens"] == 224 * 112 // 28**2


def test_api_21_text_and_pictures_keep_their_order_up_to_the_engine(attached: Service, engine: Recorder) -> None:
    answer = attached.chat("A", image_part(1), "B", image_part(2), "C")
    assert answer.status_code == 200
    content = engine.asked[-1]["messages"][0]["content"]
    assert [part.get("text", "picture") for part in content] == ["A", "picture", "B", "picture", "C"]
    assert [got.shape[:2] for got in engine.pictures()]


def test_cache_12_ids_of_clients_for_pictures_mean_nothing(attached: Service, engine: Recorder) -> None:
    for seed, size in ((1, (64, 64)), (2, (512, 512))):
        answer = attached.chat("what?", image_part(seed, size) | {"uuid": "the-same"})
        assert answer.status_code == 200
        assert "uuid" in answer.headers["x-twinlens-ignored"]
        assert "uuid" not in engine.asked[-1]["messages"][0]["content"][1]
        (seen,) = answer.json()["twinlens"]["images"]
        assert engine.pictures()[0].shape[:2] == (seen["seen_height"], seen["seen_width"])


def test_the_room_of_a_vllm_is_learned_from_its_metrics(attached: Service, engine: Recorder) -> None:
    labels = 'engine="0",model_name="m"'
    lines = [
        f"vllm:num_requests_running{{{labels}}} 0.0",
        f"vllm:num_requests_waiting{{{labels}}} 0.0",
        f'vllm:cache_config_info{{block_size="16",num_gpu_blocks="100",{labels}}} 1.0',
    ]
    engine.metrics = "\n".join(lines) + "\n"
    with serving("--engine-url", engine.url, "--workers", "2") as service:

        def details() -> Any:
            return service.http.get("/readyz").json()["details"]

        until(lambda: details()["room_tokens"] == 1600, 10)
        engine.hold.clear()
        with ThreadPoolExecutor(3) as pool:
            try:
                jobs = [pool.submit(service.chat, f"go {number}", max_tokens=700) for number in range(3)]
                # Two fit into the cache; the third waits here and not inside the engine.
                until(lambda: (details()["running"], details()["waiting"]) == (2, 1), 10)
            finally:
                engine.hold.set()
            assert [job.result().status_code for job in jobs] == [200] * 3
        # What waits inside the engine waits at the wrong place: fewer are sent.
        most = details()["places"]
        engine.metrics = engine.metrics.replace(f"waiting{{{labels}}} 0.0", f"waiting{{{labels}}} 9.0")
        engine.hold.clear()
        with ThreadPoolExecutor(1) as pool:
            try:
                job = pool.submit(service.chat, "go", max_tokens=10)
                until(lambda: details()["places"] < most, 15)
            finally:
                engine.hold.set()
            assert job.result().status_code == 200
    engine.metrics = None
