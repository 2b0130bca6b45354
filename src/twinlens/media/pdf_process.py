"""The process that reads PDFs, with PDFium: one document at a time, one command at a time, no thread beside it.

It is apart because a PDF can make a library of a million lines of C++ crash, run for ever or take all memory, and
because that library must not be used by two threads. Whoever starts it (`pdf.py`) kills it when it takes too long.

Commands and answers are JSON behind their length in four bytes, over a socket that this process inherits:

    open  key, password, with the document's descriptor  -> pages, warnings; or error: password, invalid, empty
    page  key, number, text (most characters)            -> width, height, box, rotate, text; or error: invalid
    draw  key, number, height, width, with a descriptor of height x width x 3 bytes, which get the RGB pixels

A key that is not the open document's is answered with error: closed. Nothing is written anywhere else, JavaScript is
not built in, and nothing is fetched.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import mmap
import os
import resource
import socket
import struct
import sys
from typing import Any

import pypdfium2 as pdfium
from pypdfium2 import raw

from twinlens.parent import die_with_parent

MOST_MEMORY = 4 << 30  # bytes of address space; a document that needs more ends this process
IDLE_S = 10.0  # a document is kept open so long after its last command
MOST_COMMAND = 1 << 16  # bytes
POINTS = 72.0  # an inch
SMALLEST = 0.01  # points; a side below it counts as this
_DRAWN = raw.FPDF_ANNOT | raw.FPDF_REVERSE_BYTE_ORDER


class _Open:
    """The open document."""

    def __init__(self, fd: int, password: str) -> None:
        self._map = mmap.mmap(fd, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        self._bytes = (ctypes.c_char * len(self._map)).from_buffer(self._map)
        self._document = pdfium.PdfDocument(self._bytes, password=password or None)
        self._form = self._document.get_formtype()
        if self._form != raw.FORMTYPE_NONE:
            self._document.init_forms()  # before any page is loaded

    def about(self) -> dict[str, Any]:
        """How many pages, and what cannot be shown of it."""
        xfa = self._form in (raw.FORMTYPE_XFA_FULL, raw.FORMTYPE_XFA_FOREGROUND)
        said = ["it is an XFA form, of which only the plain pages are drawn."] if xfa else []
        return {"pages": len(self._document), "warnings": said}

    def page(self, number: int, text: int) -> dict[str, Any]:
        """Size as shown and crop box, in points; rotation, clockwise in degrees; at most `text` characters."""
        with contextlib.closing(self._document[number - 1]) as page:
            found = {
                "width": max(page.get_width(), SMALLEST),
                "height": max(page.get_height(), SMALLEST),
                "box": page.get_bbox(),
                "rotate": page.get_rotation(),
                "text": "",
            }
            if text:
                with contextlib.closing(page.get_textpage()) as layer:
                    found["text"] = layer.get_text_range(0, min(layer.count_chars(), text))
        return found

    def draw(self, number: int, height: int, width: int, fd: int) -> dict[str, Any]:
        """The page on white, stretched over all of height x width, with annotations and form fields."""
        with mmap.mmap(fd, height * width * 3) as shared:
            shared.write(b"\xff" * len(shared))
            buffer = (ctypes.c_char * len(shared)).from_buffer(shared)
            with contextlib.closing(self._document[number - 1]) as page:
                bitmap = raw.FPDFBitmap_CreateEx(width, height, raw.FPDFBitmap_BGR, buffer, width * 3)
                if not bitmap:
                    raise pdfium.PdfiumError("no bitmap")
                try:
                    raw.FPDF_RenderPageBitmap(bitmap, page, 0, 0, width, height, 0, _DRAWN)
                    if page.formenv:
                        raw.FPDF_FFLDraw(page.formenv, bitmap, page, 0, 0, width, height, 0, _DRAWN)
                finally:
                    raw.FPDFBitmap_Destroy(bitmap)
            del buffer
        return {}

    def close(self) -> None:
        """Give its memory back."""
        self._document.close()
        del self._bytes
        self._map.close()


class _Desk:
    """Takes commands."""

    def __init__(self) -> None:
        self._key = ""
        self._open: _Open | None = None

    def answer(self, command: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """What a command is answered with."""
        try:
            if command["do"] == "open":
                return self._opened(command, fds[0])
            if self._open is None or command["key"] != self._key:
                return {"error": "closed"}
            if command["do"] == "page":
                return self._open.page(command["number"], command["text"])
            return self._open.draw(command["number"], command["height"], command["width"], fds[0])
        except (pdfium.PdfiumError, UnicodeError, ValueError):
            return {"error": "invalid"}

    def _opened(self, command: dict[str, Any], fd: int) -> dict[str, Any]:
        self.close()
        try:
            self._open = _Open(fd, command["password"])
        except pdfium.PdfiumError as error:
            kinds = {raw.FPDF_ERR_PASSWORD: "password", raw.FPDF_ERR_SUCCESS: "empty"}
            return {"error": kinds.get(getattr(error, "err_code", -1), "invalid")}
        self._key = command["key"]
        return self._open.about()

    def close(self) -> None:
        """Close what is open."""
        if self._open is not None:
            self._open.close()
        self._open, self._key = None, ""


def _received(connection: socket.socket, size: int, fds: list[int]) -> bytes:
    """Exactly `size` bytes; descriptors that come with them go into `fds`. Fewer at the end of the connection."""
    data = b""
    while len(data) < size:
        got, came, _, _ = socket.recv_fds(connection, size - len(data), 1)
        fds += came
        if not got:
            break
        data += got
    return data


def _serve(connection: socket.socket) -> None:
    desk = _Desk()
    while True:
        fds: list[int] = []
        connection.settimeout(IDLE_S)
        try:
            head = _received(connection, 4, fds)
        except TimeoutError:
            desk.close()
            continue
        connection.settimeout(None)
        if len(head) < 4:
            return
        (length,) = struct.unpack(">I", head)
        command = json.loads(_received(connection, min(length, MOST_COMMAND), fds))
        try:
            said = json.dumps(desk.answer(command, fds)).encode()
        finally:
            for fd in fds:
                os.close(fd)
        connection.sendall(struct.pack(">I", len(said)) + said)


def main() -> int:
    """Serve until the other end closes the connection."""
    parser = argparse.ArgumentParser(description="Reads PDFs for the process that started it.")
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--fd", type=int, required=True)
    args = parser.parse_args()
    die_with_parent(args.parent)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core would hold the document
    with socket.socket(fileno=args.fd) as connection:
        _serve(connection)
    return 0


if __name__ == "__main__":
    sys.exit(main())
