"""What every engine promises, asked of each one that ships. Promises that need a model: test_engine_model.py."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import pytest

from tests.engines.harness import running
from twinlens.core import AnswerFormat
from twinlens.errors import (
    UnsupportedField,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.engines.harness import Asking, RunningEngine

SCHEMA = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["scratch", "dent", "none"]},
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
}


@pytest.fixture(scope="module", params=["fake", pytest.param("openvino", marks=pytest.mark.slow)])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def engine(kind: str) -> Iterator[RunningEngine]:
    extra = ("--piece-delay-s", "0.005", "--pieces", "400") if kind == "fake" else ()
    with running(kind, *extra) as started:
        yield started


@pytest.fixture
async def asking(engine: RunningEngine) -> AsyncIterator[Asking]:
    async with engine.asking() as client:
        yield client
        await client.until_idle(5)


def schema(value: Any) -> AnswerFormat:
    return AnswerFormat("json_schema", value)


# An answer that is long whatever the model would rather say.
LONG = schema({"const": " ".join(map(str, range(1500)))})


class TestHealth:
    async def test_says_what_it_is_and_can(self, asking: Asking, kind: str) -> None:
        health = await asking.health()
        assert health.status == "ok"
        assert health.fake == (kind == "fake")
        assert health.abilities.references
        assert health.capacity > 0
        assert health.context > 0
        assert health.model
        assert health.weights_id

    async def test_progress_grows_with_work(self, asking: Asking) -> None:
        before = (await asking.health()).progress
        await asking.ask("hello")
        assert (await asking.health()).progress > before

    async def test_answers_while_it_works(self, asking: Asking) -> None:
        work = [
            asyncio.create_task(asking.ask(asking.engine.picture(n), "go on", answer=LONG, max_tokens=60))
            for n in range(8)
        ]
        await asyncio.sleep(0)
        slowest = 0.0
        while not all(task.done() for task in work):
            begin = time.monotonic()
            await asking.health()
            slowest = max(slowest, time.monotonic() - begin)
            await asyncio.sleep(0.05)
        await asyncio.gather(*work)
        assert slowest < 1.0


class TestAnswer:
    async def test_text_then_reason_then_usage(self, asking: Asking) -> None:
        said = await asking.ask("hello there")
        assert said.pieces[-1].index == -1
        assert said.reason in ("stop", "length")
        assert 0 < said.usage.completion_tokens <= 16
        assert said.usage.total_tokens == said.usage.prompt_tokens + said.usage.completion_tokens

    async def test_comes_in_pieces(self, asking: Asking) -> None:
        said = await asking.ask("hello there", answer=LONG, max_tokens=12)
        assert len([piece for piece in said.pieces if piece.text]) > 1

    async def test_max_tokens_is_kept(self, asking: Asking) -> None:
        said = await asking.ask("hello there", answer=LONG, max_tokens=3)
        assert said.usage.completion_tokens == 3
        assert said.reason == "length"

    async def test_same_question_same_answer(self, asking: Asking) -> None:
        picture = asking.engine.picture(1)
        first, second = [await asking.ask(picture, "what is this?") for _ in range(2)]
        assert first.text == second.text
        assert first.usage == second.usage

    async def test_plain_answer_is_the_fold_of_the_stream(self, asking: Asking) -> None:
        body = {"messages": [{"role": "user", "content": "one two three"}], "max_tokens": 8, "temperature": 0}
        status, plain = await asking.post(body)
        streamed = await asking.ask("one two three", max_tokens=8)
        assert status == 200
        assert plain["choices"][0]["message"]["content"] == streamed.text
        assert plain["choices"][0]["finish_reason"] == streamed.reason
        assert plain["usage"]["completion_tokens"] == streamed.usage.completion_tokens

    async def test_several_pictures_over_several_turns(self, asking: Asking) -> None:
        one, two, three = (asking.engine.picture(n, 112, 56 * (n + 2)) for n in range(3))
        turns = [
            ("system", ("Answer shortly.",)),
            ("user", ("A", one, "B", two, "C")),
            ("assistant", ("I see.",)),
            ("user", (three, "and this?")),
        ]
        said = await asking.answer(asking.talk(turns))
        assert said.reason in ("stop", "length")

    async def test_assistant_turn_without_text(self, asking: Asking) -> None:
        said = await asking.answer(asking.talk([("user", ("hi",)), ("assistant", ()), ("user", ("again",))]))
        assert said.usage.completion_tokens > 0

    @pytest.mark.parametrize("n", [1, 3])
    async def test_n_choices_each_with_its_reason(self, asking: Asking, n: int) -> None:
        said = await asking.ask(asking.engine.picture(2), "name it", n=n, temperature=0.9, seed=7, max_tokens=6)
        assert sorted(said.texts) == list(range(n))
        assert all(said.reasons.values())
        assert said.usage.completion_tokens <= 6 * n
        alone = await asking.ask(asking.engine.picture(2), "name it", n=1, temperature=0.9, seed=7, max_tokens=6)
        assert said.usage.prompt_tokens == alone.usage.prompt_tokens

    async def test_stop_string_is_not_shown(self, asking: Asking) -> None:
        whole = await asking.ask("say one two three four", answer=LONG, max_tokens=24)
        stop = whole.text[len(whole.text) // 2 :][:4]
        assert whole.text.index(stop) > 0
        said = await asking.ask("say one two three four", answer=LONG, max_tokens=24, stop=(stop,))
        assert said.text == whole.text[: whole.text.index(stop)]
        assert said.reason == "stop"
        assert said.usage.completion_tokens <= whole.usage.completion_tokens

    async def test_logprobs_of_the_chosen_tokens(self, asking: Asking) -> None:
        said = await asking.ask("hello", logprobs=True, max_tokens=5)
        tokens = [token for piece in said.pieces for token in piece.logprobs]
        assert 0 < len(tokens) <= said.usage.completion_tokens
        assert all(token.logprob <= 0 for token in tokens)
        assert all(bytes(token.bytes).decode(errors="replace") == token.token for token in tokens)

    async def test_no_logprobs_unless_asked(self, asking: Asking) -> None:
        said = await asking.ask("hello")
        assert not any(piece.logprobs for piece in said.pieces)


class TestJson:
    async def test_answer_satisfies_the_schema(self, asking: Asking) -> None:
        said = await asking.ask(asking.engine.picture(4), "describe", answer=schema(SCHEMA), max_tokens=200)
        assert said.reason == "stop"
        jsonschema_rs.validator_for(SCHEMA).validate(json.loads(said.text))

    async def test_json_object(self, asking: Asking) -> None:
        said = await asking.ask("an object", answer=AnswerFormat("json_object"), max_tokens=300)
        if said.reason == "stop":
            assert isinstance(json.loads(said.text), dict)
        else:
            assert said.text.startswith("{")

    async def test_non_ascii_names_and_values(self, asking: Asking) -> None:
        """JSON-08."""
        value = {"type": "object", "properties": {"面料": {"const": "理想"}}, "required": ["面料"]}
        said = await asking.ask("写", answer=schema(value), max_tokens=60)
        assert json.loads(said.text) == {"面料": "理想"}
        assert "\\u" not in said.text


class TestRefusals:
    @pytest.mark.parametrize(("field", "value"), [("top_logprobs", 3), ("n", 99)], ids=["top_logprobs", "n"])
    async def test_names_the_field_that_it_cannot_honour(self, asking: Asking, field: str, value: int) -> None:
        with pytest.raises(UnsupportedField) as refused:
            await asking.ask("hello", **{field: value, "logprobs": True})
        assert refused.value.param == field

    @pytest.mark.parametrize(
        ("change", "param"),
        [
            ({"n": "2"}, "n"),
            ({"temperature": "hot"}, "temperature"),
            ({"max_tokens": 0}, "max_tokens"),
            ({"messages": []}, "messages"),
            ({"messages": [{"role": "nobody", "content": "x"}]}, "messages[0].role"),
            ({"top_p": 0}, "top_p"),
        ],
    )
    async def test_wrong_types_are_named(self, asking: Asking, change: dict[str, Any], param: str) -> None:
        body = {"messages": [{"role": "user", "content": "x"}], **change}
        status, answer = await asking.post(body)
        assert status == 400
        assert answer["error"]["param"] == param
        assert set(answer["error"]) == {"message", "type", "param", "code"}


class TestCancel:
    async def test_leaving_a_stream_frees_its_place(self, asking: Asking) -> None:
        """API-01: within a second."""
        pieces = asking.client.generate(asking.request("go on", answer=LONG, max_tokens=2000), [])
        async for _ in pieces:
            break
        await pieces.aclose()
        assert await asking.until_idle(1.0) < 1.0

    async def test_leaving_before_the_answer_frees_its_place(self, asking: Asking) -> None:
        wanted = {"type": "json_schema", "json_schema": {"schema": LONG.schema}}
        body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2000, "response_format": wanted}
        task = asyncio.create_task(asking.post(body))
        while not (await asking.health()).running:
            await asyncio.sleep(0.005)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert await asking.until_idle(1.0) < 1.0

    async def test_the_others_go_on(self, asking: Asking) -> None:
        keep = [asyncio.create_task(asking.ask(f"keep {n}", max_tokens=50)) for n in range(4)]
        drop = [asyncio.create_task(asking.ask(f"drop {n}", answer=LONG, max_tokens=2000)) for n in range(4)]
        await asyncio.sleep(0.2)
        for task in drop:
            task.cancel()
        answers = await asyncio.gather(*keep)
        assert all(answer.reason in ("stop", "length") for answer in answers)


class TestTogether:
    async def test_sixteen_at_a_time(self, asking: Asking) -> None:
        said = await asyncio.gather(
            *(asking.answer(asking.request(asking.engine.picture(n % 4), f"number {n}")) for n in range(16))
        )
        assert all(answer.reason in ("stop", "length") for answer in said)

    async def test_mixed_answers_are_those_of_each_alone(self, asking: Asking) -> None:
        """Nothing of one request comes out in another, though all share a batch and a cache."""
        kinds = [(asking.engine.picture(n), f"question {n}") for n in range(6)]
        alone = [(await asking.ask(*kind, max_tokens=6)).usage for kind in kinds]
        together = await asyncio.gather(*(asking.ask(*kind, max_tokens=6) for kind in kinds))
        assert [said.usage for said in together] == alone
