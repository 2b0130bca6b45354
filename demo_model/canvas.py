"""Drawing: fonts by side of the split, and the wear of paper, light and camera."""

from __future__ import annotations

import io
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from demo_model.fonts import DEFAULT_FOLDER, FACES

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

Font = ImageFont.FreeTypeFont
Colour = tuple[int, int, int]


@lru_cache(maxsize=1)
def _files(folder: Path = DEFAULT_FOLDER) -> dict[str, str]:
    return {path.stem: str(path) for path in folder.iterdir()} if folder.is_dir() else {}


@lru_cache(maxsize=4096)
def font(name: str, size: int) -> Font:
    path = _files().get(name)
    if path is None:
        fallback = ImageFont.load_default(size)
        assert isinstance(fallback, ImageFont.FreeTypeFont)
        return fallback
    return ImageFont.truetype(path, size, layout_engine=ImageFont.Layout.BASIC)


def face_name(rng: Random, chinese: bool, held: bool) -> str:
    return rng.choice([face.name for face in FACES if face.chinese == chinese and face.held == held])


def sheet(width: int, height: int, colour: Colour) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    image = Image.new("RGB", (width, height), colour)
    draw = ImageDraw.Draw(image)
    draw.fontmode = "L"
    return image, draw


def paper(rng: Random) -> Colour:
    level = rng.randint(225, 255)
    return (level, max(200, level - rng.randint(0, 14)), max(190, level - rng.randint(0, 30)))


def ink(rng: Random) -> Colour:
    if rng.random() < 0.7:
        level = rng.randint(0, 60)
        return (level, level, level)
    return (rng.randint(0, 90), rng.randint(0, 60), rng.randint(0, 130))


def skew(rng: Random, image: Image.Image, background: Colour, degrees: float = 2.5) -> Image.Image:
    return image.rotate(rng.uniform(-degrees, degrees), Image.Resampling.BILINEAR, expand=False, fillcolor=background)


#: The ways a picture is worn; "texture" includes sensor noise.
WEAR: Final = ("blur", "shadow", "texture", "jpeg")


def wear(rng: Random, image: Image.Image, strength: float = 1.0, parts: tuple[str, ...] = WEAR) -> Image.Image:
    """Some of `parts`, at least one of them."""
    chosen = {part for part in parts if rng.random() < 0.5} or {rng.choice(parts)}
    if "blur" in chosen:
        image = image.filter(ImageFilter.GaussianBlur(rng.uniform(0.3, 0.8) * strength))
    if chosen & {"shadow", "texture"}:
        noise = np.random.default_rng(rng.getrandbits(32))
        width, height = image.size
        pixels = np.asarray(image).astype(np.float32)
        if "shadow" in chosen:
            low = np.full((3, 3), 255, np.uint8)
            low -= noise.integers(0, int(110 * strength), (3, 3), dtype=np.uint8)
            light = Image.fromarray(low).resize((width, height), Image.Resampling.BICUBIC)
            pixels *= np.asarray(light)[:, :, None] * np.float32(1 / 255)
        if "texture" in chosen:
            coarse = noise.integers(0, 255, (max(2, height // 6), max(2, width // 6)), dtype=np.uint8)
            grain = np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BILINEAR))
            pixels += ((grain.astype(np.float32) - 128) * (rng.uniform(0.03, 0.14) * strength))[:, :, None]
            fine = noise.integers(-128, 127, (height, width, 1), dtype=np.int8)
            pixels += fine.astype(np.float32) * (rng.uniform(0.0, 0.12) * strength)
        image = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
    if "jpeg" in chosen:
        packed = io.BytesIO()
        image.save(packed, "JPEG", quality=rng.randint(35, 85))
        image = Image.open(packed).convert("RGB")
    return image
