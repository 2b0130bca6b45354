"""Bodies become requests, or a 4xx that names the field."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlens.core import Abilities, ImagePart, Request, TextPart
from twinlens.errors import (
    InvalidField,
    InvalidRequest,
    ModelNotFound,
    NotHere,
    TooManyImages,
    TwinlensError,
    UnsupportedField,
)
from twinlens.gateway.parse import Parser, body_of
from twinlens.gateway.wire import ChatBody, InferenceBody
from twinlens.settings import Settings

PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
FIRST = "messages[0].content[0]"
ABLE = Abilities(logprobs=True, max_n=4)


def parsed(body: dict[str, Any], abilities: Abilities = ABLE, **settings: Any) -> Request:
    full = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **body}
    read, _ = body_of(msgspec.json.encode(full), ChatBody)
    return Parser(Settings(**settings), "m").chat(read, "id", abilities)


def refused(body: dict[str, Any], kind: type[TwinlensError], param: str | None, **settings: Any) -> TwinlensError:
    with pytest.raises(kind) as error:
        parsed(body, **settings)
    assert error.value.param == param
    assert 400 <= error.value.status < 500
    return error.value


def content(*parts: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(parts)}]}


def test_api_21_pictures_and_text_keep_their_order() -> None:
    text = [{"type": "text", "text": t} for t in "ABC"]
    request = parsed(content(text[0], PICTURE, text[1], PICTURE, text[2]))
    assert request.messages[0].parts == (TextPart("A"), ImagePart(0), TextPart("B"), ImagePart(1), TextPart("C"))
    assert [image.where for image in request.images] == ["messages[0].content[1]", "messages[0].content[3]"]


@pytest.mark.parametrize(
    ("part", "param"),
    [
        ({"type": "image_url"}, "messages[0].content[0].image_url"),
        ({"type": "image_url", "image_url": {}}, "messages[0].content[0].image_url.url"),
        ({"type": "image_url", "image_url": None}, "messages[0].content[0].image_url"),
        ({"type": "image_url", "image_url": {"url": None}}, "messages[0].content[0].image_url.url"),
        ({"type": "image_url", "image_url": {"url": ""}}, "messages[0].content[0].image_url.url"),
        (
            {"type": "image_url", "image_url": {"url": "x", "detail": "ultra"}},
            "messages[0].content[0].image_url.detail",
        ),
        ({"type": "image_url", "image_url": {"url": "x", "detail": "LOW"}}, "messages[0].content[0].image_url.detail"),
        ({"type": "text"}, "messages[0].content[0].text"),
        ({"type": "text", "text": 5}, "messages[0].content[0].text"),
        ({"type": "shape"}, "messages[0].content[0].type"),
        ({"text": "no type"}, "messages[0].content[0].type"),
    ],
)
def test_api_15_bad_parts_are_named(part: dict[str, Any], param: str) -> None:
    refused(content(part), InvalidField, param)


def test_api_15_a_bare_string_is_taken_as_the_url() -> None:
    request = parsed(content({"type": "image_url", "image_url": "data:image/png;base64,AAAA"}))
    assert request.images[0].url == "data:image/png;base64,AAAA"


@pytest.mark.parametrize("detail", ["auto", "low", "high", None])
def test_api_16_detail(detail: str | None) -> None:
    request = parsed(content({"type": "image_url", "image_url": {"url": "x", "detail": detail}}))
    assert request.images[0].detail == (detail or "auto")


@pytest.mark.parametrize("kind", ["input_audio", "video_url", "video", "image_embeds"])
def test_what_is_not_here_is_said(kind: str) -> None:
    refused(content({"type": kind, kind: {}}), NotHere, "messages[0].content[0]")


def test_api_12_a_refusal_in_the_history_is_what_was_said() -> None:
    said = {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
    assert parsed({"messages": [{"role": "user", "content": "hi"}, said]}).messages[1].parts == (TextPart("No."),)
    refused(content({"type": "refusal", "refusal": "No."}), InvalidField, f"{FIRST}.type")


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        (
            content({"type": "image_url", "image_url": {"url": "x", "detail": "LOW"}}),
            f"{FIRST}.image_url.detail",
            "“high”",
        ),
        ({"messages": [{"role": "User", "content": "x"}]}, "messages[0].role", "“assistant”"),
        ({"response_format": {"type": "grammar"}}, "response_format.type", "“json_schema”"),
    ],
)
def test_api_16_what_a_field_may_be_is_listed(body: dict[str, Any], param: str, words: str) -> None:
    assert words in refused(body, InvalidField, param).message


@pytest.mark.parametrize(
    ("turns", "roles"),
    [
        (
            [
                {"role": "user", "content": "a"},
                {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
                {"role": "tool", "content": "r", "tool_call_id": "1"},
                {"role": "user", "content": "b"},
            ],
            ["user", "assistant", "tool", "user"],
        ),
        ([{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}], ["user", "assistant"]),
        ([{"role": "user", "content": "a"}, {"role": "assistant"}], ["user", "assistant"]),
        ([{"role": "developer", "content": "a"}, {"role": "user", "content": "b"}], ["system", "user"]),
    ],
)
def test_api_12_history_is_taken_as_clients_replay_it(turns: list[Any], roles: list[str]) -> None:
    assert [message.role for message in parsed({"messages": turns}).messages] == roles


def test_api_11_unknown_fields_are_named_and_harmless_ones_taken() -> None:
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "store": False,
        "metadata": {},
        "parallel_tool_calls": True,
        "service_tier": "auto",
        "foo": 1,
    }
    _, ignored = body_of(msgspec.json.encode(body), ChatBody)
    assert ignored == ("foo",)


@pytest.mark.parametrize(
    "field",
    ["prompt_embeds", "chat_template", "chat_template_kwargs", "guided_regex", "guided_json", "logit_bias", "grammar"],
)
def test_sec_01_sec_03_fields_for_the_engine_alone_are_refused(field: str) -> None:
    refused({field: {"a": "b"}}, UnsupportedField, field)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"max_tokens": "10"}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"n": 0}, "n"),
        ({"stop": [""]}, "stop[0]"),
        ({"stop": 5}, "stop"),
        ({"seed": "x"}, "seed"),
        ({"stream": "yes"}, "stream"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "robot", "content": ""}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"stop": "x", "response_format": {"type": "json_object"}}, "stop"),
        ({"model": None}, "model"),
    ],
)
def test_wrong_values_are_named(body: dict[str, Any], param: str) -> None:
    refused(body, InvalidField, param)


@pytest.mark.parametrize(
    "body",
    [
        {"stop": ["x"] * 100_000},
        {"n": 10_000},
        {"logprobs": True, "top_logprobs": 10_000},
        {"logit_bias": {str(n): 1 for n in range(200_000)}},
        {"messages": [{"role": "user", "content": "x"}] * 30_000},
    ],
)
def test_sec_12_long_lists_are_refused_quickly(body: dict[str, Any]) -> None:
    raw = msgspec.json.encode({"model": "m", "messages": [{"role": "user", "content": "hi"}], **body})
    start = time.monotonic()
    with pytest.raises(InvalidRequest):
        read, _ = body_of(raw, ChatBody)
        Parser(Settings(), "m").chat(read, "id", ABLE)
    assert time.monotonic() - start < 0.5


def test_api_10_the_newer_limit_wins() -> None:
    assert parsed({"max_tokens": 50, "max_completion_tokens": 10}).sampling.max_tokens == 10


def test_api_20_pictures_are_counted_over_the_conversation() -> None:
    turns = [{"role": "user", "content": [PICTURE] * 3}, {"role": "user", "content": [PICTURE] * 2}]
    error = refused({"messages": turns}, TooManyImages, "messages", max_images=4)
    assert "5 images given, limit 4" in error.message


def test_another_model_is_not_found() -> None:
    refused({"model": "other"}, ModelNotFound, "model")


@pytest.mark.parametrize(
    ("body", "abilities", "param"),
    [
        ({"n": 3}, Abilities(max_n=1), "n"),
        ({"logprobs": True}, Abilities(logprobs=False), "logprobs"),
        ({"logprobs": True, "top_logprobs": 1}, Abilities(logprobs=True), "top_logprobs"),
        ({"tools": [{"type": "function"}]}, Abilities(tools=False), "tools"),
        ({"tool_choice": "required"}, Abilities(tools=False), "tool_choice"),
        ({"response_format": {"type": "json_object"}}, Abilities(json_schema=False), "response_format"),
    ],
)
def test_what_the_engine_cannot_do_is_refused_and_named(body: Any, abilities: Abilities, param: str) -> None:
    with pytest.raises(UnsupportedField) as error:
        parsed(body, abilities)
    assert error.value.param == param


def test_tools_reach_engines_that_can() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    request = parsed({"tools": tools, "tool_choice": "auto", "parallel_tool_calls": False}, Abilities(tools=True))
    assert request.tools == tuple(tools)
    assert (request.tool_choice, request.parallel_tool_calls) == ("auto", False)
    assert parsed({"parallel_tool_calls": True}).parallel_tool_calls is None


@pytest.mark.parametrize(
    "choice", [5, True, [], "any", {}, {"type": "function"}, {"type": "function", "function": {"name": 5}}], ids=str
)
def test_a_choice_of_tools_that_is_none(choice: Any) -> None:
    with pytest.raises(InvalidField) as error:
        parsed({"tool_choice": choice}, Abilities(tools=True))
    assert error.value.param == "tool_choice"


def test_a_tool_may_be_chosen_by_its_name() -> None:
    named = {"type": "function", "function": {"name": "f"}}
    assert parsed({"tools": [named], "tool_choice": named}, Abilities(tools=True)).tool_choice == named


def test_pictures_of_a_part_may_have_bounds() -> None:
    inside = {"type": "image_url", "image_url": {"url": "x", "min_pixels": 100, "max_pixels": 200}}
    beside = {"type": "image_url", "image_url": {"url": "x"}, "min_pixels": 100, "max_pixels": 200}
    for part in (inside, beside):
        image = parsed(content(part)).images[0]
        assert (image.min_pixels, image.max_pixels) == (100, 200)


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"5", b"null", b'"x"', b"\xff\xfe", b"[" * 100_000])
def test_what_is_not_a_json_object_is_a_clear_400(raw: bytes) -> None:
    with pytest.raises(InvalidRequest) as error:
        body_of(raw, ChatBody)
    assert error.value.status == 400


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
FIELDS = st.sampled_from([*ChatBody.__struct_fields__, "foo"])


@given(st.dictionaries(FIELDS, JSON, max_size=6))
def test_any_json_gives_a_request_or_an_error_of_the_tree(body: dict[str, Any]) -> None:
    full = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **body}
    try:
        read, _ = body_of(msgspec.json.encode(full), ChatBody)
        Parser(Settings(), "m").chat(read, "id", ABLE)
    except TwinlensError as error:
        assert 400 <= error.status < 500


@given(st.lists(JSON, max_size=4))
def test_any_content_gives_a_request_or_an_error_that_names_a_place(parts: list[Any]) -> None:
    try:
        parsed({"messages": [{"role": "user", "content": parts}]})
    except InvalidRequest as error:
        assert error.param
        assert error.param.startswith("messages")


def test_the_seed_style_body() -> None:
    read, _ = body_of(b'{"image": "AAAA", "prompt": "what?"}', InferenceBody)
    request = Parser(Settings(), "m").inference(read, "id")
    assert request.messages[0].parts == (ImagePart(0), TextPart("what?"))
    assert request.images[0].where == "image"


def test_unknown_fields_are_named_with_their_places() -> None:
    body = {
        "model": "m",
        "messages": [
            {
                "role": "user",
                "odd": 1,
                "content": [
                    {"type": "image_url", "image_url": {"url": "x", "max_pixel": 5}},
                    {"type": "text", "text": "x", "zzz": 1},
                ],
            }
        ],
        "stream_options": {"xx": 1},
        "y" * 5000: 1,
    }
    _, ignored = body_of(msgspec.json.encode(body), ChatBody)
    assert set(ignored) == {
        "messages[0].odd",
        "messages[0].content[0].image_url.max_pixel",
        "messages[0].content[1].zzz",
        "stream_options.xx",
        "y" * 64,
    }


@pytest.mark.parametrize("field", [{"modalities": ["audio"]}, {"audio": {"voice": "x"}}])
def test_audio_answers_are_not_here(field: dict[str, Any]) -> None:
    refused(field, NotHere, next(iter(field)))
    parsed({"modalities": ["text"], "audio": None})


def test_what_a_template_would_write_is_bounded() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "x" * 2_000_000}}
    cases: tuple[list[Any], ...] = (
        [{"role": "assistant", "content": None, "tool_calls": [call]}],
        [{"role": "assistant", "content": None, "tool_calls": [{"a": {}}] * 5000}],
        [{"role": "user", "content": "hi", "name": "n" * 2_000_000}],
        [{"role": "user", "content": [{"type": "text", "text": "x"}] * 5000}],
    )
    for turns in cases:
        refused({"messages": turns}, InvalidField, "messages")
    with pytest.raises(InvalidField):
        parsed({"tools": [{"type": "function", "x": "y" * 2_000_000}]}, Abilities(tools=True))


def test_many_pictures_and_many_tiny_values_are_refused_before_work_is_done() -> None:
    start = time.monotonic()
    refused({"messages": [{"role": "user", "content": [PICTURE] * 20_000}]}, TooManyImages, "messages")
    with pytest.raises(InvalidRequest):
        body_of(b'{"junk":[' + b"[]," * 6_000_000 + b"[]]}", ChatBody)
    assert time.monotonic() - start < 1
