"""Limits through the front door: one set for all gateway processes, told in headers, and never forgotten."""

from __future__ import annotations

import concurrent.futures
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.serving.harness import image_part, serving, until
from tests.serving.test_keys import BODY, CHAT, bearer, new_key

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.serving.harness import Service

WORKERS = pytest.mark.parametrize("workers", ["1", pytest.param("4", marks=pytest.mark.slow)])


def ask(service: Service, headers: dict[str, str], **fields: Any) -> Any:
    """One request on a connection of its own, so that any worker may get it."""
    return service.http.post(CHAT, json=BODY | fields, headers={**headers, "connection": "close"})


def statuses(service: Service, headers: Iterable[dict[str, str]]) -> list[int]:
    """Of requests sent together."""
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda one: ask(service, one).status_code, headers))


@WORKERS
def test_six_at_once_pass_and_the_seventh_is_told_when_to_come_again(tmp_path: Path, workers: str) -> None:
    chat, other = new_key(tmp_path, "lab", "chat"), new_key(tmp_path, "lab", "chat")
    batch = new_key(tmp_path, "lab", "batch")
    with serving("--workers", workers, folder=tmp_path) as service:
        began = time.monotonic()
        found = [ask(service, bearer(chat)) for _ in range(7)]
        assert time.monotonic() - began < 2
        assert [answer.status_code for answer in found] == [200] * 6 + [429]
        left = [answer.headers["x-ratelimit-remaining-requests"] for answer in found]
        assert left == ["5", "4", "3", "2", "1", "0", "0"]
        denied = found[-1]
        assert denied.json()["error"]["code"] == "rate_limit_exceeded"
        assert denied.headers["x-ratelimit-limit-requests"] == "30"
        assert int(denied.headers["retry-after"]) in (1, 2)
        assert denied.headers["x-ratelimit-reset-requests"].endswith("s")
        assert found[0].headers["x-ratelimit-limit-tokens"] == "1000000"
        assert ask(service, bearer(other)).status_code == 200  # another key has its own
        assert {ask(service, bearer(batch)).status_code for _ in range(20)} == {200}
        time.sleep(int(denied.headers["retry-after"]))
        assert ask(service, bearer(chat)).status_code == 200
        assert service.http.get("/v1/models", headers=bearer(chat)).status_code == 200
        text = service.http.get("/metrics", headers=bearer(chat)).text
        assert 'twinlens_admission_refused_total{code="rate_limit_exceeded"}' in text


@WORKERS
def test_rate_01_invented_addresses_open_no_limit(workers: str) -> None:
    """RATE-02 too: clients behind one proxy have limits of their own."""
    limits = ("--address-requests", "5", "--address-burst", "4", "--workers", workers)
    with serving(*limits) as direct:
        found = statuses(direct, ({"x-forwarded-for": f"10.0.0.{number}"} for number in range(20)))
        assert Counter(found) == {200: 5, 429: 15}
    with serving(*limits, "--trusted-proxies", "127.0.0.0/8") as proxied:
        # What a proxy here would send for one client that invents addresses.
        found = statuses(proxied, ({"x-forwarded-for": f"10.0.0.{number}, 203.0.113.7"} for number in range(20)))
        assert Counter(found) == {200: 5, 429: 15}
        other = ask(proxied, {"x-forwarded-for": "203.0.113.8"})
        assert other.status_code == 200  # the next client behind the same proxy


@pytest.mark.slow
@WORKERS
def test_rate_05_neither_workers_nor_restarts_nor_deaths_widen_a_limit(tmp_path: Path, workers: str) -> None:
    limits = ("--address-requests", "5", "--address-burst", "4", "--workers", workers)
    passed = 0
    with serving(*limits, folder=tmp_path) as service:
        port = service.port
        passed += statuses(service, [{}] * 3).count(200)
        for victim in service.children("admission.counter") or service.workers:
            victim.kill()
        until(lambda: ask_quietly(service) in (200, 429), 20)
        began = time.monotonic()
        passed += 1 if ask_quietly.last == 200 else 0
        passed += statuses(service, [{}] * 17).count(200)
    with serving(*limits, folder=tmp_path, port=port) as service:
        passed += statuses(service, [{}] * 20).count(200)
        allowed = 5 + int((time.monotonic() - began + 15) / 12)
    assert 5 <= passed <= allowed


class _Quietly:
    """Asks once; a refused connection is no answer."""

    last = 0

    def __call__(self, service: Service) -> int:
        import httpx2 as httpx  # noqa: PLC0415

        try:
            self.last = ask(service, {}).status_code
        except httpx.TransportError:
            self.last = 0
        return self.last


ask_quietly = _Quietly()


@WORKERS
def test_vision_tokens_are_charged_exactly_and_before_any_work(tmp_path: Path, workers: str) -> None:
    key = new_key(tmp_path, "lab", "batch")
    with serving("--workers", workers, "--rate-vision-tokens", "100", folder=tmp_path) as service:

        def see(seed: int, size: tuple[int, int]) -> Any:
            content = [image_part(seed, size), {"type": "text", "text": "what is it?"}]
            return ask(service, bearer(key), messages=[{"role": "user", "content": content}])

        first = see(1, (160, 120))
        tokens = first.json()["usage"]["prompt_tokens_details"]["image_tokens"]
        assert 10 < tokens < 100
        passed = 1
        while (answer := see(passed + 1, (160, 120))).status_code == 200:
            passed += 1
        assert passed == 100 // tokens
        assert answer.status_code == 429
        assert "vision tokens" in answer.json()["error"]["message"]
        assert answer.headers["x-ratelimit-limit-tokens"] == "100"
        stored = len(list((tmp_path / "store" / "objects").rglob("*")))
        huge = see(99, (1200, 900))
        assert (huge.status_code, huge.json()["error"]["code"]) == (400, "over_token_limit")
        assert len(list((tmp_path / "store" / "objects").rglob("*"))) == stored  # nothing was decoded for it


def test_without_keys_on_loopback_nothing_is_limited(service: Service) -> None:
    answers = [ask(service, {}) for _ in range(40)]
    assert {answer.status_code for answer in answers} == {200}
    assert not any(name.startswith("x-ratelimit") for name in answers[0].headers)
