"""What of a schema is refused because nothing would hold it, and what is not; shown by writing under the grammar."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import pytest

from tests.models import model_folder
from twinlens.engines.openvino import unheld
from twinlens.errors import InvalidSchema

if TYPE_CHECKING:
    from collections.abc import Callable

YES = {"type": "boolean"}
AB = {"type": "object", "properties": {"a": YES, "b": YES}, "additionalProperties": False}
A, B = ({"type": "object", "properties": {name: YES}, "required": [name]} for name in "ab")

# (keyword named in the refusal, schema)
REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("not", {"type": "boolean", "not": {"const": True}}),
    ("if", {**AB, "if": {"required": ["a"]}, "then": {"required": ["b"]}}),
    ("dependentSchemas", {**AB, "dependentSchemas": {"a": {"required": ["b"]}}}),
    ("dependentRequired", {**AB, "dependentRequired": {"a": ["b"]}}),
    ("dependencies", {**AB, "dependencies": {"a": ["b"]}}),
    ("contains", {"type": "array", "items": YES, "contains": {"const": True}, "maxItems": 2}),
    ("allOf", {"allOf": [A, B]}),
    ("allOf", {**A, "allOf": [B]}),
    ("anyOf", {**AB, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}),
    ("oneOf", {**AB, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
    ("$ref", {"$defs": {"a": A}, "$ref": "#/$defs/a", "properties": {"b": YES}, "required": ["b"]}),
    ("patternProperties", {**A, "patternProperties": {"^[x-z]$": YES}, "additionalProperties": False}),
    ("propertyNames", {"type": "object", "propertyNames": {"enum": ["q"]}, "additionalProperties": YES}),
    ("required", {"type": "object", "properties": {"a": YES}, "required": ["z"]}),
    ("required", {"type": "object", "required": ["z"]}),
]
TAKEN: list[dict[str, Any]] = [
    {"type": "object", "properties": {"not": YES, "if": YES, "then": YES, "contains": YES}, "required": ["not"]},
    {"$defs": {"not": YES}, "$ref": "#/$defs/not"},
    {"enum": [{"not": 1}, {"contains": 2}]},
    {"allOf": [A], "description": "one"},
    {"oneOf": [A, {"type": "null"}], "discriminator": {"propertyName": "a"}},
    {"type": "object", "anyOf": [A, B]},
    {"type": "object", "patternProperties": {"^[x-z]$": YES}, "additionalProperties": False},
    {"type": "object", "propertyNames": {"enum": ["q"]}},
    {"type": "array", "items": {"type": "integer", "multipleOf": 7}, "uniqueItems": True},
]


@pytest.mark.parametrize(("keyword", "schema"), REFUSED, ids=str)
def test_what_no_grammar_holds_is_refused_by_its_name(keyword: str, schema: dict[str, Any]) -> None:
    for inside, place in ((schema, "/"), ({"type": "array", "items": schema}, "/items")):
        with pytest.raises(InvalidSchema, match=re.escape(f"cannot enforce “{keyword}”")) as refused:
            unheld.refuse(inside)
        assert f"at “{place}”" in refused.value.message


@pytest.mark.parametrize("schema", TAKEN, ids=str)
def test_what_a_grammar_holds_is_taken(schema: dict[str, Any]) -> None:
    unheld.refuse(schema)


@pytest.fixture(scope="module")
def writing() -> Callable[[Any], list[Any]]:
    """Values that a model without any weight writes under the grammar of a schema."""
    import numpy as np  # noqa: PLC0415
    import openvino as ov  # noqa: PLC0415
    import openvino_genai as genai  # noqa: PLC0415

    from twinlens.engines.openvino.constant import constant_model  # noqa: PLC0415
    from twinlens.engines.openvino.grammar import Grammar  # noqa: PLC0415

    tokenizer = genai.Tokenizer(model_folder())
    width = json.loads((model_folder() / "config.json").read_text())["vocab_size"]
    grammar = Grammar(tokenizer, width)
    xml, weights = constant_model(width)
    pipeline = genai.LLMPipeline(xml, weights, tokenizer, "CPU", genai.GenerationConfig(), ATTENTION_BACKEND="SDPA")

    def write(schema: Any) -> list[Any]:
        values = []
        for seed in range(30):
            config = genai.GenerationConfig(max_new_tokens=40, do_sample=True, rng_seed=seed)
            config.apply_chat_template = False
            config.structured_output_config = grammar.compile(schema)
            written = pipeline.generate(ov.Tensor(np.zeros((1, 1), dtype=np.int64)), config)
            if len(written.tokens[0]) < 40:
                values.append(json.loads(tokenizer.decode(written.tokens[0])))
        return values

    return write


@pytest.mark.slow
@pytest.mark.parametrize(("keyword", "schema"), REFUSED, ids=str)
def test_what_is_refused_would_not_have_been_held(
    writing: Callable[[Any], list[Any]], keyword: str, schema: dict[str, Any]
) -> None:
    """Fails when a newer library holds one of them: then it need not be refused any longer."""
    validator = jsonschema_rs.validator_for(schema)
    assert not all(validator.is_valid(value) for value in writing(schema)), keyword
