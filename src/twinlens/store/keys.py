"""Names of objects. Two inputs that differ in anything that shapes an object never share a name.

A key is the hex BLAKE2b-256 of its fields, each written with its length, under a domain of its own: no two lists of
fields encode alike, and nothing of the process, the clock or a dict's order goes in.
"""

from __future__ import annotations

import hashlib
import re

KEY = re.compile(r"[0-9a-f]{32,128}")
LEAST_DIGEST = 16  # bytes; a shorter digest of the input would collide in the field


def is_key(text: str) -> bool:
    """Whether `text` can name an object: lower-case hex only, so never a path."""
    return KEY.fullmatch(text) is not None


def pixels_key(digest: bytes | str, *, part: str, recipe: str, size: tuple[int, int], salt: str = "") -> str:
    """Key of a decoded picture.

    `digest`: of the exact input bytes, at least 128 bits, raw or hex; `part`: which page or frame and how it is
    rendered; `recipe`: how it was decoded; `size`: (height, width) in pixels; `salt`: of the tenant. Raises ValueError.
    """
    height, width = size
    if height <= 0 or width <= 0:
        raise ValueError("a picture has at least one pixel")
    return _digest(b"twinlens.pixels", _hex(digest), part, recipe, str(height), str(width), salt)


def features_key(pixels: str, *, rule: str, weights: str, encoder: str, layout: str) -> str:
    """Key of a vision tower's output.

    `pixels`: key of the pixels; `rule`: processor settings; `weights`: identity of the weights; `encoder`: recipe
    (exact or fast, dtype); `layout`: order of what is stored. Raises ValueError.
    """
    if not is_key(pixels):
        raise ValueError("not a key of pixels")
    return _digest(b"twinlens.features", pixels, rule, weights, encoder, layout)


def _hex(digest: bytes | str) -> str:
    raw = bytes.fromhex(digest) if isinstance(digest, str) else digest
    if len(raw) < LEAST_DIGEST:
        raise ValueError("a digest of the input needs at least 128 bits")
    return raw.hex()


def _digest(domain: bytes, *fields: str) -> str:
    state = hashlib.blake2b(digest_size=32)
    for field in (domain, *(text.encode() for text in fields)):
        state.update(len(field).to_bytes(8, "little"))
        state.update(field)
    return state.hexdigest()
