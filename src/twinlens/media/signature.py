"""What the bytes of a file say before any decoder sees them: format, size, frames, where the orientation stands.

Only bounded walks over the structure; a file that lies or ends early gives None or a smaller count, never an error.
"""

from __future__ import annotations

import struct

from twinlens.media import jpeg

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")  # the decoders that are ever handed a client's bytes
MOST_FRAMES = 10_000  # counting stops here

_STARTS: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\xff\xd8\xff", "JPEG"),
    (0, b"\x89PNG\r\n\x1a\n", "PNG"),
    (0, b"GIF87a", "GIF"),
    (0, b"GIF89a", "GIF"),
    (0, b"II*\0", "TIFF"),
    (0, b"MM\0*", "TIFF"),
    (0, b"II+\0", "TIFF"),
    (0, b"MM\0+", "TIFF"),
    (0, b"BM", "BMP"),
    (0, b"%PDF", "PDF"),
    (0, b"8BPS", "PSD"),
    (0, b"%!PS", "EPS"),
    (0, b"\xc5\xd0\xd3\xc6", "EPS"),
    (0, b"\0\0\1\0", "ICO"),
    (0, b"\0\0\2\0\0\0\0\0", "TGA"),  # before CUR, which has a number of pictures where this has none
    (0, b"\0\0\x0a\0\0\0\0\0", "TGA"),
    (0, b"\0\0\2\0", "CUR"),
    (0, b"DDS ", "DDS"),
    (0, b"\0\0\0\x0cJXL ", "JPEG XL"),
    (0, b"\xff\x0a", "JPEG XL"),
    (0, b"\0\0\0\x0cjP  ", "JPEG 2000"),
    (0, b"\xff\x4f\xff\x51", "JPEG 2000"),
    (0, b"\0\0\0\0\0\0\0\x04", "McIdas AREA"),
    (0, b"#define", "XBM"),
    (0, b"/* XPM", "XPM"),
    (0, b"qoif", "QOI"),
    (0, b"\x1aE\xdf\xa3", "Matroska video"),
    (0, b"PK\3\4", "ZIP"),
    (0, b"\x1f\x8b", "gzip"),
    (0, b"icns", "ICNS"),
    (4, b"\x11\xaf", "FLI"),
    (4, b"\x12\xaf", "FLI"),
    (128, b"DICM", "DICOM"),
)
_BRANDS = {
    b"heic": "HEIC",
    b"heix": "HEIC",
    b"heim": "HEIC",
    b"heis": "HEIC",
    b"hevc": "HEIC",
    b"mif1": "HEIC",
    b"msf1": "HEIC",
    b"avif": "AVIF",
    b"avis": "AVIF",
}


_GENERAL = (b"mif1", b"msf1")
MOST_BRANDS = 512  # bytes of the list of brands that are looked at


def sniff(data: bytes) -> str:
    """Name of the format, by the bytes alone; empty if unknown. Only names in FORMATS are decoded."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WEBP"
    if data[4:8] == b"ftyp":
        return _iso_format(data)
    for offset, start, name in _STARTS:
        if data.startswith(start, offset):
            return name
    return _text_format(data[:1024])


def _iso_format(data: bytes) -> str:
    """HEIC, AVIF or video, by the brands of the file; the general ones say only that it is a picture."""
    found = _BRANDS.get(data[8:12], "")
    if found == "HEIC" and data[8:12] in _GENERAL:
        length = min(int.from_bytes(data[:4], "big"), MOST_BRANDS, len(data))
        others = {_BRANDS.get(data[at : at + 4]) for at in range(16, length - 3, 4)}
        return "AVIF" if "AVIF" in others else "HEIC"
    return found or "MP4 video"


def is_plain(data: bytes) -> bool:
    """Whether `declared_size` tells all there is to know of it: a JPEG that nothing can turn."""
    return sniff(data) == "JPEG" and declared_size(data, "JPEG") is not None


def _text_format(head: bytes) -> str:
    if b"%PDF-" in head:  # readers take one with something before it
        return "PDF"
    if b"<svg" in head.lower():
        return "SVG"
    if head.lstrip()[:5].lower() in (b"<html", b"<!doc"):
        return "HTML"
    return ""


def declared_size(data: bytes, name: str) -> tuple[int, int] | None:
    """(height, width) as the header says; None if only a decoder can tell.

    For formats whose decoder allocates when it opens a file, so that they are bounded before that, and for plain
    JPEGs.
    """
    try:
        if name == "JPEG":
            return jpeg.plain_size(data)
        if name == "WEBP":
            return _webp_size(data)
        if name == "PNG":
            width, height = struct.unpack_from(">II", data, 16)
        elif name == "GIF":
            width, height = struct.unpack_from("<HH", data, 6)
        else:
            return None
    except struct.error:
        return None
    return height, width


def _webp_size(data: bytes) -> tuple[int, int] | None:
    kind = data[12:16]
    if kind == b"VP8X":
        return int.from_bytes(data[27:30], "little") + 1, int.from_bytes(data[24:27], "little") + 1
    if kind == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return (bits >> 14 & 0x3FFF) + 1, (bits & 0x3FFF) + 1
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", data, 26)
        return height & 0x3FFF, width & 0x3FFF
    return None


def png_exif(data: bytes) -> bytes | None:
    """The eXIf chunk, wherever it stands: behind the pixels too, where a decoder finds it only after decoding."""
    at = 8
    while at + 12 <= len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        if data[at + 4 : at + 8] == b"eXIf":
            return data[at + 8 : at + 8 + length]
        at += 12 + length
    return None


def gif_frames(data: bytes) -> int:
    """Pictures in a GIF, by walking its blocks: nothing is decompressed."""
    at = 13 + _table(data, 10)
    frames = 0
    while at < len(data) and frames < MOST_FRAMES:
        if data[at] == 0x2C:
            frames += 1
            at = _sub_blocks(data, at + 11 + _table(data, at + 9))
        elif data[at] == 0x21:
            at = _sub_blocks(data, at + 2)
        else:
            break
    return frames


def _table(data: bytes, at: int) -> int:
    """Bytes of the colour table that the flags at `at` announce."""
    flags = data[at] if at < len(data) else 0
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _sub_blocks(data: bytes, at: int) -> int:
    while at < len(data) and data[at]:
        at += data[at] + 1
    return at + 1


def tiff_pages(data: bytes) -> tuple[int, ...]:
    """Which pictures of a TIFF are pages, from 0: not smaller copies of others, and not masks.

    By following its chain of directories; a chain that runs in a circle ends the walk.
    """
    order = "<" if data[:2] == b"II" else ">"
    big = data[2:4] in (b"+\0", b"\0+")
    count, entry, link = ("Q", 20, "Q") if big else ("H", 12, "I")
    seen: set[int] = set()
    pages: list[int] = []
    try:
        (at,) = struct.unpack_from(order + link, data, 8 if big else 4)
        while at and at not in seen and len(seen) < MOST_FRAMES:
            (entries,) = struct.unpack_from(order + count, data, at)
            start = at + struct.calcsize(order + count)
            if not _is_aside(data, order, start, entry, entries):
                pages.append(len(seen))
            seen.add(at)
            (at,) = struct.unpack_from(order + link, data, start + entries * entry)
    except (struct.error, OverflowError):
        pass
    return tuple(pages) or (0,)


def _is_aside(data: bytes, order: str, start: int, entry: int, entries: int) -> bool:
    """Whether a directory says of itself that it is a smaller copy or a mask (NewSubfileType, sorted to its start)."""
    for at in range(start, start + min(entries, 2) * entry, entry):
        tag, kind = struct.unpack_from(order + "HH", data, at)
        if tag == _SUBFILE:
            (bits,) = struct.unpack_from(
                order + ("H" if kind == 3 else "I"), data, at + entry - (8 if entry == 20 else 4)
            )
            return bool(bits & _COPY_OR_MASK)
    return False


def is_camera_raw(data: bytes) -> bool:
    """Whether a TIFF is a camera's raw file, such as DNG, NEF or ARW.

    It has only copies to be shown; the picture is in directories inside, which decoders of pictures do not look into.
    """
    order = "<" if data[:2] == b"II" else ">"
    try:
        (at,) = struct.unpack_from(order + "I", data, 4)
        (entries,) = struct.unpack_from(order + "H", data, at)
        tags = {struct.unpack_from(order + "H", data, at + 2 + 12 * one)[0] for one in range(min(entries, MOST_TAGS))}
        return _INNER in tags and _is_aside(data, order, at + 2, 12, entries) and tiff_pages(data) == (0,)
    except struct.error:
        return False


MOST_TAGS = 512  # of a directory
_SUBFILE, _COPY_OR_MASK = 254, 0b101
_INNER = 330  # directories inside a directory
