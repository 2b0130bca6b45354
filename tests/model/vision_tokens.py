"""The golden table of vision tokens, made by transformers' own image processors.

    python -m tests.model.vision_tokens        writes vision_tokens.json (needs transformers, see the requirements file)

The fast tests hold our arithmetic against the table; the integration test holds the table against transformers.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.model.folders import PROCESSORS, make_folder

TABLE = Path(__file__).with_name("vision_tokens.json")

# (height, width): everyday, tiny, thin, just around half squares, and as large as a test can afford.
SIZES = (
    (1, 1), (3, 3), (1, 3), (28, 28), (32, 32), (26, 28), (27, 500), (13, 13), (14, 14), (42, 42), (70, 98), (48, 80),
    (5, 1000), (1000, 5), (30, 6000), (97, 511), (160, 160), (224, 224), (333, 200), (480, 640), (500, 500), (512, 512),
    (600, 800), (640, 480), (713, 1291), (720, 1280), (768, 1024), (854, 480), (1000, 1000), (1080, 1920), (1291, 713),
    (1003, 1001), (1200, 300), (1920, 1080), (2000, 100), (64, 12000), (2048, 2048), (3000, 400), (2480, 1754),
)  # fmt: skip
SMALL_BOUNDS = {"min_pixels": 128 * 28 * 28, "max_pixels": 1280 * 28 * 28}


def settings() -> dict[str, tuple[str, dict[str, Any]]]:
    """Name to (family, contents of preprocessor_config.json)."""
    found = {family: (family, PROCESSORS[family]) for family in PROCESSORS}
    for family, processor in PROCESSORS.items():
        plain = {key: value for key, value in processor.items() if key != "size"}
        found[f"{family}, 128 to 1280 squares of 28"] = (family, {**plain, **SMALL_BOUNDS})
    return found


def processor_of(folder: Path, backend: str) -> Any:
    """transformers' own processor of a model folder; `backend` is “pil” or “torchvision”."""
    from transformers import AutoImageProcessor  # noqa: PLC0415 - not in the fast tests' environment

    return AutoImageProcessor.from_pretrained(folder, backend=backend)


def measured(processor: Any, height: int, width: int) -> list[int]:
    """The grid (t, h, w) that a processor makes of a picture of this size."""
    picture = Image.fromarray(np.zeros((height, width, 3), np.uint8))
    return [int(value) for value in processor(images=[picture], return_tensors="np")["image_grid_thw"][0]]


def table(backend: str) -> dict[str, list[list[int]]]:
    """Name of the settings to rows of height, width, t, h, w."""
    made: dict[str, list[list[int]]] = {}
    for name, (family, contents) in settings().items():
        with tempfile.TemporaryDirectory() as folder:
            processor = processor_of(make_folder(Path(folder), family=family, processor=contents), backend)
            made[name] = [[*size, *measured(processor, *size)] for size in SIZES]
    return made


def written(rows: dict[str, list[list[int]]]) -> str:
    """JSON with a row a line, so that a change shows."""
    parts = []
    for name, values in rows.items():
        lines = ",\n".join(f"  {json.dumps(row)}" for row in values)
        parts.append(f"{json.dumps(name)}: [\n{lines}\n]")
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    TABLE.write_text(written(table("pil")))
