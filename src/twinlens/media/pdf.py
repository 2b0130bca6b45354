"""PDFs, from this side: starts the process that reads them, talks to it, and kills it when it takes too long.

One thread and one process for each `Reader`; pages of several documents wait in one line. The process is started by the
thread, which lives as long as the reader, because the kernel ends the process with the thread that started it.
"""

from __future__ import annotations

import json
import mmap
import os
import socket
import struct
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from blake3 import blake3

from twinlens.errors import PdfBadPassword, PdfEncrypted, PdfInvalid, PdfTimeout, ServerError
from twinlens.settings import child_environment

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from twinlens.core import Box

RECIPE = f"pdfium {version('pypdfium2')}, annotations, forms, white, 1"
MOST_TEXT = 20_000  # characters of the text of one page
START_S = 30.0  # the first command also waits for the process to start
_FILE = Path(__file__).with_name("pdf_process.py")


@dataclass(frozen=True)  # without slots, which leave no place for the key
class Paper:
    """A PDF's bytes. `where` goes into every error."""

    data: bytes = field(repr=False)
    where: str
    password: str = field(default="", repr=False)

    @cached_property
    def key(self) -> str:
        """Names it, and the password that it was opened with. Reads all bytes: first asked for in a thread."""
        return blake3(self.data).hexdigest() + blake3(self.password.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Cover:
    """What a document is as a whole."""

    pages: int
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sheet:
    """A page before it is drawn: (height, width) as shown, and the crop box, in points; `rotate` clockwise."""

    size: tuple[float, float]
    box: Box
    rotate: int
    text: str = ""

    def pixels(self, dpi: float, most: int) -> tuple[int, int]:
        """(height, width) at `dpi`, or at the resolution that leaves at most `most` pixels."""
        height, width = (side * dpi / 72 for side in self.size)
        shrink = min(1.0, (most / (height * width)) ** 0.5)
        tall, wide = max(1, round(height * shrink)), max(1, round(width * shrink))
        # Rounding may have gone up on both sides, and a side below one pixel was made one.
        return (min(tall, max(1, most // wide)), wide) if tall >= wide else (tall, min(wide, max(1, most // tall)))


class _SlowError(Exception):
    """No answer in time."""


class _GoneError(Exception):
    """The process has ended."""


class Reader:
    """Reads PDFs. May be used by several threads; every method gives a Future, whose errors are those of the tree."""

    def __init__(self, timeout_s: float) -> None:
        """`timeout_s` bounds every single command. The process starts with the first of them."""
        self._timeout_s = timeout_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="twinlens-pdf")
        self._lock = threading.Lock()  # around `_process`, which `close` ends from another thread
        self._closed = False
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def open(self, paper: Paper) -> Future[Cover]:
        """How many pages. Raises PdfInvalid, PdfEncrypted, PdfBadPassword, PdfTimeout."""
        return self._thread.submit(lambda: self._cover(self._patiently(paper, lambda: self._opened(paper))))

    def page(self, paper: Paper, number: int, *, text: bool = False) -> Future[Sheet]:
        """Page `number`, from 1, with up to MOST_TEXT + 1 characters of its text. Raises as `open`."""
        command = {"do": "page", "number": number, "text": MOST_TEXT + 1 if text else 0}
        return self._thread.submit(lambda: _sheet(self._asked(paper, command)))

    def draw(self, paper: Paper, number: int, size: tuple[int, int]) -> Future[NDArray[np.uint8]]:
        """Page `number` as upright RGB (height, width, 3) of this (height, width). Raises as `open`."""
        return self._thread.submit(self._drawn, paper, number, size)

    def close(self) -> None:
        """End the process and the thread, whatever they do."""
        self._closed = True
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._end()
        self._thread.shutdown(wait=True)

    def _drawn(self, paper: Paper, number: int, size: tuple[int, int]) -> NDArray[np.uint8]:
        height, width = size
        fd = os.memfd_create("twinlens-page", os.MFD_CLOEXEC)
        try:
            os.ftruncate(fd, height * width * 3)
            self._asked(paper, {"do": "draw", "number": number, "height": height, "width": width}, fd)
            pixels = np.frombuffer(mmap.mmap(fd, height * width * 3), np.uint8)
        finally:
            os.close(fd)
        return pixels.reshape(height, width, 3)

    def _cover(self, said: dict[str, Any]) -> Cover:
        return Cover(said["pages"], tuple(said["warnings"]))

    def _asked(self, paper: Paper, command: dict[str, Any], fd: int | None = None) -> dict[str, Any]:
        """The answer about a page of a document, which is opened if it is not open any more."""
        key = paper.key

        def ask() -> dict[str, Any]:
            said = self._say(command | {"key": key}, fd)
            if said.get("error") == "closed":
                said = self._opened(paper)
                if "error" not in said:
                    said = self._say(command | {"key": key}, fd)
            return said

        return self._patiently(paper, ask, f"page {command['number']} of ")

    def _patiently(self, paper: Paper, ask: Any, part: str = "") -> dict[str, Any]:
        """The answer; a process that is found dead is replaced once, because it need not be this document's fault."""
        for last in (False, True):
            try:
                said: dict[str, Any] = ask()
            except _SlowError:
                self._end()
                raise PdfTimeout(
                    f"{paper.where}: {part}the PDF was not done after {self._timeout_s:g} seconds.", param=paper.where
                ) from None
            except _GoneError:
                self._end()
                if last:
                    break
            else:
                if "error" in said:
                    raise _refusal(said["error"], paper, part)
                return said
        raise PdfInvalid(
            f"{paper.where}: {part}the PDF needs too much memory, or makes its reader fail.", param=paper.where
        )

    def _opened(self, paper: Paper) -> dict[str, Any]:
        fd = os.memfd_create("twinlens-pdf", os.MFD_CLOEXEC)
        try:
            with open(fd, "wb", closefd=False) as file:
                file.write(paper.data)
            return self._say({"do": "open", "key": paper.key, "password": paper.password}, fd)
        finally:
            os.close(fd)

    def _say(self, command: dict[str, Any], fd: int | None = None) -> dict[str, Any]:
        connection = self._connection()
        data = json.dumps(command).encode()
        try:
            socket.send_fds(connection, [struct.pack(">I", len(data))], [] if fd is None else [fd])
            connection.sendall(data)
            (length,) = struct.unpack(">I", self._received(connection, 4))
            answer: dict[str, Any] = json.loads(self._received(connection, length))
        except TimeoutError:
            raise _SlowError from None
        except OSError:
            raise _GoneError from None
        connection.settimeout(self._timeout_s)
        return answer

    def _received(self, connection: socket.socket, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            if not (got := connection.recv(size - len(data))):
                raise _GoneError
            data += got
        return bytes(data)

    def _connection(self) -> socket.socket:
        with self._lock:
            if self._socket is not None:
                return self._socket
            if self._closed:
                raise _GoneError
            ours, theirs = socket.socketpair()
            fd = theirs.fileno()
            argv = [sys.executable, "-P", str(_FILE), "--parent", str(os.getpid()), "--fd", str(fd)]
            try:
                self._process = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,  # what the library says of a client's document is not for the log
                    env=child_environment({}),
                    pass_fds=(fd,),
                    start_new_session=True,
                )
            except OSError as error:
                ours.close()
                raise ServerError("The process that reads PDFs cannot be started.") from error
            finally:
                theirs.close()
            ours.settimeout(START_S + self._timeout_s)
            self._socket = ours
            return ours

    def _end(self) -> None:
        with self._lock:
            process, self._process = self._process, None
            connection, self._socket = self._socket, None
        if process is not None:
            process.kill()
            process.wait()
        if connection is not None:
            connection.close()


def _sheet(said: dict[str, Any]) -> Sheet:
    left, lower, right, upper = said["box"]
    size = (float(said["height"]), float(said["width"]))
    return Sheet(size, (left, lower, right, upper), said["rotate"], said["text"])


def _refusal(kind: str, paper: Paper, part: str) -> Exception:
    where = paper.where
    if kind == "password" and paper.password:
        return PdfBadPassword(f"{where} is a PDF that this password does not open.", param=where)
    if kind == "password":
        return PdfEncrypted(f"{where} is a PDF that opens with a password only.", param=where)
    if kind == "empty":
        return PdfInvalid(f"{where} is a PDF without pages.", param=where)
    return PdfInvalid(f"{where}: {part}the PDF is damaged or cut off.", param=where)
