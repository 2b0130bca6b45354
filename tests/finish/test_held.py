"""The step schema: what is certain is mended, nothing is invented, nothing cut passes."""

from __future__ import annotations

from typing import Any

import pytest

from twinlens.core import AnswerFormat
from twinlens.errors import AnswerError, AnswerTruncated, TaskError
from twinlens.finish import repair
from twinlens.finish.held import HeldToSchema
from twinlens.finish.seam import About, Draft, Seen

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
ABOUT = About(AnswerFormat("json_schema", SCHEMA))


def held(text: str, reason: Any = "stop", **options: Any) -> tuple[Draft, dict[str, int]]:
    run = HeldToSchema(options, ABOUT).begin(Seen())
    return run.finish(Draft(text, reason=reason)), dict(run.changes())


@pytest.mark.parametrize(
    ("text", "mended"),
    [
        ('{"a":1}', []),
        ('  {"a": 1}\n', []),
        ('```json\n{"a":1}\n```', ["fence"]),
        ('Here it is:\n```\n{"a":1}\n```\nAnything else?', ["fence"]),
        ('Here it is: {"a":1}', ["text around"]),
        ('{"a":1} I hope this helps.', ["text around"]),
        ('<think>maybe {"a":2}?</think>{"a":1}', ["thought"]),
        ('<think>\nhm\n</think>\n\n```json\n{"a":1}\n```', ["thought", "fence"]),
        ('\ufeff{"a":1}', []),
    ],
)
def test_json_09_what_stands_around_the_json_is_taken_off(text: str, mended: list[str]) -> None:
    draft, changes = held(text)
    assert draft.value == {"a": 1}
    assert list(changes) == mended


@pytest.mark.parametrize(
    "text",
    [
        "",
        "It is not there.",
        '{"a":1',
        '{"a":1,}',
        "{'a':1}",
        '{"a":1}{"a":2}',
        '{"a":1} or {"a":2}',
        '```\n{"a":1}\n```\n```\n{"a":2}\n```',
        '{"b": {"a":1}',
        '{"a":1,"a":2}',
        '{"a":NaN}',
        '{"a":1e999}',
        '{"a":"1"}',
        '{"a":1.5}',
        "[1]",
        "[" * 100_000,
        '{"a":1,"b":"\\ud83d"}',
    ],
)
def test_what_is_not_certain_is_not_invented(text: str) -> None:
    with pytest.raises(AnswerError) as unfit:
        held(text)
    assert "schema" in (unfit.value.told or "")
    with pytest.raises(AnswerError) as failed:
        held(text, retry=False)
    assert failed.value.told is None


@pytest.mark.parametrize("text", ['{"a":1', '{"a":1}', ""])
def test_json_02_what_is_cut_at_the_limit_fails_at_once_however_whole_it_looks(text: str) -> None:
    with pytest.raises(AnswerTruncated) as cut:
        held(text, reason="length")
    assert cut.value.told is None
    assert cut.value.code == "output_truncated"


def test_the_model_is_told_the_fault_and_the_client_no_content() -> None:
    with pytest.raises(AnswerError) as unfit:
        held('{"a":"secret"}')
    assert "secret" in (unfit.value.told or "")
    assert "/a" in (unfit.value.told or "")
    assert "secret" not in unfit.value.message


def test_a_task_without_a_schema_cannot_be_held_to_one() -> None:
    with pytest.raises(TaskError, match="schema"):
        HeldToSchema({}, About())
    with pytest.raises(TaskError, match="Did you mean “retry”"):
        HeldToSchema({"retries": 3}, ABOUT)


def test_big_and_small_numbers_keep_their_value() -> None:
    value, mended = repair.read('{"a": 123456789012345678901234567890, "b": 0.1, "c": -0.0}')
    assert value["a"] == 123456789012345678901234567890
    assert mended == []
