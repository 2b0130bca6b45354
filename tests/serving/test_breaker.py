"""Breakers through the front door: a failing engine is left alone, and floods of long prompts keep nobody else out."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.serving.harness import serving, until
from tests.serving.test_keys import BODY, CHAT

if TYPE_CHECKING:
    from tests.serving.harness import Service

WORKERS = pytest.mark.parametrize("workers", ["1", pytest.param("4", marks=pytest.mark.slow)])


def ask(service: Service, text: str = "hello") -> Any:
    body = BODY | {"messages": [{"role": "user", "content": text}], "max_tokens": 5}
    return service.http.post(CHAT, json=body, headers={"connection": "close"})


def code(answer: Any) -> str:
    return "" if answer.status_code == 200 else str(answer.json()["error"]["code"])


def details(service: Service) -> dict[str, Any]:
    return dict(service.http.get("/readyz").json()["details"])


@pytest.mark.slow
@WORKERS
def test_an_engine_that_fails_is_left_alone_tried_and_taken_again(workers: str) -> None:
    with serving("--workers", workers, "--engine-args=--fail-from=2,--fail-count=5") as service:
        assert [code(ask(service)) for _ in range(8)] == ["internal_error"] * 5 + ["engine_failing"] * 3
        refused = ask(service)
        assert refused.elapsed.total_seconds() < 0.2
        assert int(refused.headers["retry-after"]) >= 1
        until(lambda: details(service)["engine_breaker"] == "open", 3)
        until(lambda: service.metric('twinlens_breaker_open{breaker="engine"}') == 1, 3)
        assert service.http.get("/readyz").json()["engine"] == "ready"
        until(lambda: code(ask(service)) == "", 40, every=0.5)
        until(lambda: details(service)["engine_breaker"] == "closed", 3)
        assert {code(ask(service)) for _ in range(5)} == {""}


@WORKERS
def test_a_flood_of_long_prompts_is_refused_and_others_pass(workers: str) -> None:
    with serving("--workers", workers, "--long-prompt-tokens", "100") as service:
        for _ in range(20):
            assert code(ask(service)) == ""
        long = "word " * 150
        codes = [code(ask(service, long)) for _ in range(8)]
        assert codes[0] == ""
        assert codes[-1] == "long_prompts_paused"
        assert set(codes) == {"", "long_prompts_paused"}
        refused = ask(service, long)
        assert refused.status_code == 429
        assert 1 <= int(refused.headers["retry-after"]) <= 30
        assert {code(ask(service)) for _ in range(10)} == {""}
        until(lambda: details(service)["long_prompts"] == "refused", 3)
        until(lambda: service.metric('twinlens_breaker_open{breaker="long_prompts"}') == 1, 5)
        time.sleep(0.1)
