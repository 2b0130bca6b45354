"""The folders of a store: `objects` (published), `temporary` (not yet), `leases` (links to both)."""

# ruff: noqa: PTH100, PTH101, PTH102, PTH103, PTH116, PTH120 (hot path: plain strings and single system calls)

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from twinlens.errors import StoreError
from twinlens.store.files import discard
from twinlens.store.owners import Living, Owner

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = 4096
WALKS = 3
CREDIT = "-credit"  # how the names of room set aside end; see `space`


@dataclass(slots=True)
class Survey:
    """One walk over the folders. Sizes in bytes, whole pages."""

    aside: int = 0  # temporaries and credit
    stored: int = 0  # published, or held by a lease only
    leased: int = 0
    objects: int = 0  # published
    free: list[tuple[int, str, int]] = field(default_factory=list)  # (last use in ns, name, size), not leased
    seen: set[int] = field(default_factory=set)  # inodes
    disturbed: bool = False  # objects came or went during the walk

    @property
    def total(self) -> int:
        """What the bound is about."""
        return self.aside + self.stored

    def add_object(self, name: str, about: os.stat_result) -> None:
        """A published one."""
        size = pages(about.st_size)
        self.objects += 1
        if about.st_nlink > 1:
            self.leased += size
        else:
            self.free.append((about.st_atime_ns, name, size))
        if about.st_ino not in self.seen:  # else it was a temporary a moment ago, and is counted as one
            self.seen.add(about.st_ino)
            self.stored += size

    def add_leased(self, about: os.stat_result) -> None:
        """One that a lease holds; counted here when it is published no longer."""
        if about.st_ino not in self.seen:
            self.seen.add(about.st_ino)
            self.stored += pages(about.st_size)
            self.leased += pages(about.st_size)


class Folders:
    """Where things are, and new names for them."""

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)
        self.objects = f"{self.root}/objects"
        self.temporary = f"{self.root}/temporary"
        self.leases = f"{self.root}/leases"
        self._owner = Owner()

    def prepare(self) -> int:
        """Make what is missing; refuse what is not ours alone. Gives the file system's size in bytes.

        Raises StoreError.
        """
        try:
            os.makedirs(os.path.dirname(self.root), exist_ok=True)
            for folder in (self.root, self.objects, self.temporary, self.leases):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(folder, 0o700)
                check(folder)
            room = os.statvfs(self.root)
        except OSError as error:
            raise StoreError("The store's folder cannot be made or used.") from error
        return room.f_blocks * room.f_frsize

    def new_temporary(self) -> str:
        """Path for a file that nobody sees as an object."""
        return f"{self.temporary}/{self._owner.name()}"

    def new_lease(self) -> str:
        """What the paths of a lease's links start with."""
        return f"{self.leases}/{self._owner.name()}"

    def open_temporary(self) -> tuple[str, int]:
        """(path, descriptor) of a new temporary. Raises OSError, StoreError."""
        path = self.new_temporary()
        try:
            return path, make(path)
        except FileNotFoundError:  # someone removed the folders under a running service
            self.prepare()
            return path, make(path)

    def survey(self) -> Survey:
        """Count everything, and remove what dead processes left behind.

        Others work meanwhile, so a walk can miss an object and what took its place. When the folder changed under
        the walk it is repeated, a few times at most, and the largest count stands: too much only evicts early.
        """
        walks = [self._walk()]
        while walks[-1].disturbed and len(walks) < WALKS:
            walks.append(self._walk())
        result = walks[-1]
        if result.disturbed:
            result.aside += max(walk.total for walk in walks) - result.total
        return result

    def _walk(self) -> Survey:
        result, living = Survey(), Living()
        before = _changed(self.objects)
        # Credit, then temporaries, then objects: the way that bytes go, so that none is passed on behind our back.
        for about in _of_living(self.temporary, living, credit=True):
            result.aside += pages(about.st_size)
        for about in _of_living(self.temporary, living, credit=False):
            result.aside += pages(about.st_size)
            result.seen.add(about.st_ino)
        for entry, about in _files(self.objects):
            result.add_object(entry.name, about)
        for about in _of_living(self.leases, living):
            result.add_leased(about)
        result.disturbed = _changed(self.objects) != before
        return result

    def sweep(self) -> None:
        """Remove unpublished temporaries and leases of dead processes; nothing else."""
        living = Living()
        _of_living(self.temporary, living)
        _of_living(self.leases, living)


def check(folder: str) -> None:
    """Refuse a folder that is a symbolic link or another user's; close it to others. Raises StoreError, OSError."""
    about = os.lstat(folder)
    if not stat.S_ISDIR(about.st_mode):
        raise StoreError("The store's folder is a symbolic link or no folder; it is not used.")
    if about.st_uid != os.geteuid():
        raise StoreError("The store's folder belongs to another user; it is not used.")
    if about.st_mode & 0o077:
        os.chmod(folder, 0o700)


def make(path: str) -> int:
    """Descriptor of a new file, open for reading and writing. Raises OSError."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def pages(size: int) -> int:
    """`size` in whole pages, in bytes: what a file of this size takes on tmpfs."""
    return -(-size // PAGE) * PAGE


def _changed(folder: str) -> int:
    """When an entry came or went, in ns; 0 for a folder that is gone."""
    try:
        return os.stat(folder).st_mtime_ns
    except FileNotFoundError:
        return 0


def _files(folder: str, *, credit: bool | None = None) -> Iterator[tuple[os.DirEntry[str], os.stat_result]]:
    """Entries with what the kernel says of them; those that go away meanwhile are left out."""
    try:
        entries = os.scandir(folder)
    except FileNotFoundError:
        return
    with entries:
        for entry in entries:
            if credit is not None and entry.name.endswith(CREDIT) != credit:
                continue
            with contextlib.suppress(FileNotFoundError):
                yield entry, entry.stat(follow_symlinks=False)


def _of_living(folder: str, living: Living, *, credit: bool | None = None) -> list[os.stat_result]:
    """What living processes have there; the rest is removed. `credit`: only that, or only the others."""
    found = []
    for entry, about in _files(folder, credit=credit):
        if living.is_dead(entry.name, about.st_ctime):
            discard(entry.path)
        else:
            found.append(about)
    return found
