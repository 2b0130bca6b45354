"""The bytes of a picture that came inside the request: a data URI or bare base64. Nothing is fetched or opened here.

What clients really send is taken (line breaks, missing padding, the URL-safe alphabet, percent-encoding, parameters,
upper case); what does not decode to exactly the bytes that were meant is refused with the place of the first fault.
"""

from __future__ import annotations

import binascii
import re
import string
from typing import NoReturn

import pybase64

from twinlens.errors import ImageError, ImageTooLarge, ImageUrlNotAllowed, InvalidBase64

_SCHEME = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]*):")
_PATH = re.compile(r"\s*(?:[./~\\]|[\w-]+[./\\])[\w./\\ -]*\.[A-Za-z0-9]{1,5}\s*")
_HEAD = 512  # characters; a longer head of a data URI is refused
_SPACES = b" \t\r\n\f\v"
_SPACE_INSIDE = re.compile(rb"[^\s](?=[ \t]+[^\s])")
_ALLOWED = string.ascii_letters.encode() + string.digits.encode() + b"+/-_=" + _SPACES
_PERCENT = tuple(
    (code, meant)
    for upper, meant in ((b"%2B", b"+"), (b"%2F", b"/"), (b"%3D", b"="), (b"%0A", b""), (b"%0D", b""), (b"%20", b""))
    for code in (upper, upper.lower())
)
_LEAST = 8  # bytes; fewer are no picture, so short words such as “null” do not pass for base64


def read(url: str, where: str, limit: int) -> bytes:
    """The bytes of the picture, at most `limit`.

    Raises ImageUrlNotAllowed for every other scheme and for paths, InvalidBase64, ImageTooLarge, ImageError if empty.
    """
    text = url if url.startswith("data:") else url.lstrip()
    payload = _payload(text, where)
    # Before decoding: 4 characters make 3 bytes, and line breaks and percent-encoding never triple the length.
    if len(payload) > 4 * limit + _HEAD:
        _too_large(where, limit)
    data = _decode(payload, where)
    if len(data) > limit:
        _too_large(where, limit)
    if not data:
        raise ImageError(f"{where} holds an empty picture.", param=where)
    return data


def _payload(text: str, where: str) -> str:
    if text[:5].lower() == "data:":
        comma = text.find(",", 0, _HEAD)
        if comma < 0:
            raise InvalidBase64(f"{where} is a data URI without a comma.", param=where, cure=_FORM)
        # RFC 2397: whatever parameters come before it, the last word says how the data is written.
        if text[5:comma].rpartition(";")[2].strip().lower() != "base64":
            raise InvalidBase64(f"{where} is a data URI that is not base64.", param=where, cure=_FORM)
        return text[comma + 1 :]
    _refuse_address(text, where)
    return text


_FORM = "Send data:image/jpeg;base64, followed by the file's bytes in base64."


def _refuse_address(text: str, where: str) -> None:
    scheme = _SCHEME.match(text[:64])
    if scheme:
        raise ImageUrlNotAllowed(
            f"{where} is a “{scheme[1].lower()[:20]}:” address, which is not followed.", param=where
        )
    if len(text) < 1024 and _PATH.fullmatch(text):
        raise ImageUrlNotAllowed(f"{where} is a file path; the server opens no files of its own.", param=where)


def _decode(payload: str, where: str) -> bytes:
    try:
        data = pybase64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError):
        data = _decode_loosely(payload, where)
    if 0 < len(data) < _LEAST:
        raise InvalidBase64(f"{where} is no base64 of a picture: it makes {len(data)} bytes.", param=where)
    return data


def _decode_loosely(payload: str, where: str) -> bytes:
    """For text that is not canonical: everything that has one meaning is taken, the rest named by its offset.

    Whole-string operations only: a loop or a regular expression would hold the interpreter for seconds at 40 MB.
    """
    text = _ascii(payload, where)
    if b"%" in text:
        for code, meant in _PERCENT:
            text = text.replace(code, meant)
    if b"\\" in text:  # escapes of line ends and of “/” that somebody wrote once too often
        text = text.replace(b"\\r", b"\r").replace(b"\\n", b"\n").replace(b"\\/", b"/")
    text = text.rstrip(_SPACES)
    foreign = text.translate(None, _ALLOWED)
    bare = text.translate(None, _SPACES).rstrip(b"=")
    safe = b"-" in bare or b"_" in bare
    if foreign or b"=" in bare:
        offset = text.index(foreign[:1] or b"=")
        raise InvalidBase64(f"{where} is not base64: wrong character at offset {offset}.", param=where)
    _check_spaces(text, where)
    if safe and (b"+" in bare or b"/" in bare):
        raise InvalidBase64(f"{where} is not base64: it mixes two alphabets.", param=where)
    if len(bare) % 4 == 1:
        raise InvalidBase64(f"{where} is not base64: it ends in the middle, at offset {len(text)}.", param=where)
    return pybase64.b64decode(bare + b"=" * (-len(bare) % 4), altchars=b"-_" if safe else None, validate=True)


def _check_spaces(text: bytes, where: str) -> None:
    """Spaces between characters are line ends that a shell turned into spaces if the lines are all as long.

    Any other may be a “+” that went through a form without being escaped: without it the rest means something else.
    """
    flat = text.strip(_SPACES).replace(b"\t", b" ")
    if b" " not in flat:
        return
    flat = flat.replace(b"\r", b"\n")
    while b"  " in flat:
        flat = flat.replace(b"  ", b" ")
    flat = flat.replace(b" \n", b"\n").replace(b"\n ", b"\n")  # indented lines
    first = flat.find(b" ")
    if first < 0:
        return
    ends = flat[first :: first + 1]
    if first % 4 or not flat.count(b" ") == ends.count(b" ") == len(ends):
        found = _SPACE_INSIDE.search(text)
        raise InvalidBase64(
            f"{where} is not base64: a space stands inside it, at offset {found.end() if found else 0}.",
            param=where,
            cure="Encode the file's bytes with standard base64; what goes through a form needs its “+” written as %2B.",
        )


def _ascii(payload: str, where: str) -> bytes:
    try:
        return payload.encode("ascii")
    except UnicodeEncodeError as error:
        text = f"{where} is not base64: wrong character at offset {error.start}."
        raise InvalidBase64(text, param=where) from None


def _too_large(where: str, limit: int) -> NoReturn:
    raise ImageTooLarge(f"{where} holds more than {limit} bytes, the limit of max_image_bytes.", param=where)
