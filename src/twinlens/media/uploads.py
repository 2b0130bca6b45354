"""Files that clients leave here for later requests, each its owner's alone.

One file on disk for each: a block of HEAD bytes with what is known of it, then the bytes as they came. It is written
under a temporary name, flushed and renamed, so a crash or a full disk leaves nothing half-visible; what a killed
process left is swept by the next start. Names are made here; the client's name is only kept. Workers share the folder:
bounds are counted under a lock between processes, and nothing of it is kept in memory.

All methods wait on the disk and belong in threads. Raises only errors of the tree.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
from blake3 import blake3

from twinlens.errors import FileNotThere, FileQuotaExceeded, FileStorageError
from twinlens.store.owners import Living, Owner

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinlens.settings import Settings

Purpose = Literal["vision", "user_data"]

HEAD = 4096  # bytes before the content
MAGIC = b"TLFILE1\n"
MOST_FILES = 20_000  # of all owners
LONGEST_NAME = 255  # characters
ID = re.compile(r"file-[0-9a-f]{32}")
_TEMPORARY = "temporary"
_FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))


class Upload(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one file. Times are Unix seconds."""

    id: str
    bytes: int
    created_at: int
    expires_at: int
    filename: str
    purpose: Purpose


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may be kept: bytes of one file, of one owner, of all; files of one owner."""

    file: int
    owner: int
    total: int
    count: int


class Uploads:
    """The folder of one service's uploads."""

    def __init__(self, data_dir: Path, settings: Settings) -> None:
        self.bounds = Bounds(
            settings.max_file_bytes, settings.files_bytes_per_owner, settings.files_bytes, settings.files_per_owner
        )
        self._root = data_dir / "files"
        self._temporary = self._root / _TEMPORARY
        self._names = Owner()

    def begin(self, owner: str) -> Draft:
        """A new file, to be written. Raises FileQuotaExceeded when there is no room for one byte, FileStorageError."""
        with _storage():
            self._prepare(owner)
            self._check_room(owner, 1)
            return Draft(self, owner, self._temporary / self._names.name())

    def publish(self, draft: Draft, upload: Upload) -> None:
        """Make a written draft visible. Raises FileQuotaExceeded, FileStorageError."""
        with _storage():
            draft.finish(upload)
            with self._locked():
                # The draft's own bytes are counted among the temporaries.
                self._check_room(draft.owner, upload.bytes)
                draft.path.rename(self._folder(draft.owner) / upload.id)
            _flush(self._folder(draft.owner))

    def find(self, owner: str, file_id: str) -> Upload:
        """Raises FileNotThere for what is not there, expired, or another owner's: one cannot tell which."""
        with contextlib.closing(self.open(owner, file_id)) as content:
            return content.upload

    def open(self, owner: str, file_id: str) -> Content:
        """The file, to be read and closed. Raises FileNotThere, FileStorageError."""
        if not ID.fullmatch(file_id):
            raise _not_there()
        with _storage():
            try:
                fd = os.open(self._folder(owner) / file_id, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            except FileNotFoundError:
                raise _not_there() from None
            upload = _read_head(fd)
            if upload is None or upload.id != file_id or upload.expires_at <= time.time():
                os.close(fd)
                raise _not_there()
            return Content(upload, fd)

    def read(self, owner: str, file_id: str) -> bytes:
        """The whole content. Raises FileNotThere, FileStorageError."""
        with contextlib.closing(self.open(owner, file_id)) as content:
            return content.read(content.upload.bytes)

    def all_of(self, owner: str) -> list[Upload]:
        """The newest first."""
        found = []
        now = time.time()
        for entry in _entries(self._folder(owner)):
            upload = _head_of(entry.path)
            if upload is not None and upload.expires_at > now:
                found.append(upload)
        return sorted(found, key=lambda upload: upload.id, reverse=True)

    def delete(self, owner: str, file_id: str) -> None:
        """Raises FileNotThere, FileStorageError."""
        self.find(owner, file_id)
        with _storage():
            try:
                (self._folder(owner) / file_id).unlink()
            except FileNotFoundError:
                raise _not_there() from None

    def sweep(self) -> None:
        """Remove what has expired, and temporaries of processes that live no longer."""
        living = Living()
        for entry in _entries(self._temporary):
            with contextlib.suppress(OSError):
                if living.is_dead(entry.name, entry.stat(follow_symlinks=False).st_ctime):
                    Path(entry.path).unlink()
        now = time.time()
        for folder in self._owners():
            for entry in _entries(folder):
                with contextlib.suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_mtime <= now and _is_over(entry.path, now):
                        Path(entry.path).unlink()

    def _folder(self, owner: str) -> Path:
        # A digest: whatever a tenant is called, the name is one part of a path, and no two share it.
        return self._root / f"owner-{blake3(owner.encode()).hexdigest(length=16)}"

    def _owners(self) -> list[Path]:
        return [Path(entry.path) for entry in _entries(self._root) if entry.name.startswith("owner-")]

    def _prepare(self, owner: str) -> None:
        self._root.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (self._root, self._temporary, self._folder(owner)):
            folder.mkdir(mode=0o700, exist_ok=True)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        fd = os.open(self._root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def _check_room(self, owner: str, size: int) -> None:
        mine, count = _usage(self._folder(owner))
        if count >= self.bounds.count:
            raise FileQuotaExceeded(f"{count} files are kept already, limit {self.bounds.count}.")
        if mine + size > self.bounds.owner:
            raise FileQuotaExceeded(f"With this file {mine + size} bytes would be kept, limit {self.bounds.owner}.")
        usages = [_usage(folder) for folder in self._owners()]
        # Temporaries of uploads that still run are on the disk as well.
        whole = sum(used for used, _ in usages) + max(size, _usage(self._temporary)[0])
        if whole > self.bounds.total or sum(number for _, number in usages) >= MOST_FILES:
            raise FileStorageError("The room for files is full.")


class _Guarded:
    """A descriptor that threads use and that is closed by somebody else, who may have given them up meanwhile.

    Without the lock a thread that is late could use a number that the kernel has given to another file.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def _open(self) -> Iterator[int]:
        with self._lock, _storage():
            if self._fd < 0:
                raise OSError(errno.EBADF, "closed")
            yield self._fd

    def close(self) -> None:
        """Give the descriptor back."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = -1


class Content(_Guarded):
    """An uploaded file, open for reading."""

    def __init__(self, upload: Upload, fd: int) -> None:
        super().__init__(fd)
        self.upload = upload
        self._at = HEAD

    def read(self, size: int) -> bytes:
        """The next bytes, exactly `size`. Raises FileStorageError when the file has not as many."""
        pieces = []
        with self._open() as fd:
            while size and (piece := os.pread(fd, size, self._at)):
                pieces.append(piece)
                size -= len(piece)
                self._at += len(piece)
        if size:
            raise FileStorageError("The file is damaged on the server's disk.")
        return b"".join(pieces)


class Draft(_Guarded):
    """A file that is being written: out of sight, and gone unless it is published."""

    def __init__(self, uploads: Uploads, owner: str, path: Path) -> None:
        super().__init__(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        self.owner = owner
        self.path = path
        self.size = 0
        self._uploads = uploads

    def write(self, data: bytes) -> None:
        """Append. Raises FileStorageError."""
        view = memoryview(data)
        with self._open() as fd:
            while view:
                done = os.pwrite(fd, view, HEAD + self.size)
                self.size += done
                view = view[done:]

    def publish(self, filename: str, purpose: Purpose, life_s: int) -> Upload:
        """Make it visible to its owner. Raises FileQuotaExceeded, FileStorageError."""
        now = time.time()
        upload = Upload(
            id=f"file-{int(now * 1000):012x}{secrets.token_hex(10)}",
            bytes=self.size,
            created_at=int(now),
            expires_at=int(now) + life_s,
            filename=clean_name(filename),
            purpose=purpose,
        )
        self._uploads.publish(self, upload)
        return upload

    def finish(self, upload: Upload) -> None:
        """Write the head and flush everything. Raises OSError."""
        head = MAGIC + msgspec.json.encode(upload)
        with self._open() as fd:
            os.pwrite(fd, head.ljust(HEAD, b"\n"), 0)
            os.utime(fd, (upload.created_at, upload.expires_at))  # so that sweeping need not open every file
            os.fsync(fd)

    def close(self) -> None:
        """Give everything back; what was not published is gone."""
        super().close()
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()


def clean_name(name: str) -> str:
    """The client's name of a file as it is kept and shown: the last part of a path, nothing that does not print."""
    last = re.split(r"[/\\]", name)[-1]
    printed = "".join(letter for letter in last if letter.isprintable()).strip().strip(".")
    return printed[:LONGEST_NAME] or "file"


@contextlib.contextmanager
def _storage() -> Iterator[None]:
    """What the disk says, in the words of the tree."""
    try:
        yield
    except OSError as error:
        text = "The disk is full." if error.errno in _FULL else "The folder for files cannot be used."
        raise FileStorageError(text) from error


def _not_there() -> FileNotThere:
    return FileNotThere("There is no such file.")


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:
        return []


def _usage(folder: Path) -> tuple[int, int]:
    """(bytes of content, files)."""
    size = count = 0
    for entry in _entries(folder):
        with contextlib.suppress(FileNotFoundError):
            size += max(0, entry.stat(follow_symlinks=False).st_size - HEAD)
            count += 1
    return size, count


def _read_head(fd: int) -> Upload | None:
    """None for what is no file of ours. Leaves the descriptor at the content."""
    head = os.read(fd, HEAD)
    if not head.startswith(MAGIC):
        return None
    try:
        return msgspec.json.decode(head[len(MAGIC) :], type=Upload)
    except msgspec.DecodeError:
        return None


def _head_of(path: str) -> Upload | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        return _read_head(fd)
    finally:
        os.close(fd)


def _is_over(path: str, now: float) -> bool:
    upload = _head_of(path)
    return upload is None or upload.expires_at <= now


def _flush(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
