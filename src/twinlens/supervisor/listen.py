"""The listening socket. The supervisor binds it and every gateway worker inherits it, so that a worker's death never
closes the port: connections wait in the kernel's queue for its successor."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from twinlens.errors import OperatorError, SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinlens.settings import Settings

BACKLOG = 2048


def listen(settings: Settings, *, keys: bool = False) -> socket.socket:
    """Bind and listen; `keys` tells whether clients need one although none are in the settings.

    Raises SettingsError for an address that may not or cannot be used, OperatorError for a port that is taken, naming
    who has it where the kernel tells.
    """
    family, address = _resolve(settings.host, settings.port)
    if not (keys or settings.api_keys) and not is_loopback(address[0]):
        raise SettingsError(
            f"host: {settings.host} can be reached from other machines, and there are no keys.",
            cure="Make one with “twinlens keys new --tenant NAME”, set TWINLENS_API_KEYS, or listen on 127.0.0.1.",
        )
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # "::" means every address of the machine, of both families; any other address is of one family anyway.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(address[0] != "::"))
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise _refusal(error, settings.host, address) from error
    sock.setblocking(False)
    return sock


def url_of(sock: socket.socket) -> str:
    """Where a client on this machine reaches the socket."""
    host, port = sock.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether a numeric address is reachable from this machine only."""
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    name = host.removeprefix("[").removesuffix("]")
    if not 0 <= port <= 65535:
        raise SettingsError(f"port: {port} is not between 0 and 65535.")
    try:
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise SettingsError(
            f"host: “{host}” is not an address or a name that resolves on this machine.",
            cure="Give an address of this machine, such as 127.0.0.1.",
        ) from error
    # A name such as localhost often has both families; clients try the IPv4 address in any case.
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return family, (str(address[0]), port)


def _refusal(error: OSError, host: str, address: tuple[str, int]) -> OperatorError:
    port = address[1]
    if error.errno == errno.EADDRINUSE:
        pid = holder(port)
        return OperatorError(
            f"Port {port} on {host} is taken" + (f" by process {pid} ({_name_of(pid)})." if pid else "."),
            cure="Stop that process, or choose another port with --port (0 takes a free one).",
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return SettingsError(f"port: {port} is not allowed to this user.", cure="Choose a port above 1023 with --port.")
    if error.errno == errno.EADDRNOTAVAIL:
        return SettingsError(
            f"host: {address[0]} is not an address of this machine.", cure="See “ip addr” for the addresses it has."
        )
    return OperatorError(
        f"Cannot listen on {host} port {port}: {error.strerror}.", cure="Choose another --host or --port."
    )


def holder(port: int) -> int:
    """The process that listens on a TCP port; 0 where the kernel does not tell (another user's process)."""
    inodes = set(_listening(port))
    for folder in Path("/proc").glob("[0-9]*") if inodes else ():
        if inodes & _open_files(folder / "fd"):
            return int(folder.name)
    return 0


def _open_files(folder: Path) -> set[str]:
    """What the descriptors of a process point at; empty where it ended meanwhile or belongs to somebody else."""
    found = set()
    with contextlib.suppress(OSError):
        for descriptor in list(folder.iterdir()):
            with contextlib.suppress(FileNotFoundError):  # closed since the listing
                found.add(str(descriptor.readlink()))
    return found


def _listening(port: int) -> Iterator[str]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            columns = line.split()
            if columns[3] == "0A" and int(columns[1].rpartition(":")[2], 16) == port:
                yield f"socket:[{columns[9]}]"


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "ended"
