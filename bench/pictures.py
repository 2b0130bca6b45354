"""Pictures for requests: JPEGs of a wanted size in bytes, each request's different, without encoding each anew.

A comment segment with a counter makes the bytes, and so the key in the store, different; what has to be decoded
is the same. The segment's length is such that the base64 text behind it stays the same, so a picture costs the load
generator a few bytes of work.
"""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass

import numpy as np
from PIL import Image

# Bytes, (height, width): 2.6 bits a pixel, as in the photographs of COCO and ImageNet.
SIZES = {"100 kB": (100_000, (480, 640)), "1 MB": (1_000_000, (1536, 2048))}
DIGITS = 16
QUALITY = 85


@dataclass(frozen=True, slots=True)
class Template:
    """The data URI of one picture is `before` + `changing(number)` + `after`."""

    before: bytes
    head: bytes  # of the file, up to the comment's digits
    after: bytes

    def changing(self, number: int) -> bytes:
        """Base64 of the head with its counter: DIGITS decimal digits."""
        return base64.b64encode(self.head + b"%016d" % number)

    def uri(self, number: int) -> bytes:
        """The whole data URI."""
        return self.before + self.changing(number) + self.after


def template(jpeg: bytes) -> Template:
    """Of a JFIF file."""
    start = jpeg.index(b"\xff\xe0") + 2
    cut = start + int.from_bytes(jpeg[start : start + 2], "big")  # behind the first segment, as JFIF wants it
    filling = -(cut + 4 + DIGITS) % 3
    comment = b"\xff\xfe" + (2 + filling + DIGITS).to_bytes(2, "big") + b"." * filling
    return Template(b"data:image/jpeg;base64,", jpeg[:cut] + comment, base64.b64encode(jpeg[cut:]))


def photo(size: str, seed: int = 0) -> bytes:
    """A JPEG like a photograph: soft shapes, edges and grain, within 3% of one of SIZES in bytes."""
    wanted, (height, width) = SIZES[size]
    return _of_bytes(_scene(height, width, seed), wanted)


def scene_photo(height: int, width: int, seed: int) -> bytes:
    """A JPEG of the same kind, of a given size in pixels."""
    return _encoded(_scene(height, width, seed), grain=6.0)


def _scene(height: int, width: int, seed: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    draw = np.random.default_rng(seed)
    coarse = draw.uniform(0, 255, (height // 64 + 2, width // 64 + 2, 3)).astype(np.uint8)
    soft = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    canvas = np.array(soft, dtype=np.float32)
    for _ in range(24):  # edges
        top, left = draw.integers(0, height * 3 // 4), draw.integers(0, width * 3 // 4)
        canvas[top : top + height // 8, left : left + width // 8] += draw.uniform(-60, 60, 3).astype(np.float32)
    return canvas


def _of_bytes(scene: np.ndarray[tuple[int, ...], np.dtype[np.float32]], wanted: int) -> bytes:
    low, high = 0.0, 80.0
    for _ in range(20):
        jpeg = _encoded(scene, (low + high) / 2)
        if abs(len(jpeg) - wanted) <= wanted * 0.03:
            return jpeg
        low, high = ((low + high) / 2, high) if len(jpeg) < wanted else (low, (low + high) / 2)
    raise RuntimeError("no amount of grain gives a picture of this size")


def _encoded(scene: np.ndarray[tuple[int, ...], np.dtype[np.float32]], grain: float) -> bytes:
    noise = np.random.default_rng(1).standard_normal(scene.shape[:2], dtype=np.float32)[..., None] * grain
    file = io.BytesIO()
    Image.fromarray(np.clip(scene + noise, 0, 255).astype(np.uint8)).save(file, "JPEG", quality=QUALITY)
    return file.getvalue()
