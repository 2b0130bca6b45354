"""The shipped tokenizer: special tokens, round trips, and the chat template's form."""

from __future__ import annotations

import json
from pathlib import Path

import jinja2
import pytest

from demo_model.architecture import CHAT_TEMPLATE, SPECIAL_IDS, VOCABULARY
from demo_model.data import Encoder, sample
from demo_model.tokenizer import load

SHIPPED = Path(__file__).parents[2] / "src/twinlens/demo/safetensors"


@pytest.mark.parametrize(
    "text",
    [
        '{"total":1284.50,"date":"2025-04-22"}',
        "王小明 买方应在5天内验收。",
        "mDmW6nM3 -_/#.+",
        "- fabric: silk\n- x",
        "é ü ß 龘",
    ],
)
def test_round_trip(text: str) -> None:
    tokenizer = load(SHIPPED)
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_special_tokens_are_one_token_each() -> None:
    tokenizer = load(SHIPPED)
    assert tokenizer.get_vocab_size() == VOCABULARY
    for token, number in SPECIAL_IDS.items():
        assert tokenizer.encode(f"a{token}b").ids[1:-1] == [number]
    config = json.loads((SHIPPED / "config.json").read_text(encoding="utf-8"))
    assert config["image_token_id"] == SPECIAL_IDS["<|image_pad|>"]
    assert config["eos_token_id"] == SPECIAL_IDS["<|im_end|>"]


def test_digits_stand_alone() -> None:
    assert len(load(SHIPPED).encode("2025").ids) == 4


def test_chat_template() -> None:
    picture = {"type": "image_url", "image_url": {"url": "x"}}
    messages = [{"role": "user", "content": [picture, {"type": "text", "text": "Total?"}]}]
    text = (
        jinja2.Environment(autoescape=False)
        .from_string(CHAT_TEMPLATE)
        .render(messages=messages, add_generation_prompt=True)
    )
    assert text == (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
        "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>Total?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_the_encoder_agrees_with_the_template() -> None:
    tokenizer = load(SHIPPED)
    made = sample(3, "document", 280, 280, how_many=2)
    made.system, made.text_first = None, False
    tokens = Encoder(tokenizer)(made, [(10, 10)], 3000)
    assert tokens is not None
    messages: list[dict[str, object]] = []
    for number, turn in enumerate(made.turns):
        parts = [{"type": "image"}] if number == 0 else []
        messages += [{"role": "user", "content": [*parts, {"type": "text", "text": turn.prompt}]}]
        messages += [{"role": "assistant", "content": turn.answer}]
    text = jinja2.Environment(autoescape=False).from_string(CHAT_TEMPLATE).render(messages=messages)
    assert tokenizer.encode(text.replace("<|image_pad|>", "<|image_pad|>" * 100)).ids == tokens.ids
