"""The run folder: sockets and process state of one service, mode 0700, held by a lock that dies with the supervisor."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
from typing import TYPE_CHECKING

from twinlens.errors import OperatorError, SettingsError

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

LOCK = "lock"
SOCKET_PATH_LIMIT = 107  # bytes of a Unix socket's path, a limit of the kernel
ENGINE_SOCKET = "engine.sock"
METRICS = "metrics"
# What a service puts into its folder, by exact name: nothing else in there is ever removed.
OURS = re.compile(r"(engine|desk)\.sock|(engine|service)\.json|\.(engine|service)\.json\.\d+|worker-\d+\.beat")
OUR_METRICS = re.compile(r"(counter|histogram|summary|gauge_[a-z]+)_\d+\.db")
OUR_LOCK = re.compile(rb"\d{1,10}\n")
LOCK_READ = 64  # bytes; ours is shorter


class RunFolder:
    """A context manager: entering makes and locks the folder and empties it, leaving removes it.

    An empty folder that was there before is the operator's own: it is emptied again, and stays.

    Entering raises OperatorError when another service holds it, SettingsError when it cannot be used, such as a
    folder with files that no service put there: it is left as it is.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = -1
        self._given = False

    @property
    def engine_socket(self) -> Path:
        """Where the engine listens."""
        return self.path / ENGINE_SOCKET

    @property
    def metrics(self) -> Path:
        """Where the gateway workers keep their counters."""
        return self.path / METRICS

    def __enter__(self) -> RunFolder:
        if len(os.fsencode(self.engine_socket)) > SOCKET_PATH_LIMIT:
            raise SettingsError(
                f"run_dir: {self.path} is too long a path for a socket.", cure="Give a shorter one with --run-dir."
            )
        self._given = _make(self.path)
        self._lock = _locked(self.path)
        self._empty()
        self.metrics.mkdir(mode=0o700, exist_ok=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._empty()
        (self.path / LOCK).unlink(missing_ok=True)
        os.close(self._lock)
        if not self._given:
            with contextlib.suppress(OSError):  # somebody put a file of their own there, or the next service has it
                self.path.rmdir()

    def _empty(self) -> None:
        """Remove what an earlier service left behind: the lock shows that it no longer runs."""
        _remove(self.path, OURS)
        if self.metrics.is_dir() and not self.metrics.is_symlink():
            _remove(self.metrics, OUR_METRICS)
            with contextlib.suppress(OSError):  # somebody else's file is in there
                self.metrics.rmdir()


def _remove(folder: Path, names: re.Pattern[str]) -> None:
    for path in folder.iterdir():
        if names.fullmatch(path.name) and not path.is_dir():
            path.unlink(missing_ok=True)


def _make(folder: Path) -> bool:
    """Make `folder` 0700, or check that it is ours alone: the sockets in it take orders from whoever reaches them.

    Returns whether it was there already, and empty.
    """
    try:
        given = folder.is_dir() and not any(folder.iterdir())
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        status, above = folder.lstat(), folder.parent.stat()
    except OSError as error:
        raise SettingsError(
            f"run_dir: {folder} cannot be made: {error.strerror}.",
            cure="Give a folder you may write to with --run-dir.",
        ) from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise SettingsError(
            f"run_dir: {folder} belongs to somebody else or is a link.", cure="Give another folder with --run-dir."
        )
    if above.st_uid not in (0, os.getuid()):
        raise SettingsError(  # whoever owns the folder above can put another in this one's place
            f"run_dir: {folder.parent} belongs to somebody else.", cure="Give another folder with --run-dir."
        )
    if not _ours(folder):
        raise SettingsError(
            f"run_dir: {folder} holds other files.", cure="Give an empty or a new folder with --run-dir."
        )
    folder.chmod(0o700)
    return given


def _ours(folder: Path) -> bool:
    """Whether the folder is empty or a service's: made by one, as its lock shows. Changes nothing."""
    lock = folder / LOCK
    try:
        names = {path.name for path in folder.iterdir()}
        if LOCK not in names:
            return not names
        if (folder / METRICS).is_symlink() or not stat.S_ISREG(lock.lstat().st_mode):
            return False
        with lock.open("rb") as file:
            said = file.read(LOCK_READ)
        # Empty and alone: a service that starts at this moment.
        return OUR_LOCK.fullmatch(said) is not None or (not said and names == {LOCK})
    except FileNotFoundError:
        return True  # the service that had it ended at this moment
    except OSError:
        return False


def _locked(folder: Path) -> int:
    """A descriptor that holds the folder's lock; not inherited by children, so it is free when the supervisor dies."""
    path = folder / LOCK
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            pid = os.read(lock, 32).decode("ascii", "replace").strip()
            os.close(lock)
            raise OperatorError(
                f"Another Twinlens service (process {pid or 'unknown'}) uses the run folder {folder}.",
                cure="Stop it, or give this one its own folder with --run-dir (and its own --port).",
            ) from error
        if _same(lock, path):
            os.ftruncate(lock, 0)
            os.write(lock, f"{os.getpid()}\n".encode())
            return lock
        os.close(lock)  # its holder removed the file between our open and our lock: try the new one


def _same(lock: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(lock), path.stat())
    except FileNotFoundError:
        return False
