"""Whatever stands in the headers that say who calls: somebody who is known, or one of our refusals."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlens.admission.addresses import Proxies
from twinlens.admission.keys import Ring
from twinlens.errors import HostNotAllowed, Unauthorized
from twinlens.gateway.access import Access

KEY = "a-key-of-the-operator"
KEYED = Access(Ring([KEY], None), Proxies([]), names=(), local_only=True)
KEYLESS = Access(Ring([], None), Proxies([]), names=("Vision.Lab",), local_only=True)


def scope(*headers: tuple[bytes, bytes], path: str = "/v1/chat/completions") -> dict[str, Any]:
    return {"path": path, "headers": list(headers), "client": ("127.0.0.1", 9)}


@given(st.one_of(st.binary(max_size=120), st.from_regex(rb"[Bb]earer[ \t]+[^ ]{0,30}", fullmatch=True)))
def test_no_authorization_but_the_key_is_one(value: bytes) -> None:
    if KEY.encode() in value:
        return
    with pytest.raises(Unauthorized):
        KEYED.caller(scope((b"authorization", value)))


@pytest.mark.parametrize("value", ["Bearer {}", "bearer {}", "BEARER   {}  "])
def test_the_key_is_known_however_its_scheme_is_written(value: str) -> None:
    caller, operator = KEYED.caller(scope((b"authorization", value.format(KEY).encode())))
    assert caller.key
    assert operator


@pytest.mark.parametrize("value", ["Basic {}", "{}", "Bearer {} {}", "Bearer, {}", 'Bearer "{}"', "Bearer\t{}"])
def test_the_key_in_another_way_is_not(value: str) -> None:
    with pytest.raises(Unauthorized):
        KEYED.caller(scope((b"authorization", value.format(KEY, KEY).encode())))


@given(st.binary(max_size=60))
def test_no_host_but_a_local_name_is_served_without_keys(value: bytes) -> None:
    name = value.decode("latin-1").strip().lower().rpartition(":")
    known = {"localhost", "127.0.0.1", "[::1]", "vision.lab"}
    try:
        KEYLESS.caller(scope((b"host", value)))
    except HostNotAllowed:
        return
    assert name[0] in known or value.decode("latin-1").strip().lower() in known


def test_two_hosts_are_none() -> None:
    with pytest.raises(HostNotAllowed):
        KEYLESS.caller(scope((b"host", b"localhost"), (b"host", b"localhost")))
