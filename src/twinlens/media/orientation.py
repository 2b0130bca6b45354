"""How a picture file is turned, for whoever has to find its stored pixels again."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from PIL import Image as Pillow

from twinlens.media import signature
from twinlens.media.decode import _FOREIGN as FOREIGN
from twinlens.media.documents import frame_of

if TYPE_CHECKING:
    from twinlens.core import Sight

_TAG = 0x0112


def orientation(sight: Sight) -> int:
    """The EXIF orientation, 1 to 8, by which *load* has turned this picture; 1 where it has left it alone."""
    if sight.source_format == "PDF":
        return 1  # how a page is turned is not EXIF's to say
    return of_file(sight.data, sight.source_format, frame_of(sight.data, sight.page.number) if sight.page else 0)


def of_file(data: bytes, name: str, frame: int = 0) -> int:
    """The same of a file's bytes; `name` is the format that was sniffed, `frame` the picture of a TIFF, from 0.

    Reads the header only. TIFF is as in `decode`: Pillow turns it itself, by the same tag. A HEIC is turned by its
    decoder, by what the format itself says; its EXIF data is not meant for its reader.
    """
    if name == "HEIC":
        return 1
    if name == "JPEG" and signature.declared_size(data, name) is not None:
        return 1
    try:
        image = Pillow.open(io.BytesIO(data), formats=(name,))
        if frame:
            image.seek(frame)
        if name == "PNG" and "exif" not in image.info and (late := signature.png_exif(data)):
            image.info["exif"] = late
        value = Pillow.Image.getexif(image).get(_TAG)
    except FOREIGN:  # damaged EXIF data means that nothing was turned
        return 1
    return value if isinstance(value, int) and 1 <= value <= 8 else 1
