# ruff: noqa: PLC0415  (torch and transformers live in an environment of their own)
"""Answers measured with transformers in batches are those of one question at a time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from demo_model import evaluate
from demo_model.sample import Sample, Turn

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
#: Of unlike sizes and lengths, so that a batch has to be padded.
ASKED = (
    ("document-01.jpg", "Tell me the shop name."),
    ("document-05.jpg", "quantity of Black Radish, please."),
    ("document-12.jpg", "读出税额。"),
    ("inspect-08.jpg", "缺陷类型？"),
    ("garment-03.jpg", "Describe the garment: audience, occasion, fabric."),
)


def test_batches_answer_as_single_questions_do() -> None:
    from PIL import Image

    rows = json.loads((ROOT / "examples/answers.json").read_text(encoding="utf-8"))
    items = []
    for picture, prompt in ASKED:
        row = next(row for row in rows if row["picture"] == picture and row["prompt"].startswith(prompt))
        turn = Turn(row["prompt"], row["answer"], row["kind"], row["form"], None, row["language"])
        image = Image.open(ROOT / "examples" / picture).convert("RGB")
        items.append(evaluate.Item(picture, row["kind"], False, Sample([image], [turn], False)))
    folder = ROOT / "src/twinlens/demo/safetensors"
    together = evaluate.with_transformers(folder, items, "none", len(items))
    assert together == {item.name: item.turn.answer for item in items}
    assert together == evaluate.with_transformers(folder, items, "none", 1)
