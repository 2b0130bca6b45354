"""From the bytes of a picture file to upright 8-bit RGB on white, by Pillow.

Rules, all of them part of RECIPE and so of the key of pixels: the first frame counts; EXIF orientation is applied;
transparency lies on white; 16-bit values are scaled, not cut; an embedded colour profile is converted to sRGB; the
size that the model sees is made by bicubic resampling, as the models' own processors do.
"""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import PIL
from PIL import (  # noqa: F401 - imported before the first request needs them
    BmpImagePlugin,
    GifImagePlugin,
    JpegImagePlugin,
    MpoImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
    features,
)
from PIL import Image as Pillow

from twinlens.errors import ImageError, ImageTooLarge, OperatorError, UnsupportedImageFormat
from twinlens.media import colours, jpeg, signature, silence
from twinlens.media.resize import NAME as RESIZER
from twinlens.media.resize import resized

if TYPE_CHECKING:
    from collections.abc import Iterator

# A JPEG is decoded at a half, quarter or eighth of its size as long as that leaves so many times what is wanted, across
# and down: then the pixels differ by less than one grey level on average, of noise too (docs/performance.md).
DRAFT_LEAVES = 4
RECIPE = (
    f"pillow {PIL.__version__}, jpeg {features.version('libjpeg_turbo') or features.version('jpg')}, "
    f"webp {features.version('webp')}, first frame, upright, 16 bit scaled, white, srgb perceptual, {RESIZER}, "
    f"draft {DRAFT_LEAVES}, 2"
)
if features.check("avif"):
    from PIL import AvifImagePlugin  # noqa: F401
try:
    import pillow_heif
except ImportError:  # the extra “heic”
    HEIC = False
else:
    HEIC = True
    # One thread a picture, as everything here; nothing but the picture itself is looked at.
    pillow_heif.register_heif_opener(decode_threads=1, thumbnails=False, depth_images=False, aux_images=False)

FORMATS = (
    *signature.FORMATS,
    *(("AVIF",) if features.check("avif") else ()),
    *(("HEIC",) if HEIC else ()),
)
_EXTRAS = {"AVIF": "a build of the image library that has it", "HEIC": "the extra “heic”: pip install 'twinlens[heic]'"}
_PILLOW_NAMES = {"HEIC": "HEIF"}
_SAFE_WEBP = (1, 3, 2)  # older ones write out of bounds on a crafted file (CVE-2023-4863)
_TURNS = {
    2: Pillow.Transpose.FLIP_LEFT_RIGHT,
    3: Pillow.Transpose.ROTATE_180,
    4: Pillow.Transpose.FLIP_TOP_BOTTOM,
    5: Pillow.Transpose.TRANSPOSE,
    6: Pillow.Transpose.ROTATE_270,
    7: Pillow.Transpose.TRANSVERSE,
    8: Pillow.Transpose.ROTATE_90,
}
_ORIENTATION = 0x0112
# All that Pillow was seen to raise on damaged files. OSError holds UnidentifiedImageError and truncation.
_FOREIGN = (
    OSError,
    ValueError,
    SyntaxError,
    EOFError,
    ArithmeticError,
    MemoryError,
    LookupError,
    TypeError,
    AttributeError,
    AssertionError,
    RuntimeError,
    UserWarning,  # for whoever runs Python with warnings as errors
    struct.error,
    zlib.error,
    Pillow.DecompressionBombError,
)

# The bounds of this service are checked from the header; Pillow's own would warn at a number that nobody set.
Pillow.MAX_IMAGE_PIXELS = None
# What Pillow has to say about a client's broken metadata is no news for the operator's terminal.
warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")


def recipe(name: str, *, profiles: bool = True) -> str:
    """All that makes the pixels of a file of this format what they are. `profiles`: as of `pixels`."""
    made = RECIPE if profiles else f"{RECIPE}, profiles left out"
    if name == "HEIC":
        return f"{made}, pillow-heif {pillow_heif.__version__}, libheif {pillow_heif.libheif_version()}"
    return f"{made}, avif {features.version('avif')}" if name == "AVIF" else made


@dataclass(frozen=True, slots=True)
class Header:
    """What a picture file is, before its pixels are decoded. `size` is (height, width), upright, in pixels."""

    format: str
    size: tuple[int, int]
    warnings: tuple[str, ...]


def check_decoders() -> None:
    """Raises OperatorError when the installed decoders are missing one of the formats or are known to be unsafe.

    Makes them quiet as well, for the life of the process.
    """
    silence.libtiff()
    missing = [name for name in ("jpg", "zlib", "webp", "libtiff") if not features.check(name)]
    if missing:
        raise OperatorError(
            f"Pillow was built without {', '.join(missing)}.", cure="pip install --force-reinstall pillow"
        )
    version = tuple(int(part) for part in (features.version("webp") or "0").split(".") if part.isdigit())
    if version < _SAFE_WEBP:
        raise OperatorError("Pillow's WebP decoder is a version with a known hole.", cure="pip install -U pillow")


def look(data: bytes, where: str, most_pixels: int, frame: int = 0) -> Header:
    """Read the header only. `frame`: which picture of a TIFF, from 0.

    Raises UnsupportedImageFormat naming what it is instead, ImageTooLarge above `most_pixels`, ImageError if damaged.
    """
    name = signature.sniff(data)
    if name not in FORMATS:
        raise _unsupported(name, where)
    if name == "TIFF" and signature.is_camera_raw(data):
        raise _unsupported("camera raw", where)
    declared = signature.declared_size(data, name)
    _bound(declared, where, most_pixels)
    if name == "JPEG":
        _check_jpeg(data, where)
    if name == "JPEG" and declared is not None:
        return Header(name, declared, ())
    with _translated(where):
        image = _open(data, name, frame)
        turn, said = _turn(image, data, name)
        frames = _frames(image, data, name)
    width, height = image.size
    _bound((height, width), where, most_pixels)
    if frames > 1:
        said = (*said, f"the first of {frames} frames is used.")
    size = (width, height) if turn in _SIDEWAYS else (height, width)
    return Header(name, size, tuple(f"{where}: {text}" for text in said))


def pixels(  # noqa: PLR0913 - one call for each picture, at two places
    data: bytes, name: str, size: tuple[int, int], where: str, frame: int = 0, *, profiles: bool = True
) -> Pillow.Image:
    """The picture as upright RGB of this (height, width). `name` is the format that `look` found, `frame` as there.

    `profiles`: whether an embedded colour profile is converted to sRGB; otherwise it is left out of account.

    Raises ImageError when the data is truncated or damaged.
    """
    height, width = size
    with _translated(where):
        image = _open(data, name, frame)
        turn, _ = _turn(image, data, name)
        goal = (height, width) if turn in _SIDEWAYS else (width, height)
        _clear_in_eight_bits(image)
        if name == "JPEG":
            image.draft(None, (DRAFT_LEAVES * goal[0], DRAFT_LEAVES * goal[1]))
        image.load()
        flat, profile = colours.flattened(image, image.info.get("icc_profile") if profiles else None)
        flat = resized(flat, goal)
        if turn is not None:
            flat = flat.transpose(turn)
        return colours.to_srgb(flat, profile)


_SIDEWAYS = {
    Pillow.Transpose.TRANSPOSE,
    Pillow.Transpose.ROTATE_270,
    Pillow.Transpose.TRANSVERSE,
    Pillow.Transpose.ROTATE_90,
}


def _open(data: bytes, name: str, frame: int = 0) -> Pillow.Image:
    image = Pillow.open(io.BytesIO(data), formats=(_PILLOW_NAMES.get(name, name),))
    if frame:
        image.seek(frame)
    return image


def _clear_in_eight_bits(image: Pillow.Image) -> None:
    """Pillow gives colours of 16 bits by their upper 8, and the one that means transparent as it stands."""
    clear = image.info.get("transparency")
    if isinstance(clear, tuple) and any(tile.args == "RGB;16B" for tile in getattr(image, "tile", ())):
        image.info["transparency"] = tuple(value >> 8 for value in clear)


def _bound(size: tuple[int, int] | None, where: str, most: int) -> None:
    if size is not None and size[0] * size[1] > most:
        raise ImageTooLarge(
            f"{where} is {size[1]} x {size[0]} pixels, more than {most}, the limit of max_image_pixels.", param=where
        )
    if size is not None and 0 in size:
        raise ImageError(f"{where} has no pixels.", param=where)


def _check_jpeg(data: bytes, where: str) -> None:
    if jpeg.scans(data) > jpeg.MOST_SCANS:
        raise ImageError(f"{where}: the picture has more than {jpeg.MOST_SCANS} scans.", param=where)
    if jpeg.is_hollow(data):
        raise ImageError(f"{where}: the picture's data is truncated or damaged.", param=where)


def _turn(image: Pillow.Image, data: bytes, name: str) -> tuple[Pillow.Transpose | None, tuple[str, ...]]:
    """How to turn the decoded picture upright, and what to say if that cannot be known."""
    if name in ("TIFF", "HEIC"):
        return None, ()  # turned by their decoders; what EXIF says in a HEIC is not meant for its reader
    if name == "JPEG" and signature.declared_size(data, name) is not None:
        return None, ()  # what `look` went by, so that size and pixels never disagree
    if name == "PNG" and "exif" not in image.info:
        late = signature.png_exif(data)
        if late:
            image.info["exif"] = late
    try:
        # Not image.getexif(): for a PNG that would decode everything to look behind the pixels.
        value = Pillow.Image.getexif(image).get(_ORIENTATION)
    except _FOREIGN:
        return None, ("its EXIF data is damaged; it is taken as upright.",)
    return _TURNS.get(value) if isinstance(value, int) else None, ()


def _frames(image: Pillow.Image, data: bytes, name: str) -> int:
    """How many pictures the file holds, without decoding any. The extra pictures of a phone's JPEG do not count, and
    those of a TIFF are pages.
    """
    if name == "GIF":
        return signature.gif_frames(data)
    if name in ("PNG", "WEBP", "AVIF"):
        return int(getattr(image, "n_frames", 1))
    return 1


def is_taken(start: bytes) -> bool:
    """Whether a file that starts so, with some hundred bytes at least, is of a kind that is taken here."""
    return signature.sniff(start) in (*FORMATS, "PDF")


def _unsupported(name: str, where: str) -> UnsupportedImageFormat:
    names = ["WebP" if taken == "WEBP" else taken for taken in FORMATS]
    taken = f"{', '.join(names[:-1])} or {names[-1]}"
    called = f"{name} data" if name else "data of an unknown kind"
    operator = f" The operator can add it with {_EXTRAS[name]}." if name in _EXTRAS else ""
    return UnsupportedImageFormat(
        f"{where} is {called}, not a picture that is taken here.",
        param=where,
        cure=f"Convert the picture to {taken}, or the document to PDF.{operator}",
    )


@contextmanager
def _translated(where: str) -> Iterator[None]:
    """Foreign errors become one of ours with a fixed text: theirs may hold addresses and paths."""
    try:
        yield
    except _FOREIGN as error:
        raise ImageError(f"{where}: the picture's data is truncated or damaged.", param=where) from error
