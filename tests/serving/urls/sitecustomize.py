"""For tests only: in the gateway's process names that end in .test lead to loopback, and loopback counts as public.

It stands in the path of the processes that a test starts; no setting of the service does what is done here.
"""

from __future__ import annotations

import sys

if "twinlens.gateway.worker" in sys.orig_argv:
    from twinlens.media import fetch
    from twinlens.media.hosts import is_public

    def _public(address: str) -> bool:
        return address == "127.0.0.1" or is_public(address)

    async def _lookup(host: str, port: int) -> list[str]:
        return ["10.9.8.7"] if host.startswith("inner.") else ["127.0.0.1"]

    setattr(fetch, "is_public", _public)  # noqa: B010 - not an export of that module
    setattr(fetch, "resolve", _lookup)  # noqa: B010
