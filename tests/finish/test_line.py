"""The line of steps: one contract for all kinds, streams and whole answers alike, a second question at most."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
from typing import TYPE_CHECKING, Any

import pytest

from twinlens.core import AnswerFormat, Message, Piece, Request, TextPart, TokenLogprob, Usage
from twinlens.errors import AnswerError, AnswerStalled, AnswerTruncated, ContextLengthExceeded, FinishError, TaskError
from twinlens.finish import steps
from twinlens.finish.line import finished, work
from twinlens.finish.redact import Redact
from twinlens.finish.seam import About, Draft, Frame, Seen

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

SCHEMA = {
    "type": "object",
    "properties": {"box": {"type": "array"}, "phone": {"type": "string"}},
    "required": ["box", "phone"],
}
FORMAT = AnswerFormat("json_schema", SCHEMA)
ANSWER = '{"box": [0, 0, 500, 500], "phone": "13812345678"}'
SEEN = Seen((Frame((100, 200), (56, 112)),))
OPTIONS: dict[str, dict[str, Any]] = {
    "schema": {},
    "redact": {},
    "geometry": {"boxes": ["/box"]},
    "template": {"template": '{"p": {{ answer.phone|tojson }} }'},
    "shout": {},
}


class Shout:
    """A step as a user may write it."""

    name, per_piece, private = "shout", True, False

    def __init__(self, options: Mapping[str, Any], about: About) -> None:
        self.about = about

    def begin(self, seen: Seen) -> Shout:
        return self

    def feed(self, text: str) -> str:
        return text.upper()

    def end(self, reason: str) -> str:
        return ""

    def changes(self) -> Mapping[str, int]:
        return {}


@pytest.fixture(autouse=True)
def shout(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's step among ours."""
    monkeypatch.setitem(steps.OURS, "shout", Shout)
    steps.kinds.cache_clear()


class Engine:
    """Answers with the given texts in turn, cut into pieces of `size`; remembers what it was asked."""

    def __init__(self, *answers: str, reason: Any = "stop", size: int = 3, error: Exception | None = None) -> None:
        self.answers = list(answers)
        self.reason = reason
        self.size = size
        self.error = error
        self.asked: list[Request] = []
        self.open = 0

    async def __call__(self, request: Request) -> AsyncGenerator[Piece, None]:
        self.asked.append(request)
        if self.error and len(self.asked) > 1:
            raise self.error
        text = self.answers[len(self.asked) - 1]
        self.open += 1
        try:
            for at in range(0, len(text), self.size):
                part = text[at : at + self.size]
                yield Piece(0, part, logprobs=(TokenLogprob(part, -1.0),), tool_calls=({"index": 0},))
                await asyncio.sleep(0)
            yield Piece(0, finish_reason=self.reason)
            yield Piece(-1, usage=Usage(10, len(text), 4))
        finally:
            self.open -= 1


def request(*plans: Any, answer: AnswerFormat = FORMAT) -> Request:
    return Request("r", "m", (Message("user", (TextPart("ask"),)),), (), answer=answer, finishing=plans)


def plans(*names: str, answer: AnswerFormat = FORMAT) -> list[Any]:
    given = [{"use": name, **OPTIONS[name]} for name in names]
    return [steps.prepare(one, About(answer, f"steps[{at}]")) for at, one in enumerate(given)]


async def answered(engine: Engine, asked: Request) -> list[Piece]:
    return [piece async for piece in finished(engine, asked, SEEN)]


def text_of(pieces: Sequence[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


@pytest.mark.parametrize("name", OPTIONS)
async def test_every_kind_keeps_the_contract(name: str) -> None:
    for answer in (FORMAT, AnswerFormat()):
        if answer.kind == "text" and name in ("schema", "geometry"):
            continue
        if answer.kind == "text" and name == "template":
            OPTIONS[name] = {"template": "{{ answer }}", "output": "text"}
        (plan,) = plans(name, answer=answer)
        assert plan.name == name
        whole, reports = work([plan], Draft(ANSWER), SEEN)
        assert [report.step for report in reports] == [name]
        for size in (1, 2, 7, 1000):
            engine = Engine(ANSWER, size=size)
            pieces = await answered(engine, request(plan, answer=answer))
            assert text_of(pieces) == whole.text
            assert [piece.finish_reason for piece in pieces if piece.finish_reason] == ["stop"]
            assert pieces[-1].usage == Usage(10, len(ANSWER), 4)
            assert pieces[-1].reports == tuple(reports)
            assert engine.open == 0
            if plan.private or not plan.per_piece:
                assert not any(piece.logprobs or piece.tool_calls for piece in pieces)
            if not plan.per_piece:
                assert len(engine.asked) == 1
                assert [piece.text for piece in pieces[:-1]] == [whole.text]
    OPTIONS["template"] = {"template": '{"p": {{ answer.phone|tojson }} }'}


async def test_steps_work_in_their_order() -> None:
    chain = plans("schema", "geometry", "redact", "template", "shout")
    pieces = await answered(Engine("```json\n" + ANSWER + "\n```"), request(*chain))
    assert text_of(pieces) == json.dumps({"P": "*" * 11}, separators=(",", ":"))
    assert {report.step: dict(report.changes) for report in pieces[-1].reports} == {
        "schema": {"fence": 1},
        "geometry": {"/box": 1},
        "redact": {"/phone phone": 1},
        "template": {"whole answer": 1},
        "shout": {},
    }


async def test_an_unfit_answer_is_asked_for_once_more_with_the_reason_and_both_are_counted() -> None:
    engine = Engine('{"box": 1}', ANSWER)
    pieces = await answered(engine, request(*plans("schema")))
    assert json.loads(text_of(pieces)) == json.loads(ANSWER)
    first, second = engine.asked
    assert [turn.role for turn in second.messages] == [*(turn.role for turn in first.messages), "assistant", "user"]
    assert "schema" in second.messages[-1].parts[0].text  # type: ignore[union-attr]
    assert pieces[-1].usage == Usage(20, len('{"box": 1}') + len(ANSWER), 8)


async def test_a_second_unfit_answer_fails_loudly_with_the_raw_text_cleaned() -> None:
    raw = '{"phone": "13812345678", "box": 1}'
    engine = Engine(raw, raw, raw)
    with pytest.raises(AnswerError) as failed:
        await answered(engine, request(*plans("schema", "redact")))
    assert len(engine.asked) == 2
    assert failed.value.raw == '{"phone":"***********","box":1}'
    assert failed.value.body()["twinlens"] == {"raw_answer": failed.value.raw}
    assert "1381" not in json.dumps(failed.value.body())


async def test_no_second_question_where_there_is_no_room_for_it() -> None:
    engine = Engine("{}", error=ContextLengthExceeded("full"))
    with pytest.raises(AnswerError, match="schema") as failed:
        await answered(engine, request(*plans("schema")))
    assert failed.value.raw == "{}"


async def test_json_02_a_cut_answer_is_not_asked_for_again() -> None:
    engine = Engine(ANSWER, ANSWER, reason="length")
    with pytest.raises(AnswerTruncated):
        await answered(engine, request(*plans("schema")))
    assert len(engine.asked) == 1


async def test_json_01_white_space_is_cut_short_and_asked_for_once_more() -> None:
    engine = Engine('{"box":' + " " * 2000, ANSWER)
    assert json.loads(text_of(await answered(engine, request(*plans("schema"))))) == json.loads(ANSWER)
    with pytest.raises(AnswerError, match="white space") as failed:
        await answered(Engine(*(['{"a":' + "\n" * 2000] * 2)), request(*plans("schema")))
    assert len(failed.value.raw or "") < 1000
    assert failed.value.code == AnswerStalled.code


async def test_leaving_a_stream_early_closes_the_engine() -> None:
    for chain in (plans("shout"), plans("schema")):
        engine = Engine(ANSWER)
        pieces = finished(engine, request(*chain), SEEN)
        if chain[0].per_piece:
            await anext(pieces)
        await pieces.aclose()
        assert engine.open == 0


class Broken(Shout):
    """A step with a bug whose text holds a part of the answer."""

    name = "broken"

    def feed(self, text: str) -> str:
        raise ValueError("cannot read 13812345678")


async def test_a_bug_in_a_users_step_tells_nothing_of_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    for others in ([], plans("schema")):
        with pytest.raises(FinishError, match="broken") as failed:
            await answered(Engine(ANSWER), request(Broken({}, About()), *others))
        assert "1381" not in failed.value.message + caplog.text
    assert "test_line.py" in caplog.text


async def test_a_private_step_that_cannot_clean_text_keeps_the_raw_answer_back() -> None:
    class Hidden(Shout):
        private = True

    with pytest.raises(AnswerError) as failed:
        await answered(Engine("no", "no"), request(*plans("schema"), Hidden({}, About())))
    assert failed.value.raw is None


async def test_tokens_of_hidden_text_never_leave_with_log_probabilities() -> None:
    plan = Redact({}, About())
    pieces = await answered(Engine("call １３８１２３４５６７８ now", size=1), request(plan, answer=AnswerFormat()))
    assert text_of(pieces) == "call *********** now"
    assert not any(piece.logprobs or piece.tool_calls for piece in pieces)


def test_unknown_kinds_are_named_with_the_nearest() -> None:
    with pytest.raises(TaskError, match="Did you mean “redact”"):
        steps.prepare({"use": "redcat"}, About())
    with pytest.raises(TaskError, match="use"):
        steps.prepare({}, About())


def test_steps_of_other_packages_come_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(name: str, value: str) -> Any:
        entry = importlib.metadata.EntryPoint(name, value, steps.GROUP)
        monkeypatch.setattr(steps, "entry_points", lambda group: [entry] if group == steps.GROUP else [])
        steps.kinds.cache_clear()

    found("mine", "tests.finish.test_line:Shout")
    assert type(steps.prepare({"use": "mine"}, About())).__name__ == "Shout"
    found("redact", "tests.finish.test_line:Shout")
    with pytest.raises(TaskError, match="there is already"):
        steps.kinds()
    found("mine", "no_such_module:Shout")
    with pytest.raises(TaskError, match="no_such_module"):
        steps.kinds()
    steps.kinds.cache_clear()
