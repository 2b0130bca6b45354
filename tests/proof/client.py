"""A small client for floods: one connection a request, every way of leaving early."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any

CHAT = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Told:
    """What came back. `status` 0: the connection ended without an answer, or we left."""

    status: int
    seconds: float
    body: bytes = b""
    retry_after: bool = False
    ended: float = 0.0  # on the monotonic clock

    @property
    def code(self) -> str:
        """The code of a refusal."""
        try:
            return str(json.loads(self.body)["error"]["code"])
        except (ValueError, LookupError, TypeError):
            return ""


def request(
    body: bytes,
    *,
    path: str = CHAT,
    length: int | None = None,
    kind: str = "application/json",
    headers: dict[str, str] | None = None,
) -> bytes:
    """A whole request."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Type: {kind}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    lines += [f"Content-Length: {len(body) if length is None else length}", "", ""]
    return "\r\n".join(lines).encode() + body


def chat(*content: Any, **fields: Any) -> bytes:
    """A body with one user turn."""
    parts = [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
    return json.dumps({"model": "demo", "messages": [{"role": "user", "content": parts}], **fields}).encode()


def form(data: bytes, name: str = "a.png") -> bytes:
    """An upload of a file."""
    head = '--edge\r\nContent-Disposition: form-data; name="{}"{}\r\n\r\n'
    body = head.format("purpose", "").encode() + b"vision\r\n"
    body += head.format("file", f'; filename="{name}"').encode() + data + b"\r\n--edge--\r\n"
    return request(body, path="/v1/files", kind="multipart/form-data; boundary=edge")


async def ask(port: int, data: bytes, *, leave_after: float | None = None, limit_s: float = 60) -> Told:
    """Send `data` and read to the end, or hang up after so many seconds."""
    began = time.monotonic()
    answer = b""
    try:
        async with asyncio.timeout(limit_s if leave_after is None else leave_after):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(data)
                await writer.drain()
                while chunk := await reader.read(1 << 16):
                    answer += chunk
            finally:
                writer.transport.abort()
    except (TimeoutError, OSError):
        if leave_after is None and not answer:
            return Told(0, time.monotonic() - began)
    head, _, body = answer.partition(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1]) if head.startswith(b"HTTP/") else 0
    return Told(status, time.monotonic() - began, body, b"retry-after:" in head.lower(), time.monotonic())
