"""The generator: same seed, same sample; answers fit their schemas; training and held-out never meet."""

from __future__ import annotations

import json
import re
from random import Random
from typing import Any

import jsonschema_rs
import pytest

from demo_model import data, documents, evaluate, wordings, words
from demo_model.architecture import FACTOR, MAX_PIXELS, MIN_PIXELS
from demo_model.fonts import FACES


@pytest.mark.parametrize("skill", data.SKILLS)
def test_a_seed_gives_the_same_sample(skill: str) -> None:
    one, other = (data.sample(7, skill, 280, 252, noise=True, how_many=3) for _ in range(2))
    assert one.turns == other.turns
    assert one.images[0].tobytes() == other.images[0].tobytes()
    assert one.images[0].size == (280, 252)
    assert data.sample(8, skill, 280, 252).turns != one.turns


@pytest.mark.parametrize("skill", data.SKILLS)
@pytest.mark.parametrize("held", [False, True])
def test_answers_fit_their_schemas(skill: str, held: bool) -> None:
    for seed in range(25):
        made = data.sample(seed, skill, 300, 320, held, chinese=seed % 2 == 1, how_many=5)
        for turn in made.turns:
            if turn.schema is not None:
                answer = json.loads(turn.answer)
                assert jsonschema_rs.is_valid(turn.schema, answer), (turn.schema, turn.answer)
                assert "\n" not in turn.answer
                assert '": ' not in turn.answer
            if turn.kind == "box":
                left, top, right, bottom = json.loads(turn.answer)
                assert 0 <= left < right <= 1000
                assert 0 <= top < bottom <= 1000


def test_values_belong_to_one_side() -> None:
    names = "word person company goods digits code money date address".split()  # noqa: SIM905
    for held in (False, True):
        values = words.Values(Random(3), held)
        for _ in range(60):
            for name in names:
                value = values.digits(6, 9) if name == "digits" else getattr(values, name)()
                assert len(value) < 4 or words.is_held(value) == held


@pytest.mark.parametrize("chinese", [False, True])
def test_clauses_of_training_are_never_those_of_evaluation(chinese: bool) -> None:
    forms = (documents.CLAUSES_ZH if chinese else documents.CLAUSES)[1]
    held = [re.compile(re.sub(r"\\{\w\\}", ".+", re.escape(form))) for form in forms]
    repeated = 0
    for seed in range(150):
        rng = Random(seed)
        text = documents.clause_texts(rng, words.Values(rng, held=False), chinese)
        page = [text() for _ in range(6)]
        repeated += len({line[: 2 if chinese else 6] for line in page}) <= 3
        for line in page:
            assert not any(form.fullmatch(line) for form in held), line
            assert not documents.KEPT_WORDS & set(re.findall(r"[a-z]+", line.lower())), line
    assert 25 < repeated < 120  # pages that say the same again with other values, and pages that do not


def test_wordings_and_fonts_are_disjoint() -> None:
    tables: list[dict[str, Any]] = [table for name, table in vars(words).items() if name.endswith("_ASKS")]
    assert len(tables) > 12
    for table in tables:
        for training, held in table.values():
            assert training
            assert held
            assert not set(training) & set(held)
    for chinese in (False, True):
        sides = [
            {face.name for face in FACES if face.chinese == chinese and face.held == held} for held in (False, True)
        ]
        assert all(sides)
        assert not sides[0] & sides[1]


def test_seeds_of_training_evaluation_and_examples_are_apart() -> None:
    assert data.train_seed(data.RUNS - 1, 63, (1 << 17) - 1) < data.TRAIN_SEEDS < data.HELD_SEED < data.EXAMPLE_SEED
    last = data.HELD_SEED + len(evaluate.SETS) * 10_000_000
    assert last < data.EXAMPLE_SEED


def test_sizes_stay_within_the_limits() -> None:
    rng = Random(2)
    for _ in range(300):
        wide, tall = data.fitted(rng.randint(40, 3000), rng.randint(40, 3000))
        assert wide % FACTOR == 0
        assert tall % FACTOR == 0
        assert MIN_PIXELS <= wide * tall <= MAX_PIXELS
    for area, (low, high) in data.AREAS.items():
        down, across = data.grid(rng, area)
        assert low <= down * across <= high


def test_scores() -> None:
    row = {"form": "json", "answer": '{"a":"x","b":null,"box":[0,0,10,10]}'}
    perfect = evaluate.score(row, row["answer"])
    assert perfect == {"exact": 1.0, "valid": 1.0, "fields": 1.0, "nulls": 1.0, "iou": 1.0, "iou50": 1.0}
    partly = evaluate.score(row, '{"a":"y","b":null,"box":[0,0,10,5]}')
    assert partly["exact"] == 0
    assert partly["fields"] == 0.5
    assert partly["iou"] == pytest.approx(0.5)
    assert evaluate.score(row, "nonsense")["valid"] == 0
    assert evaluate.score({"form": "text", "answer": "left"}, " left ")["exact"] == 1


@pytest.mark.parametrize("table", list(wordings.PATTERNS))
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_composed_wordings_are_many_and_never_held_out(table: str, lang: str) -> None:
    rng = Random(5)
    listed = next(rows for name, rows in vars(words).items() if table.startswith(name) and isinstance(rows, dict))
    kept = [each.partition("#")[0] for each in listed[lang][1]]
    made = {wordings.compose(rng, table, lang, kept) for _ in range(300)}
    assert len(made) > 20
    assert not made & set(kept)
    for each in made:
        assert each.format(f="F", o="O", p="P", d="D", k="K", n=1, nth="first")
        assert not set("[]|#") & set(each)
