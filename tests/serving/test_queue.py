"""One queue for all gateway processes: places are never more than said, and come back whoever held them."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import socket
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.serving.harness import serving, until
from tests.serving.test_keys import BODY, CHAT, bearer, new_key

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx2 as httpx

    from tests.serving.harness import Service

WORKERS = pytest.mark.parametrize("workers", ["1", pytest.param("4", marks=pytest.mark.slow)])
SLOW = "--engine-args=--delay-s=0.5,--pieces=2"


def ask(service: Service, **fields: Any) -> httpx.Response:
    """On a connection of its own, so that any worker may get it."""
    return service.http.post(CHAT, json=BODY | fields, headers={"connection": "close", **fields.pop("headers", {})})


def together(service: Service, number: int) -> list[httpx.Response]:
    with concurrent.futures.ThreadPoolExecutor(number) as pool:
        return list(pool.map(lambda _: ask(service), range(number)))


def details(service: Service) -> dict[str, Any]:
    return dict(service.http.get("/readyz").json()["details"])


@contextlib.contextmanager
def watched(service: Service) -> Iterator[list[int]]:
    """Requests at the engine, looked at again and again."""
    seen: list[int] = []
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.05):
            seen.append(details(service)["running"])

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


@WORKERS
def test_places_and_queue_are_those_of_all_workers_together(workers: str) -> None:
    with serving("--workers", workers, "--max-running", "3", "--max-queue", "4", SLOW) as service:
        until(lambda: len(service.workers) == int(workers), 10)
        with watched(service) as running:
            answers = together(service, 20)
        found = Counter(answer.status_code for answer in answers)
        assert found == {200: 7, 503: 13}
        assert max(running) == 3
        refused = [answer for answer in answers if answer.status_code == 503]
        assert {answer.json()["error"]["code"] for answer in refused} == {"overloaded"}
        assert all(answer.elapsed.total_seconds() < 0.45 for answer in refused)
        assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
        until(lambda: details(service)["running"] == 0, 5)
        assert service.metric("twinlens_places") == 3


@pytest.mark.slow
@WORKERS
def test_a_client_that_leaves_frees_its_place_at_once(workers: str) -> None:
    slow = "--engine-args=--delay-s=5"
    with serving("--workers", workers, "--max-running", "2", slow) as service:
        body = json.dumps(BODY).encode()
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        sockets = [socket.create_connection(("127.0.0.1", service.port)) for _ in range(6)]
        for sock in sockets:
            sock.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        until(lambda: (details(service)["running"], details(service)["waiting"]) == (2, 4), 10)
        for sock in sockets:
            sock.close()
        until(lambda: (details(service)["running"], details(service)["waiting"]) == (0, 0), 3)


@pytest.mark.slow
def test_a_killed_worker_gives_its_places_back_and_a_killed_desk_is_replaced() -> None:
    slow = "--engine-args=--delay-s=4,--pieces=2"
    with serving("--workers", "4", "--max-running", "4", "--max-queue", "50", slow) as service:
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            running = [pool.submit(ask, service) for _ in range(12)]
            until(lambda: details(service)["running"] == 4, 10)
            (desk,) = service.children("admission.counter")
            desk.kill()
            done = [future.result(60).status_code for future in running]
        # Those at the engine went on, those that waited asked the next desk: nobody noticed.
        assert done == [200] * 12
        until(lambda: service.children("admission.counter"), 10)
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            with watched(service) as seen:
                others = [pool.submit(_quiet, service) for _ in range(8)]
                until(lambda: details(service)["running"] == 4, 15)
                service.workers[0].kill()
                for other in others:
                    other.result(60)
            assert max(seen) <= 4
        until(lambda: (details(service)["running"], details(service)["booked_tokens"]) == (0, 0), 10)
        assert Counter(answer.status_code for answer in together(service, 4)) == {200: 4}


def _quiet(service: Service) -> int:
    import httpx2 as http  # noqa: PLC0415

    try:
        return ask(service).status_code
    except http.TransportError:
        return 0  # its worker was killed


@pytest.mark.slow
@WORKERS
def test_keys_take_turns_and_bulk_work_comes_last(tmp_path: Path, workers: str) -> None:
    greedy, modest = new_key(tmp_path, "greedy", "chat"), new_key(tmp_path, "modest", "chat")
    bulk = new_key(tmp_path, "bulk", "batch")
    flags = ("--max-running", "1", "--rate-burst", "50", "--engine-args=--delay-s=0.6,--pieces=2")
    with serving("--workers", workers, *flags, folder=tmp_path) as service:
        ended: list[str] = []

        def one(key: str, name: str) -> None:
            answer = service.http.post(CHAT, json=BODY, headers={**bearer(key), "connection": "close"})
            assert answer.status_code == 200
            ended.append(name)

        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            futures = [pool.submit(one, bulk, "bulk") for _ in range(3)]
            until(lambda: details(service)["waiting"] >= 2, 10)
            futures += [pool.submit(one, greedy, "greedy") for _ in range(10)]
            until(lambda: details(service)["waiting"] >= 8, 10)
            futures += [pool.submit(one, modest, "modest") for _ in range(3)]
            for future in futures:
                future.result(60)
        last = {name: len(ended) - 1 - ended[::-1].index(name) for name in ("bulk", "greedy", "modest")}
        assert last["modest"] < last["greedy"]
        assert last["bulk"] == 15 or ended.index("bulk", 1) > last["modest"]


@pytest.mark.slow
@WORKERS
def test_who_would_wait_past_the_deadline_is_refused_at_once(workers: str) -> None:
    flags = ("--max-running", "2", "--request-timeout-s", "3", "--engine-args=--delay-s=0.4,--pieces=2")
    with serving("--workers", workers, *flags) as service:
        for _ in range(6):
            assert {answer.status_code for answer in together(service, 2)} == {200}
        answers = together(service, 40)
        found = Counter(answer.status_code for answer in answers)
        assert set(found) == {200, 503}, found
        assert found[200] >= 8
        assert all(answer.elapsed.total_seconds() < 1 for answer in answers if answer.status_code == 503)
        assert all(answer.elapsed.total_seconds() < 3 for answer in answers)


@pytest.mark.slow
def test_what_the_engine_can_hold_is_booked() -> None:
    engine = "--engine-args=--room=1000,--capacity=50,--delay-s=0.5,--pieces=2"
    with serving(engine) as service, watched(service) as running:
        until(lambda: details(service)["room_tokens"] == 1000, 5)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: ask(service, max_tokens=200), range(8)))
        assert {answer.status_code for answer in answers} == {200}
        assert max(running) == 3
        time.sleep(0.1)
