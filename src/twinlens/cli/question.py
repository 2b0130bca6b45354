"""A question as `twinlens ask` puts it to a service over HTTP, as any other client would."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import sys
import time
import unicodedata
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

import aiohttp
import msgspec

from twinlens.errors import EngineUnavailable, OperatorError, ServerError, TwinlensError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CONNECT = aiohttp.ClientTimeout(total=10)
NO_LIMIT = aiohttp.ClientTimeout(total=None, sock_connect=10)  # the service has its own deadline
POLL_S = 0.2
HEAD = 1024  # bytes of a file that tell its format
LONGEST_LINE = 8 << 20  # bytes of one event of a stream


class Asks(Protocol):
    """What `Service.ask` can put."""

    @property
    def path(self) -> str:
        """The route that takes it."""
        ...

    @property
    def stream(self) -> bool:
        """Whether the answer comes as a stream."""
        ...

    def body(self, model: str) -> dict[str, Any]:
        """What is sent. Raises OperatorError."""
        ...


@dataclass(frozen=True, slots=True)
class Paging:
    """Which pages of the documents among the pictures are meant, and what opens them."""

    pages: str = ""
    password: str = field(default="", repr=False)

    def fields(self, path: str) -> dict[str, Any]:
        """The fields of a part that say so; none for a plain picture, which has no pages."""
        given = {"pages": self.pages, "password": self.password}
        wanted = {name: value for name, value in given.items() if value}
        return wanted if wanted and is_document(path) else {}


@dataclass(frozen=True, slots=True)
class Question:
    """What to ask. `schema` is a JSON schema that the answer has to satisfy."""

    pictures: tuple[str, ...]  # paths
    prompt: str
    schema: dict[str, Any] | bool | None = None
    max_tokens: int | None = None
    stream: bool = False
    task: str = ""  # the task of the service that is asked; then there is no prompt
    variables: Mapping[str, Any] = field(default_factory=dict)
    paging: Paging = field(default_factory=Paging)

    @property
    def path(self) -> str:
        """The route that takes it."""
        return f"/v1/tasks/{quote(self.task, safe='')}" if self.task else "/v1/chat/completions"

    def body(self, model: str) -> dict[str, Any]:
        """As chat completion or task. Reads the pictures; raises OperatorError for one that cannot be read."""
        if self.task:
            images = [{"url": data_uri(path), **self.paging.fields(path)} for path in self.pictures]
            asked = {"images": images, "variables": dict(self.variables), "stream": self.stream}
            return asked if self.max_tokens is None else asked | {"max_tokens": self.max_tokens}
        content: list[dict[str, Any]] = [
            {"type": "image_url", "image_url": {"url": data_uri(path)}, **self.paging.fields(path)}
            for path in self.pictures
        ]
        content.append({"type": "text", "text": self.prompt})
        body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": content}]}
        if self.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        if self.max_tokens is not None:
            body["max_completion_tokens"] = self.max_tokens
        if self.schema is not None:
            schema = {"name": "answer", "schema": self.schema, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return body


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    text: str
    finish_reason: str
    completion_tokens: int
    images: tuple[dict[str, Any], ...] = ()  # what the service says of the pictures
    paged: bool = False  # it is a list of pages' results, of which more may come


class Service:
    """A service at an address. A context manager."""

    def __init__(self, url: str, key: str = "") -> None:
        self.url = url.rstrip("/")
        headers = {"authorization": f"Bearer {key}"} if key else {}
        self._keyed = bool(key)
        self._session = aiohttp.ClientSession(headers=headers, read_bufsize=LONGEST_LINE)

    async def __aenter__(self) -> Service:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def model(self) -> tuple[str, str]:
        """(name, owner) of the first model. Raises OperatorError where no such service answers."""
        try:
            async with self._session.get(f"{self.url}/v1/models", timeout=CONNECT) as response:
                body = await response.read()
                if response.status != 200:
                    raise self._refusal(response.status, body)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise OperatorError(
                f"No service answers at {self.url}.", cure="Start one with “twinlens serve”, or leave --url out."
            ) from error
        try:
            first = msgspec.json.decode(body)["data"][0]
            return str(first["id"]), str(first.get("owned_by", ""))
        except (msgspec.DecodeError, LookupError, TypeError, AttributeError) as error:
            raise OperatorError(
                f"What answers at {self.url} is no service for models.", cure="Name the right one with --url."
            ) from error

    async def until_ready(self, limit_s: float) -> None:
        """Wait, saying for what. Raises EngineUnavailable after `limit_s` seconds."""
        deadline = time.monotonic() + limit_s
        told = ""
        while True:
            async with self._session.get(f"{self.url}/readyz", timeout=CONNECT) as response:
                if response.status in (200, 404):  # 404: another kind of server; it will say itself
                    return
                state = _reason(await response.read())
            if time.monotonic() > deadline:
                raise EngineUnavailable(f"The service is not ready after {limit_s:g} s.", cure="Look at its log.")
            if state != told:
                sys.stderr.write(f"Waiting for the service: {state}\n")
                told = state
            await asyncio.sleep(POLL_S)

    async def ask(self, question: Asks, show: Callable[[str], None]) -> Answer:
        """Ask, and `show` the text as it comes. Raises an error of the tree with the service's own words."""
        model, _ = await self.model()
        body = msgspec.json.encode(await asyncio.to_thread(question.body, model))
        headers = {"content-type": "application/json"}
        try:
            async with self._session.post(
                f"{self.url}{question.path}", data=body, headers=headers, timeout=NO_LIMIT
            ) as response:
                if response.status != 200:
                    told = await response.read()
                    _show_finished(told, show)
                    raise self._refusal(response.status, told)
                if question.stream:
                    return await _streamed(response, show)
                return _plain(await response.read(), show)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ServerError("The connection to the service broke.", cure="Ask again.") from error

    def _refusal(self, status: int, body: bytes) -> TwinlensError:
        if status != 401:
            return _refusal(status, body)
        return OperatorError(
            f"The service at {self.url} {'does not know this API key' if self._keyed else 'wants an API key'}.",
            cure="Put a key of that service into a file and name it with --key-file FILE; "
            "“twinlens keys new --tenant NAME --scope chat” makes one.",
        )


def harmless(text: str) -> str:
    """`text` for a terminal: without control characters, which could move its cursor, rename it or type into it."""
    if text.isprintable():
        return text
    return "".join(one for one in text if one in "\n\t" or unicodedata.category(one) != "Cc")


async def _streamed(response: aiohttp.ClientResponse, show: Callable[[str], None]) -> Answer:
    answer = Answer("", "", 0)
    async for line in response.content:
        data = line.removeprefix(b"data:").strip()
        if not line.startswith(b"data:") or data == b"[DONE]":
            continue
        answer = _with(answer, msgspec.json.decode(data), show)
    return answer


def _with(answer: Answer, event: dict[str, Any], show: Callable[[str], None]) -> Answer:
    kind = event.get("object")
    if kind == "task.page":  # results become one list, as they come
        text = ("," if answer.paged else "[") + msgspec.json.encode(event.get("result")).decode()
        show(text)
        return replace(answer, text=answer.text + text, paged=True)
    if "error" in event:
        if answer.text:
            show("]\n" if answer.paged else "\n")
        raise ServerError(harmless(str(event["error"].get("message"))), cure="")
    usage = event.get("usage") or {}
    if kind == "task.delta":
        if "page" in event:
            return answer  # its page comes whole
        show(event["text"])
        return replace(answer, text=answer.text + event["text"])
    if kind == "task.result":
        if answer.paged:
            show("]")
        return _of_task(event, show if not answer.text else _nothing)
    text, reason = answer.text, answer.finish_reason
    for choice in event.get("choices", ()):
        piece = choice["delta"].get("content") or ""
        if piece:
            show(piece)
        text += piece
        reason = choice.get("finish_reason") or reason
    return Answer(text, reason, usage.get("completion_tokens", answer.completion_tokens))


def _plain(body: bytes, show: Callable[[str], None]) -> Answer:
    decoded = msgspec.json.decode(body)
    if decoded.get("object") == "task.result":
        return _of_task(decoded, show)
    choice = decoded["choices"][0]
    text = choice["message"]["content"] or ""
    show(text)
    images = tuple(decoded.get("twinlens", {}).get("images", ()))
    return Answer(text, choice["finish_reason"], decoded["usage"]["completion_tokens"], images)


def _of_task(said: dict[str, Any], show: Callable[[str], None]) -> Answer:
    result = said["result"]
    text = result if isinstance(result, str) else msgspec.json.encode(result).decode()
    show(text)
    return Answer(text, said["finish_reason"], said["usage"]["completion_tokens"])


def _show_finished(body: bytes, show: Callable[[str], None]) -> None:
    """Show what the pages answered that come with a refusal, null for those that did not."""
    with contextlib.suppress(msgspec.DecodeError, LookupError, TypeError, AttributeError):
        pages = msgspec.json.decode(body)["twinlens"]["pages"]
        show(msgspec.json.encode([page.get("result") for page in pages]).decode() + "\n")


def _nothing(text: str) -> None:
    """It has been shown."""


def _refusal(status: int, body: bytes) -> TwinlensError:
    try:
        message = harmless(str(msgspec.json.decode(body)["error"]["message"]))
    except (msgspec.DecodeError, LookupError, TypeError):
        message = f"The service answered with status {status}."
    return ServerError(message, cure="")  # the message ends with its cure already


def _reason(body: bytes) -> str:
    try:
        state = msgspec.json.decode(body)
        return harmless(f"engine {state['engine']}. {state.get('reason', '')}".rstrip())
    except (msgspec.DecodeError, LookupError, TypeError):
        return "not ready"


def is_document(path: str) -> bool:
    """Whether a picture may have pages: a PDF, a TIFF, or an address of which nobody knows."""
    if path.startswith(("http://", "https://", "data:")):
        return True
    from twinlens.media import signature  # noqa: PLC0415 - brings the decoders, which nothing else here needs

    try:
        with Path(path).open("rb") as file:
            return signature.sniff(file.read(HEAD)) in ("PDF", "TIFF")
    except OSError:
        return False  # whoever reads it says why it cannot be read


def data_uri(path: str) -> str:
    """A picture file for a request; addresses stay as they are. Raises OperatorError for a file that cannot be read."""
    if path.startswith(("http://", "https://", "data:")):
        return path  # the service says whether it follows addresses
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise OperatorError(f"The picture {path} cannot be read: {error.strerror}.", cure="Check the path.") from error
    # The service goes by the bytes, not by the type named here.
    return "data:image/jpeg;base64," + base64.b64encode(data).decode()
