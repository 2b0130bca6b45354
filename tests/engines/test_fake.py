"""The fake engine: deterministic, honest about being one, and wrong only in the ways that it was told to be."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import pytest

from twinlens.engines import wire
from twinlens.engines.example import example
from twinlens.engines.fake import IMAGE_TOKENS, Behaviour, FakeEngine

if TYPE_CHECKING:
    from twinlens.core import Piece, Usage


async def answer(chat: wire.Chat, **behaviour: Any) -> tuple[str, list[Piece], Usage]:
    engine = FakeEngine(Behaviour(**behaviour))
    pieces = [piece async for batch in engine.generate(chat) for piece in batch]
    assert pieces[-1].usage is not None
    assert engine.running == 0
    return "".join(piece.text for piece in pieces), pieces, pieces[-1].usage


def question(*parts: Any, **fields: Any) -> wire.Chat:
    content = [wire.TextPart(part) if isinstance(part, str) else part for part in parts]
    return wire.Chat(messages=[wire.Message("user", content)], **fields)


def picture(url: str) -> wire.ImagePart:
    return wire.ImagePart(wire.ImageUrl(url))


async def test_says_what_it_is_told_to() -> None:
    text, pieces, usage = await answer(question("say one  two three"))
    assert text == "one  two three"
    assert pieces[-2].finish_reason == "stop"
    assert usage.completion_tokens == sum(bool(piece.text) for piece in pieces)


async def test_answer_depends_on_the_request_alone() -> None:
    first = (await answer(question("a", picture("data:,1"))))[0]
    assert first == (await answer(question("a", picture("data:,1"))))[0]
    others = [question("b", picture("data:,1")), question("a", picture("data:,2")), question("a")]
    assert first not in [(await answer(other))[0] for other in others]


async def test_counts_pictures_without_looking_at_them() -> None:
    usage = (await answer(question("a b", picture("twinlens:none"), picture("data:,x"))))[2]
    assert usage.vision_tokens == 2 * IMAGE_TOKENS
    assert usage.prompt_tokens == 2 + 2 * IMAGE_TOKENS


async def test_limits_and_stops() -> None:
    assert (await answer(question("say a b c d", max_tokens=2)))[0] == "a b"
    assert len((await answer(question("hello", max_tokens=30, ignore_eos=True)))[0].split(" ")) == 30
    assert (await answer(question("say a b c d", stop=["c"])))[0] == "a b "
    assert (await answer(question("x"), pieces=3))[2].completion_tokens == 3
    assert (await answer(question("x"), answer="fixed"))[0] == "fixed"


async def test_choices() -> None:
    pieces = (await answer(question("x", n=3)))[1]
    assert {piece.index for piece in pieces} == {0, 1, 2, -1}


def test_is_honest() -> None:
    health = FakeEngine(Behaviour()).health()
    assert health.fake
    assert "fake" in health.model


SCHEMAS: list[dict[str, Any]] = [
    {"type": "object", "properties": {"a": {"type": "string", "minLength": 3}}, "required": ["a"]},
    {"type": "array", "items": {"type": "integer", "minimum": 4}, "minItems": 2},
    {
        "$defs": {"n": {"type": "number"}},
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/n"}},
        "required": ["x"],
    },
    {"enum": ["x", "y"]},
    {"const": {"a": 1}},
    {"anyOf": [{"type": "null"}, {"type": "string"}]},
    {"type": ["boolean", "null"]},
    {"properties": {"deep": {"items": {"type": "boolean"}, "type": "array"}}},
    {},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
async def test_json_answers_satisfy_their_schema(schema: dict[str, Any]) -> None:
    wanted = wire.ResponseFormat("json_schema", wire.JsonSchema("a", schema))
    text = (await answer(question("x", response_format=wanted)))[0]
    jsonschema_rs.validator_for(schema).validate(json.loads(text))


def test_schemas_that_refer_to_themselves_end() -> None:
    loop = {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}
    assert example(loop)
    assert example({"$ref": "#"}) is None
