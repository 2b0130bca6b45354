"""Asks an engine and yields what it says: the gateway's side of the seam.

Always streams, so that there is one path; a plain answer is a fold over it. Closing the iterator closes the
connection at once, which is what makes the engine stop working for a client that left. Every way in which an engine
or its connection can fail becomes an error of our tree here; an answer that ends early is never a success.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aiohttp
import msgspec

from twinlens.engines import canonical, translate, vllm_metrics
from twinlens.engines.translate import RETRY_AFTER_S
from twinlens.errors import AnswerError, DeadlineExceeded, EngineUnavailable
from twinlens.orders import EngineAddress

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from pathlib import Path

    from twinlens.core import Image, Piece, Request
    from twinlens.engines.wire import Health
    from twinlens.errors import TwinlensError

CONNECT_S = 5.0
HEALTH_S = 5.0
METRICS_S = 1.0
KEEP_ALIVE_S = 60.0  # shorter than our engines', so that a connection is never taken up while the engine closes it
JSON = {"content-type": "application/json"}
MAX_EVENT = 8 << 20  # bytes of one event; more is not an answer of a language model
MAX_BODY = 1 << 20  # bytes that are read of a refusal
MAX_METRICS = 8 << 20


class EngineClient:
    """One engine, by a bounded pool of kept connections.

    `address` is "unix:/path" or "http://host:port", with its key if it has one; `pool` the most connections at once;
    `idle_timeout_s` the longest silence of the engine inside an answer; `store` the folder in which the pixels are,
    for engines that cannot look there themselves. To be used from one event loop.
    """

    def __init__(
        self,
        address: EngineAddress | str,
        *,
        model: str,
        pool: int,
        idle_timeout_s: float,
        store: Path | None = None,
    ) -> None:
        where = EngineAddress(address) if isinstance(address, str) else address
        self.address = address = where.url
        self._headers = {"authorization": f"Bearer {where.key}"} if where.key else {}
        self.model = model
        self._pool = pool
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=idle_timeout_s)
        self._base = "http://engine" if address.startswith("unix:") else address.rstrip("/")
        self._made: aiohttp.ClientSession | None = None
        self._references = True
        self._store = store
        self._says_metrics = True
        self._thrown_out = 0

    async def health(self) -> Health:
        """How the engine is. Raises EngineUnavailable.

        An engine that is not ours answers with a bare status, or has no such route and lists its models; what it can
        do is then taken to be what OpenAI's API has, and pictures go to it as PNG, because it cannot resolve
        references. How loaded it is is read from its metrics where they are vLLM's.
        """
        status, body = await self._get("/health")
        if status == 404:
            status, body = await self._get("/v1/models")
        if status in (401, 403):
            raise EngineUnavailable("The engine does not take the service's key.", retry_after=RETRY_AFTER_S)
        if status != 200:
            raise EngineUnavailable(f"The engine answers with status {status}.", retry_after=RETRY_AFTER_S)
        health = translate.read_health(body, self.model)
        self._references = health.abilities.references
        return health if self._references else await self._measured(health)

    async def names(self) -> tuple[str, ...]:
        """The models that the engine says it serves; none where it does not say. Raises EngineUnavailable."""
        status, body = await self._get("/v1/models")
        return translate.read_names(body) if status == 200 else ()

    async def _measured(self, health: Health) -> Health:
        """The health of an engine that is not ours, with what its metrics say."""
        if not self._says_metrics:
            return health
        try:
            status, body = await self._get("/metrics", METRICS_S, MAX_METRICS)
        except EngineUnavailable:
            return health  # it lives and has other things to do
        load = vllm_metrics.read(body.decode("utf-8", "replace")) if status == 200 else None
        if load is None:
            self._says_metrics = status not in (200, 404)
            return health
        # Whatever was thrown out for want of room is as good as waiting: fewer should be sent.
        pressed = int(load.thrown_out > self._thrown_out)
        self._thrown_out = load.thrown_out
        return msgspec.structs.replace(
            health,
            running=load.running,
            waiting=load.waiting + pressed,
            cache_usage=100 * load.used,
            room=load.room,
        )

    async def _get(self, path: str, limit_s: float = HEALTH_S, most: int = MAX_BODY) -> tuple[int, bytes]:
        try:
            timeout = aiohttp.ClientTimeout(total=limit_s)
            async with self._session.get(self._base + path, timeout=timeout, allow_redirects=False) as response:
                return response.status, await _start_of(response, most)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise EngineUnavailable("The engine does not answer.", retry_after=RETRY_AFTER_S) from error

    async def generate(self, request: Request, images: Sequence[Image]) -> AsyncGenerator[Piece, None]:
        """Yield pieces of all choices as they come, then one with the usage (index -1).

        `images` are the pictures of `request` in order, their pixels in the store. Raises EngineUnavailable when the
        engine is not there or is lost, DeadlineExceeded when it is silent for too long, and its refusals.
        """
        body = translate.question(request, await self._urls(images), self.model)
        response: aiohttp.ClientResponse | None = None
        try:
            url = f"{self._base}/v1/chat/completions"
            response = await self._session.post(url, data=body, headers=JSON, allow_redirects=False)
            if response.status != 200:
                raise await _refusal(response)
            hearing = translate.Hearing(request.sampling.n, ours=_ours(response))
            rest = b""
            async for got in response.content.iter_any():
                *lines, rest = (rest + got if rest else got).split(b"\n")
                for line in lines:
                    for piece in hearing.take(line):
                        yield piece
                if len(rest) > MAX_EVENT:
                    raise AnswerError("The engine sent an event that is too long.")
            yield hearing.end()
        except aiohttp.SocketTimeoutError as error:
            raise DeadlineExceeded("The engine gave no piece of the answer for too long.") from error
        except aiohttp.ClientConnectorError as error:
            raise EngineUnavailable("The engine is not there.", retry_after=RETRY_AFTER_S) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise translate.lost() from error
        finally:
            if response is not None:
                response.close()  # a no-op after a whole answer; otherwise the engine sees at once that we left

    async def _urls(self, images: Sequence[Image]) -> list[str]:
        if self._references or not images:
            return [image.reference for image in images]
        if self._store is None:
            raise EngineUnavailable("This engine resolves no references, and there is no store to read them from.")
        return await asyncio.to_thread(canonical.data_uris, self._store, images)

    async def close(self) -> None:
        """Close all connections; answers that still run end with EngineUnavailable."""
        if self._made is not None:
            await self._made.close()

    @property
    def _session(self) -> aiohttp.ClientSession:
        """Made at first use, because it belongs to the running loop."""
        if self._made is None:
            kept = {"limit": self._pool, "keepalive_timeout": KEEP_ALIVE_S}
            connector: aiohttp.BaseConnector
            if self.address.startswith("unix:"):
                connector = aiohttp.UnixConnector(self.address.removeprefix("unix:"), **kept)  # type: ignore[arg-type]
            else:
                connector = aiohttp.TCPConnector(limit_per_host=self._pool, **kept)  # type: ignore[arg-type]
            self._made = aiohttp.ClientSession(
                connector=connector,
                headers=self._headers,
                timeout=self._timeout,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding"),
                trust_env=False,
                read_bufsize=1 << 18,
            )
        return self._made


async def _refusal(response: aiohttp.ClientResponse) -> TwinlensError:
    body = await _start_of(response, MAX_BODY)
    seconds = response.headers.get("retry-after", "")
    return translate.refusal(response.status, body, ours=_ours(response), retry_after=seconds)


async def _start_of(response: aiohttp.ClientResponse, most: int) -> bytes:
    """Its body, up to `most` bytes."""
    body = bytearray()
    async for got in response.content.iter_any():
        body += got
        if len(body) >= most:
            break
    return bytes(body[:most])


def _ours(response: aiohttp.ClientResponse) -> bool:
    """Whether the texts of its errors are fit for users."""
    return "x-twinlens-engine" in response.headers
