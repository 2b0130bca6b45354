"""Field cases of what stands in a request through the front door: limits of the answer, history, parts, detail."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.serving.harness import data_uri, image_part, serving
from tests.serving.recorder import recording
from tests.serving.test_api import CHAT, error_of

if TYPE_CHECKING:
    from tests.serving.harness import Service

LONG = "say " + " ".join(f"w{number}" for number in range(40))
USER = {"role": "user", "content": "hello"}


def talk(service: Service, *messages: Any, **fields: Any) -> Any:
    return service.http.post(CHAT, json={"model": "demo", "messages": list(messages), **fields})


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({"max_completion_tokens": 10}, 10),
        ({"max_tokens": 10}, 10),
        ({"max_completion_tokens": 10, "max_tokens": 50}, 10),
        ({"max_completion_tokens": 30, "max_tokens": 5}, 30),  # the newer name wins
        ({"max_completion_tokens": None, "max_tokens": 7}, 7),
    ],
)
def test_api_10_the_longest_answer_is_what_was_asked_for(service: Service, fields: dict[str, Any], tokens: int) -> None:
    for stream in (False, True):
        answer = talk(service, {"role": "user", "content": LONG}, **fields, stream=stream)
        assert answer.status_code == 200
        if stream:
            assert '"finish_reason":"length"' in answer.text
            assert answer.text.count('"content":" w') == tokens - 1
        else:
            body = answer.json()
            assert body["usage"]["completion_tokens"] == tokens
            assert body["choices"][0]["finish_reason"] == "length"


def test_api_10_limits_that_cannot_be_are_refused_with_numbers(service: Service) -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        for value in (0, -1):
            error = error_of(talk(service, USER, **{name: value}))
            assert (error["code"], error["param"]) == ("invalid_field", name)
        error = error_of(talk(service, USER, **{name: 999_999}))
        assert error["code"] == "context_length_exceeded"
        assert "999999" in error["message"]
        assert "4096" in error["message"]


CALLS = {"tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}
TOOL = {"role": "tool", "tool_call_id": "c1", "content": "x"}
NULLS: dict[str, Any] = {"refusal": None, "annotations": [], "audio": None, "function_call": None}


@pytest.mark.parametrize(
    "history",
    [
        [{"role": "assistant", "content": None, **CALLS}, TOOL],
        [{"role": "assistant", **CALLS}, TOOL],
        [{"role": "assistant", "content": "", **CALLS}, TOOL | {"content": ""}],
        [{"role": "assistant", "content": None}],
        [{"role": "assistant", "content": ""}],
        [{"role": "assistant"}],
        [{"role": "assistant", "content": []}],
        [{"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "b"}]}],
        [{"role": "assistant", "content": "a", **NULLS}],
    ],
    ids=lambda turns: json.dumps(turns)[:60],
)
def test_api_12_history_is_taken_as_clients_replay_it(service: Service, history: list[Any]) -> None:
    answer = talk(service, USER, *history, USER)
    assert answer.status_code == 200, answer.text
    assert "x-twinlens-ignored" not in answer.headers


@pytest.mark.parametrize(
    "roles",
    [
        ["system", "user", "system", "user"],
        ["system", "system", "user"],
        ["user", "assistant", "system", "user"],
        ["developer", "user"],
        ["user", "developer"],
    ],
)
def test_api_13_system_turns_may_stand_anywhere(service: Service, roles: list[str]) -> None:
    answer = talk(service, *({"role": role, "content": f"turn {at}"} for at, role in enumerate(roles)))
    assert answer.status_code == 200, answer.text
    # Nothing of them is left out: each further word is counted.
    longer = talk(service, *({"role": role, "content": f"turn {at} more"} for at, role in enumerate(roles)))
    assert longer.json()["usage"]["prompt_tokens"] > answer.json()["usage"]["prompt_tokens"]


@pytest.mark.parametrize(
    ("part", "param"),
    [
        ({"type": "image_url"}, "image_url"),
        ({"type": "image_url", "image_url": {}}, "image_url.url"),
        ({"type": "image_url", "image_url": None}, "image_url"),
        ({"type": "image_url", "image_url": {"url": None}}, "image_url.url"),
        ({"type": "image_url", "image_url": {"url": ""}}, "image_url.url"),
        ({"type": "image_url", "image_url": {"url": " \n"}}, "image_url.url"),
        ({"type": "image_url", "image_url": ""}, "image_url.url"),
        ({"type": "image_url", "image_url": [data_uri(1)]}, "image_url"),
        ({"type": "image_url", "image_url": 5}, "image_url"),
        ({"type": "input_image", "image_url": data_uri(1)}, "type"),
        ({"type": "image", "source": {"type": "base64", "data": "AAAA"}}, "type"),
        ({"image_url": {"url": data_uri(1)}}, "type"),
        ({"type": "IMAGE_URL", "image_url": {"url": data_uri(1)}}, "type"),
        ({"type": "file"}, "file"),
        ({"type": "file", "file": {}}, "file"),
        ({"type": "file", "file": {"file_id": "x", "file_data": "y"}}, "file"),
    ],
    ids=lambda part: json.dumps(part)[:60],
)
def test_api_15_a_part_that_is_no_picture_is_named_and_never_left_out(
    service: Service, part: dict[str, Any], param: str
) -> None:
    for stream in (False, True):
        answer = service.chat("what?", part, stream=stream)
        assert answer.status_code == 400
        assert error_of(answer)["param"] == f"messages[0].content[1].{param}"


def test_api_15_a_bare_string_is_the_url(service: Service) -> None:
    bare = service.chat("what?", {"type": "image_url", "image_url": data_uri(15)}, seed=1).json()
    full = service.chat("what?", {"type": "image_url", "image_url": {"url": data_uri(15)}}, seed=1).json()
    assert bare["choices"] == full["choices"]
    assert bare["usage"]["prompt_tokens_details"]["image_tokens"] > 0


def test_api_16_detail_has_its_effect_or_the_values_are_listed(service: Service) -> None:
    def tokens(**fields: Any) -> int:
        answer = service.chat("what?", image_part(16, (800, 600), **fields))
        assert answer.status_code == 200, answer.text
        return int(answer.json()["usage"]["prompt_tokens_details"]["image_tokens"])

    assert tokens() == tokens(detail=None) == tokens(detail="auto") == tokens(detail="high") > tokens(detail="low") > 0
    for bad in ("LOW", "ultra", ""):
        error = error_of(service.chat("what?", image_part(16, detail=bad)))
        assert error["param"] == "messages[0].content[1].image_url.detail"
        assert all(f"“{value}”" in error["message"] for value in ("auto", "low", "high"))


@pytest.mark.slow
def test_cache_05_06_every_answer_is_the_engines_own_for_exactly_this_request() -> None:
    """Answers are not kept: another picture, or any other field, asks again; so does an exact repeat."""
    size = (800, 600)
    schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
    told = [{"role": "user", "content": [image_part(1, size), {"type": "text", "text": "what?"}]}]
    variants: list[dict[str, Any]] = [
        {},
        {"response_format": schema},
        {"max_tokens": 5},
        {"n": 2},
        {"stop": ["x"]},
        {
            "messages": [
                {"role": "user", "content": [image_part(1, size, detail="low"), {"type": "text", "text": "what?"}]}
            ]
        },
        {"messages": [{"role": "system", "content": "You see."}, *told]},
        {"messages": [{"role": "user", "content": [image_part(2, size), {"type": "text", "text": "what?"}]}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "what?"}, image_part(1, size)]}]},
        {"seed": 1},
        {"temperature": 0.5},
        {"logprobs": True},
    ]
    with recording() as engine, serving("--engine-url", engine.url) as service:
        for _ in range(2):
            for at, fields in enumerate(variants):
                before = len(engine.asked)
                answer = service.http.post(CHAT, json={"model": "demo", "messages": told, "temperature": 0} | fields)
                assert answer.status_code == 200, (at, answer.text)
                assert len(engine.asked) == before + 1
        asked = [json.dumps(body, sort_keys=True) for body in engine.asked]
        assert asked[: len(variants)] == asked[len(variants) :]
        assert len(set(asked)) == len(variants)
        red, other = engine.pictures(0)[0], engine.pictures(7)[0]
        assert red.shape != other.shape or (red != other).any()
