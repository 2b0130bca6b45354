# ruff: noqa: PLC0415  (torch and transformers live in an environment of their own)
"""The training network gives the logits of transformers' own Qwen2-VL, and the same pictures the same pixels."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from demo_model import data, tokenizer
from demo_model.architecture import CHAT_TEMPLATE, FACTOR, MAX_PIXELS, MIN_PIXELS, model_config, preprocessor_config

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tokenizer")
    tokenizer.save(tokenizer.train(data.corpus(30)), out)
    return out


def pair() -> tuple[Any, Any]:
    import torch
    import transformers

    from demo_model.model import DemoModel, initial

    weights = initial(3)
    # Random norms and biases, so that one left out would show.
    generator = torch.Generator().manual_seed(1)
    weights = {
        name: value + 0.1 * torch.randn(value.shape, generator=generator) * (value.ndim == 1)
        for name, value in weights.items()
    }
    ours = DemoModel(weights, torch.float32, compiled=False)
    theirs = transformers.Qwen2VLForConditionalGeneration(transformers.Qwen2VLConfig(**model_config())).float().eval()
    renamed = {}
    for name, value in weights.items():
        renamed[
            name.replace("visual.", "model.visual.", 1)
            if name.startswith("visual")
            else name.replace("model.", "model.language_model.", 1)
        ] = value
    missing, unexpected = theirs.load_state_dict(renamed, strict=False)
    assert not unexpected
    assert set(missing) <= {"lm_head.weight"}
    theirs.tie_weights()
    return ours, theirs


@pytest.mark.parametrize("pictures", [1, 2])
def test_logits_equal_transformers(folder: Path, pictures: int) -> None:
    import torch
    import transformers
    from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor

    ours, theirs = pair()
    encoder = data.Encoder(tokenizer.load(folder))
    tall, wide = 4, 7
    drawn = [data.picture(Random(n), "look", wide * 28, tall * 28, False, False, False) for n in range(pictures)]
    grids = [(tall, wide)] * pictures
    tokens = encoder(data.converse(Random(5), drawn, False, 3), grids, 600)
    assert tokens
    packed = data.pack([tokens], grids, length_step=1)
    pixels = torch.tensor(np.stack([np.asarray(each.image) for each in drawn]))
    ids = torch.tensor(packed["ids"]).int()
    with torch.no_grad():
        hidden = ours(pixels, ids, torch.tensor(packed["positions"]), torch.tensor(packed["image_at"]).long())
        mine = ours.logits(hidden)
    settings = {
        key: value
        for key, value in preprocessor_config().items()
        if key not in ("image_processor_type", "processor_class")
    }
    seen = Qwen2VLImageProcessor(**settings)(images=[each.image for each in drawn], return_tensors="pt")
    extra: dict[str, Any] = {}
    kind = (ids == data.IMAGE_PAD).int()
    if int(transformers.__version__.split(".")[0]) >= 5:
        extra["mm_token_type_ids"] = kind
    with torch.no_grad():
        reference = theirs(
            input_ids=ids.long(),
            attention_mask=torch.ones_like(ids),
            pixel_values=seen["pixel_values"].float(),
            image_grid_thw=seen["image_grid_thw"],
            **extra,
        ).logits
    assert seen["image_grid_thw"].tolist() == [[1, tall * 2, wide * 2]] * pictures
    assert torch.allclose(mine, reference, atol=2e-3), float((mine - reference).abs().max())


def test_the_encoder_writes_what_the_chat_template_writes(folder: Path) -> None:
    known = tokenizer.load(folder)
    encoder = data.Encoder(known)
    made = data.sample(11, "document", 300, 300, how_many=3)
    tokens = encoder(made, [(11, 11)], 2000)
    assert tokens
    messages: list[dict[str, Any]] = [] if made.system is None else [{"role": "system", "content": made.system}]
    for number, turn in enumerate(tokens.turns):
        words = [{"type": "text", "text": turn.prompt}]
        pictures = [{"type": "image"}] if number == 0 else []
        messages.append({"role": "user", "content": words + pictures if made.text_first else pictures + words})
        messages.append({"role": "assistant", "content": turn.answer})
    import jinja2

    text = jinja2.Environment().from_string(CHAT_TEMPLATE).render(messages=messages)
    text = text.replace("<|image_pad|>", "<|image_pad|>" * 121)
    assert known.encode(text).ids == tokens.ids


def test_sizes_follow_the_image_processor() -> None:
    from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

    rng = Random(4)
    for _ in range(500):
        width, height = rng.randint(30, 4000), rng.randint(30, 4000)
        tall, wide = smart_resize(height, width, factor=FACTOR, min_pixels=MIN_PIXELS, max_pixels=MAX_PIXELS)
        assert data.fitted(width, height) == (wide, tall)
