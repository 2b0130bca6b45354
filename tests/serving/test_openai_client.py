"""The official OpenAI client works unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import openai
import pytest

from tests.serving.harness import image_part

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.serving.harness import Service


@pytest.fixture
def client(services: Service) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{services.url}/v1", api_key="unused", max_retries=0) as found:
        yield found


def user(*parts: Any) -> list[Any]:
    content = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    return [{"role": "user", "content": content}]


def test_models(client: Any) -> None:
    model, *tasks = client.models.list().data
    assert model.id == "demo"
    assert {"task:receipt", "task:lab-report"} <= {task.id for task in tasks}


def test_plain(client: Any) -> None:
    answer = client.chat.completions.create(model="demo", messages=user(image_part(1), "What is this?"))
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.id.startswith("chatcmpl-")


def test_stream_gives_the_same_text(client: Any) -> None:
    ask: dict[str, Any] = {"model": "demo", "messages": user(image_part(1), "What is this?"), "seed": 1}
    whole = client.chat.completions.create(**ask)
    chunks = list(client.chat.completions.create(**ask, stream=True))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == whole.choices[0].message.content
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_api_06_api_07_usage_comes_only_when_asked_for(client: Any) -> None:
    ask: dict[str, Any] = {"model": "demo", "messages": user("hi"), "stream": True}
    for options in ({}, {"stream_options": {"include_usage": False}}):
        assert all(chunk.choices for chunk in client.chat.completions.create(**ask, **options))
    chunks = list(client.chat.completions.create(**ask, stream_options={"include_usage": True}))
    assert chunks[-1].choices == []
    assert chunks[-1].usage
    assert chunks[-1].usage.completion_tokens > 0
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_api_09_n_choices(client: Any) -> None:
    ask: dict[str, Any] = {"model": "demo", "messages": user("hi"), "n": 3, "temperature": 0.7}
    answer = client.chat.completions.create(**ask)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    ends = [
        choice.index
        for chunk in client.chat.completions.create(**ask, stream=True)
        for choice in chunk.choices
        if choice.finish_reason
    ]
    assert sorted(ends) == [0, 1, 2]


def test_schema(client: Any) -> None:
    schema = {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]}
    answer = client.chat.completions.create(
        model="demo",
        messages=user(image_part(2), "the total"),
        response_format={"type": "json_schema", "json_schema": {"name": "receipt", "schema": schema}},
    )
    assert answer.choices[0].message.content
    assert "total" in answer.choices[0].message.content


def test_several_pictures_over_several_turns(client: Any) -> None:
    turns = [
        {"role": "system", "content": "You look at pictures."},
        *user("first:", image_part(1, (56, 56)), "second:", image_part(2, (112, 84))),
        {"role": "assistant", "content": "Seen."},
        *user("and this?", image_part(3, (84, 84))),
    ]
    answer = client.chat.completions.create(model="demo", messages=turns)
    extra: Any = answer.model_extra
    assert [(seen["width"], seen["height"]) for seen in extra["twinlens"]["images"]] == [(56, 56), (112, 84), (84, 84)]


def test_errors_reach_the_client_as_its_own_kinds(client: Any) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="other", messages=user("hi"))
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model="demo", messages=user(image_part(1), "x"), max_tokens=-1)
    assert bad.value.param == "max_tokens"
    broken = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    with pytest.raises(openai.BadRequestError) as picture:
        client.chat.completions.create(model="demo", messages=user("look", broken), stream=True)
    assert picture.value.param == "messages[0].content[1]"


async def test_async_client(services: Service) -> None:
    async with openai.AsyncOpenAI(base_url=f"{services.url}/v1", api_key="unused", max_retries=0) as client:
        answer = await client.chat.completions.create(model="demo", messages=user(image_part(4), "hi"))
        assert answer.choices[0].message.content


def test_models_are_told_one_by_one(client: Any) -> None:
    listed = list(client.models.list())
    assert len(listed) > 1  # the tasks are models too
    for model in listed:
        assert client.models.retrieve(model.id) == model
    for name in ("other", "a/b/c", "../files", "%2e%2e"):
        with pytest.raises(openai.NotFoundError) as gone:
            client.models.retrieve(name)
        assert gone.value.code in ("model_not_found", "not_found")
