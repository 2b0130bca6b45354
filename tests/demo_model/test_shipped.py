"""The shipped files: sizes, agreement of both forms, right answers about examples from the embedded engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from demo_model import evaluate
from demo_model.architecture import model_config, preprocessor_config
from demo_model.sample import Sample, Turn

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "src/twinlens/demo"
EXAMPLES = ROOT / "examples"

#: Examples of every kind that the shipped weights are known to answer right.
KNOWN = (
    ("document-01.jpg", "Tell me the shop name."),
    ("document-05.jpg", "quantity of Black Radish, please."),
    ("document-06.jpg", "Extract the fields as JSON."),
    ("document-12.jpg", "读出税额。"),
    ("read-10.png", "Write out what is printed."),
    ("contract-04.jpg", "把条款整理成列表。"),
    ("inspect-08.jpg", "缺陷类型？"),
    ("garment-03.jpg", "Describe the garment: audience, occasion, fabric."),
    ("refuse-02.jpg", "What colour is the gray cup?"),
)


def rows() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((EXAMPLES / "answers.json").read_text(encoding="utf-8"))
    return found


def test_sizes() -> None:
    sizes = {
        form: sum(path.stat().st_size for path in (SHIPPED / form).iterdir()) for form in ("safetensors", "openvino")
    }
    assert sizes["safetensors"] <= 24e6
    assert sizes["openvino"] <= 12e6
    assert sum(path.stat().st_size for path in EXAMPLES.iterdir()) < 3e6


def test_both_forms_carry_the_same_settings() -> None:
    for form in ("safetensors", "openvino"):
        assert json.loads((SHIPPED / form / "config.json").read_text()) == model_config()
        assert json.loads((SHIPPED / form / "preprocessor_config.json").read_text()) == preprocessor_config()
    for name in ("tokenizer.json", "chat_template.jinja"):
        assert (SHIPPED / "safetensors" / name).read_bytes() == (SHIPPED / "openvino" / name).read_bytes()


def test_examples_have_answers() -> None:
    listed = rows()
    pictures = {row["picture"] for row in listed}
    assert pictures == {path.name for path in EXAMPLES.iterdir() if path.suffix in (".png", ".jpg")}
    for kind in {row["kind"] for row in listed}:
        assert len({row["picture"] for row in listed if row["kind"] == kind}) == 12


@pytest.mark.slow
def test_answers_of_the_embedded_engine() -> None:
    from PIL import Image  # noqa: PLC0415

    items = []
    for picture, prompt in KNOWN:
        row = next(row for row in rows() if row["picture"] == picture and row["prompt"].startswith(prompt))
        turn = Turn(row["prompt"], row["answer"], row["kind"], row["form"], row.get("schema"), row["language"])
        image = Image.open(EXAMPLES / picture).convert("RGB")
        items.append(evaluate.Item(picture, row["kind"], False, Sample([image], [turn], False)))
    said = evaluate.with_openvino(SHIPPED / "openvino", items, "none", 2, True)
    wrong = {
        item.name: (said[item.name], item.turn.answer)
        for item in items
        if not evaluate.score({"form": item.turn.kind, "answer": item.turn.answer}, said[item.name])["exact"]
    }
    assert not wrong
