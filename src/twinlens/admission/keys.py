"""Who may come: the keys of the settings and of the keys file, as digests, reread when the file changes.

A file that is half written, broken or gone keeps the last good one in force and is said in the log until it is mended:
neither does a slip of the pen lock everybody out, nor does it let anybody in.
"""

from __future__ import annotations

import hmac
import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from twinlens.admission import keyfile
from twinlens.admission.keyfile import SCOPES, Scope
from twinlens.core import KeyLimits
from twinlens.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from twinlens.admission.keyfile import Record
    from twinlens.settings import Settings

log = logging.getLogger("twinlens.admission")

_NOBODY = "0" * 64  # compared with where there is no such id, so that both ways take as long
SAY_AGAIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Holder:
    """Whose key it is, and what it may do."""

    id: str
    tenant: str
    scopes: frozenset[Scope]
    batch: bool = False
    bulk: bool = False
    limits: KeyLimits = field(default=KeyLimits())


# The service itself, which puts its own first question (`serve --ask`); no tenant of the keys file can be called so.
OURSELVES = Holder("(service)", "(service)", frozenset({"chat"}))


class Ring:
    """All keys. To be used from one thread, except `reread`, which only replaces what the others read."""

    def __init__(self, plain: Sequence[str], path: Path | None, *, needed: bool = False, own: str = "") -> None:
        """`needed`: clients need a key whether or not there is a file. `own`: digest of the service's own key."""
        self._plain = [(keyfile.digest(key), _holder_of_plain(key)) for key in plain]
        self._own = own or _NOBODY
        self._path = path
        self._records: dict[str, Record] = {}
        self._mark: tuple[int, int, int, int] | None = None
        self._seen = needed or _mark(path) is not None
        self._said = 0.0
        self.trouble = ""  # why the file is not the one in force; empty: it is
        self.reread()

    @property
    def configured(self) -> bool:
        """Whether clients need a key at all. Once they do, they do for the life of the process."""
        return bool(self._plain) or self._seen

    @property
    def count(self) -> int:
        """Keys that are known, the expired included."""
        return len(self._plain) + len(self._records)

    def find(self, key: str) -> Holder | None:
        """Whose key it is; None for one that is not known or whose time is over."""
        given = keyfile.digest(key)
        record = self._records.get(keyfile.id_of(key))
        found: Holder | None = None
        if hmac.compare_digest(given, record.sha256 if record else _NOBODY) and record:
            found = None if record.expired(time.time()) else _holder(record)
        for known, holder in self._plain:  # all of them: no early end to time
            if hmac.compare_digest(given, known):
                found = holder
        return OURSELVES if hmac.compare_digest(given, self._own) else found

    def reread(self) -> None:
        """Look whether the file changed, and take it if it is whole. Reads a disk: not for an event loop."""
        mark = _mark(self._path)
        if self._path is None or (mark == self._mark and not self.trouble):
            return
        if mark is None:
            if self._seen:
                self._complain("The keys file is gone")
            return
        try:
            records = keyfile.read(self._path)
        except SettingsError as error:
            self._complain(error.message)
            return
        self._records = {record.id: record for record in records}
        self._mark, self._seen, self.trouble = mark, True, ""
        log.info("keys file read: %d keys", len(records))

    def _complain(self, why: str) -> None:
        now = time.monotonic()
        if why != self.trouble or now - self._said > SAY_AGAIN_S:
            log.error("%s The last good keys (%d) stay in force.", why.rstrip(".") + ".", len(self._records))
            self._said = now
        self.trouble = why


def ring_of(settings: Settings, data: Path | None = None, own: str = "") -> Ring:
    """The keys of these settings; a keys file that is named is needed. `own`: digest of the service's own key."""
    return Ring(settings.api_keys, keyfile.path_of(settings, data), needed=bool(settings.keys_file), own=own)


def checked(settings: Settings) -> Ring:
    """The same for a start, which must not guess: raises SettingsError when the keys file is not usable."""
    path = keyfile.path_of(settings)
    if settings.keys_file and not path.exists():
        raise SettingsError(
            f"keys_file: there is no {path}.",
            cure=f"Make it with “twinlens keys new --keys-file {path} --tenant NAME --scope chat”.",
        )
    if path.exists():
        keyfile.read(path)
    return ring_of(settings)


def _holder(record: Record) -> Holder:
    return Holder(record.id, record.tenant, frozenset(record.scopes), record.batch, record.bulk, record.limits)


def _holder_of_plain(key: str) -> Holder:
    # Keys of the settings are the operator's own: they may do everything. Each is a tenant of its own.
    name = "key-" + keyfile.digest(key)[:12]
    return Holder(name, name, frozenset(SCOPES))


def _mark(path: Path | None) -> tuple[int, int, int, int] | None:
    """What changes whenever the file does; None without a file."""
    try:
        status = path.stat() if path else None
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_ino, status.st_size, status.st_mode) if status else None
