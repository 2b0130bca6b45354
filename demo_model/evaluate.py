# ruff: noqa: PLC0415  (heavy libraries are imported where they are needed)
"""Measure the demo model on the held-out set, in either runtime, and write the tables of the model card.

    python -m demo_model.evaluate predict --runtime transformers --model DIR --out FILE [--alter blank|swap]
    python -m demo_model.evaluate predict --runtime openvino --model DIR --out FILE
    python -m demo_model.evaluate table FILE...

The held-out set follows from `SETS` alone: its seeds start at `data.HELD_SEED`, its fonts, layouts, values and
wordings never occur in training. `fingerprint` is the hash that the card states.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from PIL import Image

from demo_model import data
from demo_model.architecture import CHAT_TEMPLATE
from demo_model.sample import Sample, Turn
from demo_model.scenes import COLOURS

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Row of the table, skill of the generator, which turn is wanted, pictures for each language and wear.
SETS: Final = (
    ("document: field", "document", ("field",), 40),
    ("document: record", "document", ("record",), 40),
    ("read", "read", ("read",), 15),
    ("random strings", "random", ("random",), 15),
    ("contract", "contract", ("contract",), 15),
    ("look: count", "look", ("count",), 15),
    ("look: colour", "look", ("colour",), 10),
    ("look: relation", "look", ("relation",), 15),
    ("look: box", "look", ("box",), 15),
    ("inspect: kind", "inspect", ("kind",), 10),
    ("inspect: record", "inspect", ("json",), 20),
    ("chart: value", "chart", ("value",), 15),
    ("chart: largest, trend", "chart", ("other",), 12),
    ("chart: record", "chart", ("json",), 10),
    ("garment", "garment", ("garment",), 15),
    ("not there", "any", ("refuse",), 24),
    ("two pictures", "pair", ("any",), 8),
)
#: Asked apart, right and with red and blue exchanged: the guard against a preprocessing that drifts.
GUARD: Final = (("garment: colour", "garment", ("garment colour",), 15),)
LONGEST_ANSWER: Final = 420


def _is(turn: Turn, wanted: str) -> bool:
    if turn.kind == "refuse":
        return wanted == "refuse"
    match wanted:
        case "count":
            return turn.skill == "look" and turn.answer.isdigit()
        case "relation":
            return turn.skill == "look" and any(
                word in turn.prompt
                for word in ("left", "right", "above", "below", "front", "左", "右", "上面", "下面", "前面")
            )
        case "colour":
            return (
                turn.skill == "look" and ("colo" in turn.prompt or "颜色" in turn.prompt) and not _is(turn, "relation")
            )
        case "garment colour":
            return turn.skill == "garment" and turn.kind == "text" and turn.answer in COLOUR_WORDS
        case "box" | "json":
            return turn.kind == wanted
        case "kind":
            return turn.kind == "text"
        case "value":
            return (
                turn.skill == "chart"
                and turn.kind == "text"
                and turn.answer.isdigit()
                and ("value" in turn.prompt or "数值" in turn.prompt)
                and "est" not in turn.prompt
                and "最" not in turn.prompt
            )
        case "other":
            return turn.skill == "chart" and turn.kind == "text" and not _is(turn, "value")
        case "any":
            return True
        case _:
            return turn.skill == wanted


COLOUR_WORDS: Final = {word for name, (chinese, _) in COLOURS.items() for word in (name, chinese)}


@dataclass
class Item:
    """One question of the held-out set."""

    name: str
    row: str
    noise: bool
    sample: Sample

    @property
    def turn(self) -> Turn:
        return self.sample.turns[0]


def _size(rng: Random, skill: str) -> tuple[int, int]:
    areas = (
        ["medium", "medium", "large", "large", "large", "huge"]
        if skill in ("document", "contract", "chart")
        else ["small", "medium", "medium", "large", "huge"]
    )
    tall, wide = data.grid(rng, rng.choice(areas))
    while tall < 4:
        tall, wide = data.grid(rng, "medium")
    return max(112, data.raw_side(rng, wide)), max(112, data.raw_side(rng, tall))


def _draw(skill: str, wanted: tuple[str, ...], seed: int, lang: str, noise: bool, new_words: bool) -> Sample | None:
    rng = Random(seed)
    if skill == "any":
        skill = rng.choice(["document", "document", "look", "inspect", "chart", "contract", "garment"])
    width, height = _size(rng, skill)
    chinese = lang == "zh"
    pictures = []
    for _ in range(2 if skill == "pair" else 1):
        each = rng.choice(["document", "look", "read"]) if skill == "pair" else skill
        pictures.append(data.picture(rng, each, width, height, True, noise, chinese, new_words=new_words))
    made = data.converse(rng, pictures, new_words, 4 if skill == "pair" else 6, lang)
    turns = [turn for turn in made.turns if any(_is(turn, each) for each in wanted)]
    return Sample(made.images, turns[:1], noise) if turns else None


def held_out(share: float = 1.0, new_words: bool = True, guard: bool = False) -> list[Item]:
    """The whole set, or the same share of every cell; without `new_words` asked in the wordings of training."""
    items = []
    for place, (row, skill, wanted, count) in enumerate(GUARD if guard else SETS):
        for lang in ("en", "zh"):
            for noise in (False, True):
                for number in range(max(1, math.ceil(count * share))):
                    cell = (
                        data.HELD_SEED
                        + place * 10_000_000
                        + (lang == "zh") * 2_000_000
                        + noise * 1_000_000
                        + number * 1000
                    )
                    for attempt in range(1000):
                        made = _draw(skill, wanted, cell + attempt, lang, noise, new_words)
                        if made:
                            break
                    else:
                        raise RuntimeError(f"no sample for {row}")
                    items.append(
                        Item(f"{place:02d}-{lang}-{'noise' if noise else 'clean'}-{number:03d}", row, noise, made)
                    )
    return items


def fingerprint(items: Iterable[Item]) -> str:
    """Hash over names, prompts, answers and pixels."""
    digest = hashlib.sha256()
    for item in items:
        digest.update(f"{item.name}\0{item.turn.prompt}\0{item.turn.answer}\0".encode())
        for image in item.sample.images:
            digest.update(f"{image.size}".encode() + image.tobytes())
    return digest.hexdigest()[:16]


def altered(images: list[Image.Image], alter: str) -> list[Image.Image]:
    if alter == "blank":
        return [Image.new("RGB", image.size, (128, 128, 128)) for image in images]
    if alter == "swap":
        return [Image.fromarray(np.ascontiguousarray(np.asarray(image)[:, :, ::-1])) for image in images]
    return images


def prompt_of(item: Item) -> str:
    import jinja2

    parts: list[dict[str, str]] = [{"type": "image"} for _ in item.sample.images]
    parts.append({"type": "text", "text": item.turn.prompt})
    messages = [{"role": "user", "content": parts}]
    return jinja2.Environment().from_string(CHAT_TEMPLATE).render(messages=messages, add_generation_prompt=True)


# ---- runtimes -----------------------------------------------------------------------------------------------------
def with_transformers(folder: Path, items: list[Item], alter: str, batch: int) -> dict[str, str]:
    """Greedy, without a grammar. Batches of like answer lengths, padded left."""
    import torch
    import transformers

    from demo_model import tokenizer
    from demo_model.architecture import IMAGE_MEAN, IMAGE_STD, MERGE, PATCH, SPECIAL_IDS

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = transformers.Qwen2VLForConditionalGeneration.from_pretrained(folder, dtype=torch.bfloat16).to(device).eval()
    words = tokenizer.load(folder)
    mean, std = np.array(IMAGE_MEAN, np.float32), np.array(IMAGE_STD, np.float32)

    def patches(image: Image.Image) -> tuple[Any, list[int]]:
        # The pixels of Qwen2VLImageProcessor (a test holds them together), without its need for torchvision.
        pixels = (np.asarray(data.resized(image)).astype(np.float32) / 255 - mean) / std
        down, across = pixels.shape[0] // (PATCH * MERGE), pixels.shape[1] // (PATCH * MERGE)
        pixels = pixels.reshape(down, MERGE, PATCH, across, MERGE, PATCH, 3).transpose(0, 3, 1, 4, 6, 2, 5)
        pixels = np.repeat(pixels.reshape(-1, 3, 1, PATCH, PATCH), 2, 2)
        return torch.from_numpy(pixels.reshape(len(pixels), -1)), [1, down * MERGE, across * MERGE]

    out: dict[str, str] = {}
    ordered = sorted(
        items,
        key=lambda item: (
            len(words.encode(item.turn.answer).ids) // 24,
            item.sample.images[0].size[0] * item.sample.images[0].size[1],
        ),
    )
    for start in range(0, len(ordered), batch):
        some = ordered[start : start + batch]
        rows, seen, grids = [], [], []
        for item in some:
            text = prompt_of(item)
            for image in altered(item.sample.images, alter):
                pixels, size = patches(image)
                seen.append(pixels)
                grids.append(size)
                text = text.replace("<|image_pad|>", "<|wait|>" * (size[1] * size[2] // MERGE**2), 1)
            rows.append(words.encode(text.replace("<|wait|>", "<|image_pad|>")).ids)
        longest = max(map(len, rows))
        ids = torch.tensor([[SPECIAL_IDS["<|endoftext|>"]] * (longest - len(row)) + row for row in rows])
        mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
        extra = {}
        if int(transformers.__version__.split(".")[0]) >= 5:
            # Without them version 5 numbers the places of a picture like text, and says nothing.
            extra["mm_token_type_ids"] = (ids == SPECIAL_IDS["<|image_pad|>"]).int().to(device)
        with torch.inference_mode():
            made = model.generate(
                input_ids=ids.to(device),
                attention_mask=mask.to(device),
                pixel_values=torch.cat(seen).to(device, torch.bfloat16),
                image_grid_thw=torch.tensor(grids).to(device),
                max_new_tokens=LONGEST_ANSWER,
                do_sample=False,
                eos_token_id=SPECIAL_IDS["<|im_end|>"],
                pad_token_id=SPECIAL_IDS["<|endoftext|>"],
                **extra,
            )
        for item, row in zip(some, made[:, longest:].tolist(), strict=True):
            out[item.name] = words.decode(row, skip_special_tokens=True)
    return out


def with_openvino(folder: Path, items: list[Item], alter: str, threads: int, grammar: bool) -> dict[str, str]:
    """As the package serves it: ContinuousBatchingPipeline, int8 weights, the schema held by a grammar."""
    import openvino
    import openvino_genai

    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size = 1
    scheduler.max_num_batched_tokens = 4096
    pipe = openvino_genai.ContinuousBatchingPipeline(str(folder), scheduler, "CPU", {"INFERENCE_NUM_THREADS": threads})
    words = pipe.get_tokenizer()
    out: dict[str, str] = {}
    waiting: list[tuple[Item, Any]] = []

    def finish() -> None:
        while pipe.has_non_finished_requests():
            pipe.step()
        for item, handle in waiting:
            (answer,) = handle.read_all()
            out[item.name] = words.decode(answer.generated_ids)
        waiting.clear()

    for number, item in enumerate(items):
        config = openvino_genai.GenerationConfig(max_new_tokens=LONGEST_ANSWER)
        config.apply_chat_template = False
        if grammar and item.turn.schema is not None:
            structured = openvino_genai.StructuredOutputConfig()
            structured.json_schema = json.dumps(item.turn.schema, ensure_ascii=False)
            config.structured_output_config = structured
        pixels = [openvino.Tensor(np.asarray(image)[None].copy()) for image in altered(item.sample.images, alter)]
        waiting.append((item, pipe.add_request(number, prompt_of(item), pixels, config)))
        if len(waiting) == 8:
            finish()
    finish()
    return out


# ---- scoring ------------------------------------------------------------------------------------------------------
def overlap(one: list[float], other: list[float]) -> float:
    """Intersection over union of two boxes."""
    wide = min(one[2], other[2]) - max(one[0], other[0])
    tall = min(one[3], other[3]) - max(one[1], other[1])
    if wide <= 0 or tall <= 0:
        return 0.0
    shared = wide * tall
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    return shared / max(1e-9, sum(areas) - shared)


def parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _leaves(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        return {name: leaf for key, item in value.items() for name, leaf in _leaves(item, f"{path}/{key}").items()}
    if isinstance(value, list) and not all(isinstance(item, int) for item in value):
        return {name: leaf for key, item in enumerate(value) for name, leaf in _leaves(item, f"{path}/{key}").items()}
    return {path: value}


def score(item: dict[str, Any], said: str) -> dict[str, float]:
    """What this answer adds: `exact`; for JSON `fields`, `nulls` and `valid`; for boxes `iou` and `iou50`."""
    out = {"exact": float(said.strip() == item["answer"])}
    if item["form"] in ("json", "box"):
        right, got = json.loads(item["answer"]), parsed(said)
        out["valid"] = float(got is not None)
        if item["form"] == "json":
            out["exact"] = float(got == right)
            wanted, found = _leaves(right), _leaves(got)
            boxless = {path: value for path, value in wanted.items() if not isinstance(value, list)}
            out["fields"] = sum(found.get(path, "") == value for path, value in boxless.items()) / max(1, len(boxless))
            nothing = [path for path, value in wanted.items() if value is None]
            if nothing:
                out["nulls"] = sum(path in found and found[path] is None for path in nothing) / len(nothing)
            box = right.get("box") if isinstance(right, dict) else None
            mine = got.get("box") if isinstance(got, dict) else None
        else:
            box, mine = right, got
        if isinstance(box, list):
            out["iou"] = 0.0
            if isinstance(mine, list) and len(mine) == 4 and all(isinstance(part, (int, float)) for part in mine):
                out["iou"] = overlap(box, mine)
            out["iou50"] = float(out["iou"] > 0.5)
            if item["form"] == "box":
                del out["exact"]
    return out


def table(predictions: dict[str, Any]) -> str:
    """A row for each skill; columns by language and wear."""
    rows: dict[str, dict[str, dict[str, list[float]]]] = {}
    for item in predictions["items"]:
        cell = f"{item['language']} {'noise' if item['noise'] else 'clean'}"
        scores = score(item, item["said"])
        for name, value in scores.items():
            row = f"{item['row']} ({name})"
            rows.setdefault(row, {}).setdefault(cell, {}).setdefault("v", []).append(value)
    cells = ["en clean", "en noise", "zh clean", "zh noise"]
    lines = ["| skill (measure) | " + " | ".join(cells) + " | all | n |", "|---|" + "---|" * (len(cells) + 2)]
    for row, found in rows.items():
        values = [found.get(cell, {}).get("v", []) for cell in cells]
        everything = [value for some in values for value in some]
        shown = [f"{100 * sum(some) / len(some):.1f}" if some else "" for some in values]
        lines.append(
            f"| {row} | "
            + " | ".join(shown)
            + f" | {100 * sum(everything) / len(everything):.1f} | {len(everything)} |"
        )
    return "\n".join(lines)


def predict(options: argparse.Namespace) -> None:
    items = held_out(options.share, not options.known_words, options.guard)
    mark = fingerprint(items)
    started = time.monotonic()
    if options.runtime == "transformers":
        said = with_transformers(options.model, items, options.alter, options.batch)
    else:
        said = with_openvino(options.model, items, options.alter, options.threads, not options.free)
    rows = [
        {
            "name": item.name,
            "row": item.row,
            "noise": item.noise,
            "language": item.turn.lang,
            "form": item.turn.kind,
            "answer": item.turn.answer,
            "said": said[item.name],
        }
        for item in items
    ]
    result = {
        "runtime": options.runtime,
        "alter": options.alter,
        "words": "known" if options.known_words else "new",
        "set": mark,
        "seconds": round(time.monotonic() - started, 1),
        "items": rows,
    }
    options.out.write_text(json.dumps(result, ensure_ascii=False, indent=0), encoding="utf-8")
    print(f"{options.out}: {len(rows)} answers, set {mark}, {result['seconds']} s")
    print(table(result))


def main() -> None:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("predict")
    one.add_argument("--runtime", choices=["transformers", "openvino"], required=True)
    one.add_argument("--model", type=Path, required=True)
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("--alter", choices=["none", "blank", "swap"], default="none")
    one.add_argument("--share", type=float, default=1.0)
    one.add_argument("--batch", type=int, default=64)
    one.add_argument("--threads", type=int, default=2)
    one.add_argument("--guard", action="store_true", help="the questions of the guard instead")
    one.add_argument("--known-words", action="store_true", help="ask in the wordings of training")
    one.add_argument("--free", action="store_true", help="openvino without grammar")
    other = commands.add_parser("table")
    other.add_argument("files", type=Path, nargs="+")
    options = parser.parse_args()
    if options.command == "predict":
        predict(options)
        return
    for path in options.files:
        result = json.loads(path.read_text(encoding="utf-8"))
        count = len(result["items"])
        print(f"\n{path.name}: {result['runtime']}, {result['alter']}, set {result['set']}, {count} questions\n")
        print(table(result))


if __name__ == "__main__":
    main()
