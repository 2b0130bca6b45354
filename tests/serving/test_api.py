"""What clients meet at the front door: shapes of answers and errors, bounds, streams."""

from __future__ import annotations

import base64
import gzip
import html
import json
import socket
import time
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import pytest

from tests.serving.harness import data_uri, frames, image_part, picture, serving

if TYPE_CHECKING:
    from tests.serving.harness import Service

CHAT = "/v1/chat/completions"
HELLO = {"model": "demo", "messages": [{"role": "user", "content": "hello"}]}


def error_of(response: httpx.Response) -> dict[str, Any]:
    """The error of a response, after checking that its shape is OpenAI's (API-17)."""
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"]
    body = response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    for leak in ("0x", "Traceback", "/root", "site-packages", " object at ", "BytesIO"):
        assert leak not in response.text
    return dict(body["error"])


def test_api_17_every_refusal_has_the_same_shape(service: Service) -> None:
    http = service.http
    seen = {
        400: http.post(CHAT, json={**HELLO, "n": "x"}),
        404: http.get("/nowhere"),
        405: http.get(CHAT),
        415: http.post(CHAT, content=b"{}", headers={"content-type": "text/plain"}),
    }
    for status, response in seen.items():
        assert response.status_code == status
        error_of(response)
    assert http.post(CHAT, json={**HELLO, "model": "x"}).status_code == 404
    assert http.get(CHAT).headers["allow"] == "POST"


def test_request_ids_are_kept_or_made(service: Service) -> None:
    http = service.http
    assert http.post(CHAT, json=HELLO, headers={"x-request-id": "abc-1"}).headers["x-request-id"] == "abc-1"
    strange = http.post(CHAT, json=HELLO, headers={"x-request-id": "a b,c"}).headers["x-request-id"]
    assert len(strange) == 32


def test_api_11_unknown_fields_are_named_in_a_header(service: Service) -> None:
    response = service.http.post(CHAT, json={**HELLO, "store": False, "foo": 1, "bar": 2})
    assert response.status_code == 200
    assert response.headers["x-twinlens-ignored"] == "bar, foo"


def test_names_of_unknown_fields_cannot_break_the_header(service: Service) -> None:
    names = {"a\r\nset-cookie: b": 1, "\x1f": 1, "\u5b57": 1, "": 1, "x" * 5000: 1}
    response = service.http.post(CHAT, json={**HELLO, **names})
    assert response.status_code == 200
    assert "set-cookie" not in response.headers
    assert "\\r\\n" in response.headers["x-twinlens-ignored"]


@pytest.mark.parametrize("extra", [{}, {"max_tokens": 1}, {"stop": "the"}])
def test_api_05_every_stream_ends_with_one_done(service: Service, extra: dict[str, Any]) -> None:
    response = service.http.post(CHAT, json={**HELLO, "stream": True, **extra})
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["x-accel-buffering"] == "no"
    assert response.text.endswith("data: [DONE]\n\n")
    assert response.text.count("[DONE]") == 1
    assert frames(response.text)[-2]["choices"][0]["finish_reason"] in ("stop", "length")


def test_an_error_before_the_first_piece_has_its_own_status(service: Service) -> None:
    bad = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    body = {"model": "demo", "stream": True, "messages": [{"role": "user", "content": [bad]}]}
    response = service.http.post(CHAT, json=body)
    assert response.status_code == 400
    assert error_of(response)["param"] == "messages[0].content[0]"


def test_bare_base64_is_taken_as_a_picture(service: Service) -> None:
    bare = {"type": "image_url", "image_url": {"url": base64.b64encode(picture(3)).decode()}}
    by_uri = service.chat("what?", image_part(3))
    assert service.chat("what?", bare).json()["usage"] == by_uri.json()["usage"]


def test_detail_and_bounds_change_the_tokens_as_computed(service: Service) -> None:
    def tokens(**fields: Any) -> int:
        answer = service.chat("what?", image_part(5, (980, 980), **fields))
        return int(answer.json()["usage"]["prompt_tokens_details"]["image_tokens"])

    assert tokens() == tokens(detail="high") == tokens(detail="auto") == 35 * 35
    assert tokens(detail="low") <= 256
    assert tokens(max_pixels=100 * 28 * 28) <= 100
    refused = service.chat("what?", image_part(5, max_pixels=10**9))
    assert refused.status_code == 400
    assert "max_pixels" in error_of(refused)["message"]


def test_img_24_the_answer_says_what_the_model_saw(service: Service) -> None:
    answer = service.chat("where?", image_part(6, (300, 200))).json()
    (seen,) = answer["twinlens"]["images"]
    assert (seen["width"], seen["height"]) == (300, 200)
    assert seen["seen_width"] % 28 == seen["seen_height"] % 28 == 0
    assert seen["tokens"] == seen["seen_width"] * seen["seen_height"] // 28**2


def test_the_seed_style_call(service: Service) -> None:
    image = base64.b64encode(picture(7)).decode()
    response = service.http.post("/v1/inference", json={"image": image, "prompt": "what?"})
    assert response.status_code == 200
    body = response.json()
    assert body["text"]
    assert body["usage"]["prompt_tokens_details"]["image_tokens"] > 0
    wrong = service.http.post("/v1/inference", json={"image": "!!", "prompt": "what?"})
    assert error_of(wrong)["param"] == "image"


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
def test_sec_11_compressed_bodies_are_refused(service: Service, encoding: str) -> None:
    body = gzip.compress(b" " * 50_000_000)
    headers = {"content-type": "application/json", "content-encoding": encoding}
    response = service.http.post(CHAT, content=body, headers=headers)
    assert response.status_code == 415
    error_of(response)


def test_a_body_that_says_it_is_too_large_is_not_read(service: Service) -> None:
    with socket.create_connection(("127.0.0.1", service.port), timeout=5) as raw:
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        raw.sendall(head + b"Content-Length: 99999999999\r\n\r\n")
        assert b" 413 " in raw.recv(4096).split(b"\r\n")[0]


@pytest.mark.slow
def test_a_body_without_a_length_ends_at_the_limit() -> None:
    with serving("--max-body-bytes", "100000") as small:

        def endless() -> Any:
            for _ in range(100):
                yield b" " * 10_000

        headers = {"content-type": "application/json"}
        try:
            response = small.http.post(CHAT, content=endless(), headers=headers)
        except httpx.TransportError:
            return  # refused while we were still sending: the connection is closed under us
        assert response.status_code == 413


def test_sec_01_url_07_references_and_foreign_addresses_are_refused(service: Service) -> None:
    for url in ("twinlens:" + "0" * 64, "file:///etc/passwd", "/etc/passwd", "http://127.0.0.1/x", "ftp://x/y"):
        response = service.chat("x", {"type": "image_url", "image_url": {"url": url}})
        assert response.status_code == 400, url
        assert error_of(response)["param"] == "messages[0].content[1]"
    for kind in ("image_embeds", "input_audio", "video_url"):
        assert service.chat("x", {"type": kind, kind: {}}).status_code == 400


def test_api_18_context_is_checked_before_the_engine_is_asked(service: Service) -> None:
    before = service.metric("twinlens_tokens_total")
    response = service.chat("x", max_tokens=9_000_000)
    error = error_of(response)
    assert error["code"] == "context_length_exceeded"
    assert "9000000" in error["message"]
    assert service.metric("twinlens_tokens_total") == before


def test_livez_readyz_metrics_docs(service: Service) -> None:
    assert service.http.get("/livez").status_code == 200
    assert service.http.get("/readyz").json()["ready"] is True
    assert "twinlens_requests_total" in service.http.get("/metrics").text
    page = service.http.get("/docs").text
    assert "/v1/chat/completions" in page
    for outside in ("src=", "http://cdn", "https://"):
        assert outside not in page
    assert service.http.get("/openapi.json").json()["openapi"].startswith("3.1")


def test_the_docs_show_a_command_for_this_service(service: Service) -> None:
    name = service.http.get("/v1/models").json()["data"][0]["id"]
    page = html.unescape(service.http.get("/docs").text)
    assert f"curl {service.url}/v1/chat/completions" in page
    assert f'"model": "{name}"' in page


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b'{"a": NaN}', "is not valid JSON: invalid character at byte 6."),
        (b"\xef\xbb\xbf{}", "is not valid JSON: it begins with a byte order mark."),
        (b'{"a": "\\ud800"}', "is not valid JSON: half of a surrogate pair at byte 7."),
        (b'{"a": "\\ud800", "b": "secret and more of it"}', "is not valid JSON: "),
        (b"{} secret", "is not valid JSON: trailing characters at byte 4."),
        (b'{"a": "\xff"}', "is not valid JSON: invalid UTF-8 at byte 7."),
        (b'{"a": "secret', "is not valid JSON: it ends too early."),
        (b" ", "is not valid JSON: it is empty."),
        (b'{"a": 1e999}', "holds a number that is out of range."),
        (b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}", "is nested too deeply."),
    ],
    ids=lambda value: repr(value[:20]),
)
def test_a_body_that_is_no_json_is_told_why_and_where(service: Service, body: bytes, why: str) -> None:
    response = service.http.post(CHAT, content=body, headers={"Content-Type": "application/json"})
    error = error_of(response)
    assert (response.status_code, error["code"]) == (400, "invalid_request")
    assert error["message"].startswith(f"The body {why}")
    assert "secret" not in error["message"]


def test_ops_12_unknown_paths_make_no_series(service: Service) -> None:
    for number in range(50):
        service.http.get(f"/scan/{number}")
    text = service.http.get("/metrics").text
    assert "/scan/" not in text
    assert 'route="unmatched"' in text


@pytest.mark.slow
def test_keys_are_asked_for_when_configured() -> None:
    with serving(environ={"TWINLENS_API_KEYS": "first-key,second-key"}) as guarded:
        http = guarded.http
        assert http.get("/livez").status_code == 200
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic first-key"}):
            response = http.post(CHAT, json=HELLO, headers=headers)
            assert response.status_code == 401
            error_of(response)
        for key in ("first-key", "second-key"):
            assert http.post(CHAT, json=HELLO, headers={"authorization": f"Bearer {key}"}).status_code == 200
        assert "first-key" not in guarded.log()


@pytest.mark.slow
def test_cors_is_off_unless_allowed() -> None:
    ask = {"origin": "https://a.example", "access-control-request-method": "POST"}
    with serving() as closed:
        assert "access-control-allow-origin" not in closed.http.options(CHAT, headers=ask).headers
    with serving("--cors-origins", "https://a.example") as opened:
        allowed = opened.http.options(CHAT, headers=ask)
        assert allowed.headers["access-control-allow-origin"] == "https://a.example"
        # Clients in browsers name headers of their own, and a preflight that leaves one out ends their request.
        named = {**ask, "access-control-request-headers": "authorization,x-stainless-retry-count,x-stainless-os"}
        mirrored = opened.http.options(CHAT, headers=named)
        assert mirrored.status_code == 200
        assert "x-stainless-os" in mirrored.headers["access-control-allow-headers"]
        other = opened.http.options(CHAT, headers={**ask, "origin": "https://b.example"})
        assert "access-control-allow-origin" not in other.headers


def test_ops_17_pictures_are_not_logged(service: Service) -> None:
    good = data_uri(8, (500, 500))
    broken = good[: len(good) // 2]
    service.chat("x", {"type": "image_url", "image_url": {"url": good}})
    response = service.chat("x", {"type": "image_url", "image_url": {"url": broken}})
    assert response.status_code == 400
    for text in (service.log(), response.text):
        assert good[200:264] not in text
        assert all(len(line) < 4096 for line in text.splitlines())


def test_api_03_an_engine_that_breaks_off_is_an_error_in_the_stream() -> None:
    with serving("--engine-args=--piece-delay-s=0.05,--pieces=100") as broken:
        with broken.http.stream("POST", CHAT, json={**HELLO, "stream": True}) as response:
            lines = response.iter_lines()
            next(lines)
            broken.engine.kill()
            rest = "\n".join(lines)
        found = frames(rest)
        assert found[-1] == "[DONE]"
        assert found[-2]["error"]["code"] == "engine_unavailable"
        assert all("finish_reason" not in json.dumps(f) or f["choices"][0]["finish_reason"] is None for f in found[:-2])


@pytest.mark.slow
def test_deadline_is_kept() -> None:
    with serving("--engine-args=--piece-delay-s=0.2,--pieces=100", "--request-timeout-s", "1") as slow:
        start = time.monotonic()
        response = slow.http.post(CHAT, json=HELLO)
        assert response.status_code == 504
        assert error_of(response)["code"] == "deadline_exceeded"
        assert time.monotonic() - start < 5
