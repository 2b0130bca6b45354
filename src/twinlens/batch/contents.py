"""What is inside an input: the members of an archive. One at a time; nothing is unpacked to a disk.

An archive's own words about sizes are not believed: every member is read up to a bound, and no archive gives more
members or bytes than MOST_MEMBERS and MOST_BYTES. Names inside are names only and lead to no file of ours.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self, cast

from twinlens.batch.listing import is_archive, is_paged, is_wanted
from twinlens.batch.names import shown
from twinlens.errors import ImageError, ImageTooLarge, TwinlensError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinlens.batch.spool import Source
    from twinlens.settings import Settings

MOST_MEMBERS = 1_000_000
MOST_BYTES = 1 << 40  # of all members of one archive that are read
MOST_RATIO = 1000  # bytes unpacked for one packed, beyond the first FREE
FREE = 64 << 20
MOST_HEADER = 1 << 20  # bytes of a member's name and attributes in a tar
_HEADERS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
_DAMAGED = (
    OSError,
    EOFError,
    ValueError,
    LookupError,
    RuntimeError,
    NotImplementedError,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)


@dataclass(frozen=True, slots=True)
class File:
    """A file of an input. `member` is its place in an archive, from 1; 0: the input is the file itself.

    `read` gives its bytes; raises ImageTooLarge above the bound, ImageError where it cannot be read.
    """

    path: str
    member: int
    read: Callable[[], bytes]


Most = Callable[[str], int]


def bounds(settings: Settings) -> Most:
    """How many bytes a file may have, by its name: documents may have more than pictures."""
    picture, document = settings.max_image_bytes, max(settings.max_file_bytes, settings.max_image_bytes)
    return lambda name: document if is_paged(name) else picture


def files(source: Source, most: Most, skip: Callable[[str], None]) -> Iterator[File]:
    """The files of an input. `most` says how many bytes a file of this name may have.

    A broken archive ends with a file whose `read` says so.
    """
    if not is_archive(source.path):
        yield File(shown(source.path), 0, lambda: _read_path(source.path, most(shown(source.path))))
        return
    kind = _zip if shown(source.path).lower().endswith(".zip") else _tar
    last = 0
    seen: set[int] = set()  # hashes of names, so that a million of them are no burden
    try:
        for file in kind(source, most, skip):
            last = file.member
            if (name := hash(file.path)) in seen:
                file = replace(file, path=f"{file.path} (member {last})")  # noqa: PLW2901
            seen.add(name)
            yield file
            if last >= MOST_MEMBERS:
                raise ImageTooLarge(f"The archive has more than {MOST_MEMBERS} members.", cure="Cut it into several.")
    except TwinlensError as error:
        yield File(shown(source.path), last + 1, _raising(error))
    except _DAMAGED as error:
        yield File(shown(source.path), last + 1, _raising(_damaged("archive", error)))


def _raising(error: TwinlensError) -> Callable[[], bytes]:
    def read() -> bytes:
        raise error

    return read


def _damaged(what: str, error: BaseException) -> ImageError:
    if isinstance(error, OSError) and error.strerror:
        return ImageError(f"The {what} cannot be read: {error.strerror}.", cure="Check it.")
    return ImageError(f"The {what} is damaged, cut off or locked with a password.", cure="Make it anew.")


def _read_path(path: bytes, most: int) -> bytes:
    try:
        # What was a file when it was listed may be a pipe now, which would be waited for.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ImageError(f"{shown(path)} is no file any more.", cure="Leave the inputs alone meanwhile.")
            return _bounded(file, most)
    except OSError as error:
        raise _damaged("file", error) from error


def _bounded(file: IO[bytes], most: int, budget: _Budget | None = None) -> bytes:
    data = file.read(most + 1)
    if budget:
        budget.take(len(data))
    if len(data) > most:
        raise ImageTooLarge(
            f"The file has more than {most} bytes.",
            cure="Make it smaller, or raise max_image_bytes (of PDFs and TIFFs max_file_bytes).",
        )
    return data


class _Budget:
    """What may still be unpacked from one archive of `packed` bytes."""

    def __init__(self, packed: int) -> None:
        self._left = min(MOST_BYTES, FREE + MOST_RATIO * packed)

    def take(self, size: int) -> None:
        """Raises ImageTooLarge: the archive is a bomb."""
        self._left -= size
        self.check()

    def check(self) -> None:
        """As `take`."""
        if self._left < 0:
            raise ImageTooLarge("The archive unpacks to far more than its size allows.", cure="Unpack it yourself.")


def _is_inside(name: str, skip: Callable[[str], None]) -> bool:
    parts = name.replace("\\", "/").split("/")
    if any(part.startswith(".") for part in parts if part not in ("", ".", "..")) or "__MACOSX" in parts:
        skip("hidden files")
    elif not is_wanted(name.encode("utf-8", "replace")):
        skip("archives" if is_archive(name.encode("utf-8", "replace")) else "other files")
    else:
        return True
    return False


def _zip(source: Source, most: Most, skip: Callable[[str], None]) -> Iterator[File]:
    with zipfile.ZipFile(os.fsdecode(source.path)) as archive:
        budget = _Budget(source.size)
        for number, info in enumerate(archive.infolist(), 1):
            if info.is_dir() or not _is_inside(info.filename, skip):
                continue
            budget.check()  # once it is spent, nothing more is even tried

            def read(info: zipfile.ZipInfo = info) -> bytes:
                try:
                    with archive.open(info) as file:
                        return _bounded(file, most(info.filename), budget)
                except _DAMAGED as error:
                    raise _damaged("member", error) from error

            yield File(f"{shown(source.path)}/{_plain(info.filename)}", number, read)


class _Info(tarfile.TarInfo):
    """A header whose long names and attributes, which tarfile reads whole, are bounded."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """As of TarInfo. Raises ImageTooLarge."""
        info = super().frombuf(buf, encoding, errors)
        if info.type in _HEADERS and info.size > MOST_HEADER:
            raise ImageTooLarge("The archive has a member with a name of megabytes.", cure="Make it anew.")
        return info


def _tar(source: Source, most: Most, skip: Callable[[str], None]) -> Iterator[File]:
    budget = _Budget(source.size)
    with (
        _opened(source, budget) as stream,
        tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r|", tarinfo=_Info) as archive,
    ):
        for number, info in enumerate(archive, 1):
            archive.members = []  # type: ignore[attr-defined] # it would keep them all
            if info.isdir():
                continue
            if not info.isreg():
                skip("what is no file")
                continue
            if not _is_inside(info.name, skip):
                continue

            def read(info: tarfile.TarInfo = info) -> bytes:
                try:
                    file = archive.extractfile(info)
                    return _bounded(file, most(info.name)) if file else b""
                except _DAMAGED as error:
                    raise _damaged("member", error) from error

            yield File(f"{shown(source.path)}/{_plain(info.name)}", number, read)


class _opened:  # noqa: N801 - used like a function
    """The bytes of a tar as a stream, unpacked within the budget: what is passed over has to be unpacked as well."""

    def __init__(self, source: Source, budget: _Budget) -> None:
        name = shown(source.path).lower()
        path = os.fsdecode(source.path)
        self._budget = budget
        self._file: IO[bytes]
        if name.endswith((".gz", ".tgz")):
            self._file = cast("IO[bytes]", gzip.open(path))  # noqa: SIM115 - closed by __exit__
        elif name.endswith((".bz2", ".tbz2")):
            self._file = bz2.open(path)  # noqa: SIM115
        elif name.endswith((".xz", ".txz")):
            self._file = lzma.open(path)  # noqa: SIM115
        else:
            self._file = Path(path).open("rb")  # noqa: SIM115

    def __enter__(self) -> _opened:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, size: int = -1) -> bytes:
        """As of a file."""
        data = self._file.read(size)
        self._budget.take(len(data))
        return data


def _plain(name: str) -> str:
    """A member's name as part of a path that people read: no way up, no root, no control characters."""
    parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".", "..")]
    return "/".join(parts).encode("utf-8", "backslashreplace").decode()
