"""Who may call which route: keys and their scopes, or, without keys, callers of this machine only."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from twinlens.core import Caller
from twinlens.errors import Forbidden, HostNotAllowed, Unauthorized
from twinlens.gateway.http import header

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.types import Scope

    from twinlens.admission.addresses import Proxies
    from twinlens.admission.keyfile import Scope as KeyScope
    from twinlens.admission.keys import Holder, Ring

OPEN_PATHS = frozenset({"/livez", "/readyz"})
ADMIN_PATHS = frozenset({"/metrics", "/docs", "/openapi.json"})  # where other machines can call
MODELS = "/v1/models"
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
WORK: frozenset[KeyScope] = frozenset({"chat", "batch"})
ANY: frozenset[KeyScope] = frozenset({"chat", "batch", "admin"})
ADMIN: frozenset[KeyScope] = frozenset({"admin"})
_PORT = re.compile(r":\d*$")


class Access:
    """Decides for each request. `local_only`: the service listens on loopback, so other machines cannot call it."""

    def __init__(self, ring: Ring, proxies: Proxies, *, names: Collection[str], local_only: bool) -> None:
        self._ring = ring
        self._proxies = proxies
        self._names = LOCAL_NAMES | {name.lower() for name in names}
        self._local_only = local_only

    def caller(self, scope: Scope) -> tuple[Caller, bool]:
        """Who calls, and whether it may see what is for operators. Raises Unauthorized, Forbidden, HostNotAllowed."""
        address = self._address(scope)
        path = scope["path"]
        if not self._ring.configured:
            if path not in OPEN_PATHS:
                self._check_host(scope)
            return Caller(address=address), self._local_only
        holder = self._holder(scope)
        if path not in OPEN_PATHS:
            _check(holder, self._needed(path))
        if holder is None:
            return Caller(address=address), self._local_only
        caller = Caller(
            tenant=holder.tenant,
            key=holder.id,
            address=address,
            batch=holder.batch,
            bulk=holder.bulk,
            limits=holder.limits,
        )
        return caller, self._local_only or "admin" in holder.scopes

    def _needed(self, path: str) -> frozenset[KeyScope]:
        if path in ADMIN_PATHS:
            return ANY if self._local_only else ADMIN
        return ANY if path == MODELS or path.startswith(f"{MODELS}/") else WORK

    def _holder(self, scope: Scope) -> Holder | None:
        scheme, _, key = (header(scope, b"authorization") or "").partition(" ")
        return self._ring.find(key.strip()) if scheme.lower() == "bearer" else None

    def _address(self, scope: Scope) -> str:
        peer = scope.get("client")
        forwarded = [str(value, "latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for"]
        return self._proxies.client(peer[0] if peer else None, forwarded)

    def _check_host(self, scope: Scope) -> None:
        """Without keys only local callers are meant: a Web page whose name points here (DNS rebinding) is not one."""
        given = header(scope, b"host")
        if sum(name == b"host" for name, _ in scope["headers"]) > 1:
            raise HostNotAllowed("The request has more than one Host header.")
        if given is not None and _PORT.sub("", given.strip()).lower() not in self._names:
            raise HostNotAllowed("This service is not called by that name.")


def _check(holder: Holder | None, needed: frozenset[KeyScope]) -> None:
    if holder is None:
        raise Unauthorized("The API key is missing, not known, or no longer valid.")
    if not holder.scopes & needed:
        raise Forbidden(f"This key does not have the scope {' or '.join(sorted(needed))}.")
