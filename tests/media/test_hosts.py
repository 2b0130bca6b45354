from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlens.errors import SettingsError
from twinlens.media.hosts import Hosts, is_odd_number, is_public

INSIDE = [
    "127.0.0.1",
    "127.255.255.254",
    "0.0.0.0",
    "10.0.0.5",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "169.254.169.254",
    "168.63.129.16",
    "100.100.100.200",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "2002:7f00:1::1",
    "2002:a00:5::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:db8::1",
    "3fff::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
    "not an address",
    "",
]
OUTSIDE = ["8.8.8.8", "93.184.216.34", "2606:2800:220:1::1", "::ffff:8.8.8.8", "64:ff9b::808:808"]


@pytest.mark.parametrize("address", INSIDE)
def test_url_01_what_is_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", OUTSIDE)
def test_what_is_public(address: str) -> None:
    assert is_public(address)


@given(st.ip_addresses())
def test_what_the_standard_library_calls_private_is_never_public(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    if address.is_private or address.is_loopback or address.is_link_local or address.is_multicast:
        mapped = getattr(address, "ipv4_mapped", None)
        assert not is_public(str(address)) or (mapped is not None and is_public(str(mapped)))


@given(st.ip_addresses(v=4))
def test_an_address_inside_an_address_is_judged_alike(address: ipaddress.IPv4Address) -> None:
    number = int(address)
    for outer in (0xFFFF << 32, 0x64FF9B << 96):
        assert is_public(str(ipaddress.IPv6Address(outer | number))) == is_public(str(address))


@pytest.mark.parametrize("host", ["2130706433", "0x7f000001", "017700000001", "127.1", "0x7f.1", "1.2.3.4.5", "0"])
def test_numbers_that_resolvers_take_for_addresses(host: str) -> None:
    assert is_odd_number(host)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "example.org", "1.example.org", "0x7f.example.org", "a1"])
def test_names_and_plain_addresses_are_no_such_numbers(host: str) -> None:
    assert not is_odd_number(host)


def test_the_list_of_hosts() -> None:
    hosts = Hosts(["img.example.org", "*.cdn.example.org", "Other.example.org:8443", "BÜCHER.example", "203.0.113.7"])
    assert hosts.allow("img.example.org", 443)
    assert hosts.allow("a.cdn.example.org", 443)
    assert hosts.allow("a.b.cdn.example.org", 443)
    assert hosts.allow("other.example.org", 8443)
    assert hosts.allow("xn--bcher-kva.example", 443)
    assert hosts.allow("203.0.113.7", 443)
    for host, port in (
        ("cdn.example.org", 443),
        ("img.example.org", 8443),
        ("other.example.org", 443),
        ("evilimg.example.org", 443),
        ("img.example.org.evil.example", 443),
        ("acdn.example.org", 443),
        ("127.0.0.1", 443),
    ):
        assert not hosts.allow(host, port), host


def test_all_public_hosts() -> None:
    assert Hosts(["*"]).allow("anything.example", 443)
    assert not Hosts(["*"]).allow("anything.example", 8443)
    assert Hosts(["*", "*:8443"]).allow("anything.example", 8443)
    assert Hosts(["[2001:db8::7]:8443"]).allow("2001:db8::7", 8443)
    assert not Hosts([])


@pytest.mark.parametrize(
    "entry",
    ["", "https://a.example", "a.example/x", "a*.example", "*.*.example", "a.example:0", "a.example:x", "0x7f.1"],
)
def test_entries_that_name_no_host(entry: str) -> None:
    with pytest.raises(SettingsError):
        Hosts([entry])
