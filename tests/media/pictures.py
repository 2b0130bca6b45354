"""Picture files of every kind, made on the spot."""

from __future__ import annotations

import base64
import io
import struct
import zlib
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageCms

if TYPE_CHECKING:
    from collections.abc import Callable

RED, LIME, BLUE, WHITE, BLACK = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255), (0, 0, 0)


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def plain(kind: str, size: tuple[int, int] = (40, 20), colour: tuple[int, ...] = RED) -> bytes:
    """One colour; `size` is (width, height)."""
    return saved(Image.new("RGB", size, colour), kind, **({"lossless": True} if kind == "WEBP" else {}))


def noise(kind: str, width: int, height: int, seed: int = 0, **options: Any) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return saved(Image.fromarray(pixels), kind, **options)


def photo(width: int, height: int, seed: int = 0, quality: int = 85) -> bytes:
    """A JPEG like a photograph: soft shapes and a little grain."""
    draw = np.random.default_rng(seed)
    small = draw.integers(0, 256, (height // 8 + 1, width // 8 + 1, 3), dtype=np.uint8)
    soft = np.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC))
    grain = draw.normal(0, 4, (height, width, 3))
    return saved(Image.fromarray(np.clip(soft + grain, 0, 255).astype(np.uint8)), "JPEG", quality=quality)


def strip(orientation: int | None, kind: str = "PNG") -> bytes:
    """40 x 20, white, a red strip on the top 5 rows, with this EXIF orientation."""
    image = Image.new("RGB", (40, 20), WHITE)
    image.paste(RED, (0, 0, 40, 5))
    options: dict[str, Any] = {"quality": 95, "subsampling": 0} if kind == "JPEG" else {}
    if kind == "WEBP":
        options["lossless"] = True
    if orientation is not None:
        exif = Image.Exif()
        exif[0x0112] = orientation
        options["exif"] = exif
    return saved(image, kind, **options)


def png(width: int, height: int, rows: bytes, *, depth: int = 8, colour: int = 0, extra: bytes = b"") -> bytes:
    """A PNG by hand: `rows` are the filtered rows, `extra` whole chunks before the pixels."""
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    body = chunk(b"IHDR", head) + extra + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def grey16(values: list[int]) -> bytes:
    """A 16-bit grey PNG, one row."""
    return png(len(values), 1, b"\0" + struct.pack(f">{len(values)}H", *values), depth=16)


def animation(kind: str, colours: tuple[tuple[int, int, int], ...] = (RED, LIME, BLUE), size: int = 8) -> bytes:
    frames = [Image.new("RGB", (size, size), colour) for colour in colours]
    options = {"lossless": True} if kind == "WEBP" else {}
    return saved(frames[0], kind, save_all=True, append_images=frames[1:], **options)


def profile(kind: str = "sRGB") -> bytes:
    if kind == "sRGB":
        return ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    return display_p3()


def display_p3() -> bytes:
    """A matrix profile with the primaries of Display P3 (adapted to D50) and a gamma of 2.2, by hand."""
    columns = {
        b"rXYZ": (0.51512, 0.24120, -0.00105),
        b"gXYZ": (0.29198, 0.69225, 0.04189),
        b"bXYZ": (0.15710, 0.06657, 0.78407),
    }
    tags = [(name, b"XYZ \0\0\0\0" + b"".join(_fixed(value) for value in xyz)) for name, xyz in columns.items()]
    tags.append((b"wtpt", b"XYZ \0\0\0\0" + b"".join(_fixed(value) for value in (0.9642, 1.0, 0.8249))))
    curve = b"curv\0\0\0\0" + struct.pack(">IH", 1, int(2.2 * 256)) + b"\0\0"
    tags += [(name, curve) for name in (b"rTRC", b"gTRC", b"bTRC")]
    text = b"P3 by hand"
    tags.append((b"desc", b"desc\0\0\0\0" + struct.pack(">I", len(text) + 1) + text + b"\0" + b"\0" * 78 + b"\0"))
    tags.append((b"cprt", b"text\0\0\0\0none\0\0\0\0"))
    return _profile_of(tags)


def _fixed(value: float) -> bytes:
    return struct.pack(">i", round(value * 65536))


def _profile_of(tags: list[tuple[bytes, bytes]]) -> bytes:
    table, body, at = b"", b"", 128 + 4 + 12 * len(tags)
    for name, data in tags:
        table += struct.pack(">4sII", name, at + len(body), len(data))
        body += data + b"\0" * (-len(data) % 4)
    size = at + len(body)
    head = struct.pack(">I4sI4s4s4s", size, b"lcms", 0x02100000, b"mntr", b"RGB ", b"XYZ ")
    head += struct.pack(">6H", 2024, 1, 1, 0, 0, 0) + b"acsp" + b"\0" * 28 + _fixed(0.9642) + _fixed(1) + _fixed(0.8249)
    return head.ljust(128, b"\0") + struct.pack(">I", len(tags)) + table + body


def uri(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64," + base64.b64encode(data).decode()


# Files that are no pictures here, by the name under which they are refused.
FOREIGN: dict[str, bytes] = {
    "HEIC": b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + b"\0" * 64,
    "AVIF": b"\0\0\0\x1cftypavif\0\0\0\0avifmif1" + b"\0" * 64,
    "MP4 video": b"\0\0\0\x18ftypisom\0\0\2\0isommp42" + b"\0" * 64,
    "PSD": b"8BPS\0\1" + b"\0" * 6 + b"\0\3\0\0\0\1\0\0\0\1\0\x08\0\3" + b"\0" * 32,
    "EPS": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 1 1\n%%EndComments\n",
    "TGA": b"\0\0\2\0\0\0\0\0" + b"\0\0\0\0\x10\0\x10\0\x18\0" + b"\0" * 32,
    "CUR": b"\0\0\2\0\1\0\x10\x10" + b"\0" * 32,
    "ICO": b"\0\0\1\0\1\0\x10\x10" + b"\0" * 32,
    "FLI": struct.pack("<IHHHHH", 128, 0xAF12, 1, 8, 8, 8) + b"\0" * 128,
    "XBM": b"#define im_width 8\n#define im_height 1\nstatic char im_bits[] = {\n0xff};\n",
    "DDS": b"DDS |\0\0\0" + b"\0" * 120,
    "McIdas AREA": b"\0\0\0\0\0\0\0\x04" + b"\0" * 256,
    "SVG": b"<?xml version='1.0'?><!DOCTYPE svg [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><svg>&x;</svg>",
    "HTML": b"<!DOCTYPE html><html><body>not found</body></html>",
    "PDF": b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n",
    "JPEG 2000": b"\0\0\0\x0cjP  \r\n\x87\n" + b"\0" * 32,
    "JPEG XL": b"\xff\x0a" + b"\0" * 32,
    "ZIP": b"PK\3\4" + b"\0" * 32,
    "": b"this is plain text and not an image",
}

KINDS: dict[str, Callable[[], bytes]] = {
    kind: partial(noise, kind, 57, 43) for kind in ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
}
