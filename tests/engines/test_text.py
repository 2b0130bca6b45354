"""Text that can be shown: whole characters, and nothing from a stop string on."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from twinlens.engines.openvino.text import Decoder, Stops, Vocabulary


def pieces_of(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    return [data[start:end] for start, end in itertools.pairwise(places)]


CUTS = st.lists(st.integers(0, 60), max_size=12)


@given(st.text(max_size=30), CUTS)
def test_characters_are_never_broken(text: str, cuts: list[int]) -> None:
    decoder = Decoder()
    shown = [decoder.feed(piece) for piece in pieces_of(text.encode("utf-8", "surrogatepass"), cuts)]
    whole = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    assert "".join(shown) + decoder.end() == whole


@given(st.binary(max_size=30), CUTS)
def test_any_bytes_become_the_same_text_however_they_are_cut(data: bytes, cuts: list[int]) -> None:
    decoder = Decoder()
    shown = [decoder.feed(piece) for piece in pieces_of(data, cuts)]
    assert "".join(shown) + decoder.end() == data.decode("utf-8", "replace")


def test_a_character_cut_off_at_the_end_is_marked() -> None:
    decoder = Decoder()
    assert decoder.feed("é".encode()[:1]) == ""
    assert decoder.end() == "\ufffd"


SHORT = st.text(alphabet="abc", min_size=1, max_size=4)


@given(
    st.text(alphabet="abc", max_size=40),
    st.lists(st.integers(0, 40), max_size=12),
    st.lists(SHORT, min_size=1, max_size=3),
)
def test_stops_as_if_the_text_came_whole(text: str, cuts: list[int], stops: list[str]) -> None:
    found = [(text.find(stop), stop) for stop in stops if stop in text]
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    matcher = Stops(stops)
    shown = ""
    for start, end in itertools.pairwise(places):
        shown += matcher.feed(text[start:end])
        if matcher.hit:
            break
    # Which of several stop strings ends the text can depend on what was there first; one that ends it does end it.
    if not found:
        assert not matcher.hit
        assert shown + matcher.end() == text
    else:
        assert matcher.hit
        assert text.startswith(shown)
        assert not any(stop in shown for stop in stops)
        assert any(text[len(shown) :].startswith(stop) for stop in stops)


@given(st.text(alphabet="ab", max_size=30), SHORT)
def test_never_holds_back_more_than_it_must(text: str, stop: str) -> None:
    matcher = Stops([stop])
    shown = matcher.feed(text)
    assert matcher.hit or len(text) - len(shown) < len(stop)


def test_after_a_stop_nothing_more_is_shown() -> None:
    matcher = Stops(["END"])
    assert matcher.feed("one E") == "one "
    assert matcher.feed("ND two") == ""
    assert matcher.hit
    assert matcher.feed("three") == ""
    assert matcher.end() == ""


def test_special_tokens_and_padding_have_no_text() -> None:
    vocabulary = Vocabulary({b"a": 0, b"<|im_end|>": 1}, frozenset(["<|im_end|>"]))
    assert [vocabulary.data(token) for token in (0, 1, 2, 9999)] == [b"a", b"", b"", b""]
