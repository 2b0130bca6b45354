"""The keys file: one JSON object a line, one line a key. It holds digests; a key itself is shown once, when made.

A key is `tl-<id>-<secret>`. The id is public: it finds the line. The secret has 256 random bits, so one pass of SHA-256
is enough: slow hashes protect passwords that people choose, and nobody guesses 2**256. The file is mode 0600 all the
same, because it tells who may come. It is replaced by rename, so that a reader sees the old one or the new one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import stat
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from twinlens.core import KeyLimits
from twinlens.errors import SettingsError
from twinlens.settings import data_dir

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from twinlens.settings import Settings

Scope = Literal["chat", "batch", "admin"]
Priority = Literal["normal", "low"]
PerMinute = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]
SCOPES: tuple[Scope, ...] = ("chat", "batch", "admin")

NAME = "keys.jsonl"
MAX_BYTES = 16 << 20  # some 50,000 keys
PREFIX = "tl"
TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_KEY = re.compile(rf"{PREFIX}-(?P<id>[0-9a-f]{{10}})-[A-Za-z0-9_-]{{43}}")
CURE = "“twinlens keys” writes this file; mend the line, or take the file back from a backup."


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One key as the file has it. Times are UTC with a zone; limits that are None are as the settings say."""

    id: str
    tenant: str
    scopes: tuple[Scope, ...]
    sha256: str  # of the whole key, in hexadecimal
    created: datetime
    expires: datetime | None = None
    note: str = ""
    requests: PerMinute | None = None
    burst: PerMinute | None = None
    vision_tokens: PerMinute | None = None
    text_tokens: PerMinute | None = None
    priority: Priority | None = None  # None: low for a key with the batch scope and without chat

    @property
    def limits(self) -> KeyLimits:
        """What it has of its own."""
        return KeyLimits(self.requests, self.burst, self.vision_tokens, self.text_tokens)

    @property
    def batch(self) -> bool:
        """Whether it is for bulk work only."""
        return "chat" not in self.scopes and "batch" in self.scopes

    @property
    def bulk(self) -> bool:
        """Whether its requests come behind everybody else's."""
        return self.batch if self.priority is None else self.priority == "low"

    def expired(self, now: float) -> bool:
        """Whether its time is over at the unix time `now`."""
        return self.expires is not None and self.expires.timestamp() <= now


_decoder = msgspec.json.Decoder(Record)


def path_of(settings: Settings, data: Path | None = None) -> Path:
    """The file that is used: the setting, else one in the folder for data (`data`). It need not exist."""
    return Path(settings.keys_file).absolute() if settings.keys_file else (data or data_dir()).absolute() / NAME


def digest(key: str) -> str:
    """What is kept of a key."""
    return hashlib.sha256(key.encode()).hexdigest()


def id_of(key: str) -> str:
    """The public part of a key in our form; empty for any other text."""
    found = _KEY.fullmatch(key)
    return found["id"] if found else ""


def made(
    tenant: str, scopes: Sequence[Scope], *, expires: datetime | None = None, note: str = ""
) -> tuple[str, Record]:
    """A new key and its record. Raises SettingsError for a tenant's name that does not fit."""
    if not TENANT.fullmatch(tenant):
        raise SettingsError(
            f"“{tenant[:80]}” is no name for a tenant.",
            cure="Take up to 64 letters, digits, dots, hyphens, underscores and @.",
        )
    number = secrets.token_hex(5)
    key = f"{PREFIX}-{number}-{secrets.token_urlsafe(32)}"
    now = datetime.now(UTC).replace(microsecond=0)
    ordered = tuple(scope for scope in SCOPES if scope in scopes)
    return key, Record(number, tenant, ordered, digest(key), now, expires, note)


def read(path: Path) -> tuple[Record, ...]:
    """All records. Raises SettingsError, naming the line, for a file that is not whole, or that others may read."""
    try:
        with path.open("rb") as file:
            _check(path, os.fstat(file.fileno()))
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise SettingsError(f"The keys file {path} cannot be read: {error.strerror}.", cure="Check it.") from error
    if len(data) > MAX_BYTES:
        raise SettingsError(f"The keys file {path} has more than {MAX_BYTES} bytes.", cure="Remove expired keys.")
    if data and not data.endswith(b"\n"):
        raise SettingsError(f"The last line of the keys file {path} is not whole.", cure=CURE)
    records: dict[str, Record] = {}
    for number, line in enumerate(data.splitlines(), 1):
        if line.strip() and not line.startswith(b"#"):
            record = _record(line, f"line {number} of the keys file {path}")
            if record.id in records:
                raise SettingsError(f"In {path}, line {number}, the id {record.id} comes again.", cure=CURE)
            records[record.id] = record
    return tuple(records.values())


def _record(line: bytes, where: str) -> Record:
    try:
        record = _decoder.decode(line)
    except msgspec.DecodeError as error:  # its texts name types and fields, never values
        raise SettingsError(f"{where[0].upper()}{where[1:]} is not a key: {error}.", cure=CURE) from error
    if record.expires and record.expires.tzinfo is None:
        raise SettingsError(f"“expires” in {where} has no time zone.", cure=CURE)
    if not re.fullmatch("[0-9a-f]{64}", record.sha256) or not TENANT.fullmatch(record.tenant) or not record.scopes:
        raise SettingsError(f"A field in {where} is not in its form.", cure=CURE)
    return record


def _check(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise SettingsError(f"The keys file {path} is not a file.", cure="Name another with --keys-file.")
    if status.st_uid not in (0, os.getuid()):
        raise SettingsError(f"The keys file {path} belongs to somebody else.", cure="Give it to the service's user.")
    if status.st_mode & 0o077:
        raise SettingsError(
            f"The keys file {path} can be read or written by others (mode {stat.S_IMODE(status.st_mode):04o}).",
            cure=f"chmod 600 {path}",
        )


@contextmanager
def changing(path: Path) -> Iterator[list[Record]]:
    """The records, to be changed in place; written back by rename at the end. Others who change it wait."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        records = list(read(path)) if path.exists() else []
        yield records
        _write(path.resolve(), records)
        os.fsync(folder)
    finally:
        os.close(folder)


def _write(path: Path, records: Sequence[Record]) -> None:
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.writelines(msgspec.json.encode(record) + b"\n" for record in records)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
