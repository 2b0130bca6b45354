"""From where on the network a picture may be fetched: names by the operator's list, addresses by being public.

Both have to agree: a host that the operator lists and whose name leads inside is refused all the same.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING

from twinlens.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterable

HTTPS = 443
EVERY = "*"

_NAME = re.compile(r"(?:\*\.)?(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
# What resolvers take for a number that means an IPv4 address: 127.1, 0x7f000001, 017700000001, 2130706433.
_NUMBER = re.compile(r"(?:.*\.)?(?:[0-9]+|0[xX][0-9a-fA-F]*)")

# Besides what `is_global` of the standard library says, which differs between its versions.
_SPECIAL = tuple(
    map(
        ipaddress.ip_network,
        (
            "0.0.0.0/8",
            "100.64.0.0/10",
            "168.63.129.16/32",  # Azure's platform address, which every machine there can reach
            "169.254.0.0/16",
            "192.0.0.0/24",
            "192.88.99.0/24",  # 6to4 relays
            "198.18.0.0/15",
            "224.0.0.0/3",  # multicast, reserved, broadcast
            "64:ff9b:1::/48",  # translation of local use
            "2001::/23",  # Teredo and other protocol assignments
            "2001:db8::/32",
            "3fff::/20",
        ),
    )
)
_UNICAST = ipaddress.ip_network("2000::/3")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def is_public(address: str) -> bool:
    """Whether this is the address of one machine on the public Internet. An address inside an address counts too."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:  # a scope id for one
        return False
    if isinstance(found, ipaddress.IPv4Address):
        return found.is_global and not _is_special(found)
    inner = found.ipv4_mapped or found.sixtofour
    if inner is None and found in _NAT64:
        inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
    if inner is not None:
        return is_public(str(inner))
    return found in _UNICAST and found.is_global and not _is_special(found)


def _is_special(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return any(address in network for network in _SPECIAL if network.version == address.version)


def is_literal(host: str) -> bool:
    """Whether this is an IP address and no name. `host` without brackets."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_odd_number(host: str) -> bool:
    """Whether a resolver might take this for an address, although it is not written as one."""
    return not is_literal(host) and _NUMBER.fullmatch(host) is not None


class Hosts:
    """The operator's list. Entries: `img.example.org`, `*.example.org` (not example.org itself), `host:8443`, `*`."""

    def __init__(self, entries: Iterable[str]) -> None:
        """Raises SettingsError for an entry that names no host."""
        self._exact: set[tuple[str, int]] = set()
        self._below: set[tuple[str, int]] = set()
        self._ports_of_all: set[int] = set()
        for entry in entries:
            self._add(entry)

    def __bool__(self) -> bool:
        return bool(self._exact or self._below or self._ports_of_all)

    def allow(self, host: str, port: int) -> bool:
        """Whether the list has this host. `host` in lower case, in ASCII, without brackets and without a last dot."""
        if port in self._ports_of_all or (host, port) in self._exact:
            return True
        if is_literal(host):
            return False
        labels = host.split(".")
        return any((".".join(labels[at:]), port) in self._below for at in range(1, len(labels)))

    def _add(self, entry: str) -> None:
        host, port = _split(entry)
        if host == EVERY:
            self._ports_of_all.add(port)
        elif host.startswith("*."):
            self._below.add((host[2:], port))
        else:
            self._exact.add((host, port))


def _split(entry: str) -> tuple[str, int]:
    text = entry.strip().lower()
    host, port = text, HTTPS
    found = re.fullmatch(r"(\[[0-9a-f:.]+\]|[^:\[\]]+):([0-9]{1,5})", text)
    if found:
        host, port = found[1], int(found[2])
    host = host.removeprefix("[").removesuffix("]").removesuffix(".")
    try:
        ascii_host = host if is_literal(host) or host == EVERY else host.encode("idna").decode()
    except UnicodeError:
        ascii_host = ""
    fits = is_literal(ascii_host) or ascii_host == EVERY or _NAME.fullmatch(ascii_host)
    if not fits or is_odd_number(ascii_host) or not 0 < port < 65536:
        raise SettingsError(
            f"url_hosts: “{entry[:80]}” names no host.",
            cure="Write img.example.org, *.example.org, img.example.org:8443, or * for all public hosts.",
        )
    return ascii_host, port
