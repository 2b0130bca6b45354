"""Names of files: what they are called in records, and the order in which people expect them."""

from __future__ import annotations

import os
import re

_DIGITS = re.compile(r"(\d+)", re.ASCII)
_LAST, _FOLDER = b"\x01", b"\x02"  # files stand before the folders beside them


def shown(path: bytes) -> str:
    """A path as text for people and JSON: bytes that are not UTF-8 become escapes."""
    return path.decode("utf-8", "backslashreplace")


def natural(relative: bytes) -> bytes:
    """A key whose byte order is the natural order: page2 before page10, small and capital letters alike.

    The path itself has to break ties.
    """
    *folders, last = relative.split(b"/")
    return b"\0".join([*(_FOLDER + _piece(folder) for folder in folders), _LAST + _piece(last)])


def _piece(name: bytes) -> bytes:
    parts = _DIGITS.split(shown(name).casefold())
    return "".join(_number(part) if at % 2 else part for at, part in enumerate(parts)).encode("utf-8", "replace")


def _number(digits: str) -> str:
    """Digits behind their count, so that longer numbers are larger; all begin with “0” as digits among letters do."""
    plain = digits.lstrip("0") or "0"
    return f"0{chr(0x20 + min(len(plain), 0x5F))}{plain}"


def normal(path: str | bytes) -> bytes:
    """The path without “./”, “//” and “..” that lead nowhere; one name for one file, however it was given."""
    return os.path.normpath(os.fsencode(path))
