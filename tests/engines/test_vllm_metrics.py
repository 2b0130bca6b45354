"""vLLM's metrics as the load of an engine, by the names of its versions, and other servers' metrics as none."""

from __future__ import annotations

import pytest

from tests.engines.test_foreign import Foreign, client
from twinlens.engines import vllm_metrics
from twinlens.engines.vllm_metrics import Load

TEXT = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="qwen"} 7.0
vllm:num_requests_waiting{engine="0",model_name="qwen"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="qwen",reason="capacity"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="qwen"} 0.25
vllm:num_preemptions_total{engine="0",model_name="qwen"} 1.0
vllm:num_preemptions_created{engine="0",model_name="qwen"} 1.7e+09
vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",num_gpu_blocks="1000",sliding_window="None"} 1.0
"""


def test_load_and_room_are_read() -> None:
    assert vllm_metrics.read(TEXT) == Load(running=7, waiting=2, used=0.25, room=16000, thrown_out=1)


def test_several_engines_are_added_up_and_the_fullest_counts() -> None:
    second = TEXT.replace('engine="0"', 'engine="1"').replace("0.25", "0.75")
    assert vllm_metrics.read(TEXT + second) == Load(running=14, waiting=4, used=0.75, room=32000, thrown_out=2)


def test_older_names_and_caches_that_say_nothing() -> None:
    old = TEXT.replace("kv_cache", "gpu_cache").replace('num_gpu_blocks="1000"', 'num_gpu_blocks="None"')
    found = vllm_metrics.read(old)
    assert found
    assert (found.used, found.room) == (0.25, 0)


@pytest.mark.parametrize(
    "text", ["", "python_info 1.0", "<html></html>", "vllm:other 1", "vllm:num_requests_waiting NaN"]
)
def test_other_metrics_are_none(text: str) -> None:
    assert vllm_metrics.read(text) is None


async def test_it_becomes_the_health_of_an_engine_that_is_not_ours() -> None:
    server = Foreign(health=200)
    server.metrics = TEXT
    async with client(server) as engine:
        first, second = await engine.health(), await engine.health()
        assert (first.running, first.room, first.cache_usage) == (7, 16000, 25.0)
        assert (first.waiting, second.waiting) == (3, 2)  # what was thrown out of the cache is as good as waiting
        server.metrics = TEXT.replace('total{engine="0",model_name="qwen"} 1.0', "total 4.0")
        assert (await engine.health()).waiting == 3


async def test_an_engine_without_metrics_is_asked_for_them_once() -> None:
    server = Foreign(health=200)
    async with client(server) as engine:
        for _ in range(3):
            assert (await engine.health()).room == 0
    assert server.paths.count("/metrics") == 1
