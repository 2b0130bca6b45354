"""Pictures for engines that cannot resolve references: the very pixels that the model is to see, as lossless PNG.

The file that the client sent is not passed on: another decoder would turn it otherwise, take other colours, follow a
URL or not know the format, and the engine's count of vision tokens would no longer be ours.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pybase64
from PIL import Image as Pillow

from twinlens.store.store import resolve

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from twinlens.core import Image

QUICK = 1  # of zlib's levels: the engine is near, time is dearer than bytes


def data_uris(root: Path, images: Sequence[Image]) -> list[str]:
    """The pixels of each as a data URI. Waits on a disk and compresses: for a thread. Raises StoreMiss."""
    made = {image.reference: "" for image in images}
    for reference in made:
        out = io.BytesIO()
        Pillow.fromarray(resolve(root, reference)).save(out, "PNG", compress_level=QUICK)
        made[reference] = "data:image/png;base64," + pybase64.b64encode_as_string(out.getbuffer())
    return [made[image.reference] for image in images]
