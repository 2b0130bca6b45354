"""Write `examples/`: small pictures of every kind with their right answers, from seeds of their own.

python -m demo_model.examples examples
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

from demo_model.data import EXAMPLE_SEED, sample
from demo_model.words import DOCUMENTS

if TYPE_CHECKING:
    from demo_model.sample import Sample

KINDS: Final = ("document", "read", "contract", "look", "inspect", "chart", "garment", "refuse")
EACH: Final = 12


def _wanted(kind: str, number: int, made: Sample) -> bool:
    refused = [turn.kind == "refuse" for turn in made.turns]
    if kind == "refuse":
        return any(refused)
    structured = any(turn.kind == "json" for turn in made.turns)
    # Every other example of a kind that knows records shows one.
    return not all(refused) and (kind not in ("document", "contract", "chart") or structured == bool(number % 2))


def example(kind: str, number: int) -> Sample:
    attempt = 0
    while True:
        seed = EXAMPLE_SEED + 1_000_000 * KINDS.index(kind) + 1000 * number + attempt
        rng = Random(seed)
        width, height = rng.randint(224, 420), rng.randint(200, 420)
        if kind in ("read", "look"):
            width, height = rng.randint(168, 330), rng.randint(112, 280)
        chinese = number % 4 == 3
        skill = rng.choice(["document", "look", "chart"]) if kind == "refuse" else kind
        made = sample(
            seed,
            skill,
            width,
            height,
            chinese=chinese,
            noise=number % 3 == 2,
            lang="zh" if chinese else "en",
            how_many=3,
        )
        if _wanted(kind, number, made):
            return made
        attempt += 1


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    answers: list[dict[str, Any]] = []
    for kind in KINDS:
        for number in range(EACH):
            made = example(kind, number)
            name = f"{kind}-{number + 1:02d}." + ("png" if kind in ("look", "read") else "jpg")
            if name.endswith("png"):
                made.images[0].save(folder / name, optimize=True)
            else:
                made.images[0].save(folder / name, quality=88)
            for turn in made.turns:
                if kind == "refuse" and turn.kind != "refuse":
                    continue
                row: dict[str, Any] = {
                    "picture": name,
                    "prompt": turn.prompt,
                    "answer": turn.answer,
                    "kind": kind,
                    "form": turn.kind,
                    "language": turn.lang,
                }
                if turn.schema is not None:
                    row["schema"] = turn.schema
                answers.append(row)
    (folder / "answers.json").write_text(json.dumps(answers, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    folder = Path(sys.argv[1])
    write(folder)
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(
        f"{folder}: {len(list(folder.iterdir())) - 1} pictures, {size / 1e6:.2f} MB, {len(DOCUMENTS)} kinds of document"
    )


if __name__ == "__main__":
    main()
