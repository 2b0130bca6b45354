"""The page for people: whose address and model its example names. Hosts that are no hosts get here only with keys."""

from __future__ import annotations

import asyncio
import html
from typing import TYPE_CHECKING, Any

import pytest

from twinlens.gateway.ops import Docs

if TYPE_CHECKING:
    from starlette.types import Message


def shown(model: str = "demo", **headers: str) -> str:
    """The page that a client with these headers gets."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        sent.append(message)

    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope: dict[str, Any] = {"type": "http", "headers": pairs}
    asyncio.run(Docs(model)(scope, receive, send))
    return bytes(sent[1]["body"]).decode()


@pytest.mark.parametrize("host", ["example.org", "10.0.0.1:80", "[fd00::1]:8000", "my-host:1"])
def test_the_example_names_the_host_that_the_client_asked(host: str) -> None:
    assert f"curl http://{host}/v1/" in shown(host=host)
    assert f"curl https://{host}/v1/" in shown(host=host, x_forwarded_proto="https")


@pytest.mark.parametrize(
    "host", ["", "<script>alert(1)</script>", "x'; rm -rf", "a b", "evil.example/path", "u:p@h", "h:port", "h\n"]
)
def test_what_is_no_host_is_not_shown(host: str) -> None:
    page = shown(host=host)
    assert "curl http://127.0.0.1:8000/v1/" in page
    assert not host or f"//{host}" not in page


def test_names_are_safe_in_the_page_and_in_the_shell() -> None:
    page = shown(model="a\"b'c<d>", host="h")
    assert "<d>" not in page
    assert r""""model": "a\"b'\''c<d>",""" in html.unescape(page)
