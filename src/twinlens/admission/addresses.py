"""Which client a connection stands for, as far as anybody can be believed.

X-Forwarded-For is a list to which every proxy appends the address that it saw, so only what our own proxies wrote can
be true: it is read from the right, past addresses of trusted proxies, and the first other one is the client. Whatever
stands left of it the client may have made up. Without trusted proxies the header is not looked at.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import TYPE_CHECKING

from twinlens.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Sequence

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

MAX_HOPS = 16  # entries that are looked at: more proxies than anybody has in a row
SITE = 64  # bits of an IPv6 address that one customer of a provider shares
LOCAL = "local"  # a peer without an address, such as one on a Unix socket


class Proxies:
    """The proxies that are believed. Raises SettingsError for a range that is none."""

    def __init__(self, ranges: Sequence[str]) -> None:
        self._networks = [_network(text) for text in ranges]

    def client(self, peer: str | None, forwarded: Sequence[str]) -> str:
        """The client of a connection from `peer`, as limits count it; `forwarded`: X-Forwarded-For, in order."""
        if not self._networks:
            return counted(peer or "")
        nearest = read(peer or "")
        if nearest is None or not self._trusts(nearest):
            return counted(peer or "")
        hops = ",".join(forwarded).rsplit(",", MAX_HOPS)[-MAX_HOPS:] if forwarded else []
        for text in reversed(hops):
            hop = read(text)
            if hop is None:  # not an address: whoever wrote it is as far as we can see
                break
            nearest = hop
            if not self._trusts(hop):
                break
        return _shown(nearest)

    def _trusts(self, address: Address) -> bool:
        return any(address in network for network in self._networks)


@lru_cache(maxsize=4096)
def counted(peer: str) -> str:
    """A peer's address as limits count it: IPv6 by its /64."""
    address = read(peer)
    return _shown(address) if address else LOCAL


def read(text: str) -> Address | None:
    """An address out of a header or of a socket, with or without a port, brackets or zone; None for anything else."""
    text = text.strip()[:64]
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:  # an IPv4 address with its port
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, ipaddress.IPv6Address) else address


def _shown(address: Address) -> str:
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    return str(ipaddress.IPv6Network((address, SITE), strict=False))


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text.strip(), strict=False)
    except ValueError as error:
        raise SettingsError(
            f"trusted_proxies: “{text[:60]}” is not an address or a range.", cure="Write 10.0.0.7 or 10.0.0.0/8."
        ) from error
