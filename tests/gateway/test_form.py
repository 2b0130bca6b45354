"""A form means the same however the network cuts it, and no bytes break its reading."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlens.errors import InvalidRequest, TwinlensError, UnsupportedMediaType
from twinlens.gateway.form import MOST_PARTS, Form, check_head

LIMIT = 1 << 20
WHOLE = (
    b'--edge\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nvision\r\n'
    b'--edge\r\nContent-Disposition: form-data; name="file"; filename="a b.png"\r\nContent-Type: image/png\r\n\r\n'
    b"\x89PNG\r\n--edg\r\n--edgy \r\n\0\r\n--edge--\r\n"
)


def read(pieces: list[bytes], boundary: bytes = b"edge") -> tuple[dict[str, str], str | None, bytes]:
    form = Form(boundary, LIMIT)
    data = b""
    for piece in pieces:
        form.feed(piece)
        data += form.taken()
    form.finish()
    assert form.size == len(data)
    return form.fields, form.filename, data


@given(st.lists(st.integers(0, len(WHOLE)), max_size=12))
def test_a_form_is_the_same_wherever_it_is_cut(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(WHOLE)]
    pieces = [WHOLE[at:end] for at, end in itertools.pairwise(places)]
    fields, name, data = read(pieces)
    assert (fields, name) == ({"purpose": "vision"}, "a b.png")
    assert data == b"\x89PNG\r\n--edg\r\n--edgy \r\n\0"


@given(st.lists(st.binary(max_size=80), max_size=8), st.integers(0, len(WHOLE)))
def test_no_bytes_break_the_reading(pieces: list[bytes], kept: int) -> None:
    try:
        read([WHOLE[:kept], *pieces])
    except TwinlensError as error:
        assert error.status in (400, 413)


@pytest.mark.parametrize(
    "body",
    [
        b'--edge\r\nContent-Disposition: form-data; name="x"; y="' + b"a" * 5_000_000,
        b"--edge\r\n" + b"a" * 5_000_000,
        b"--edge\r\n" + b"a: b\r\n" * 500_000,
        b"x" * 5_000_000,
        b'--edge\r\nContent-Disposition: form-data; name="x"\r\n\r\n\r\n' * (MOST_PARTS + 1),
    ],
    ids=["value", "name", "headers", "nothing", "parts"],
)
def test_sec_12_what_goes_on_for_ever_is_refused(body: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(InvalidRequest):
        read([body[at : at + 65536] for at in range(0, len(body), 65536)])
    assert not caplog.records  # a client's fault is told to the client


@given(st.binary(max_size=200))
def test_no_content_type_breaks_the_reading(value: bytes) -> None:
    for kind in (value, b"multipart/form-data; boundary=" + value):
        try:
            boundary = check_head({"headers": [(b"content-type", kind)]}, LIMIT)
        except (InvalidRequest, UnsupportedMediaType):
            continue
        assert 0 < len(boundary) <= 70
