"""What the segments of a JPEG say before a decoder sees it: its size, its scans, whether its bytes can hold it."""

from __future__ import annotations

import re
import struct

MOST_SEGMENTS = 32  # of a JPEG before its pixels
MOST_SCANS = 100  # of a JPEG; encoders write up to about a dozen, and libtiff draws the line here too

_FRAME_STARTS = frozenset((0xC0, 0xC1, 0xC2))  # baseline, extended, progressive
_FEW_SCANS = frozenset((0xC0, 0xC1))
_TABLES = frozenset((0xC4, 0xC8, 0xCC))  # among the marks of frames, and none
_SEGMENT = struct.Struct(">BBH")
_PROGRESSIVE = 0xC2
_PIXELS_START = 0xDA
_PICTURE_ENDS = 0xD9
_SCAN = b"\xff\xda"
# What stands between scans: not a byte 0xFF of the pixels, which is followed by zero, no restart, and no filling.
_MARK = re.compile(rb"\xff[^\x00\x01\xd0-\xd8\xff]")
# Tables, comments and application data, which say nothing of size or orientation. Without APP1, which is EXIF or XMP:
# either of which may turn the picture.
_PASSED_OVER = frozenset((0xC4, 0xCC, 0xDB, 0xDD, 0xE0, *range(0xE2, 0xF0), 0xFE))


def plain_size(data: bytes) -> tuple[int, int] | None:
    """(height, width) of a JPEG without EXIF or XMP, which is therefore upright as it stands; else None.

    Goes on to the pixels, because EXIF may stand behind the size. Whatever a decoder could read in another way is
    left to it. Takes microseconds whatever the file holds: it gives up after MOST_SEGMENTS.
    """
    at = 2
    size: tuple[int, int] | None = None
    for _ in range(MOST_SEGMENTS):
        mark, kind, length = struct.unpack_from(">BBH", data, at)
        if mark != 0xFF or length < 2:
            return None
        if kind == _PIXELS_START:
            return size
        if kind in _FRAME_STARTS and size is None:
            height, width = struct.unpack_from(">HH", data, at + 5)
            size = (height, width) if height and width else None
        elif kind not in _PASSED_OVER:
            return None
        at += 2 + length
    return None


def scans(data: bytes) -> int:
    """Scans of a JPEG's first picture, counted up to one above MOST_SCANS.

    Each is worked through over the whole picture, however few bytes it has: without a bound a file of a few megabytes
    keeps a decoder busy for hours. Only of progressive ones: in others a scan has two bits a block at least, which the
    file's size bounds.
    """
    if _frame(data) in _FEW_SCANS:
        return 1
    if data.count(_SCAN) <= MOST_SCANS:  # those of a thumbnail in EXIF among them
        return data.count(_SCAN)
    at, found = 2, 0
    while found <= MOST_SCANS and (mark := _MARK.search(data, at)):
        at = mark.end()
        kind = data[at - 1]
        if kind == _PICTURE_ENDS:
            break
        found += kind == _PIXELS_START
        at += int.from_bytes(data[at : at + 2], "big")
    return found


def _frame(data: bytes) -> int:
    """The mark of the first frame; 0 where the segments before it cannot be followed."""
    at = 2
    for _ in range(MOST_SEGMENTS):
        mark, kind, length = _SEGMENT.unpack_from(data, at) if at + 4 <= len(data) else (0, 0, 0)
        if mark != 0xFF or length < 2:
            return 0
        if 0xC0 <= kind <= 0xCF and kind not in _TABLES:
            return int(kind)
        at += 2 + length
    return 0


def is_hollow(data: bytes) -> bool:
    """Whether a JPEG claims more pixels than its bytes can hold, of which its decoder would make the rest up.

    A block of 8 x 8 takes a bit for its mean at least, and another one for its end where it is not progressive.
    """
    at = 2
    try:
        while True:
            mark, kind, length = struct.unpack_from(">BBH", data, at)
            if mark != 0xFF or length < 2 or kind == _PIXELS_START:
                return False
            if kind in _FRAME_STARTS:
                height, width, parts = struct.unpack_from(">HHB", data, at + 5)
                factors = data[at + 11 : at + 10 + 3 * parts : 3]  # of each component, across and down
                largest = max(one >> 4 for one in factors) * max(one & 15 for one in factors)
                blocks = height * width * sum((one >> 4) * (one & 15) for one in factors) / (64 * largest)
                return bool(8 * len(data) < blocks * (1 if kind == _PROGRESSIVE else 2))
            at += 2 + length
    except (struct.error, ValueError, ZeroDivisionError):
        return False
