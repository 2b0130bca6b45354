"""A multipart form with one file in it, taken apart as it arrives: bounded, and nothing of the file is kept here."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from twinlens.errors import BodyTooLarge, InvalidField, InvalidRequest, UnsupportedMediaType
from twinlens.gateway.http import header

if TYPE_CHECKING:
    from starlette.types import Scope

logging.getLogger("python_multipart").setLevel(logging.CRITICAL)  # what is wrong with a form is told to its sender

MOST_PARTS = 16
LONGEST_FIELD = 1024  # bytes
START = 4096  # bytes of the file that are kept to tell its kind
_BAD = "The form is not valid multipart/form-data."


def check_head(scope: Scope, limit: int) -> bytes:
    """The form's boundary. Raises UnsupportedMediaType, BodyTooLarge before anything is read, InvalidRequest."""
    if (header(scope, b"content-encoding") or "identity").lower() != "identity":
        raise UnsupportedMediaType("Compressed request bodies are not taken.")
    kind, options = parse_options_header(header(scope, b"content-type") or "")
    if kind != b"multipart/form-data":
        raise UnsupportedMediaType(
            "The file must be sent as a form.", cure="Send it as multipart/form-data, with the fields file and purpose."
        )
    length = header(scope, b"content-length")
    if length is not None and (not length.isdecimal() or int(length) > limit):
        raise _too_large(limit)
    boundary = options.get(b"boundary", b"")
    if not 0 < len(boundary) <= 70:  # RFC 2046
        raise InvalidRequest("The form has no boundary.")
    return boundary


class Form:
    """`fields` and `filename` are there once their parts are; the file's bytes are handed on by `taken`."""

    def __init__(self, boundary: bytes, limit: int) -> None:
        """`limit`: most bytes of the file."""
        self.fields: dict[str, str] = {}
        self.filename: str | None = None
        self.size = 0  # bytes of the file so far
        self.start = b""  # its first bytes
        self.waiting = 0  # bytes that `taken` would give
        self._limit = limit
        self._pieces: list[bytes] = []
        self._parts = 0
        self._name = ""  # of the part that is being read; empty: a part that nobody needs
        self._in_file = False
        self._value = bytearray()
        self._header = bytearray()
        self._headers: dict[bytes, bytes] = {}
        self._header_name = b""
        self._ended = False
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._on_part_begin,
                "on_header_field": lambda data, at, end: self._header.extend(data[at:end]),
                "on_header_value": self._on_header_value,
                "on_header_end": self._on_header_end,
                "on_headers_finished": self._on_headers_finished,
                "on_part_data": self._on_part_data,
                "on_part_end": self._on_part_end,
                "on_end": self._on_end,
            },
        )
        self._text = bytearray()

    def feed(self, data: bytes) -> None:
        """More of the body. Raises InvalidRequest, InvalidField, BodyTooLarge."""
        try:
            self._parser.write(data)
        except FormParserError as error:
            raise InvalidRequest(_BAD) from error

    def finish(self) -> None:
        """The body is over. Raises InvalidRequest when the form is not."""
        if not self._ended:
            raise InvalidRequest(_BAD)

    def taken(self) -> bytes:
        """The bytes of the file since the last time."""
        data = b"".join(self._pieces)
        self._pieces.clear()
        self.waiting = 0
        return data

    def _on_part_begin(self) -> None:
        self._parts += 1
        if self._parts > MOST_PARTS:
            raise InvalidRequest(f"The form has more than {MOST_PARTS} parts.")
        self._headers.clear()
        self._header.clear()
        self._text.clear()
        self._value.clear()

    def _on_header_value(self, data: bytes, at: int, end: int) -> None:
        self._text.extend(data[at:end])

    def _on_header_end(self) -> None:
        self._headers[bytes(self._header).lower()] = bytes(self._text)
        self._header.clear()
        self._text.clear()

    def _on_headers_finished(self) -> None:
        kind, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        self._name = options.get(b"name", b"").decode("utf-8", "replace")
        self._in_file = False
        if kind != b"form-data" or not self._name:
            raise InvalidRequest(_BAD)
        if self._name == "file":
            if self.filename is not None:
                raise InvalidField("“file” was sent more than once.", param="file")
            named = [options[name] for name in (b"filename", b"filename*") if name in options]
            if named:  # a browser sends a field that nobody filled without one
                self.filename = named[0].decode("utf-8", "replace")
                self._in_file = True

    def _on_part_data(self, data: bytes, at: int, end: int) -> None:
        size = end - at
        if not self._in_file:
            if len(self._value) + size > LONGEST_FIELD:
                raise InvalidField(f"A field of the form has more than {LONGEST_FIELD} bytes.", param=self._name[:64])
            self._value.extend(data[at:end])
            return
        self.size += size
        if self.size > self._limit:
            raise _too_large(self._limit)
        if len(self.start) < START:
            self.start += data[at : min(end, at + START - len(self.start))]
        self._pieces.append(data[at:end])
        self.waiting += size

    def _on_part_end(self) -> None:
        if not self._in_file:
            self.fields[self._name] = self._value.decode("utf-8", "replace")
        self._in_file = False

    def _on_end(self) -> None:
        self._ended = True


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"The file has more than {limit} bytes.", cure="Send a smaller file, or have the operator raise max_file_bytes."
    )
