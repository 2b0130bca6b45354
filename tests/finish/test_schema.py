"""Schemas are checked before the engine is asked, answers after."""

from __future__ import annotations

import time
from typing import Any

import pytest

from twinlens.core import AnswerFormat, Piece
from twinlens.errors import AnswerError, InvalidSchema
from twinlens.finish.schema import MAX_WHITESPACE, SchemaCheck, check_schema

TOTAL = {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]}


@pytest.mark.parametrize(
    "schema",
    [
        TOTAL,
        {},
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object"},
        {"properties": {"child": {"$ref": "#"}}},
        {"type": "array"},
        {"type": "string", "pattern": "^[A-Z]{2}[0-9]{1,18}$"},
        {"properties": {"pattern": {"type": "string"}, "$ref": {"type": "string"}}},
    ],
)
def test_good_schemas_pass(schema: Any) -> None:
    check_schema(schema, "schema")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "foo"},
        {"type": "string", "pattern": "(["},
        {"$ref": "#/$defs/gone"},
        5,
        False,
        None,
        {"properties": {"x": {"type": "strin"}}},
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"$schema": "http://127.0.0.1:9/schema.json"},
    ],
)
def test_json_03_bad_schemas_are_refused_with_a_clean_text(schema: Any) -> None:
    with pytest.raises(InvalidSchema) as refused:
        check_schema(schema, "response_format.json_schema.schema")
    assert refused.value.param == "response_format.json_schema.schema"
    assert "0x" not in refused.value.message
    assert "/root" not in refused.value.message


def test_sec_04_patterns_that_explode_are_refused_quickly() -> None:
    start = time.monotonic()
    for pattern in ("((a{1,500}){1,500}){1,500}", "a" * 600, "(a{999999999999})"):
        with pytest.raises(InvalidSchema):
            check_schema({"type": "string", "pattern": pattern}, "schema")
    deep: dict[str, Any] = {}
    for _ in range(200):
        deep = {"properties": {"x": deep}}
    with pytest.raises(InvalidSchema):
        check_schema(deep, "schema")
    assert time.monotonic() - start < 1


def test_a_backtracking_pattern_is_judged_in_linear_time() -> None:
    check = SchemaCheck(AnswerFormat("json_schema", {"type": "string", "pattern": "^(a|aa)+$"}))
    start = time.monotonic()
    with pytest.raises(AnswerError):
        check.feed(Piece(0, '"' + "a" * 5000 + '!"', finish_reason="stop"))
    assert time.monotonic() - start < 1


def test_pieces_pass_and_a_right_answer_is_accepted() -> None:
    check = SchemaCheck(AnswerFormat("json_schema", TOTAL))
    pieces = [Piece(0, '{"to'), Piece(0, 'tal": 1}'), Piece(0, finish_reason="stop")]
    assert [out for piece in pieces for out in check.feed(piece)] == pieces


@pytest.mark.parametrize("text", ['{"total": "x"}', "{}", "no json", '{"total": 1', ""])
def test_wrong_answers_are_an_error_and_never_a_success(text: str) -> None:
    check = SchemaCheck(AnswerFormat("json_schema", TOTAL))
    with pytest.raises(AnswerError) as wrong:
        check.feed(Piece(0, text, finish_reason="stop"))
    assert wrong.value.status == 502


@pytest.mark.parametrize(
    ("schema", "text", "keyword"),
    [
        ({"type": "integer", "multipleOf": 7}, "3", "multipleOf"),
        ({"properties": {"mine": {"uniqueItems": True}}}, '{"mine": [1, 1]}', "uniqueItems"),
        ({"additionalProperties": False}, '{"mine": 1}', "additionalProperties"),
        ({"properties": {"mine": False}}, '{"mine": 1}', "false"),
    ],
)
def test_what_is_not_satisfied_is_named_and_nothing_of_the_answer(schema: Any, text: str, keyword: str) -> None:
    with pytest.raises(AnswerError, match=f"“{keyword}”") as wrong:
        SchemaCheck(AnswerFormat("json_schema", schema)).feed(Piece(0, text, finish_reason="stop"))
    assert "mine" not in wrong.value.message
    assert "max_completion_tokens" not in wrong.value.cure  # the answer was whole: more of it would not help


def test_json_object_takes_objects_only() -> None:
    check = SchemaCheck(AnswerFormat("json_object"))
    check.feed(Piece(0, "{}", finish_reason="stop"))
    with pytest.raises(AnswerError):
        check.feed(Piece(1, "[1]", finish_reason="stop"))


def test_json_02_a_cut_answer_keeps_its_finish_reason_and_is_not_judged() -> None:
    check = SchemaCheck(AnswerFormat("json_schema", TOTAL))
    (piece,) = check.feed(Piece(0, '{"tot', finish_reason="length"))
    assert piece.finish_reason == "length"


def test_json_01_endless_white_space_ends_early() -> None:
    check = SchemaCheck(AnswerFormat("json_schema", TOTAL))
    check.feed(Piece(0, '{"total":'))
    with pytest.raises(AnswerError, match="white space"):
        for _ in range(MAX_WHITESPACE):
            check.feed(Piece(0, " \n"))


def test_choices_are_judged_apart() -> None:
    check = SchemaCheck(AnswerFormat("json_schema", TOTAL))
    check.feed(Piece(0, '{"total": '))
    check.feed(Piece(1, '{"total": "'))
    check.feed(Piece(0, "1}", finish_reason="stop"))
    with pytest.raises(AnswerError):
        check.feed(Piece(1, '"}', finish_reason="stop"))


def doubling(levels: int) -> dict[str, Any]:
    """A few kilobytes that double the work at each level."""
    defs: dict[str, Any] = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    return {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{levels}": {"type": "object"}}}


def test_schemas_that_double_the_work_at_each_level_are_refused() -> None:
    check_schema(doubling(6), "schema")
    start = time.monotonic()
    with pytest.raises(InvalidSchema, match="written out"):
        check_schema(doubling(40), "schema")
    inside = {f"d{n}": {"properties": {k: {"$ref": f"#/$defs/d{n + 1}"} for k in "ab"}} for n in range(40)}
    with pytest.raises(InvalidSchema, match="written out"):
        check_schema({"$ref": "#/$defs/d0", "$defs": {**inside, "d40": {}}}, "schema")
    assert time.monotonic() - start < 1


def test_a_schema_that_leads_back_to_itself_in_place_is_refused() -> None:
    for schema in (
        {"allOf": [{"$ref": "#"}]},
        {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}},
    ):
        with pytest.raises(InvalidSchema, match="itself"):
            check_schema(schema, "schema")


TREE = {
    "type": "object",
    "properties": {"left": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "right": {"$ref": "#"}},
    "additionalProperties": False,
}


def test_trees_are_welcome_however_deep() -> None:
    check_schema(TREE, "schema")
    text = "{}"
    for _ in range(60):
        text = '{"left":' + text + "}"
    SchemaCheck(AnswerFormat("json_schema", TREE)).feed(Piece(0, text, finish_reason="stop"))


def test_an_answer_whose_check_would_explode_is_refused_quickly() -> None:
    branch = {"properties": {"a": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}}
    check_schema(branch, "schema")
    text = "5"
    for _ in range(60):
        text = '{"a":' + text + "}"
    start = time.monotonic()
    with pytest.raises(AnswerError, match="nested too deeply"):
        SchemaCheck(AnswerFormat("json_schema", branch)).feed(Piece(0, text, finish_reason="stop"))
    assert time.monotonic() - start < 1


def test_an_answer_nested_beyond_reason_is_no_bug_of_ours() -> None:
    with pytest.raises(AnswerError):
        SchemaCheck(AnswerFormat("json_object")).feed(Piece(0, '{"a":' + "[" * 5000, finish_reason="stop"))


def test_a_refusal_does_not_repeat_the_schema() -> None:
    with pytest.raises(InvalidSchema) as refused:
        check_schema({"type": "banana" * 20_000}, "schema")
    assert len(refused.value.message) < 1000
