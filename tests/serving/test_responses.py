"""POST /v1/responses: OpenAI's client works with it unchanged, and it says the same as a chat."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import openai
import pydantic
import pytest

from tests.media import pdfs
from tests.serving.harness import Service, data_uri, image_part, serving
from tests.serving.test_task_documents import TASKS, too_long_in_the_middle, uri

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("tasks")
    for name, text in TASKS.items():
        (found / f"{name}.toml").write_text(text)
    return found


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[Service]:
    flags = ("--tasks-dir", str(folder), "--audit", "true", "--page-dpi", "72", "--page-timeout-s", "2")
    with serving(*flags) as running:
        yield running


@pytest.fixture
def client(service: Service) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{service.url}/v1", api_key="unused", max_retries=0) as found:
        yield found


def user(*parts: Any) -> list[Any]:
    content = [{"type": "input_text", "text": part} if isinstance(part, str) else part for part in parts]
    return [{"role": "user", "content": content}]


def image(seed: int = 1, **fields: Any) -> dict[str, Any]:
    return {"type": "input_image", "image_url": data_uri(seed), "detail": "auto", **fields}


def post(service: Service, **body: Any) -> Any:
    return service.http.post("/v1/responses", json={"model": "demo", **body})


def events(text: str) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if not line.startswith(":")]
        if lines:
            assert lines[0].startswith("event: ")
            found.append((lines[0].removeprefix("event: "), json.loads(lines[1].removeprefix("data: "))))
    return found


def test_a_text_as_input(client: Any) -> None:
    answer = client.responses.create(model="demo", input="say good morning")
    assert answer.output_text == "good morning"
    assert (answer.status, answer.object, answer.error) == ("completed", "response", None)
    assert answer.id.startswith("resp_")
    assert answer.output[0].id.startswith("msg_")
    assert answer.output[0].role == "assistant"
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens
    assert answer.usage.output_tokens_details.reasoning_tokens == 0
    assert answer.text.format.type == "text"


def test_it_says_what_a_chat_says(service: Service, client: Any) -> None:
    turns = [
        {"role": "developer", "content": "You look at pictures."},
        *user("first:", image(1), "second:", image(2)),
        {"role": "assistant", "content": [{"type": "output_text", "text": "Seen.", "annotations": []}]},
        {"role": "user", "content": "and this?"},
    ]
    mine = client.responses.create(model="demo", instructions="Be brief.", input=turns)
    chat = service.http.post(
        "/v1/chat/completions",
        json={
            "model": "demo",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "system", "content": "You look at pictures."},
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "first:"},
                        image_part(1),
                        {"type": "text", "text": "second:"},
                        image_part(2),
                    ],
                },
                {"role": "assistant", "content": [{"type": "text", "text": "Seen."}]},
                {"role": "user", "content": "and this?"},
            ],
        },
    ).json()
    assert mine.output_text == chat["choices"][0]["message"]["content"]
    assert mine.usage.input_tokens == chat["usage"]["prompt_tokens"]
    assert mine.usage.input_tokens_details.image_tokens == chat["usage"]["prompt_tokens_details"]["image_tokens"]
    assert mine.twinlens["images"] == chat["twinlens"]["images"]
    assert mine.instructions == "Be brief."


def test_an_answer_can_be_sent_back_as_input(client: Any) -> None:
    first = client.responses.create(model="demo", input=user(image(), "say one"))
    turns = [*user(image(), "say one"), *[item.model_dump() for item in first.output], *user("say two")]
    assert client.responses.create(model="demo", input=turns).output_text == "two"


def test_a_stream_has_the_events_in_their_order(service: Service, client: Any) -> None:
    ask: dict[str, Any] = {"model": "demo", "input": user(image(), "What is this?"), "metadata": {"a": "b"}}
    whole = client.responses.create(**ask)
    answer = post(service, stream=True, **ask)
    assert answer.headers["content-type"].startswith("text/event-stream")
    found = events(answer.text)
    kinds = [kind for kind, _ in found]
    deltas = [event["delta"] for kind, event in found if kind == "response.output_text.delta"]
    assert kinds == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        *["response.output_text.delta"] * len(deltas),
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert len(deltas) > 3
    assert [event["sequence_number"] for _, event in found] == list(range(len(found)))
    assert [event["type"] for _, event in found] == kinds
    last = found[-1][1]["response"]
    assert "".join(deltas) == last["output"][0]["content"][0]["text"] == whole.output_text
    assert (last["status"], last["metadata"], last["usage"]["total_tokens"]) == (
        "completed",
        {"a": "b"},
        whole.usage.total_tokens,
    )
    assert found[0][1]["response"]["id"] == last["id"]
    assert (found[0][1]["response"]["status"], found[0][1]["response"]["output"]) == ("in_progress", [])
    assert {event["item_id"] for _, event in found if "item_id" in event} == {last["output"][0]["id"]}


def test_the_clients_own_helpers_follow_a_stream(client: Any) -> None:
    with client.responses.stream(model="demo", input="say one two three") as stream:
        snapshots = [event.snapshot for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert snapshots[-1] == final.output_text == "one two three"


def test_the_async_client(service: Service) -> None:
    import asyncio  # noqa: PLC0415

    async def asked() -> str:
        async with openai.AsyncOpenAI(base_url=f"{service.url}/v1", api_key="unused", max_retries=0) as client:
            stream: Any = await client.responses.create(model="demo", input="say one two", stream=True)
            return "".join([event.delta async for event in stream if event.type == "response.output_text.delta"])

    assert asyncio.run(asked()) == "one two"


class Receipt(pydantic.BaseModel):
    """What `parse` is asked for."""

    total: float
    items: list[str]


def test_parse_and_schemas(client: Any) -> None:
    parsed = client.responses.parse(model="demo", input=user(image(), "the total"), text_format=Receipt)
    assert isinstance(parsed.output_parsed, Receipt)
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    form = {"format": {"type": "json_schema", "name": "a", "schema": schema, "strict": True}}
    answer = client.responses.create(model="demo", input="x", text=form)
    assert isinstance(json.loads(answer.output_text)["a"], int)
    loose = client.responses.create(model="demo", input="x", text={"format": {"type": "json_object"}})
    assert isinstance(json.loads(loose.output_text), dict)


def test_an_answer_that_is_cut_is_incomplete(service: Service, client: Any) -> None:
    answer = client.responses.create(model="demo", input="say one two three", max_output_tokens=2)
    assert (answer.status, answer.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert (answer.output[0].status, answer.output_text) == ("incomplete", "one two")
    found = events(post(service, input="say one two three", max_output_tokens=2, stream=True).text)
    assert found[-1][0] == "response.incomplete"


def test_files_and_documents(service: Service, client: Any) -> None:
    made = client.files.create(file=("scan.pdf", pdfs.numbered(3)), purpose="user_data")
    data = uri(pdfs.numbered(3))
    for part in (
        {"type": "input_file", "file_id": made.id},
        {"type": "input_file", "filename": "a.pdf", "file_data": data},
        {"type": "input_image", "image_url": data, "detail": "auto"},
    ):
        answer = client.responses.create(model="demo", input=user(part, "What do the pages say?"))
        assert [seen["page"] for seen in answer.twinlens["images"]] == [1, 2, 3]
    some = post(service, input=user({"type": "input_file", "file_data": data, "pages": "2"}, "?")).json()
    assert [seen["page"] for seen in some["twinlens"]["images"]] == [2]
    raw = base64.b64decode(data_uri(1, (1200, 900)).partition(",")[2])
    photo = client.files.create(file=("a.png", raw), purpose="vision")
    sizes = [
        post(service, input=user({"type": "input_image", "file_id": photo.id, "detail": detail}, "?")).json()
        for detail in ("low", "high")
    ]
    low, high = (size["twinlens"]["images"][0]["tokens"] for size in sizes)
    assert low < high


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"input": "x", "previous_response_id": "resp_1"}, "unsupported_field", "previous_response_id"),
        ({"input": "x", "conversation": {"id": "conv_1"}}, "unsupported_field", "conversation"),
        ({"input": "x", "background": True}, "unsupported_field", "background"),
        ({"input": "x", "prompt": {"id": "pmpt_1"}}, "unsupported_field", "prompt"),
        ({"input": "x", "tools": [{"type": "web_search"}]}, "unsupported_field", "tools"),
        ({"input": "x", "tool_choice": "required"}, "unsupported_field", "tool_choice"),
        ({"input": "x", "top_logprobs": 3}, "unsupported_field", "top_logprobs"),
        ({"input": "x", "model": "other"}, "model_not_found", "model"),
        ({"input": []}, "invalid_field", "input"),
        ({"input": 5}, "invalid_field", "input"),
        ({"input": ["x"]}, "invalid_field", "input[0]"),
        ({}, "invalid_field", "input"),
        ({"input": [{"role": "user"}]}, "invalid_field", "input[0].content"),
        ({"input": [{"role": "robot", "content": "x"}]}, "invalid_field", "input[0].role"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "not_supported", "input[0].type"),
        ({"input": [{"type": ["x"], "role": "user", "content": "x"}]}, "not_supported", "input[0].type"),
        ({"input": user({"type": "text", "text": "x"})}, "invalid_field", "input[0].content[0].type"),
        ({"input": user({"type": "output_text", "text": "x"})}, "invalid_field", "input[0].content[0].type"),
        ({"input": user({"type": ["input_text"]})}, "invalid_field", "input[0].content[0].type"),
        ({"input": user({"type": "input_text", "text": 5})}, "invalid_field", "input[0].content[0].text"),
        ({"input": user({"type": "input_audio", "data": "x"})}, "not_supported", "input[0].content[0]"),
        ({"input": user({"type": "input_image"})}, "invalid_field", "input[0].content[0]"),
        ({"input": user(image(file_id="file-1"))}, "invalid_field", "input[0].content[0]"),
        ({"input": user(image(image_url=""))}, "invalid_field", "input[0].content[0].image_url"),
        ({"input": user(image(image_url="data:image/png;base64,AAAA"))}, "invalid_base64", "input[0].content[0]"),
        ({"input": user(image(detail="huge"))}, "invalid_field", "input[0].content[0].detail"),
        ({"input": user("a", image(file_id="file-" + "0" * 32, image_url=None))}, "file_not_found", None),
        ({"input": user({"type": "input_file", "file_url": "x"})}, "invalid_field", "input[0].content[0].file_url"),
        (
            {"input": user({"type": "input_file", "file_url": "https://example.org/a.pdf"})},
            "image_url_not_allowed",
            "input[0].content[0]",
        ),
        ({"input": user({"type": "input_file", "file_data": ""})}, "invalid_field", "input[0].content[0].file_data"),
        ({"input": [{"role": "system", "content": [image()]}]}, "invalid_field", "input[0].content"),
        ({"input": "x", "max_output_tokens": -1}, "invalid_field", "max_output_tokens"),
        ({"input": "x", "max_output_tokens": 9_000_000}, "context_length_exceeded", "input"),
        ({"input": "x", "text": {"format": {"type": "xml"}}}, "invalid_field", "text.format.type"),
        (
            {"input": "x", "text": {"format": {"type": "json_schema", "name": "a", "schema": {"type": "foo"}}}},
            "invalid_json_schema",
            "text.format.schema",
        ),
        ({"input": "x", "metadata": {"a": 5}}, "invalid_field", None),
    ],
)
@pytest.mark.parametrize("instructions", [None, "Be brief."])
def test_refusals_name_the_place_in_this_form(
    service: Service, fields: Any, code: str, param: str | None, instructions: Any
) -> None:
    answer = post(service, **fields, instructions=instructions)
    error = answer.json()["error"]
    assert (answer.status_code in (400, 404), error["code"]) == (True, code), error
    if param is not None:
        assert error["param"] == param
    assert "messages[" not in answer.text
    assert "response_format" not in answer.text
    assert "max_completion_tokens" not in answer.text


def test_what_has_no_effect_is_named(service: Service) -> None:
    body = {"input": user({"type": "input_text", "text": "say x", "weight": 2}), "store": True, "truncation": "auto"}
    answer = post(service, **body, user="u", reasoning={"effort": "low"}, colour="red")
    assert answer.json()["store"] is False
    named = answer.headers["x-twinlens-ignored"].split(", ")
    assert named == ["colour", "input[0].content[0].weight", "reasoning", "store", "truncation"]


def test_an_error_before_the_first_piece_has_its_status_and_one_after_it_is_an_event(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('engine_args = ["--die-after", "2", "--piece-delay-s", "0.02"]')
    with serving(environ={"TWINLENS_CONFIG": str(config)}) as service:
        refused = post(service, input=user(image(image_url="x")), stream=True)
        assert refused.status_code == 400
        told: list[tuple[str, dict[str, Any]]] = []
        for _ in range(3):  # a request of the service's own may come between
            told = events(post(service, input="say one two three four", stream=True).text)
            if told[-1][0] == "response.failed":
                break
        kind, event = told[-1]
        assert kind == "response.failed"
        assert event["response"]["status"] == "failed"
        assert event["response"]["error"]["code"]
        assert [kind for kind, _ in told][:2] == ["response.created", "response.in_progress"]


def test_tasks_as_models(service: Service, client: Any) -> None:
    data = {"type": "input_image", "image_url": uri(pdfs.numbered(3)), "detail": "auto"}
    answer = client.responses.create(model="task:box", input=user(data))
    assert len(json.loads(answer.output_text)) == 3
    assert [page["page"] for page in answer.twinlens["pages"]] == [1, 2, 3]
    assert answer.twinlens["steps"][1] == {"step": "geometry", "changed": 3, "changes": {"/box": 3}}
    streamed = events(post(service, model="task:box", input=user(data), stream=True).text)
    text = "".join(event["delta"] for kind, event in streamed if kind == "response.output_text.delta")
    assert text == answer.output_text == streamed[-1][1]["response"]["output"][0]["content"][0]["text"]
    hidden = post(service, model="task:hiding", input=user(image()), stream=True)
    assert "1234" not in hidden.text
    assert events(hidden.text)[-1][1]["response"]["output"][0]["content"][0]["text"] == "call *** **** ****"
    variables = client.responses.create(
        model="task:each", input=user(image(), json.dumps({"text": "y"})), max_output_tokens=50
    )
    assert variables.model == "task:each"
    refused = post(service, model="task:box", input=user(image()), text={"format": {"type": "json_object"}})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "text.format")


def test_a_failed_page_in_this_form(service: Service) -> None:
    document = too_long_in_the_middle()
    data = {"type": "input_file", "file_data": document["url"], "page_text": True}
    plain = post(service, model="task:box", input=user(data))
    assert (plain.status_code, plain.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert plain.json()["error"]["message"].startswith("Page 2 of 3")
    streamed = events(post(service, model="task:box", input=user(data), stream=True).text)
    kind, event = streamed[-1]
    assert kind == "response.failed"
    assert json.loads(event["response"]["output"][0]["content"][0]["text"])[1] is None
    assert [page["page"] for page in event["response"]["twinlens"]["pages"]] == [1, 2, 3]


def test_redaction_and_keys_are_those_of_a_chat(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("k" * 40)
    environ = {"TWINLENS_API_KEYS": "k" * 40}
    with serving("--redact", "phone", environ=environ) as service:
        assert post(service, input="x").status_code == 401
        service.http.headers["authorization"] = "Bearer " + "k" * 40
        said = "say call 138 1234 5678 now"
        assert post(service, input=said).json()["output"][0]["content"][0]["text"] == "call *** **** **** now"
        streamed = post(service, input=said, stream=True)
        assert "1234" not in streamed.text.replace(json.dumps(said), "")
        assert "x-ratelimit-limit-requests" in streamed.headers
