"""X-Forwarded-For: only what our own proxies wrote is believed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlens.admission.addresses import LOCAL, Proxies, counted, read
from twinlens.errors import SettingsError

TRUSTED = Proxies(["10.0.0.0/8", "::1", "fd00::/8"])


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("203.0.113.9", ["198.51.100.1"], "203.0.113.9"),  # an untrusted peer may say what it likes
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["1.1.1.1, 198.51.100.1"], "198.51.100.1"),  # the left one is the client's own invention
        ("10.0.0.1", ["1.1.1.1, 198.51.100.1, 10.2.3.4"], "198.51.100.1"),
        ("10.0.0.1", ["1.1.1.1", "198.51.100.1"], "198.51.100.1"),  # several headers are one list
        ("10.0.0.1", ["10.5.5.5, 10.2.3.4"], "10.5.5.5"),
        ("10.0.0.1", ["198.51.100.1, nonsense"], "10.0.0.1"),
        ("10.0.0.1", ["198.51.100.1, "], "10.0.0.1"),
        ("10.0.0.1", ["nonsense, 198.51.100.1:4711"], "198.51.100.1"),
        ("::1", ["[2001:db8:1:2::7]:443"], "2001:db8:1:2::/64"),
        ("::ffff:10.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["::ffff:198.51.100.1"], "198.51.100.1"),
    ],
)
def test_rate_01_the_list_is_read_from_the_right_past_trusted_proxies(
    peer: str, forwarded: list[str], client: str
) -> None:
    assert TRUSTED.client(peer, forwarded) == client


def test_rate_01_without_trusted_proxies_the_header_is_not_looked_at() -> None:
    assert Proxies([]).client("127.0.0.1", ["198.51.100.1"]) == "127.0.0.1"


def test_a_customers_ipv6_addresses_are_one_client() -> None:
    assert counted("2001:db8:1:2:3::4") == counted("2001:db8:1:2::9%eth0") == "2001:db8:1:2::/64"
    assert counted("2001:db8:1:3::4") != counted("2001:db8:1:2::4")


@pytest.mark.parametrize("peer", [None, "", "/run/some.sock"])
def test_peers_without_an_address_are_one_client(peer: str | None) -> None:
    assert TRUSTED.client(peer, ["198.51.100.1"]) == LOCAL
    assert Proxies([]).client(peer, []) == LOCAL


@pytest.mark.parametrize("text", ["nonsense", "10.0.0.0/33", ""])
def test_a_range_that_is_none_is_named(text: str) -> None:
    with pytest.raises(SettingsError, match="trusted_proxies"):
        Proxies([text])


@given(st.text(max_size=80))
def test_no_text_breaks_the_reading(text: str) -> None:
    read(text)
    assert TRUSTED.client("10.0.0.1", [text])


@given(st.lists(st.ip_addresses().map(str), max_size=40))
def test_rate_01_what_stands_left_of_the_client_never_matters(invented: list[str]) -> None:
    assert TRUSTED.client("10.0.0.1", [", ".join([*invented, "198.51.100.1", "10.1.1.1"])]) == "198.51.100.1"
