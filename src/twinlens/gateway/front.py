"""The outermost layer of the gateway: request ids, access, one error body for everything, one log line a request."""

from __future__ import annotations

import logging
import re
import time
import uuid
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

from twinlens.core import Caller
from twinlens.errors import InvalidRequest, MethodNotAllowed, NotFound, TwinlensError
from twinlens.gateway.access import OPEN_PATHS
from twinlens.gateway.http import ClientLeftError, as_error, header, send_error
from twinlens.observe import metrics

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from twinlens.gateway.access import Access

log = logging.getLogger("twinlens.gateway")

LEFT = 499  # in logs and metrics: the client closed the connection, as nginx counts it
_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")


class Exchange:
    """What is known of one request and its answer while it runs. Lives in the scope as `twinlens`."""

    def __init__(self, request_id: str, ignored: Sequence[str] = ()) -> None:
        self.request_id = request_id
        self.ignored = tuple(ignored)
        self.status = 0
        self.route = ""  # its template, where the path holds a name
        self.note = ""  # for the log line: counts and sizes, never content
        self.caller = Caller()
        self.operator = False  # may see what is for operators only
        self.headers: list[tuple[bytes, bytes]] = []  # for the head of the answer, whichever it will be

    @property
    def tenant(self) -> str:
        """Whose request it is; empty without keys."""
        return self.caller.tenant

    @property
    def key_id(self) -> str:
        """The public part of the key; empty without keys."""
        return self.caller.key


def exchange_of(scope: Scope) -> Exchange:
    """The exchange that this scope belongs to."""
    found = scope["twinlens"]
    if not isinstance(found, Exchange):
        raise TypeError("the scope carries no exchange")
    return found


class Front:
    """ASGI middleware around all routes."""

    def __init__(self, app: ASGIApp, access: Access, *, routes: Collection[str]) -> None:
        self._app = app
        self._access = access
        self._routes = frozenset(routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one exchange."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1003})
            return
        given = header(scope, b"x-request-id") or ""
        exchange = Exchange(given if _ID.fullmatch(given) else uuid.uuid4().hex)
        scope["twinlens"] = exchange
        scope["app"] = self  # makes the router raise for a wrong method instead of answering in its own words

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                message.setdefault("headers", []).append((b"x-request-id", exchange.request_id.encode()))
                if exchange.headers:
                    message["headers"].extend(exchange.headers)
                if exchange.ignored:
                    # Escaped, because a client's name may hold line ends or other things no header may hold.
                    names = ", ".join(ascii(name)[1:-1] for name in exchange.ignored)[:512].encode()
                    message["headers"].append((b"x-twinlens-ignored", names))
            await send(message)

        start = time.perf_counter()
        await self._guarded(scope, receive, sending, exchange)
        self._note(scope, exchange, time.perf_counter() - start)

    async def _guarded(self, scope: Scope, receive: Receive, send: Send, exchange: Exchange) -> None:
        try:
            _check_host(scope)
            exchange.caller, exchange.operator = self._access.caller(scope)
            await self._app(scope, receive, send)
        except ClientLeftError:
            metrics.CANCELLED.inc()
            exchange.status = LEFT
        except HTTPException as error:
            await self._refuse(send, exchange, _translated(error), dict(error.headers or {}))
        except TwinlensError as error:
            await self._refuse(send, exchange, error)
        except Exception as error:  # the border of the process: a bug is logged, never sent or swallowed
            log.exception("request %s: unexpected %s", exchange.request_id, type(error).__name__)
            await self._refuse(send, exchange, as_error(error))

    async def _refuse(
        self, send: Send, exchange: Exchange, error: TwinlensError, headers: dict[str, str] | None = None
    ) -> None:
        exchange.note = f"{exchange.note} {error.code}".strip()
        if not exchange.status:  # otherwise the head is out, and the stream has said it in a frame
            await send_error(send, error, headers)

    def _note(self, scope: Scope, exchange: Exchange, seconds: float) -> None:
        route = exchange.route or (scope["path"] if scope["path"] in self._routes else "unmatched")
        metrics.requests(route, exchange.status).inc()
        level = logging.DEBUG if route in OPEN_PATHS or route == "/metrics" else logging.INFO
        log.log(
            level,
            "%s %s %d %.1f ms id=%s %s",
            scope["method"],
            route,
            exchange.status,
            seconds * 1000,
            exchange.request_id,
            f"key={exchange.key_id} {exchange.note}" if exchange.key_id else exchange.note,
        )


def _check_host(scope: Scope) -> None:
    if scope["http_version"] == "1.1" and header(scope, b"host") is None:
        raise InvalidRequest("A request of HTTP/1.1 needs a Host header.")  # RFC 9110, 7.2


def _translated(error: HTTPException) -> TwinlensError:
    if error.status_code == MethodNotAllowed.status:
        return MethodNotAllowed("This route does not take that method.")
    if error.status_code == NotFound.status:
        return NotFound("There is no such route.")
    return as_error(error)


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": message["type"] + ".complete"})
        if message["type"] == "lifespan.shutdown":
            return
