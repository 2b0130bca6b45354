"""The address of an attached engine: what is taken, what is refused, and that its secrets are shown nowhere."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlens.errors import SettingsError
from twinlens.settings import Settings, without_userinfo
from twinlens.supervisor.address import attached


def address(url: str, key: str = "") -> str:
    return attached(Settings(engine_url=url, engine_api_key=key)).url


@pytest.mark.parametrize(
    ("given_", "taken"),
    [
        ("http://127.0.0.1:8001", "http://127.0.0.1:8001"),
        ("http://127.0.0.1:8001/", "http://127.0.0.1:8001"),
        ("http://127.0.0.1:8001/v1", "http://127.0.0.1:8001"),
        (" HTTP://gpu-box:8001/v1/ ", "http://gpu-box:8001"),
        ("https://gpu.example", "https://gpu.example"),
        ("http://[::1]:8001/v1", "http://[::1]:8001"),
        ("http://user:pass@gpu:8001", "http://user:pass@gpu:8001"),
        ("unix:/run/e.sock", "unix:/run/e.sock"),
        ("unix:///run/e.sock", "unix:/run/e.sock"),
    ],
)
def test_an_address_is_normalised_once(given_: str, taken: str) -> None:
    assert address(given_) == taken


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("foo", "does not begin with"),
        ("localhost:8001", "does not begin with"),
        ("ftp://h", "does not begin with"),
        ("unix:relative", "is not an absolute path"),
        ("unix:/" + "x" * 120, "too long"),
        ("http://", "names no host"),
        ("http://:8001", "names no host"),
        ("http://h:0", "names no host and port"),
        ("http://h:99999", "is not an address"),
        ("http://h:port", "is not an address"),
        ("http://[::1", "is not an address"),
        ("http://h/openai", "goes on behind"),
        ("http://h:1/v1/chat/completions", "goes on behind"),
        ("http://h:1?x=1", "goes on behind"),
        ("http://a b", "spaces or control"),
        ("http://a\nb", "spaces or control"),
    ],
)
def test_what_is_no_address_is_refused_before_anything_starts(url: str, why: str) -> None:
    with pytest.raises(SettingsError, match=why) as caught:
        address(url)
    assert "unix:/path" in caught.value.cure


def test_a_user_and_a_key_at_once_are_refused_without_being_shown() -> None:
    with pytest.raises(SettingsError, match="engine_api_key is set") as caught:
        address("http://user:hidden@h:1", "key")
    assert "hidden" not in str(caught.value)


def test_the_key_travels_with_its_address_and_is_in_no_repr() -> None:
    found = attached(Settings(engine_url="http://u:hidden@h:1"))
    assert "hidden" not in repr(found)
    found = attached(Settings(engine_url="http://h:1", engine_api_key="hidden"))
    assert found.key == "hidden"
    assert "hidden" not in repr(found)


@given(st.text(max_size=60))
def test_whatever_is_given_is_taken_or_refused_in_words(url: str) -> None:
    with contextlib.suppress(SettingsError):
        assert address(url).startswith(("http://", "https://", "unix:/"))


@given(st.sampled_from(["http://", "https://", "http:/", "HTTP:", "//", ""]), st.text("ab:/@ %", max_size=12))
def test_no_password_is_ever_shown_however_wrong_the_address_is(scheme: str, user: str) -> None:
    assert "secret" not in without_userinfo(f"{scheme}{user}:secret@host:1")
    assert without_userinfo(f"{scheme}{user}:secret@host:1").endswith("@host:1")
