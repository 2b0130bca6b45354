"""Headers: every value survives, every damage is found."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlens.store.header import DTYPES, MAX_DIMENSIONS, SIZE, BadHeader, Header, unpack

KEYS = st.text("0123456789abcdef", min_size=32, max_size=128)
SHAPES = st.lists(st.integers(0, 30), max_size=MAX_DIMENSIONS).map(tuple)
HEADERS = st.builds(
    Header,
    key=KEYS,
    kind=st.from_regex(r"[a-z][a-z0-9_]{0,15}", fullmatch=True),
    dtype=st.sampled_from(sorted(DTYPES)),
    shape=SHAPES,
    checksum=st.integers(0, 2**64 - 1),
)


@given(HEADERS)
def test_what_is_packed_is_unpacked(header: Header) -> None:
    packed = header.pack()
    assert len(packed) == SIZE
    assert unpack(packed, key=header.key, file_size=SIZE + header.length) == header


@given(HEADERS, st.integers(0, SIZE - 1), st.integers(1, 255))
def test_any_changed_byte_is_found(header: Header, place: int, flip: int) -> None:
    packed = bytearray(header.pack())
    packed[place] ^= flip
    with pytest.raises(BadHeader):
        unpack(bytes(packed), key=header.key, file_size=SIZE + header.length)


@given(st.binary(max_size=2 * SIZE), KEYS, st.integers(0, 2**63))
def test_other_bytes_are_refused(data: bytes, key: str, size: int) -> None:
    with pytest.raises(BadHeader):
        unpack(data, key=key, file_size=size)


@given(HEADERS, st.integers(0, 2**40))
def test_the_file_is_exactly_as_long_as_the_header_says(header: Header, size: int) -> None:
    if size == SIZE + header.length:
        size += 1
    with pytest.raises(BadHeader):
        unpack(header.pack(), key=header.key, file_size=size)


@given(HEADERS, KEYS)
def test_an_object_answers_to_its_own_key_only(header: Header, key: str) -> None:
    if key == header.key:
        key = "0" * 32 + key[:90]
    with pytest.raises(BadHeader):
        unpack(header.pack(), key=key, file_size=SIZE + header.length)


@pytest.mark.parametrize(
    "change",
    [
        {"key": "../../etc/passwd"},
        {"key": "ab" * 15},
        {"kind": "Pixels"},
        {"kind": ""},
        {"dtype": "|O"},
        {"dtype": "<U8"},
        {"dtype": ">f4"},
        {"shape": (-1,)},
        {"shape": (1,) * 9},
        {"shape": (2**62, 2**62)},
    ],
)
def test_values_out_of_range_make_no_header(change: dict[str, object]) -> None:
    fields: dict[str, object] = {"key": "ab" * 16, "kind": "pixels", "dtype": "|u1", "shape": (2, 3)}
    Header(**fields)  # type: ignore[arg-type]
    with pytest.raises(BadHeader):
        Header(**(fields | change))  # type: ignore[arg-type]


def test_every_dtype_is_one_of_numpy() -> None:
    for name in DTYPES:
        assert np.dtype(name).str == name
