"""Finding the inputs: files, folders, globs, lists. Nothing is opened; archives and documents count as one each."""

from __future__ import annotations

import codecs
import glob
import itertools
import os
import stat
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, BinaryIO

from twinlens.batch.names import natural, normal, shown
from twinlens.errors import BatchError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from twinlens.batch.spool import Spool

PICTURES = frozenset(
    (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".heic", ".heif", ".avif")
)
DOCUMENTS = frozenset((".pdf",))
PAGED = DOCUMENTS | {".tif", ".tiff"}
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
GROUP = 1000
BLOCK = 1 << 16  # bytes of a list that are read at a time; no path is longer
_MAGIC = frozenset("*?[")

Found = tuple[int, bytes, bytes, int, int]


def is_archive(path: bytes) -> bool:
    """By the name."""
    return shown(path).lower().endswith(ARCHIVES)


def is_wanted(path: bytes) -> bool:
    """Whether a file that nobody named is an input: a picture or a document by its name, and not hidden."""
    name = PurePosixPath(shown(path))
    return not name.name.startswith(".") and name.suffix.lower() in PICTURES | DOCUMENTS


def is_paged(name: str) -> bool:
    """Whether a file may have several pages, by its name."""
    return PurePosixPath(name).suffix.lower() in PAGED


@dataclass(slots=True)
class Listing:
    """What was passed over, by the reason."""

    skipped: dict[str, int] = field(default_factory=dict)

    def skip(self, why: str) -> None:
        """One more."""
        self.skipped[why] = self.skipped.get(why, 0) + 1

    def fill(self, spool: Spool, paths: Sequence[str], lists: Sequence[BinaryIO]) -> int:
        """Find all inputs of `paths`, and of the lists behind them; returns how many. Raises BatchError."""
        group: list[Found] = []
        for one in self._all(paths, lists):
            group.append(one)
            if len(group) >= GROUP:
                spool.found(group)
                group.clear()
        spool.found(group)
        return spool.number()

    def _all(self, paths: Sequence[str], lists: Sequence[BinaryIO]) -> Iterator[Found]:
        listed = (path for lines in lists for path in _lines(lines))
        for root, path in enumerate(itertools.chain(map(os.fsencode, paths), listed), 1):
            yield from self._given(root, path)

    def _given(self, root: int, path: bytes) -> Iterator[Found]:
        """Inputs of one path as it was given. Raises BatchError where it leads to nothing."""
        path = normal(path)
        try:
            about = os.stat(path)  # noqa: PTH116 - the path is bytes
        except (OSError, ValueError) as error:
            yield from self._globbed(root, path, error)
            return
        if stat.S_ISDIR(about.st_mode):
            yield from self._folder(root, path)
        elif stat.S_ISREG(about.st_mode):
            yield root, b"", path, about.st_size, about.st_mtime_ns
        else:
            raise BatchError(f"{shown(path)} is neither a file nor a folder.", cure="Name files, folders or patterns.")

    def _globbed(self, root: int, pattern: bytes, error: OSError | ValueError) -> Iterator[Found]:
        said = os.fsdecode(pattern)
        if not _MAGIC & set(said):
            why = error.strerror if isinstance(error, OSError) else "it is no path"
            raise BatchError(f"{shown(pattern)} cannot be read: {why}.", cure="Check the path.") from error
        any_ = False
        for path in glob.iglob(said, recursive=True):  # noqa: PTH207 - the path may be no text
            any_ = True
            named = os.fsencode(path)
            yield from self._file(root, normal(named), named, any_kind=is_archive(named))
        if not any_:
            raise BatchError(f"Nothing matches {shown(pattern)}.", cure="Check the pattern.") from error

    def _folder(self, root: int, top: bytes) -> Iterator[Found]:
        """All inputs under a folder, in any order; links to folders are not followed, so no walk is endless."""
        waiting = [top]
        while waiting:
            folder = waiting.pop()
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        if entry.is_dir(follow_symlinks=False):
                            self._enter(entry, waiting)
                        else:
                            yield from self._file(root, entry.path, os.path.relpath(entry.path, top))
            except OSError as error:
                raise BatchError(
                    f"The folder {shown(folder)} cannot be read: {error.strerror}.", cure="Mend it."
                ) from error

    def _enter(self, entry: os.DirEntry[bytes], waiting: list[bytes]) -> None:
        if entry.name.startswith(b"."):
            self.skip("hidden folders")
        else:
            waiting.append(entry.path)

    def _file(self, root: int, path: bytes, relative: bytes, *, any_kind: bool = False) -> Iterator[Found]:
        if not any_kind and not is_wanted(path):
            hidden = shown(path).rpartition("/")[2].startswith(".")
            self.skip("hidden files" if hidden else "archives" if is_archive(path) else "other files")
            return
        try:
            about = os.stat(path)  # noqa: PTH116 - the path is bytes
        except OSError:
            self.skip("links that lead nowhere")
            return
        if stat.S_ISREG(about.st_mode):
            yield root, natural(relative), normal(path), about.st_size, about.st_mtime_ns
        else:
            self.skip("what is no file")


def _lines(lines: BinaryIO) -> Iterator[bytes]:
    """Paths of a list: one a line, or with NUL bytes between them, as “find -print0” writes. Raises BatchError."""
    rest = b""
    between = b""
    first = True
    while block := lines.read(BLOCK):
        if first:
            block, first = block.removeprefix(codecs.BOM_UTF8), False
        between = between or (b"\0" if b"\0" in block else b"\n")
        *whole, rest = (rest + block).split(between)
        if len(rest) > BLOCK:
            raise BatchError("A line of the list is too long for a path.", cure="Write one path a line.")
        yield from filter(None, (part.rstrip(b"\r") for part in whole))
    if last := rest.rstrip(b"\r"):
        yield last
