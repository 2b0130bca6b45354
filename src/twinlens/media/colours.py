"""Whatever a file's pixels mean, as 8-bit grey or RGB on white, and then as sRGB."""

from __future__ import annotations

import io
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image as Pillow
from PIL import ImageCms

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_PROFILE = 4 << 20  # bytes; a larger profile is left out of account
_SPACES = {"L": "GRAY", "RGB": "RGB", "CMYK": "CMYK"}


def flattened(image: Pillow.Image, profile: bytes | None) -> tuple[Pillow.Image, bytes | None]:
    """Mode L or RGB, without transparency, and the profile that still has to be applied.

    A printing profile is applied here, because its four channels mean nothing without it.
    """
    mode = image.mode
    if mode in ("L", "RGB") and "transparency" not in image.info:
        return image, profile
    if mode.startswith("I") or mode == "F":
        return _scaled(image), None
    if mode == "CMYK":
        transform = _transform(profile, mode) if profile else None
        return (_applied(image, transform), None) if transform else (image.convert("RGB"), None)
    if image.has_transparency_data:
        return _on_white(image.convert("RGBA")), profile
    return image.convert("RGB"), profile


def to_srgb(image: Pillow.Image, profile: bytes | None) -> Pillow.Image:
    """An L or RGB picture as RGB, through its profile if it has one that fits and is not sRGB already."""
    transform = _transform(profile, image.mode) if profile else None
    if transform is not None:
        return _applied(image, transform)
    return image if image.mode == "RGB" else image.convert("RGB")


def _on_white(image: Pillow.Image) -> Pillow.Image:
    white = Pillow.new("RGB", image.size, (255, 255, 255))
    white.paste(image, (0, 0), image)
    return white


def _scaled(image: Pillow.Image) -> Pillow.Image:
    """Deep grey values in 8 bits: 0..65535 to 0..255; values outside that (32 bits, floats) by their own range."""
    values: NDArray[Any] = np.asarray(image).astype(np.float32)
    values = np.nan_to_num(values, posinf=0.0, neginf=0.0)
    low, high = 0.0, 65535.0
    if image.mode == "F" or values.min() < low or values.max() > high:
        low, high = float(values.min()), float(values.max())
    clear = image.info.get("transparency")  # the value that means nothing is there
    empty = values == clear if isinstance(clear, int) else None
    values = (values - low) * (255.0 / max(high - low, 1e-30))
    if empty is not None:
        values[empty] = 255.0
    return Pillow.fromarray(np.clip(np.rint(values), 0, 255).astype(np.uint8))


def _applied(image: Pillow.Image, transform: ImageCms.ImageCmsTransform) -> Pillow.Image:
    result = ImageCms.applyTransform(image, transform)
    return result if result is not None else image.convert("RGB")


@lru_cache(maxsize=16)
def _transform(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform | None:
    """None when the profile is sRGB, damaged, or for another kind of picture. Kept: phones send the same few."""
    if len(profile) > MOST_PROFILE:
        return None
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        fits = source.profile.xcolor_space.strip() == _SPACES.get(mode)
        if not fits or "srgb" in (source.profile.profile_description or "").lower():
            return None
        return ImageCms.buildTransform(source, ImageCms.createProfile("sRGB"), mode, "RGB")
    except (ImageCms.PyCMSError, OSError, ValueError, TypeError):
        return None
