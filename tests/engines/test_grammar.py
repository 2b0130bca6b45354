"""Grammars of schemas: the numbers by counting, the rest by having a model write by chance under them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models import model_folder
from twinlens.engines.openvino import ebnf, ebnf_numbers
from twinlens.engines.openvino.means import MAX_DEPTH, Means
from twinlens.errors import InvalidSchema

if TYPE_CHECKING:
    from twinlens.engines.openvino.grammar import Grammar
    from twinlens.engines.openvino.model import Model


def pattern(expression: str) -> re.Pattern[str]:
    """An expression of digits as a regular expression."""
    ways = ["".join(part.strip('"') for part in way.split(" ")) for way in expression.split(" | ")]
    return re.compile("|".join(f"(?:{way})" for way in ways))


@given(st.integers(-3000, 3000), st.integers(0, 700))
def test_whole_numbers_between_bounds(low: int, span: int) -> None:
    expression = ebnf_numbers.between(low, low + span)
    assert expression is not None
    allowed = pattern(expression)
    for number in range(low - 15, low + span + 16):
        assert bool(allowed.fullmatch(str(number))) == (low <= number <= low + span)
    assert not allowed.fullmatch("-0")
    assert not allowed.fullmatch("007")


@pytest.mark.parametrize(
    ("schema", "bounds"),
    [
        ({"minimum": 1.5, "maximum": 9.5}, (2, 9)),
        ({"exclusiveMinimum": 1, "exclusiveMaximum": 9}, (2, 8)),
        ({"exclusiveMinimum": 1.5, "minimum": 4}, (4, None)),
        ({}, (None, None)),
        ({"minimum": True}, (None, None)),
    ],
)
def test_bounds_of_whole_numbers(schema: dict[str, Any], bounds: tuple[int | None, int | None]) -> None:
    assert ebnf_numbers.whole_bounds(schema) == bounds


def test_no_numbers_between() -> None:
    assert ebnf_numbers.between(5, 4) is None
    assert ebnf_numbers.between(0, 10**30) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "patternProperties": {"^a$": {}}},
        {"type": "string", "pattern": "a+"},
        {"not": {"type": "string"}},
        {"type": "foo"},
        {"$ref": "#/$defs/missing"},
        {"$ref": "#"},
        {"type": "object", "required": ["x"]},
        {"enum": []},
        {"allOf": [{"type": "string"}, {"maxLength": 3}]},
        {"type": "array", "minItems": 3, "maxItems": 2},
        False,
    ],
    ids=str,
)
def test_what_is_not_known_is_left_to_the_other_translation(schema: Any) -> None:
    assert ebnf.grammar(schema) is None


def test_counts_that_cost_too_much_are_left_out() -> None:
    schema = {"properties": {"a": {"type": "string", "minLength": 2, "maxLength": 10_000}}, "maxItems": 3}
    assert Means().afford(schema) == {"properties": {"a": {"type": "string", "minLength": 2}}, "maxItems": 3}


def test_values_are_not_taken_for_schemas() -> None:
    schema = {"const": {"maxLength": 10**6}, "enum": [{"minLength": 10**6}]}
    assert Means().afford(schema) == schema


def test_many_different_lengths_add_up() -> None:
    schema = {"properties": {f"p{n}": {"type": "string", "maxLength": 100 + n} for n in range(50)}}
    kept = Means().afford(schema)["properties"].values()
    assert 0 < sum("maxLength" in value for value in kept) < 10


def nested(depth: int) -> dict[str, Any]:
    return {"items": nested(depth - 1)} if depth else {}


@pytest.mark.parametrize(
    "schema",
    [{"minLength": 10**9}, {"pattern": "(a{1,900}){1,900}"}, {"pattern": "a{9999999999}"}, nested(MAX_DEPTH + 2)],
)
def test_what_would_never_end_is_refused(schema: Any) -> None:
    with pytest.raises(InvalidSchema):
        Means().afford(schema)


NODE = {
    "type": "object",
    "properties": {"v": {"type": "boolean"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
    "required": ["v", "next"],
}
SCHEMAS: list[dict[str, Any]] = [
    {
        "type": "object",
        "properties": {
            "kind": {"enum": ["x", "y"]},
            "box": {
                "type": "array",
                "items": {"type": "integer", "minimum": 0, "maximum": 1000},
                "minItems": 4,
                "maxItems": 4,
            },
            "sure": {"type": "boolean"},
        },
        "required": ["kind", "box", "sure"],
        "additionalProperties": False,
    },
    {"type": "object", "properties": {"中文": {"type": "string", "maxLength": 5}, 'q"\\': {"const": "é\n"}}},
    {
        "type": "object",
        "properties": {"d": {"format": "date", "type": "string"}, "t": {"type": "string", "format": "date-time"}},
    },
    {"$defs": {"node": NODE}, "$ref": "#/$defs/node"},
    {"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": {"type": "boolean"}},
    {
        "type": "object",
        "properties": {"n": {"type": ["integer", "null"], "minimum": -5, "maximum": 5}},
        "required": ["n"],
    },
    {"type": "array", "maxItems": 0},
    {"type": "array", "items": {"type": "integer", "minimum": 17, "maximum": 1993}, "minItems": 1, "maxItems": 5},
    {"type": "number", "minimum": 0},
    {"anyOf": [{"type": "boolean"}, {"const": {"a": [1, 2]}}]},
    {"allOf": [{"type": "boolean"}], "description": "one"},
    {"type": "string", "format": "uuid"},
    {"type": "object", "properties": {"s": {"type": "string", "pattern": "^[a-c]{1,3}$"}}, "required": ["s"]},
]


@pytest.fixture(scope="module")
def model() -> Model:
    from twinlens.engines.openvino.model import Model  # noqa: PLC0415 - only here is OpenVINO needed
    from twinlens.model import checkpoint  # noqa: PLC0415
    from twinlens.settings import Settings  # noqa: PLC0415

    return Model(checkpoint.read(model_folder()), Settings(kv_cache_gb=0.1))


@pytest.fixture(scope="module")
def grammar(model: Model) -> Grammar:
    from twinlens.engines.openvino.grammar import Grammar  # noqa: PLC0415

    return Grammar(model.tokenizer, model.width)


def written(model: Model, constraint: Any, seed: int) -> str | None:
    """What the model writes by chance; None if it did not come to an end."""
    import openvino_genai as genai  # noqa: PLC0415

    config = genai.GenerationConfig(max_new_tokens=200, do_sample=True, temperature=1.5, rng_seed=seed)
    config.apply_chat_template = False
    config.structured_output_config = constraint
    handle = model.pipeline.add_request(seed, "hello", [], config)
    while model.pipeline.has_non_finished_requests():
        model.pipeline.step()
    output = handle.read_all()[0]
    data = b"".join(model.vocabulary.data(token) for token in output.generated_ids)
    return data.decode() if output.finish_reason == genai.GenerationFinishReason.STOP else None


@pytest.mark.slow
@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: json.dumps(schema)[:60])
def test_whatever_is_written_satisfies_the_schema(model: Model, grammar: Grammar, schema: dict[str, Any]) -> None:
    constraint = grammar.compile(schema)
    texts = [text for seed in range(10) if (text := written(model, constraint, seed)) is not None]
    validator = jsonschema_rs.validator_for(schema)
    for text in texts:
        validator.validate(json.loads(text))
        if constraint.grammar:
            assert not re.search(r"[,:]\s\s|[\[{]\s|\s[\]}]", re.sub(r'"(?:[^"\\]|\\.)*"', '""', text))


@pytest.mark.slow
@pytest.mark.parametrize(
    "schema", [{"type": "foo"}, {"$ref": "#/$defs/x"}, {"enum": []}, {"anyOf": []}, False], ids=str
)
def test_a_schema_that_cannot_be_enforced(grammar: Grammar, schema: Any) -> None:
    with pytest.raises(InvalidSchema) as refused:
        grammar.compile(schema)
    assert "/" not in refused.value.message


@pytest.mark.slow
def test_loops_of_references_do_not_hang(model: Model, grammar: Grammar) -> None:
    loop = {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}
    for schema in (loop, {"anyOf": [{"$ref": "#"}, {"type": "null"}]}):
        written(model, grammar.compile(schema), 1)
