"""Our arithmetic, pixels and prompts beside those of transformers itself."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from PIL import Image

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.integration

from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize  # noqa: E402

from tests.media.pictures import photo, saved  # noqa: E402
from tests.model.folders import PLAIN_TEMPLATE, PROCESSORS, TOOL_TEMPLATE, make_folder  # noqa: E402
from tests.model.vision_tokens import SMALL_BOUNDS, TABLE, measured, processor_of, table  # noqa: E402
from twinlens.core import ImagePart, Message, TextPart  # noqa: E402
from twinlens.media import decode  # noqa: E402
from twinlens.model import checkpoint  # noqa: E402
from twinlens.model.pictures import PictureRule  # noqa: E402

if TYPE_CHECKING:
    from pathlib import Path

BACKENDS = ("pil", "torchvision")
# (height, width) of pictures whose pixels are compared: scaled up, scaled down, stretched, and left as they are.
COMPARED = ((480, 640), (97, 511), (333, 200), (1080, 1920), (1500, 2000), (30, 40), (1200, 300), (448, 448))


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_golden_table_is_what_transformers_says_today(backend: str) -> None:
    assert table(backend) == json.loads(TABLE.read_text())


@given(st.data())
def test_smart_resize_leaves_our_size_alone(data: st.DataObject) -> None:
    factor = data.draw(st.sampled_from((14, 16)))
    low = data.draw(st.integers(1, 2_000_000))
    rule = PictureRule(factor, 2, 2, low, low + data.draw(st.integers(0, 10_000_000)))
    height, width = data.draw(st.integers(1, 9000)), data.draw(st.integers(1, 9000))
    assume(rule.feasible and max(height, width) <= 200 * min(height, width))
    target = rule.target(height, width)
    bounds = {"factor": rule.factor, "min_pixels": rule.min_pixels, "max_pixels": rule.max_pixels}
    assert smart_resize(*target, **bounds) == target
    once = smart_resize(height, width, **bounds)
    if max(once) <= 200 * min(once) and rule.min_pixels <= once[0] * once[1] <= rule.max_pixels:
        assert target == once


def bounded_folder(folder: Path, family: str) -> Path:
    """A model folder of the family with bounds that keep a test small."""
    plain = {key: value for key, value in PROCESSORS[family].items() if key != "size"}
    return make_folder(folder, family=family, processor={**plain, **SMALL_BOUNDS})


@pytest.mark.parametrize("family", sorted(PROCESSORS))
@pytest.mark.parametrize("backend", BACKENDS)
def test_pictures_resized_by_us_keep_their_tokens_and_their_pixels(tmp_path: Path, family: str, backend: str) -> None:
    rule = checkpoint.read(bounded_folder(tmp_path, family)).rule
    processor = processor_of(tmp_path, backend)
    for height, width in (*COMPARED, (41, 8200), (8200, 41), (1, 1), (1, 200), (5, 1000)):
        target = rule.target(height, width)
        assert measured(processor, *target) == list(rule.grid(*target))
    ours = our_pixels(photo(640, 480), rule)
    assert np.array_equal(seen(processor, Image.fromarray(ours), rule), ours)


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen3_vl"])
def test_our_pixels_beside_those_of_both_back_ends(tmp_path: Path, family: str) -> None:
    """All three compute one filter and round it differently: ours lies as near to its exact value as theirs."""
    rule = checkpoint.read(bounded_folder(tmp_path, family)).rule
    processors = [processor_of(tmp_path, backend) for backend in BACKENDS]
    for seed, (height, width) in enumerate(COMPARED):
        for data in (photo(width, height, seed), drawing(width, height)):
            picture = Image.open(io.BytesIO(data)).convert("RGB")
            ours = our_pixels(data, rule).astype(int)
            theirs = [seen(processor, picture, rule).astype(int) for processor in processors]
            exact = exactly(picture, ours.shape)
            away = [np.abs(one - exact) for one in (ours, *theirs)]
            beside = [np.abs(ours - other) for other in theirs]
            names = ("ours", "Pillow back end", "torchvision back end")
            figures = [f"{name} {one.mean():.3f} ({one.max():.1f})" for name, one in zip(names, away, strict=True)]
            figures += [
                f"ours from {name}'s {one.mean():.3f} ({one.max()})"
                for name, one in zip(names[1:], beside, strict=True)
            ]
            # Shown by pytest -s: the figures of the documentation come from here.
            print(f"{family} {height} x {width} -> {rule.target(height, width)}, mean (most): {', '.join(figures)}")
            assert away[0].mean() <= max(away[1].mean(), away[2].mean()) + 0.01
            assert away[0].max() <= max(away[1].max(), away[2].max()) + 3
            assert max(one.mean() for one in beside) < 0.5


def exactly(picture: Image.Image, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """The same filter without rounding in between, cut to 0..255 only at the end."""
    size = (shape[1], shape[0])
    bands = [np.asarray(band.convert("F").resize(size, Image.Resampling.BICUBIC)) for band in picture.split()]
    return np.stack(bands, axis=-1).clip(0, 255)


def drawing(width: int, height: int) -> bytes:
    """Hard edges, where resampling rings."""
    rows, columns = np.mgrid[0:height, 0:width]
    squares = ((rows // 13 + columns // 17) % 2 * 255).astype(np.uint8)
    return saved(Image.fromarray(np.stack([squares, 255 - squares, squares // 2], axis=-1)), "PNG")


def our_pixels(data: bytes, rule: PictureRule) -> np.ndarray[Any, Any]:
    header = decode.look(data, "x", 10**8)
    return np.asarray(decode.pixels(data, header.format, rule.target(*header.size), "x"))


def seen(processor: Any, picture: Image.Image, rule: PictureRule) -> np.ndarray[Any, Any]:
    """(height, width, 3): what a processor's resizing makes of a picture, put together again from its patches."""
    made = processor(images=[picture], do_rescale=False, do_normalize=False, return_tensors="np")
    _, high, wide = (int(value) for value in made["image_grid_thw"][0])
    merge, patch = rule.merge, rule.patch
    shape = (high // merge, wide // merge, merge, merge, 3, rule.temporal, patch, patch)
    patches = np.asarray(made["pixel_values"]).reshape(shape)[:, :, :, :, :, 0]
    pixels: np.ndarray[Any, Any] = patches.transpose(0, 2, 5, 1, 3, 6, 4).reshape(high * patch, wide * patch, 3)
    return np.asarray(np.rint(pixels))


CONVERSATIONS: tuple[tuple[Message, ...], ...] = (
    (Message("user", (TextPart("What is this?"),)),),
    (Message("user", (ImagePart(0), TextPart("What is this? 图片 é"))),),
    (
        Message("system", (TextPart("Be short."),)),
        Message("user", (TextPart("Compare "), ImagePart(0), TextPart(" and "), ImagePart(1))),
        Message("assistant", (TextPart("They differ."),)),
        Message("user", (TextPart("How?\n\n  Say  "),)),
    ),
)


@pytest.mark.parametrize("template", [PLAIN_TEMPLATE, TOOL_TEMPLATE])
@pytest.mark.parametrize("conversation", CONVERSATIONS)
def test_prompts_and_their_tokens(tmp_path: Path, template: str, conversation: tuple[Message, ...]) -> None:
    folder = make_folder(tmp_path, template=template)
    words = checkpoint.read(folder).words()
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    turns = [
        {
            "role": message.role,
            "content": [
                {"type": "text", "text": part.text} if isinstance(part, TextPart) else {"type": "image"}
                for part in message.parts
            ],
        }
        for message in conversation
    ]
    prompt = words.render(conversation)
    expected = theirs.apply_chat_template(turns, chat_template=template, tokenize=False, add_generation_prompt=True)
    assert prompt == expected
    assert words.count(prompt) == len(theirs(prompt)["input_ids"])


def test_tools_in_the_prompt(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, template=TOOL_TEMPLATE)
    tool = {
        "type": "function",
        "function": {"name": "look_up", "description": "é <b>", "parameters": {"type": "object"}},
    }
    turns = [{"role": "user", "content": "q"}]
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    expected = theirs.apply_chat_template(
        turns, tools=[tool], chat_template=TOOL_TEMPLATE, tokenize=False, add_generation_prompt=True
    )
    assert checkpoint.read(folder).words().render([Message("user", (TextPart("q"),))], [tool]) == expected
