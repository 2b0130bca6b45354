"""The seeded generator: pictures of every skill with questions and right answers, and batches of them for training.

    python -m demo_model.data OUT_DIR [COUNT]    writes a look at COUNT pictures a skill

Everything follows from a seed. Held-out samples differ in seeds, fonts, layouts, values and wordings (`words.is_held`,
`fonts.FACES`, `documents.HELD_ARRANGEMENTS`, second halves of the wording tables).
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

import numpy as np
from PIL import Image

from demo_model import documents, scenes, words
from demo_model.architecture import DEFAULT_SYSTEM, FACTOR, MAX_PIXELS, MIN_PIXELS, SPECIAL_IDS
from demo_model.canvas import WEAR, wear
from demo_model.fonts import characters
from demo_model.sample import Sample, Turn
from demo_model.words import Values, wording

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tokenizers import Tokenizer

SKILLS: Final = ("read", "random", "document", "contract", "look", "inspect", "chart", "garment")
#: Seeds of evaluation and of the examples start here; training uses those below.
HELD_SEED: Final = 1 << 40
EXAMPLE_SEED: Final = 1 << 41
#: Seeds of training stay below: 16 bits for the run, 6 for the worker, 17 for the batch.
TRAIN_SEEDS: Final = 1 << 39
RUNS: Final = 1 << 16


def train_seed(run: int, worker: int, batch: int) -> int:
    if not (0 <= run < RUNS and 0 <= worker < 64 and 0 <= batch < 1 << 17):
        raise ValueError((run, worker, batch))
    return run << 23 | worker << 17 | batch


@dataclass
class Picture:
    """A drawn picture that can be asked about; `ask` may be called again for other questions."""

    image: Image.Image
    ask: Callable[[Random, str, int], list[Turn]]
    noise: bool
    chinese: bool
    skill: str


def picture(
    rng: Random,
    skill: str,
    width: int,
    height: int,
    held: bool,
    noise: bool,
    chinese: bool,
    parts: tuple[str, ...] = WEAR,
    tilt: bool = True,
    new_words: bool | None = None,
) -> Picture:
    """Draw one picture. With `noise` it is worn, by the named parts of `wear`; pages may lie askew with `tilt`.

    `new_words` chooses the side of the wordings apart from that of fonts, layouts and values.
    """
    asked = held if new_words is None else new_words
    values = Values(rng, held)
    match skill:
        case "read" | "random":
            image, lines = documents.text_lines(
                rng, values, width, height, chinese and skill == "read", skill == "random"
            )

            def ask(r: Random, lang: str, n: int) -> list[Turn]:
                return documents.read_turns(r, lines, lang, asked, skill)

        case "document":
            page = documents.document(rng, values, width, height, chinese, tilt=tilt)
            image = page.image

            def ask(r: Random, lang: str, n: int) -> list[Turn]:
                return documents.document_turns(r, page, lang, asked, n)

        case "contract":
            image, clauses = documents.contract(rng, values, width, height, chinese, tilt=tilt)

            def ask(r: Random, lang: str, n: int) -> list[Turn]:
                return documents.contract_turns(r, clauses, chinese, lang, asked)

        case "look":
            image, things, front = scenes.scene(rng, width, height, held)

            def ask(r: Random, lang: str, n: int) -> list[Turn]:
                return scenes.scene_turns(r, things, front, (width, height), lang, asked, n)

        case "inspect":
            image, material, kind, box = scenes.plate(rng, width, height, held)

            def ask(r: Random, lang: str, n: int) -> list[Turn]:
                return scenes.plate_turns(r, material, kind, box, (width, height), lang, asked)

        case "chart":
            drawn = scenes.chart(rng, values, width, height, chinese)
            image = drawn.image

            def ask(r: Random, lang: str, n: int) -> list[Turn]:
                return scenes.chart_turns(r, drawn, values, lang, asked, n)

        case "garment":
            image, worn = scenes.garment(rng, width, height, held)

            def ask(r: Random, lang: str, n: int) -> list[Turn]:
                return scenes.garment_turns(r, worn, lang, asked)

        case _:
            raise ValueError(skill)
    if noise and parts:
        image = wear(rng, image, 1.0 if skill in ("read", "random", "document", "contract", "chart") else 0.7, parts)
    return Picture(image, ask, noise, chinese, skill)


def language(rng: Random, chinese: bool) -> str:
    """Mostly the picture's own language; sometimes a Chinese question about an English page, or the reverse."""
    own = "zh" if chinese else "en"
    return own if rng.random() < 0.88 else ("en" if chinese else "zh")


def converse(rng: Random, pictures: list[Picture], held: bool, how_many: int, lang: str | None = None) -> Sample:
    """Questions about one picture, or about either of two."""
    system = rng.choice(words.SYSTEMS) if rng.random() < 0.12 else None
    text_first = rng.random() < 0.12
    turns: list[Turn] = []
    if len(pictures) == 1:
        lang = lang or language(rng, pictures[0].chinese)
        turns = pictures[0].ask(rng, lang, how_many)
    else:
        for _ in range(max(2, how_many // 2)):
            place = rng.randrange(len(pictures))
            chosen = lang or language(rng, pictures[place].chinese)
            for turn in pictures[place].ask(rng, chosen, 2)[:2]:
                word = wording(rng, words.PICTURE_WORDS, chosen, held)
                word = word.format(n=place + 1, nth=("first", "second")[place])
                if all(word + turn.prompt != other.prompt for other in turns):
                    turns.append(Turn(word + turn.prompt, turn.answer, turn.skill, turn.kind, turn.schema, turn.lang))
    return Sample([each.image for each in pictures], turns, pictures[0].noise, system, text_first)


def sample(
    seed: int,
    skill: str,
    width: int,
    height: int,
    held: bool = False,
    noise: bool = False,
    chinese: bool = False,
    lang: str | None = None,
    how_many: int = 1,
) -> Sample:
    """One picture with questions, from a seed alone. Never empty: a page on which nothing fitted is drawn again."""
    rng = Random(seed)
    while True:
        drawn = picture(rng, skill, width, height, held, noise, chinese)
        made = converse(rng, [drawn], held, how_many, lang)
        if made.turns:
            return made


# ---- sizes --------------------------------------------------------------------------------------------------------
def fitted(width: int, height: int) -> tuple[int, int]:
    """The size a picture is resized to: sides in multiples of FACTOR, area within the limits (Qwen2-VL's rule)."""
    wide, tall = max(FACTOR, round(width / FACTOR) * FACTOR), max(FACTOR, round(height / FACTOR) * FACTOR)
    if wide * tall > MAX_PIXELS:
        shrink = math.sqrt(width * height / MAX_PIXELS)
        wide = max(FACTOR, math.floor(width / shrink / FACTOR) * FACTOR)
        tall = max(FACTOR, math.floor(height / shrink / FACTOR) * FACTOR)
    elif wide * tall < MIN_PIXELS:
        grow = math.sqrt(MIN_PIXELS / (width * height))
        wide, tall = math.ceil(width * grow / FACTOR) * FACTOR, math.ceil(height * grow / FACTOR) * FACTOR
    return wide, tall


def resized(image: Image.Image) -> Image.Image:
    size = fitted(*image.size)
    return image if size == image.size else image.resize(size, Image.Resampling.BICUBIC)


#: Least and largest number of vision tokens of a picture, by class of size.
AREAS: Final = {"small": (16, 40), "medium": (40, 130), "large": (130, 400), "huge": (400, 1290)}
#: How often each class and each skill is drawn, from reading single lines to whole pages.
STAGES: Final[dict[str, tuple[dict[str, float], dict[str, float]]]] = {
    "lines": ({"small": 1.0}, {"read": 6, "random": 3, "look": 1.5, "inspect": 0.5, "garment": 0.4, "document": 1}),
    "mixed": (
        {"small": 0.35, "medium": 0.5, "large": 0.15},
        {
            "read": 3,
            "random": 1.5,
            "document": 4,
            "look": 2,
            "inspect": 1,
            "chart": 1.2,
            "garment": 0.5,
            "contract": 0.7,
        },
    ),
    "pages": (
        {"small": 0.22, "medium": 0.42, "large": 0.28, "huge": 0.08},
        {
            "read": 1.4,
            "random": 0.7,
            "document": 4,
            "look": 4,
            "inspect": 1.5,
            "chart": 2.2,
            "garment": 0.5,
            "contract": 1.6,
        },
    ),
    # For training on: large pages as often as the held-out set has them, and mostly to be read.
    "documents": (
        {"small": 0.1, "medium": 0.28, "large": 0.42, "huge": 0.2},
        {
            "read": 2,
            "random": 0.7,
            "document": 6,
            "look": 3.2,
            "inspect": 1,
            "chart": 1.2,
            "garment": 0.35,
            "contract": 3.2,
        },
    ),
}
SMALL_SKILLS: Final = ("read", "random", "look", "inspect", "garment", "document")


def grid(rng: Random, area: str) -> tuple[int, int]:
    """Rows and columns of vision tokens; aspect ratios up to 4 to 1."""
    low, high = AREAS[area]
    while True:
        tokens = math.exp(rng.uniform(math.log(low), math.log(high)))
        ratio = math.exp(max(-1.4, min(1.4, rng.gauss(0.0 if area != "small" else 0.45, 0.5))))
        tall, wide = round(math.sqrt(tokens / ratio)), round(math.sqrt(tokens * ratio))
        if 2 <= tall <= 36 and 3 <= wide <= 36 and low <= tall * wide <= min(high, 1280):
            return tall, wide


def raw_side(rng: Random, units: int) -> int:
    """A side in pixels that is resized to `units` tokens; often no multiple of anything."""
    return units * FACTOR + rng.randint(-13, 13)


# ---- tokens -------------------------------------------------------------------------------------------------------
IM_START, IM_END = SPECIAL_IDS["<|im_start|>"], SPECIAL_IDS["<|im_end|>"]
VISION_START, VISION_END, IMAGE_PAD = (
    SPECIAL_IDS[f"<|{name}|>"] for name in ("vision_start", "vision_end", "image_pad")
)
PAD: Final = SPECIAL_IDS["<|endoftext|>"]


@dataclass
class Tokens:
    """A conversation as ids. `target[i]` is the turn whose answer token `ids[i]` is, or -1."""

    ids: list[int]
    target: list[int]
    turns: list[Turn]


class Encoder:
    """Chat template and tokenizer in one, without either library's per-call costs."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.known: dict[str, list[int]] = {}

    def text(self, text: str) -> list[int]:
        ids = self.known.get(text)
        if ids is None:
            ids = self.tokenizer.encode(text).ids
            if len(self.known) < 20000:
                self.known[text] = ids
        return ids

    def __call__(self, made: Sample, grids: list[tuple[int, int]], room: int) -> Tokens | None:
        """The conversation, cut to `room` text tokens at a turn's end; None where not even one turn fits."""
        newline = self.text("\n")
        ids = [IM_START, *self.text("system\n" + (made.system or DEFAULT_SYSTEM)), IM_END, *newline]
        target = [-1] * len(ids)
        used = len(ids)
        kept: list[Turn] = []
        pictures: list[int] = []
        for tall, wide in grids:
            pictures += [VISION_START, *[IMAGE_PAD] * (tall * wide), VISION_END]
        for turn in made.turns:
            question = self.text(turn.prompt)
            answer = self.text(turn.answer)
            if used + len(question) + len(answer) + 10 > room:
                break
            head = pictures if not kept else []
            words_and_pictures = question + head if made.text_first and head else head + question
            before = [
                IM_START,
                *self.text("user\n"),
                *words_and_pictures,
                IM_END,
                *newline,
                IM_START,
                *self.text("assistant\n"),
            ]
            ids += [*before, *answer, IM_END, *newline]
            target += [-1] * len(before) + [len(kept)] * (len(answer) + 1) + [-1] * len(newline)
            used += len(question) + len(answer) + 10
            kept.append(turn)
        return Tokens(ids, target, kept) if kept else None


def positions(ids: list[int], grids: list[tuple[int, int]]) -> np.ndarray:
    """Qwen2-VL's three position numbers (time, row, column) of every token, as int16 (3, length)."""
    out = np.empty((3, len(ids)), np.int16)
    place, following = 0, 0
    array = np.asarray(ids)
    starts = np.flatnonzero((array == IMAGE_PAD) & (np.roll(array, 1) == VISION_START))
    for start, (tall, wide) in zip(starts, grids, strict=True):
        out[:, place:start] = np.arange(following, following + start - place)
        following += int(start) - place
        end = start + tall * wide
        out[0, start:end] = following
        out[1, start:end] = following + np.repeat(np.arange(tall), wide)
        out[2, start:end] = following + np.tile(np.arange(wide), tall)
        following += max(tall, wide)
        place = int(end)
    out[:, place:] = np.arange(following, following + len(ids) - place)
    return out


@dataclass
class Batch:
    """Pictures of one size with `packs` of questions about them, each pack a full set of arrays."""

    pixels: np.ndarray  # uint8 (pictures, height, width, 3)
    noisy: np.ndarray  # bool (pictures,): to be worn further on the GPU
    tilted: np.ndarray  # bool (pictures,): may be turned a little, there too
    packs: list[dict[str, np.ndarray]]


#: The skills a turn can train; losses are reported for each.
TRAINED: Final = ("read", "random", "field", "record", "contract", "look", "inspect", "chart", "garment", "refuse")
#: What one batch may cost, in vision patches plus decoder tokens.
COST: Final = 131072


def batch_size(tall: int, wide: int, pictures: int, cost: int = COST) -> int:
    return max(2, min(640, cost // (5 * tall * wide * pictures + 260)))


def pack(tokens: list[Tokens], grids: list[tuple[int, int]], length_step: int = 64) -> dict[str, np.ndarray]:
    """Padded ids and positions, and flat lists of the vision places and of the answer tokens.

    `answer_at` is the place that predicts the token `answer_id`; `answer_turn` counts turns over the whole batch, and
    `turn_skill` says which skill each turn trains.
    """
    longest = max(len(each.ids) for each in tokens)
    longest = -(-longest // length_step) * length_step
    count = len(tokens)
    ids = np.full((count, longest), PAD, np.int16)
    spots = np.zeros((3, count, longest), np.int16)
    at, wanted, turn, weight, skill = [], [], [], [], []
    before = 0
    for row, each in enumerate(tokens):
        size = len(each.ids)
        ids[row, :size] = each.ids
        spots[:, row, :size] = positions(each.ids, grids)
        target = np.asarray(each.target)
        places = np.flatnonzero(target >= 0)
        lengths = np.bincount(target[places])
        at.append(places - 1 + row * longest)
        wanted.append(ids[row, places])
        turn.append(target[places] + before)
        # Between "a token, a voice" and "an answer, a voice": long records must not drown short answers.
        weight.append(lengths[target[places]] ** -0.5)
        skill += [TRAINED.index(each_turn.skill) for each_turn in each.turns]
        before += len(each.turns)
    return {
        "ids": ids,
        "positions": spots,
        "image_at": np.flatnonzero(ids.reshape(-1) == IMAGE_PAD).astype(np.int32),
        "answer_at": np.concatenate(at).astype(np.int32),
        "answer_id": np.concatenate(wanted).astype(np.int16),
        "answer_turn": np.concatenate(turn).astype(np.int32),
        "answer_weight": np.concatenate(weight).astype(np.float32),
        "turn_skill": np.asarray(skill, np.int16),
    }


def make_batch(
    seed: int,
    encoder: Encoder,
    stage: str,
    held: bool = False,
    packs: int = 2,
    cost: int = COST,
    room_for: Callable[[tuple[int, ...]], np.ndarray] | None = None,
) -> Batch:
    """A batch from a seed: one size of picture, skills mixed. Held-out ones are worn here, others on the GPU too."""
    rng = Random(seed)
    areas, skills = STAGES[stage]
    area = rng.choices(list(areas), list(areas.values()))[0]
    tall, wide = grid(rng, area)
    usable = [name for name in skills if area != "small" or name in SMALL_SKILLS]
    if tall < 4:
        usable = [name for name in usable if name in ("read", "random")]
    pair = stage != "lines" and area in ("small", "medium") and tall >= 4 and rng.random() < 0.08
    per = 2 if pair else 1
    grids = [(tall, wide)] * per
    room = 420 if area in ("small", "medium") else 760
    count = batch_size(tall, wide, per, cost)
    shape = (count * per, tall * FACTOR, wide * FACTOR, 3)
    pixels = np.empty(shape, np.uint8) if room_for is None else room_for(shape)
    noisy, tilted = np.zeros(count * per, bool), np.zeros(count * per, bool)
    all_tokens: list[list[Tokens]] = [[] for _ in range(packs)]
    done = 0
    while done < count:
        drawn = []
        for _ in range(per):
            skill = rng.choices(usable, [skills[name] for name in usable])[0]
            width, height = wide * FACTOR, tall * FACTOR
            if held or rng.random() < 0.3:  # resizing costs more than drawing
                width, height = raw_side(rng, wide), raw_side(rng, tall)
            noise = rng.random() < 0.45
            # JPEG alone: the rest of the wear is cheap on the GPU and dear here.
            parts = WEAR if held else ("jpeg",) if rng.random() < 0.5 else ()
            drawn.append(picture(rng, skill, width, height, held, noise, rng.random() < 0.4, parts, held))
        made = []
        for _ in range(packs):
            conversation = converse(rng, drawn, held, rng.choice([3, 4, 5, 6] if held else [4, 6, 8, 10]))
            tokens = encoder(conversation, grids, room) if conversation.turns else None
            if tokens is None:
                break
            made.append(tokens)
        if len(made) < packs:
            continue
        for each, tokens in zip(all_tokens, made, strict=True):
            each.append(tokens)
        for place, each_picture in enumerate(drawn):
            image = each_picture.image
            size = (wide * FACTOR, tall * FACTOR)
            if image.size != size:
                image = image.resize(size, Image.Resampling.BICUBIC)
            pixels[done * per + place] = np.asarray(image)
            noisy[done * per + place] = each_picture.noise and not held
            # Boxes would no longer fit a turned picture.
            tilted[done * per + place] = not held and each_picture.skill in ("document", "contract", "read", "random")
        done += 1
    return Batch(pixels, noisy, tilted, [pack(each, grids) for each in all_tokens])


# ---- the tokenizer's corpus ---------------------------------------------------------------------------------------
def corpus(count: int = 4000) -> Iterator[str]:
    """Prompts and structured answers of training samples, and every character that may be printed."""
    for seed in range(count):
        rng = Random(f"corpus {seed}")
        skill = rng.choice(SKILLS[2:])
        made = sample(
            seed, skill, rng.randint(250, 500), rng.randint(250, 500), chinese=rng.random() < 0.45, how_many=4
        )
        for turn in made.turns:
            yield turn.prompt
            if turn.kind != "text" or turn.skill in ("contract", "garment", "look"):
                yield turn.answer
    for table in words.FIELDS.values():
        yield from (table.asked, table.asked_zh, table.labels, table.labels_zh)
    everything = [char for char in characters() if ord(char) > 126]
    for _ in range(150):
        yield "0".join(everything)  # the splitting rule parts them at digits, so each is learnt by itself
    yield from [DEFAULT_SYSTEM, "system\n", "user\n", "assistant\n", *words.SYSTEMS] * 50


def main() -> None:
    out, count = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 3
    out.mkdir(parents=True, exist_ok=True)
    for skill in SKILLS:
        for number in range(count):
            rng = Random(number)
            width, height = rng.randint(150, 620), rng.randint(130, 620)
            made = sample(
                number, skill, width, height, bool(number % 2), number % 3 == 0, rng.random() < 0.4, how_many=3
            )
            made.images[0].save(out / f"{skill}-{number}.png")
            for turn in made.turns:
                print(skill, number, repr(turn.prompt), "->", repr(turn.answer))


if __name__ == "__main__":
    main()
