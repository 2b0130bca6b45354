"""An engine that takes its time is not replaced: the fake one, told to be slower than the rule of life allows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from tests.serving.harness import data_uri, serving

pytestmark = pytest.mark.slow


def test_a_delay_longer_than_the_stall_timeout_replaces_no_engine() -> None:
    with serving("--engine-args=--delay-s=4", "--engine-stall-timeout-s", "1") as service:
        before = service.engine.pid
        assert service.chat("say hello").json()["choices"][0]["message"]["content"] == "hello"
        assert service.engine.pid == before


def test_a_long_silence_has_comments_in_every_form_of_stream() -> None:
    """Clients and proxies do not give up a stream that says nothing for long; what they read is the same."""
    with serving("--engine-args=--delay-s=16") as service, ThreadPoolExecutor(3) as pool:
        bodies: dict[str, dict[str, Any]] = {
            "/v1/chat/completions": {"model": "demo", "messages": [{"role": "user", "content": "say one two"}]},
            "/v1/responses": {"model": "demo", "input": "say one two"},
            "/v1/tasks/receipt": {"images": [data_uri(1)]},
        }
        asked = {
            path: pool.submit(service.http.post, path, json=body | {"stream": True}) for path, body in bodies.items()
        }
        for path, answer in asked.items():
            text = answer.result(90).text
            assert text.startswith(": waiting\n\n"), path
            assert not [line for line in text.splitlines() if line and not line.startswith((":", "event: ", "data: "))]
            assert "one" in text or "task.result" in text
        with openai.OpenAI(base_url=f"{service.url}/v1", api_key="unused", max_retries=0) as client:
            stream: Any = client.responses.create(model="demo", input="say one two", stream=True)
            assert [event.type for event in stream][-1] == "response.completed"
