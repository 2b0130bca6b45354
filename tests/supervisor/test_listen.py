"""The listening socket: what is refused, and with which words."""

from __future__ import annotations

import os
import socket
from dataclasses import replace

import pytest

from twinlens.errors import OperatorError, SettingsError
from twinlens.settings import Settings
from twinlens.supervisor.listen import holder, is_loopback, listen, url_of

FREE = Settings(port=0)


def test_a_free_port_is_taken_and_shown() -> None:
    with listen(FREE) as sock:
        assert url_of(sock) == f"http://127.0.0.1:{sock.getsockname()[1]}"
        socket.create_connection(sock.getsockname(), 1).close()


def test_a_taken_port_is_named_with_the_process_that_has_it() -> None:
    with listen(FREE) as sock, pytest.raises(OperatorError) as caught:
        port = sock.getsockname()[1]
        listen(replace(FREE, port=port))
    assert f"Port {port} on 127.0.0.1 is taken by process {os.getpid()} (" in caught.value.message
    assert "--port" in caught.value.cure


def test_nobody_holds_a_free_port() -> None:
    with listen(FREE) as sock:
        port = sock.getsockname()[1]
        assert holder(port) == os.getpid()
    assert holder(port) == 0


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_other_machines_are_let_in_only_with_keys(host: str) -> None:
    with pytest.raises(SettingsError, match="there are no keys") as caught:
        listen(replace(FREE, host=host or "0.0.0.0"))
    assert "TWINLENS_API_KEYS" in caught.value.cure
    with listen(replace(FREE, host=host or "0.0.0.0", api_keys=("k",))) as sock:
        assert url_of(sock).startswith(("http://127.0.0.1:", "http://[::1]:"))
    listen(replace(FREE, host=host or "0.0.0.0"), keys=True).close()


def test_a_name_is_resolved_and_prefers_ipv4() -> None:
    with listen(replace(FREE, host="localhost")) as sock:
        assert sock.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_ipv6(host: str) -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    with listen(replace(FREE, host=host)) as sock:
        assert url_of(sock) == f"http://[::1]:{sock.getsockname()[1]}"


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("no-such-host.invalid", "not an address or a name"),
        ("a..b", "not an address or a name"),
        ("192.0.2.1", "not an address of this machine"),
    ],
)
def test_a_host_that_cannot_be_used_is_named(host: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        listen(replace(FREE, host=host, api_keys=("k",)))


def test_a_port_out_of_range_is_named() -> None:
    with pytest.raises(SettingsError, match="65536"):
        listen(replace(FREE, port=65536))


@pytest.mark.parametrize(
    ("host", "local"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("::ffff:127.0.0.1", True), ("0.0.0.0", False),
     ("::", False), ("10.0.0.1", False), ("fe80::1%lo", False)],
)  # fmt: skip
def test_loopback(host: str, local: bool) -> None:
    assert is_loopback(host) is local
