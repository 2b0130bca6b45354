"""Field cases of operations: processes that are killed, frozen, orphaned, and a service that heals by itself."""

from __future__ import annotations

import concurrent.futures
import json
import signal
import struct
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import httpx2 as httpx
import psutil
import pytest

from tests.models import model_folder
from tests.serving.harness import Service, free_port, image_part, serving, until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

STALL = ("--engine", "fake", "--engine-stall-timeout-s", "6")


def endless(service: Service) -> httpx.Response:
    """A plain request that takes the fake engine a minute."""
    return service.chat("tell", image_part())


def test_ops_01_a_frozen_engine_is_noticed_and_replaced() -> None:
    """SIGSTOP: liveness stays, readiness turns within the time, running requests end, and a new engine takes over."""
    slow = "--engine-args=--piece-delay-s=0.5,--pieces=120"
    with serving(*STALL, slow) as service, concurrent.futures.ThreadPoolExecutor() as pool:
        running = pool.submit(endless, service)
        until(lambda: service.metric("twinlens_requests_running"), 10)
        frozen = service.engine
        began = time.monotonic()
        frozen.send_signal(signal.SIGSTOP)
        assert service.http.get("/livez").status_code == 200
        until(lambda: not service.ready(), 5.5)
        answer = service.chat("hello")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_unavailable")
        assert int(answer.headers["retry-after"]) > 0
        assert running.result(20).status_code in (503, 504)
        assert time.monotonic() - began < 15
        until(service.ready, 20)
        assert not frozen.is_running() or frozen.status() == psutil.STATUS_ZOMBIE
        assert service.chat("say hello", max_tokens=1).status_code == 200
        assert 'twinlens_child_deaths_total{cause="stalled",child="engine"} 1.0' in service.http.get("/metrics").text


def test_a_busy_real_engine_is_never_replaced() -> None:
    """The embedded engine with more large pictures than it can see in the stall timeout."""
    flags = ("--engine", "openvino", "--engine-stall-timeout-s", "3")
    with serving(*flags) as service, concurrent.futures.ThreadPoolExecutor(8) as pool:
        pid = service.engine.pid
        asked = [
            pool.submit(service.chat, "Describe it.", image_part(seed, (700, 600)), max_tokens=20) for seed in range(8)
        ]
        assert {answer.result(100).status_code for answer in asked} <= {200, 503}
        assert service.engine.pid == pid
        assert "starting again" not in service.log()
        until(service.ready, 10)


def test_ops_03_a_dead_engine_is_503_until_another_is_ready() -> None:
    """kill -9: never a 500, and back by itself."""
    with serving() as service:
        service.engine.kill()
        statuses: set[int] = set()
        hinted = True

        def healed() -> bool:
            ready, answer = service.http.get("/readyz"), service.chat("say hello")
            statuses.update((ready.status_code, answer.status_code))
            nonlocal hinted
            hinted = hinted and all("retry-after" in one.headers for one in (ready, answer) if one.status_code == 503)
            return ready.status_code == answer.status_code == 200

        until(lambda: not service.ready(), 5, every=0.01)
        until(healed, 30)
        assert statuses == {200, 503}
        assert hinted
        assert "ended by signal 9 (SIGKILL)" in service.log()
        assert 'twinlens_child_deaths_total{cause="signal 9",child="engine"} 1.0' in service.http.get("/metrics").text


def test_ops_04_every_worker_that_is_killed_is_replaced() -> None:
    """In turn; the port stays open, and what connects meanwhile is served by a successor."""
    with serving("--workers", "2") as service:
        for _ in range(2):
            for worker in service.workers:
                worker.kill()
                with httpx.Client(base_url=service.url, timeout=20, trust_env=False) as http:
                    assert http.get("/livez").status_code == 200
                until(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE, 5)  # noqa: B023
            until(lambda: len(service.workers) == 2, 20)
        assert service.log().count("ended by signal 9 (SIGKILL)") == 4
        with httpx.Client(base_url=service.url, timeout=20, trust_env=False) as http:
            assert 'twinlens_child_deaths_total{cause="signal 9",child="gateway"} 4.0' in http.get("/metrics").text


def test_ops_04_all_workers_at_once() -> None:
    """No moment where connections are accepted and never served."""
    with serving("--workers", "2") as service:
        for worker in service.workers:
            worker.kill()
        with httpx.Client(base_url=service.url, timeout=20, trust_env=False) as http:
            assert http.get("/livez").status_code == 200


def test_a_frozen_worker_is_replaced() -> None:
    """SIGSTOP: it would accept connections and never serve them."""
    with serving() as service:
        frozen = service.workers[0]
        frozen.send_signal(signal.SIGSTOP)
        until(lambda: frozen.pid not in [one.pid for one in service.workers], 40, every=0.5)
        with httpx.Client(base_url=service.url, timeout=20, trust_env=False) as http:
            assert http.get("/livez").status_code == 200


def test_ops_05_no_child_outlives_the_supervisor(tmp_path: Path) -> None:
    """kill -9 of the parent: engine and workers end within 5 s, and the next start works at once."""
    with serving("--workers", "2", folder=tmp_path) as service:
        family = psutil.Process(service.process.pid).children(recursive=True)
        assert len(family) == 4  # engine, two workers, and what they count together
        service.process.kill()
        service.process.wait(5)
        _, alive = psutil.wait_procs(family, timeout=5)
        assert [one for one in alive if one.status() != psutil.STATUS_ZOMBIE] == []
        with serving(folder=tmp_path) as again:
            assert again.chat("say hello").status_code == 200


def test_ops_05_killed_while_it_starts(tmp_path: Path) -> None:
    """Whenever the parent dies, even before its children have come up."""
    for moment in (0.2, 0.6, 1.0, 1.4):
        with serving("--workers", "2", folder=tmp_path, ready=False) as service:
            time.sleep(moment)
            family = psutil.Process(service.process.pid).children(recursive=True)
            service.process.kill()
            service.process.wait(5)
            _, alive = psutil.wait_procs(family, timeout=5)
            assert [one for one in alive if one.status() != psutil.STATUS_ZOMBIE] == []


def test_ops_20_workers_are_not_forks(tmp_path: Path) -> None:
    """A tokenizer that was used in the parent hangs in forked children; ours are interpreters of their own."""
    script = """
import asyncio, json, sys
from tokenizers import Tokenizer
from twinlens.settings import load
from twinlens.supervisor.service import opened
settings = load(json.loads(sys.argv[1])).settings
Tokenizer.from_file(settings.model + "/tokenizer.json").encode_batch(["used in the parent"] * 64)
async def main():
    with opened(settings) as service:
        running = asyncio.create_task(service.run())
        await asyncio.wait_for(service.ready.wait(), 60)
        from twinlens.cli.question import Question, Service
        async with Service(service.url) as door:
            answer = await asyncio.wait_for(door.ask(Question((), "say hello"), print), 20)
        service.stop()
        await running
asyncio.run(main())
"""
    flags = {
        "model": str(model_folder()),
        "engine": "fake",
        "port": 0,
        "run_dir": str(tmp_path / "run"),
        "store": str(tmp_path / "store"),
    }
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(flags)], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "hello\n"


def drained(service: Service) -> int:
    return service.process.wait(30)


def test_sigterm_finishes_what_runs_and_refuses_what_comes() -> None:
    slow = "--engine-args=--piece-delay-s=0.1,--pieces=30"
    with serving("--engine", "fake", slow) as service, concurrent.futures.ThreadPoolExecutor() as pool:
        running = pool.submit(service.chat, "tell")
        until(lambda: service.metric("twinlens_requests_running"), 10)
        with httpx.Client(base_url=service.url, timeout=20, trust_env=False) as http:
            question = {"model": service.model, "messages": [{"role": "user", "content": "hi"}]}
            service.process.send_signal(signal.SIGTERM)
            until(lambda: http.get("/readyz").status_code == 503, 3)
            refused = http.post("/v1/chat/completions", json=question)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
        assert "retry-after" in refused.headers
        finished = running.result(20)
        assert finished.status_code == 200
        assert finished.json()["choices"][0]["finish_reason"] == "stop"
        assert drained(service) == 0
        assert not (service.folder / "run").exists()


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_at_once(second: signal.Signals) -> None:
    slow = "--engine-args=--piece-delay-s=1,--pieces=60"
    with serving("--engine", "fake", slow) as service, concurrent.futures.ThreadPoolExecutor() as pool:
        family = psutil.Process(service.process.pid).children(recursive=True)
        running = pool.submit(service.chat, "tell")
        until(lambda: service.metric("twinlens_requests_running"), 10)
        service.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        began = time.monotonic()
        service.process.send_signal(second)
        assert service.process.wait(10) == 128 + second
        assert time.monotonic() - began < 3
        assert running.exception(10) is not None
        assert not (service.folder / "run").exists()
        assert psutil.wait_procs(family, timeout=1)[1] == []


def test_the_drain_limit_ends_what_takes_too_long() -> None:
    slow = "--engine-args=--piece-delay-s=1,--pieces=60"
    flags = ("--engine", "fake", slow, "--drain-timeout-s", "1")
    with serving(*flags) as service, concurrent.futures.ThreadPoolExecutor() as pool:
        pool.submit(service.chat, "tell")
        until(lambda: service.metric("twinlens_requests_running"), 10)
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(20) == 0


def test_ctrl_c_ends_with_130() -> None:
    with serving() as service:
        service.process.send_signal(signal.SIGINT)
        assert drained(service) == 130
        assert "Traceback" not in service.log()


def refused(service: Service) -> str:
    """The words of a service that did not start."""
    assert service.process.wait(30) == 2
    assert "Traceback" not in service.log()
    return service.log()


def test_a_taken_port_and_a_taken_run_folder_are_named(tmp_path: Path) -> None:
    with serving() as first:
        flags = ("--port", str(first.port))
        with serving(*flags, folder=tmp_path, ready=False) as second:
            assert f"Port {first.port} on 127.0.0.1 is taken by process {first.process.pid}" in refused(second)
        with serving("--run-dir", str(first.folder / "run"), folder=tmp_path, ready=False) as third:
            assert f"Another Twinlens service (process {first.process.pid})" in refused(third)
        assert first.chat("say hello").status_code == 200


def safetensors_model(folder: Path) -> Path:
    """The outside of a model: all files, a weight of one number."""
    files = {
        "config.json": {"model_type": "qwen2_vl", "max_position_embeddings": 4096},
        "preprocessor_config.json": {"patch_size": 14, "merge_size": 2},
        "tokenizer_config.json": {"chat_template": "{{ messages }}"},
    }
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    header = json.dumps({"weight": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 4)
    return folder


def test_a_model_in_the_wrong_form_names_both_cures(tmp_path: Path) -> None:
    model = safetensors_model(tmp_path / "model")
    with serving("--engine", "openvino", model=str(model), folder=tmp_path, ready=False) as service:
        words = refused(service)
    assert "optimum-cli export openvino" in words
    assert "--engine-url" in words
    assert "--engine vllm" not in words  # which this build refuses


def attached(port: int) -> subprocess.Popen[bytes]:
    """A fake engine of somebody else's."""
    return subprocess.Popen([sys.executable, "-m", "twinlens.engines.fake", "--port", str(port)])


def test_an_engine_of_somebody_else_is_watched_and_never_touched() -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with serving("--engine-url", url, "--engine-stall-timeout-s", "4", ready=False) as service:
        until(lambda: "Waiting" in service.log(), 20)
        assert not service.ready()
        engine = attached(port)
        try:
            until(service.ready, 20)
            assert service.chat("say hello").status_code == 200
            engine.send_signal(signal.SIGSTOP)
            until(lambda: not service.ready(), 10)
            time.sleep(4)
            assert engine.poll() is None
            engine.send_signal(signal.SIGCONT)
            until(service.ready, 10)
            engine.kill()
            engine.wait()
            until(lambda: not service.ready(), 10)
            engine = attached(port)
            until(service.ready, 20)
        finally:
            engine.kill()
            engine.wait()


def test_an_engine_that_cannot_start_says_so_and_ends_the_service(tmp_path: Path) -> None:
    """argparse in the engine ends with 2, as an engine does that tells its operator what to mend."""
    with serving("--engine", "fake", "--engine-args=--no-such-flag", folder=tmp_path, ready=False) as service:
        words = refused(service)
    assert "The engine cannot start" in words
    assert "--no-such-flag" in words
