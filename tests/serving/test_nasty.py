"""Clients that mean harm or know no better, on raw sockets: nobody else notices them, and nothing of them stays."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.serving.harness import serving, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psutil

    from tests.serving.harness import Service

CHAT = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def raw(service: Service, data: bytes, *, wait: float = 5.0) -> bytes:
    """Send bytes and read until the service closes or is silent."""
    with socket.create_connection(("127.0.0.1", service.port), timeout=wait) as sock:
        try:
            sock.sendall(data)
            answer = b""
            while chunk := sock.recv(65536):
                answer += chunk
        except (TimeoutError, ConnectionError):
            pass
        return answer


def refusal(answer: bytes) -> tuple[int, str]:
    """Status and code of an answer, whose shape is that of every other refusal."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head.lower()
    assert b"x-request-id: " in head.lower()
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return int(head.split(b" ", 2)[1]), str(error["code"])


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nbroken header\r\n\r\n",
        CHAT + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /v1/models HTTP/1.1\r\nConnection: close\r\n\r\n",  # HTTP/1.1 needs a Host
        CHAT + b"Content-Length: -5\r\n\r\n",
    ],
)
def test_what_is_no_http_is_refused_in_our_words(service: Service, data: bytes) -> None:
    assert refusal(raw(service, data)) == (400, "invalid_request")


def test_headers_are_bounded(service: Service) -> None:
    for lines in (b"x: " + b"a" * 100_000, b"\r\n".join(b"x%d: y" % n for n in range(5000))):
        data = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n" + lines + b"\r\n\r\n"
        assert refusal(raw(service, data)) == (431, "headers_too_large")
    assert refusal(raw(service, b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"))[0] == 431


OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAA\r\n"


def test_http_1_0_needs_no_host(service: Service) -> None:
    assert raw(service, b"GET /livez HTTP/1.0\r\n\r\n").split(b" ", 2)[1] == b"200"


GET = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
LAST = GET + b"Connection: close\r\n\r\n"
HELLO = json.dumps({"model": "demo", "messages": [{"role": "user", "content": "say hello"}]}).encode()
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (
    9,
    HELLO[:9],
    len(HELLO) - 9,
    HELLO[9:],
)
COUNTED = b"Content-Length: %d\r\n\r\n%b" % (len(HELLO), HELLO)


@pytest.mark.parametrize("body", [COUNTED, CHUNKED], ids=["counted", "chunked"])
@pytest.mark.parametrize("cut", [0, 1, 60, 10_000], ids=lambda cut: f"cut {cut}")
def test_an_offer_to_upgrade_is_passed_over_and_the_body_is_read(service: Service, body: bytes, cut: int) -> None:
    """Java's own client makes it in every request; its body may come with the head, in parts, or after it."""
    data = CHAT + OFFER + body
    at = len(CHAT + OFFER) + data[len(CHAT + OFFER) :].index(b"\r\n\r\n") + 4
    with socket.create_connection(("127.0.0.1", service.port), timeout=10) as sock:
        sock.sendall(data[: at + cut])
        time.sleep(0.1)
        sock.sendall(data[at + cut :] + data + LAST)
        answer = b"".join(iter(lambda: sock.recv(65536), b""))
    assert answer.count(b"HTTP/1.1 200 OK") == 3
    assert answer.count(b'"content":"hello"') == 2


def test_a_request_in_a_body_is_a_body_whatever_is_offered(service: Service) -> None:
    inner = GET + b"\r\n"
    for offer in (OFFER, b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n"):
        data = CHAT + offer + b"Content-Length: %d\r\n\r\n" % len(inner)
        answer = raw(service, data + inner + LAST)
        assert answer.count(b"HTTP/1.1 ") == 2, answer
        assert answer.startswith(b"HTTP/1.1 400 ")
    assert raw(service, GET + OFFER + b"\r\n" + LAST).count(b"HTTP/1.1 200 OK") == 2
    assert "pip install" not in service.log()


def test_endless_headers_cost_no_memory(service: Service) -> None:
    (worker,) = service.workers
    before = worker.memory_info().rss
    with socket.create_connection(("127.0.0.1", service.port), timeout=5) as sock, pytest.raises(OSError):
        sock.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n")
        for _ in range(2000):
            sock.sendall((b"x: " + b"a" * 50_000 + b"\r\n") * 2)
    assert worker.memory_info().rss - before < 20 << 20


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", ""])
def test_a_page_whose_name_points_here_is_refused(service: Service, host: str) -> None:
    response = service.http.get("/v1/models", headers={"host": host})
    assert response.status_code == 403
    assert response.json()["error"]["code"] == "host_not_allowed"


def test_two_names_at_once_are_refused(service: Service) -> None:
    data = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
    assert refusal(raw(service, data)) == (403, "host_not_allowed")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "LOCALHOST:8000", "[::1]:8000"])
def test_local_names_are_served(service: Service, host: str) -> None:
    assert service.http.get("/v1/models", headers={"host": host}).status_code == 200


@pytest.mark.slow
def test_further_names_can_be_allowed_and_keys_make_names_irrelevant() -> None:
    with serving("--allowed-hosts", "vision.lab") as named:
        assert named.http.get("/v1/models", headers={"host": "vision.lab"}).status_code == 200
        assert named.http.get("/v1/models", headers={"host": "other.lab"}).status_code == 403
    with serving(environ={"TWINLENS_API_KEYS": "k"}) as keyed:
        headers = {"host": "other.lab", "authorization": "Bearer k"}
        assert keyed.http.get("/v1/models", headers=headers).status_code == 200


@pytest.fixture(scope="module")
def impatient() -> Iterator[Service]:
    """A service with short limits: two places and three seconds."""
    flags = ("--max-running", "2", "--max-queue", "4", "--request-timeout-s", "3")
    with serving(*flags, "--engine-args=--piece-delay-s=0.0001,--pieces=4000") as running:
        yield running


@pytest.mark.slow
def test_a_client_that_does_not_read_loses_its_place(impatient: Service) -> None:
    body = json.dumps(
        {
            "model": "demo",
            "stream": True,
            "n": 8,
            "logprobs": True,
            "max_tokens": 3500,
            "messages": [{"role": "user", "content": "x"}],
        }
    ).encode()
    with contextlib.ExitStack() as sockets:
        held = [sockets.enter_context(socket.socket()) for _ in range(2)]
        for sock in held:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            sock.connect(("127.0.0.1", impatient.port))
            sock.sendall(CHAT + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        until(lambda: impatient.metric("twinlens_requests_inside") == 2, 5)
        until(lambda: impatient.metric("twinlens_requests_inside") == 0, 25)
        (worker,) = impatient.workers
        until(lambda: not open_ports(worker) & {sock.getsockname()[1] for sock in held}, 60)


@pytest.mark.slow
def test_bodies_that_do_not_arrive_are_given_up(impatient: Service) -> None:
    start = time.monotonic()
    answer = raw(impatient, CHAT + b"Content-Length: 1000\r\n\r\n{", wait=10)
    assert refusal(answer) == (408, "body_too_slow")
    assert time.monotonic() - start < 8


@pytest.mark.slow
def test_long_texts_do_not_hold_up_others(service: Service) -> None:
    """A million characters are counted while the event loop goes on."""
    texts: list[Any] = ["a" * 1_000_000, "\U0001f600" * 1_000_000, " " * 1_000_000]
    import threading  # noqa: PLC0415

    slowest = 0.0
    done = threading.Event()

    def watch() -> None:
        nonlocal slowest
        while not done.is_set():
            start = time.monotonic()
            service.http.get("/livez")
            slowest = max(slowest, time.monotonic() - start)
            time.sleep(0.02)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for text in texts:
            assert service.chat(text).status_code == 400  # longer than the context
    finally:
        done.set()
        watcher.join()
    assert slowest < 1.5  # many times what a quiet machine needs; the fault that this guards against took six seconds


def open_ports(process: psutil.Process) -> set[int]:
    """Ports of the clients whose connections are open."""
    return {found.raddr.port for found in process.net_connections("tcp") if found.status == "ESTABLISHED"}
