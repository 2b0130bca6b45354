"""The parts of the benchmark that its figures rest on."""

from __future__ import annotations

import base64
import hashlib
import io
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest
from PIL import Image

from bench import pictures
from bench.load import Plan, Requests, Round, Target
from bench.processes import cpu_seconds, free_port, memory, started, status, wait_ready
from bench.report import Table, median, quantile
from bench.ways import measured

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def jpeg(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file: Path = tmp_path_factory.mktemp("bench") / "photo.jpg"
    file.write_bytes(pictures.photo("100 kB"))
    return file


def body_of(parts: list[bytes]) -> dict[str, object]:
    head, body = b"".join(parts).split(b"\r\n\r\n", 1)
    assert f"content-length: {len(body)}" in head.decode().lower()
    found: dict[str, object] = msgspec.json.decode(body)
    return found


def test_quantiles() -> None:
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert median([7.0]) == 7.0
    assert quantile([0.0, 10.0], 0.99) == pytest.approx(9.9)
    assert quantile(range(101), 0.25) == 25


def test_tables_are_markdown_and_json() -> None:
    table = Table("T", ("a", "b"), [("x", 1.234), ("long", None), ("y", 456.7)], ("note",))
    lines = table.markdown().splitlines()
    assert lines[2:7] == ["| a    | b    |", "|------|------|", "| x    | 1.23 |", "| long | -    |", "| y    | 457  |"]
    assert msgspec.json.decode(msgspec.json.encode(table.plain()))["rows"][1] == ["long", None]


def test_pictures_are_of_their_size_all_different_and_decode_alike(jpeg: Path) -> None:
    data = jpeg.read_bytes()
    assert len(data) == pytest.approx(100_000, rel=0.03)
    template = pictures.template(data)
    digests, decoded = set(), set()
    for number in (0, 1, 2**52):
        uri = template.uri(number)
        prefix, _, text = uri.partition(b",")
        assert prefix == b"data:image/jpeg;base64"
        picture = base64.b64decode(text, validate=True)
        digests.add(hashlib.sha256(picture).digest())
        decoded.add(Image.open(io.BytesIO(picture)).tobytes())
    assert len(digests) == 3
    assert decoded == {Image.open(io.BytesIO(data)).tobytes()}


def test_requests_are_whole_and_different(jpeg: Path) -> None:
    plan = Plan([], 1, 1, 1.0)
    different = Requests(Target("t", 1, {}, "m", [str(jpeg)], numbered=True), plan)
    assert body_of(different.next()) != body_of(different.next())
    same = Requests(Target("t", 1, {}, "m", [str(jpeg)], same=True), plan)
    assert body_of(same.next()) == body_of(same.next())
    text_only = Requests(Target("t", 1, {}, "m", stream=True), plan)
    assert body_of(text_only.next())["stream"] is True


def engine_rounds(jpeg: Path, module: str, *flags: str, stream: bool = False, failing: bool = False) -> list[Round]:
    port = free_port()
    with started("test-engine", [sys.executable, "-m", module, *flags, str(port)]) as process:
        wait_ready(process, port, "/health")
        target = Target("engine", port, {"engine": [process.pid]}, "fake", [str(jpeg)], stream=stream)
        return measured(Plan([target], at_once=4, rounds=2, seconds=0.3, warm_up=1 - failing))


def test_the_load_generator_measures_an_engine(jpeg: Path) -> None:
    rounds = engine_rounds(jpeg, "twinlens.engines.fake", "--port")
    assert len(rounds) == 2
    for found in rounds:
        assert len(found.latencies) > 20
        assert 0 < quantile(found.latencies, 0.5) < 0.3
        assert found.seconds == pytest.approx(0.3, abs=0.25)
        assert found.cpu["client"] > 0
        assert found.tokens == 10 * len(found.latencies)


def test_the_stamps_of_a_stream_are_read(jpeg: Path) -> None:
    for found in engine_rounds(jpeg, "bench.stamping_engine", stream=True):
        assert len(found.forwards) == len(found.latencies) > 5
        assert all(0 < took < 0.3 for took in found.forwards)


def test_failures_are_no_figures(jpeg: Path) -> None:
    with pytest.raises(RuntimeError, match="failed: 500"):
        engine_rounds(jpeg, "twinlens.engines.fake", "--fail-every", "7", "--port", failing=True)


def test_what_a_process_uses(tmp_path: Path) -> None:
    code = "import time; block = bytearray(30 << 20); sum(range(3_000_000)); print('x', flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process, process.stdout:
        process.stdout.readline()
        (found,) = memory(process.pid, tmp_path)
        assert 30 << 20 < found.own < 80 << 20
        assert found.store == found.kv_cache == 0
        assert cpu_seconds([process.pid]) > 0.02
        process.kill()
    assert memory(process.pid, tmp_path) == []
    assert status(free_port(), "/") == 0
