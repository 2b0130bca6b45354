# ruff: noqa: E501  (tables of strings)
"""Nothing personal leaves, nothing else is touched, and an answer in pieces is read like a whole one."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.finish.strings import cases, measured
from twinlens.core import AnswerFormat
from twinlens.errors import TaskError
from twinlens.finish.redact import Redact
from twinlens.finish.seam import About, Draft, Seen

PLAN = Redact({}, About())
JSON = AnswerFormat("json_object")
CASES = cases(7, 60)
TRICKY = "0123456789 -+()@.xX·京沪A粤DE姓名:患者\n\"'\u200b１２３通passport护照号nNamE,"


def streamed(plan: Redact, pieces: list[str]) -> str:
    run: Any = plan.begin(Seen())
    said: str = "".join(run.feed(piece) for piece in pieces) + run.end("stop")
    return said


def through(value: Any, **options: Any) -> Any:
    plan = Redact(options, About(JSON, secret="k" * 20))
    run: Any = plan.begin(Seen())
    return run.finish(Draft(json.dumps(value))).value


def test_recall_and_precision_on_generated_strings_with_near_misses(capsys: pytest.CaptureFixture[str]) -> None:
    recall, precision, wrong = measured(20261201, 300)
    assert sum(count for _, count in (*recall.values(), *precision.values())) >= 2000
    hidden, secrets = (sum(pair[at] for pair in recall.values()) for at in (0, 1))
    untouched, near = (sum(pair[at] for pair in precision.values()) for at in (0, 1))
    exact = 100 * hidden / (hidden + near - untouched)
    with capsys.disabled():
        print(
            f"\nredaction: recall {100 * hidden / secrets:.2f}%, precision {exact:.2f}%, near misses {untouched}/{near}"
        )
    assert hidden / secrets >= 0.995, wrong[:5]
    assert exact >= 99.5, wrong[-5:]


@pytest.mark.parametrize("case", CASES[:: len(CASES) // 80], ids=lambda case: case.kind)
def test_one_character_at_a_time_gives_the_same(case: Any) -> None:
    assert streamed(PLAN, list(case.text)) == PLAN.reader.read(case.text)[0]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(CASES), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_any_split_of_sentences_gives_the_text_of_the_whole(chosen: list[Any], rng: Any) -> None:
    text = " ".join(case.text for case in chosen)
    assert streamed(PLAN, split(text, rng)) == PLAN.reader.read(text)[0]


@settings(max_examples=500, deadline=None)
@given(st.text(TRICKY, max_size=150), st.randoms(use_true_random=False))
def test_any_split_of_anything_gives_the_text_of_the_whole(text: str, rng: Any) -> None:
    assert streamed(PLAN, split(text, rng)) == PLAN.reader.read(text)[0]


def split(text: str, rng: Any) -> list[str]:
    pieces = []
    while text:
        size = rng.choice([1, 1, 2, 3, 5, 17, 80])
        pieces.append(text[:size])
        text = text[size:]
    return pieces


def test_a_long_answer_is_read_alike_and_its_buffer_stays_small() -> None:
    text = "\n".join(case.text for case in CASES * 4)
    run: Any = PLAN.begin(Seen())
    said = [run.feed(text[at : at + 7]) for at in range(0, len(text), 7)]
    assert len(run._scanner._text) < 10_000
    assert "".join(said) + run.end("stop") == PLAN.reader.read(text)[0]


def test_what_could_be_hidden_is_held_back_and_nothing_more() -> None:
    run: Any = PLAN.begin(Seen())
    assert run.feed("The total is nice. Call ") == "The total is nice. Call "
    assert run.feed("138") == ""
    assert run.feed(" 1234 ") == ""
    assert run.feed("5678, thanks") == "*** **** ****, "
    assert run.end("stop") == "thanks"


@pytest.mark.parametrize(
    "text",
    [
        "11010519491231002X",
        "110105 19491231 002x",
        "110105-1949-1231-002X",
        "１１０１０５１９４９１２３１００２Ｘ",
        "1\u200b1010519491231002X",
        "1 1 0 1 0 5 1 9 4 9 1 2 3 1 0 0 2 X",
        "ID11010519491231002X",
        "4111 1111 1111 1111",
        "4111\u00a01111\u20111111-1111",
        "+8613812345678",
        "0086 138 1234 5678",
        "1.13812345678",
        "tel.13812345678",
        "13812345678²",
        "P<CHNZHANG<<SAN<<<<<<<<<<<<<<<<<<<<<<<<<<<<<",
        "E123456784CHN9001011M3001019<<<<<<<<<<<<<<04",
        "京A12345",
        "粤B·D12345",
        "WJ京1234X",
    ],
)
def test_written_in_other_ways_it_is_still_hidden(text: str) -> None:
    said = PLAN.reader.read(f"见 {text} 。")[0]
    assert not re.search(r"[0-9０-９]{2}", said), said


@pytest.mark.parametrize(
    "text",
    [
        "110105194912310021",
        "622301199003070007",  # of Gansu, whose numbers begin like a card's
        "4111 1111 1111 1112",
        "12012345678",
        "0.13812345678",
        "京A1234",
        "E12345678",
        "2024-01-15 10:30",
    ],
)
def test_near_misses_stay(text: str) -> None:
    assert PLAN.reader.read(f"见 {text} 。")[0] == f"见 {text} 。"


def test_json_is_hidden_by_field_and_by_content_and_keeps_its_keys() -> None:
    record = {
        "name": "Ada Lovelace",
        "ID Number": "not even a number 12",
        "idCardNo": 110105,
        "note": "call 13812345678 or ada@example.com",
        "items": [{"phone": 13812345678, "total": 12.5}, {"other": 13812345678, "age": 41}],
        "patient": {"first": "Ada", "born": None, "dead": False},
        "ok": True,
    }
    done = through(record)
    assert list(done) == list(record)
    assert done["name"] == "*** ********"
    assert done["idCardNo"] == "******"
    assert done["note"] == "call *********** or ***@*******.***"
    assert done["items"] == [{"phone": "*" * 11, "total": 12.5}, {"other": "*" * 11, "age": 41}]
    assert done["patient"] == {"first": "***", "born": None, "dead": False}
    assert done["ok"] is True
    assert not re.search(r"1381|Ada|110105|even", json.dumps(done))


def test_escapes_do_not_hide_digits() -> None:
    plan = Redact({}, About(JSON))
    run: Any = plan.begin(Seen())
    text = '{"note": "\\u0031\\u0033812345678"}'
    assert run.finish(Draft(text)).value == {"note": "*" * 11}
    assert "381234" not in plan.seal(text)
    assert "381234" not in plan.seal("broken " + text)


def test_personal_data_in_a_key_is_hidden_too_and_no_entry_is_lost() -> None:
    done = through({"13812345678": 1, "13912345678": 2, "plain": 3})
    assert len(done) == 3
    assert "plain" in done
    assert "1381" not in json.dumps(done)


def test_dropped_and_hashed() -> None:
    record = {"phone": "138 1234 5678", "note": "id 11010519491231002X", "mobile": "13812345678", "n": 13812345678}
    assert through(record, action="drop") == {"phone": None, "note": "id ", "mobile": None, "n": None}
    hashed = through(record, action="hash")
    assert hashed["phone"] == hashed["mobile"] == hashed["n"]
    assert re.fullmatch(r"\[phone#[a-p]{16}\]", hashed["phone"])
    other = Redact({"action": "hash"}, About(JSON, secret="another"))
    assert other.hidden("phone", "13812345678") != hashed["phone"]
    with pytest.raises(TaskError, match="key"):
        Redact({"action": "hash"}, About())


def test_hidden_text_is_not_hidden_again() -> None:
    for action in ("mask", "hash"):
        reader = Redact({"action": action}, About(secret="s")).reader
        for case in CASES[::5]:
            once = reader.read(case.text)[0]
            assert reader.read(once)[0] == once


def test_reports_say_where_and_what_but_no_content() -> None:
    schema = {"type": "object", "properties": {"items": {"type": "array", "items": {"properties": {"phone": {}}}}}}
    plan = Redact({}, About(AnswerFormat("json_schema", schema)))
    run: Any = plan.begin(Seen())
    run.finish(Draft(json.dumps({"items": [{"phone": "1"}, {"phone": "2"}], "Ada": {"phone": "3"}})))
    assert run.changes() == {"/items/*/phone phone": 2, "/?/phone phone": 1}


def test_choice_of_kinds_actions_and_fields() -> None:
    assert through({"name": "Ada", "phone": "13812345678"}, kinds=["phone"]) == {"name": "Ada", "phone": "*" * 11}
    assert through({"ward": "7 B"}, fields=["Ward"]) == {"ward": "* *"}
    done = through({"name": "Ada", "card number": "4111111111111111"}, actions={"name": "drop"}, keep_last=4)
    assert done == {"name": None, "card number": "************1111"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kind": ["id"]}, "Did you mean “kinds”"),
        ({"kinds": ["face"]}, "kinds"),
        ({"regions": ["XX"]}, "XX"),
        ({"actions": {"phoen": "drop"}}, "phone"),
        ({"keep_last": 9}, "keep_last"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(TaskError, match=said) as refused:
        Redact(options, About(where="steps[1]"))
    assert "steps[1]" in refused.value.message


@settings(max_examples=200, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.floats(allow_nan=False, allow_infinity=False) | st.text(TRICKY),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["name", "a", "phone", "x"]), inner, max_size=4),
        max_leaves=20,
    )
)  # fmt: skip
def test_any_value_stays_json_with_its_keys(value: Any) -> None:
    plan = Redact({}, About(JSON))
    done, _ = plan.values.read(value)
    assert msgspec.json.decode(msgspec.json.encode(done)) == done
    assert shape(done) == shape(value)
    assert plan.values.read(done)[0] == done


def shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    return [shape(item) for item in value] if isinstance(value, list) else None
