"""Field cases of kind JSON through the front door: the fake engine writes what models wrote in the reports."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.serving.harness import Service, data_uri, frames, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TASK = """
prompt = "x"
schema = { type = "object", required = ["a"], properties = { a = { type = "integer" } } }
"""
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def form(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


@contextmanager
def answering(folder: Path, answer: str) -> Iterator[Service]:
    """A service whose engine says this and nothing else."""
    (folder / "one.toml").write_text(TASK)
    (folder / "config").write_text(f"engine_args = ['--answer', {json.dumps(answer)}]")
    with serving("--tasks-dir", str(folder), environ={"TWINLENS_CONFIG": str(folder / "config")}) as running:
        yield running


def test_json_01_endless_white_space_fails_soon_and_with_its_own_code(tmp_path: Path) -> None:
    with answering(tmp_path, '{"a":' + " " * 2000) as service:
        started = time.monotonic()
        plain = service.chat("x", response_format=form(SCHEMA))
        assert (plain.status_code, plain.json()["error"]["code"]) == (502, "structured_output_stalled")
        streamed = frames(service.chat("x", response_format=form(SCHEMA), stream=True).text)
        assert streamed[-2]["error"]["code"] == "structured_output_stalled"
        assert sum(len(frame["choices"][0]["delta"].get("content", "")) for frame in streamed[:-2]) < 250
        task = service.http.post("/v1/tasks/one", json={"images": [data_uri(1)]})
        assert (task.status_code, task.json()["error"]["code"]) == (502, "structured_output_stalled")
        assert time.monotonic() - started < 30


@pytest.mark.parametrize("stream", [False, True])
def test_json_02_what_is_cut_is_never_passed_off_as_whole(tmp_path: Path, stream: bool) -> None:
    """A chat says “length” and leaves the text as it is; a task, whose answers are records, fails."""
    with answering(tmp_path, '{"a": 1, "b": "and so on and on"}') as service:
        chat = service.chat("x", response_format=form(SCHEMA), max_tokens=4, stream=stream)
        if stream:
            told = [frame["choices"][0] for frame in frames(chat.text)[:-1]]
            reason, text = told[-1]["finish_reason"], "".join(one["delta"].get("content", "") for one in told)
        else:
            choice = chat.json()["choices"][0]
            reason, text = choice["finish_reason"], choice["message"]["content"]
        assert (reason, text) == ("length", '{"a": 1, "b": "and')
        task = service.http.post("/v1/tasks/one", json={"images": [data_uri(1)], "max_tokens": 4, "stream": stream})
        assert (task.status_code, task.json()["error"]["code"]) == (502, "output_truncated")


@pytest.mark.parametrize("stream", [False, True])
def test_json_09_thoughts_are_no_part_of_the_json(tmp_path: Path, stream: bool) -> None:
    """A task takes them off; a chat without one fails loudly, never with text that is no JSON."""
    with answering(tmp_path, '<think>a is {"a":2}, or not?</think>{"a":1}') as service:
        body = {"images": [data_uri(1)], "stream": stream}
        task = service.http.post("/v1/tasks/one", json=body)
        result = frames(task.text)[-2] if stream else task.json()
        assert result["result"] == {"a": 1}
        assert result["steps"][0]["changed"] == 1
        chat = service.chat("x", response_format=form(SCHEMA), stream=stream)
        error = frames(chat.text)[-2]["error"] if stream else chat.json()["error"]
        assert error["code"] == "invalid_answer"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "foo"},
        {"type": "string", "pattern": "(["},
        {"$ref": "#/$defs/gone"},
        {"type": "object", "properties": {"a": {"type": "foo"}}},
        5,
        False,
        None,
    ],
    ids=str,
)
def test_json_03_bad_schemas_never_reach_the_engine(service: Service, schema: Any) -> None:
    before = service.metric("twinlens_errors_total")
    answer = service.chat("x", response_format=form(schema))
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "invalid_json_schema")
    assert error["param"] == "response_format.json_schema.schema"
    assert ".cc" not in error["message"]
    assert service.metric("twinlens_errors_total") == before + 1
    assert service.ready()


def test_an_answer_that_breaks_a_bound_names_it_and_the_cure(service: Service) -> None:
    schema = {"type": "integer", "minimum": 1, "multipleOf": 7}  # the fake engine knows the first of the two
    answer = service.chat("x", response_format=form(schema))
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (502, "invalid_answer")
    assert "“multipleOf”" in error["message"]
    assert "max_completion_tokens" not in error["message"]


@pytest.mark.parametrize("bound", [20_000_000_000, 9_223_372_036_854_775_808, 1e20, -1e20])
@pytest.mark.parametrize("keyword", ["maximum", "minimum", "exclusiveMaximum"])
def test_json_04_large_bounds_hurt_nobody(service: Service, keyword: str, bound: float) -> None:
    answer = service.chat("x", response_format=form({"type": "integer", keyword: bound}))
    assert answer.status_code in (200, 400, 502)
    if answer.status_code == 200:
        value = json.loads(answer.json()["choices"][0]["message"]["content"])
        kept = {"maximum": value <= bound, "minimum": value >= bound, "exclusiveMaximum": value < bound}
        assert kept[keyword]
    assert service.ready()
