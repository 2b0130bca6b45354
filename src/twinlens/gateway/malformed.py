"""Says why a body is no JSON: the decoder's own reason and where, and nothing of what the body holds."""

from __future__ import annotations

import re

import msgspec

from twinlens.errors import InvalidRequest

_MARK = b"\xef\xbb\xbf"  # the byte order mark of UTF-8
_REASON = re.compile(r"JSON is malformed: (?P<why>[^()]{1,80}) \(byte (?P<at>\d+)\)")
_HALF = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])")  # of a pair, without its other half


def malformed(raw: bytes, error: Exception) -> InvalidRequest:
    """The refusal of `raw`, which gave `error` when it was decoded."""
    if isinstance(error, RecursionError):
        return InvalidRequest("The body is nested too deeply.", cure="Send lists and objects nested less deeply.")
    if isinstance(error, msgspec.ValidationError):  # of the values without a type only a number can be wrong
        return InvalidRequest("The body holds a number that is out of range.")
    return InvalidRequest(f"The body is not valid JSON: {_why(raw, str(error))}.")


def _why(raw: bytes, said: str) -> str:
    if raw.startswith(_MARK):
        return "it begins with a byte order mark"
    if found := _REASON.fullmatch(said):
        return f"{found['why']} at byte {found['at']}"
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        return f"invalid UTF-8 at byte {error.start}"
    if half := _HALF.search(raw):
        return f"half of a surrogate pair at byte {half.start()}"
    return "it ends too early" if raw.strip() else "it is empty"
