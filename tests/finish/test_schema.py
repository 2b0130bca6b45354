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
        {"$ref": "#"},
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
