"""What comes over the wire is a checked request or a refusal that names the field, never anything else."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlens.engines import wire
from twinlens.errors import InvalidField

PLAIN: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}]}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from([*wire.Chat.__struct_fields__, "unknown"])


@given(st.dictionaries(FIELDS, JSON, max_size=4))
def test_any_fields_are_taken_or_named(fields: dict[str, Any]) -> None:
    with contextlib.suppress(InvalidField):
        assert wire.read_chat(json.dumps({**PLAIN, **fields}).encode()).messages


@given(st.binary(max_size=60))
def test_any_bytes_are_refused_cleanly(body: bytes) -> None:
    with contextlib.suppress(InvalidField):
        wire.read_chat(body)


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(InvalidField):
        wire.read_chat(b'{"messages":' + b"[" * 100_000)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 0}, "n"),
        ({"temperature": -1}, "temperature"),
        ({"stop": [1]}, "stop[0]"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0]"),
    ],
)
def test_the_field_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidField) as refused:
        wire.read_chat(json.dumps({**PLAIN, **fields}).encode())
    assert refused.value.param == param


def test_unknown_fields_are_no_fault() -> None:
    assert wire.read_chat(json.dumps({**PLAIN, "metadata": {}, "foo": 1}).encode()).n == 1
