"""Pictures by URL: the only place that ever opens a connection because a client asked for it.

Off unless the operator lists hosts. Then: https only; the name is resolved once, every address that it leads to must be
public, and the connection goes to one of the addresses that were checked, looked at once more right before it is
opened; TLS checks the certificate against the name. Redirects are followed by hand, each checked like the first URL.
Bytes are counted while they stream, and one clock runs over all of it. What the server says of the content's type is
not believed: the bytes go the way of every other picture. No cookies, no proxies, no credentials, no compression.

What a client learns of a failure does not depend on anything inside: a name that leads to a private address and one
that leads nowhere give the same error, and no port is touched in either case.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from twinlens.errors import ImageFetchFailed, ImageFetchTimeout, ImageTooLarge, ImageUrlNotAllowed
from twinlens.media.hosts import Hosts, is_literal, is_odd_number, is_public
from twinlens.observe import metrics

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp.abc import ResolveResult

    from twinlens.settings import Settings

    Resolve = Callable[[str, int], Awaitable[list[str]]]

LONGEST = 8192  # characters of a URL
MOST_REDIRECTS = 3
MOST_CONNECTIONS = 64  # of one gateway process
KEEP_ALIVE_S = 15.0
_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_URL = re.compile(r"\s*https?:", re.IGNORECASE)
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f\\]")
_NOT_HERE = "is an address that is not followed."


def is_url(text: str) -> bool:
    """Whether this is meant to be fetched."""
    return _URL.match(text[:64]) is not None


class _PrivateError(OSError):
    """An address that is not public; never leaves this file."""


async def resolve(host: str, port: int) -> list[str]:
    """All addresses of a name, by the system's resolver. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class _Checked(AbstractResolver):
    """aiohttp asks here whenever it opens a connection to a name, and connects to nothing else than the answer."""

    def __init__(self, lookup: Resolve, public: Callable[[str], bool]) -> None:
        self._lookup = lookup
        self._public = public

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Addresses that were all found public. Raises _PrivateError if one is not, OSError if there are none."""
        addresses = await self._lookup(host, port)
        if not addresses:
            raise OSError("no address")
        if not all(map(self._public, addresses)):
            raise _PrivateError("not public")
        return [
            {
                "hostname": host,
                "host": address,
                "port": port,
                "family": socket.AF_INET6 if ":" in address else socket.AF_INET,
                "proto": socket.IPPROTO_TCP,
                "flags": socket.AI_NUMERICHOST,
            }
            for address in addresses
        ]

    async def close(self) -> None:
        """Nothing to give back."""


class Fetcher:
    """Fetches for one gateway process, from one event loop; `close` ends its connections."""

    def __init__(
        self,
        settings: Settings,
        *,
        lookup: Resolve | None = None,
        public: Callable[[str], bool] | None = None,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        """Raises SettingsError for an entry of `url_hosts` that names no host.

        `lookup`, `public` and `trust` are for tests: no setting reaches them. Certificates are trusted by the system's
        store, or by what SSL_CERT_FILE names.
        """
        self._hosts = Hosts(settings.url_hosts)
        self._timeout_s = settings.url_timeout_s
        self._per_host = settings.url_connections_per_host
        self._agent = settings.url_user_agent
        self._lookup = lookup or resolve
        self._public = public or is_public
        self._trust = trust
        self._made: aiohttp.ClientSession | None = None

    async def get(self, text: str, where: str, limit: int, take: Callable[[int], None] = lambda _: None) -> bytes:
        """The bytes behind a URL, at most `limit`. `take` hears how many came, as they come, and may raise.

        Raises ImageUrlNotAllowed, ImageFetchFailed, ImageFetchTimeout, ImageTooLarge.
        """
        outcome = "failed"
        try:
            async with asyncio.timeout(self._timeout_s):
                data = await self._follow(text, where, limit, take)
            outcome = "fetched"
        except ImageUrlNotAllowed:
            outcome = "refused"
            raise
        except ImageTooLarge:
            outcome = "too_large"
            raise
        except TimeoutError:
            outcome = "timeout"
            raise ImageFetchTimeout(
                f"{where}: the picture was not there after {self._timeout_s:g} seconds.", param=where
            ) from None
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            metrics.FETCHES.labels(outcome).inc()
        return data

    async def close(self) -> None:
        """End all connections."""
        if self._made is not None:
            await self._made.close()

    async def _follow(self, text: str, where: str, limit: int, take: Callable[[int], None]) -> bytes:
        url = self._checked(text, None, where)
        for _ in range(MOST_REDIRECTS + 1):
            answer = await self._ask(url, where, limit, take)
            if isinstance(answer, bytes):
                return answer
            url = self._checked(answer, url, where)
        raise ImageFetchFailed(f"{where}: the address redirects more than {MOST_REDIRECTS} times.", param=where)

    def _checked(self, text: str, base: URL | None, where: str) -> URL:
        """The URL as it will be asked for. Raises ImageUrlNotAllowed; nothing is looked up."""
        text = text.strip()
        if not self._hosts:
            raise ImageUrlNotAllowed(f"{where} is a URL, and this service fetches none.", param=where)
        if len(text) > LONGEST:
            raise ImageUrlNotAllowed(f"{where} is a URL of more than {LONGEST} characters.", param=where)
        try:
            url = URL(text) if base is None else base.join(URL(text))
            host, port = (url.raw_host or "").lower().removesuffix("."), url.port
            plain = not _FORBIDDEN.search(text) and url.user is None and url.password is None
            whole = plain and bool(host) and "%" not in host
        except (ValueError, TypeError):
            whole = False
        if not whole:
            raise ImageUrlNotAllowed(f"{where} {_NOT_HERE}", param=where)
        if url.scheme != "https":
            raise ImageUrlNotAllowed(f"{where} is not an https address.", param=where)
        if is_odd_number(host) or port is None or not self._hosts.allow(host, port):
            raise ImageUrlNotAllowed(f"{where} {_NOT_HERE}", param=where)
        if is_literal(host) and not self._public(host):
            raise ImageUrlNotAllowed(f"{where} {_NOT_HERE}", param=where)
        return (url if host == url.raw_host else url.with_host(host)).with_fragment(None)

    async def _ask(self, url: URL, where: str, limit: int, take: Callable[[int], None]) -> bytes | str:
        """The body, or where a redirect leads."""
        try:
            async with self._session().get(url, allow_redirects=False) as response:
                if response.status in _REDIRECTS and "location" in response.headers:
                    return response.headers["location"]
                if response.status != 200:
                    raise ImageFetchFailed(f"{where}: the server answered with status {response.status}.", param=where)
                return await _body(response, where, limit, take)
        except aiohttp.ClientConnectorCertificateError as error:
            raise ImageFetchFailed(f"{where}: the server's certificate is not trusted.", param=where) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise ImageFetchFailed(f"{where}: the address cannot be reached.", param=where) from error

    def _session(self) -> aiohttp.ClientSession:
        if self._made is None:
            connector = aiohttp.TCPConnector(
                resolver=_Checked(self._lookup, self._public),
                use_dns_cache=False,  # each connection is checked by a look-up of its own
                limit=MOST_CONNECTIONS,
                limit_per_host=self._per_host,
                keepalive_timeout=KEEP_ALIVE_S,
                ssl=self._trust or ssl.create_default_context(),
                socket_factory=self._socket,
            )
            self._made = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
                timeout=aiohttp.ClientTimeout(total=None),  # one clock over everything runs in `get`
                headers={"user-agent": self._agent, "accept": "image/*", "accept-encoding": "identity"},
            )
        return self._made

    def _socket(self, info: tuple[Any, ...]) -> socket.socket:
        """The last look: at the very address that is about to be connected to, IP literals included."""
        family, kind, protocol, _, address = info
        if not self._public(str(address[0])):
            raise _PrivateError("not public")
        return socket.socket(family=family, type=kind, proto=protocol)


async def _body(response: aiohttp.ClientResponse, where: str, limit: int, take: Callable[[int], None]) -> bytes:
    if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        raise ImageFetchFailed(f"{where}: the server sent a compressed answer that was not asked for.", param=where)
    if (response.content_length or 0) > limit:
        raise _too_large(where, limit)
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        chunks.append(chunk)
        size += len(chunk)
        if size > limit:
            raise _too_large(where, limit)
        take(len(chunk))
    return b"".join(chunks)


def _too_large(where: str, limit: int) -> ImageTooLarge:
    return ImageTooLarge(f"{where} holds more than {limit} bytes, the limit for one picture here.", param=where)
