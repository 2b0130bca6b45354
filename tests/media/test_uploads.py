from __future__ import annotations

import contextlib
import errno
import os
import stat
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.media.pictures import plain
from twinlens.errors import FileNotThere, FileQuotaExceeded, FileStorageError, InvalidRequest
from twinlens.media.uploads import HEAD, Upload, Uploads, clean_name
from twinlens.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

PNG = plain("PNG")
HOUR = 3600


def room(tmp_path: Path, **settings: Any) -> Uploads:
    return Uploads(tmp_path / "data", Settings(**settings))


def keep(uploads: Uploads, data: bytes = PNG, owner: str = "a", name: str = "x.png", life_s: int = HOUR) -> Upload:
    with contextlib.closing(uploads.begin(owner)) as draft:
        for at in range(0, len(data), 1000):
            draft.write(data[at : at + 1000])
        return draft.publish(name, "vision", life_s)


def files_of(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "data").rglob("*") if path.is_file() and path.name != "lock"]


def test_a_file_is_kept_as_it_came(tmp_path: Path) -> None:
    uploads = room(tmp_path)
    kept = keep(uploads)
    assert (kept.bytes, kept.filename, kept.purpose) == (len(PNG), "x.png", "vision")
    assert kept.expires_at == kept.created_at + HOUR
    assert uploads.read("a", kept.id) == PNG
    assert uploads.find("a", kept.id) == kept
    assert room(tmp_path).all_of("a") == [kept]  # another process sees the same
    uploads.delete("a", kept.id)
    with pytest.raises(FileNotThere):
        uploads.read("a", kept.id)
    assert not files_of(tmp_path)


def test_nobody_else_may_look(tmp_path: Path) -> None:
    uploads = room(tmp_path)
    kept = keep(uploads)
    for path in (tmp_path / "data").rglob("*"):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path
    for other in ("", "b", "../a", "A"):
        for work in (uploads.find, uploads.read, uploads.delete):
            with pytest.raises(FileNotThere) as theirs:
                work(other, kept.id)
            with pytest.raises(FileNotThere) as nobodys:
                work(other, "file-" + "0" * 32)
            assert theirs.value.body() == nobodys.value.body()
        assert uploads.all_of(other) == []
    assert uploads.read("a", kept.id) == PNG


@pytest.mark.parametrize(
    "name",
    ["", "x", "../lock", "file-", "file-" + "0" * 31, "file-" + "G" * 32, "file-" + "0" * 32 + "/x", "\0", "lock"],
)
def test_only_names_made_here_are_looked_for(tmp_path: Path, name: str) -> None:
    uploads = room(tmp_path)
    keep(uploads)
    with pytest.raises(FileNotThere):
        uploads.read("a", name)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("../../../../tmp/evil.txt", "evil.txt"),
        ("/etc/cron.d/x", "x"),
        ("..\\..\\x", "x"),
        ("a\0.png", "a.png"),
        ("x" * 300, "x" * 255),
        ("", "file"),
        ("..", "file"),
        ("CON", "CON"),
        ("a\r\nSet-Cookie: x", "aSet-Cookie: x"),
        ("收据 1.png", "收据 1.png"),
        ("\u202egnp.exe", "gnp.exe"),
    ],
)
def test_sec_07_the_clients_name_is_only_kept(tmp_path: Path, given: str, kept: str) -> None:
    assert clean_name(given) == kept
    uploads = room(tmp_path)
    found = keep(uploads, name=given)
    assert found.filename == kept
    (path,) = files_of(tmp_path)
    assert path.name == found.id
    assert not (tmp_path / "evil.txt").exists()


def test_bounds_of_one_owner_and_of_all(tmp_path: Path) -> None:
    uploads = room(tmp_path, files_bytes_per_owner=3000, files_per_owner=4, files_bytes=5000)
    for _ in range(2):
        keep(uploads, b"." * 1000)
    with pytest.raises(FileQuotaExceeded, match="3000"):
        keep(uploads, b"." * 1001)
    keep(uploads, b"." * 999)
    keep(uploads, b".")
    with pytest.raises(FileQuotaExceeded, match="limit 4"):
        keep(uploads, b".")
    keep(uploads, b"." * 1900, owner="b")
    with pytest.raises(FileStorageError) as full:
        keep(uploads, b"." * 200, owner="c")
    assert full.value.status == 507
    assert len(files_of(tmp_path)) == 5  # nothing of the refused ones is left


def test_bounds_hold_when_many_come_at_once(tmp_path: Path) -> None:
    uploads = room(tmp_path, files_bytes_per_owner=10_000)
    start = threading.Barrier(8)
    refused: list[InvalidRequest] = []

    def work() -> None:
        mine = room(tmp_path, files_bytes_per_owner=10_000)
        start.wait()
        for _ in range(5):
            try:
                keep(mine, b"." * 700)
            except InvalidRequest as error:
                refused.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(upload.bytes for upload in uploads.all_of("a")) == 14 * 700
    assert len(refused) == 40 - 14


def test_files_expire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uploads = room(tmp_path)
    short, long = keep(uploads), keep(uploads, life_s=3 * HOUR)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 2 * HOUR)
    with pytest.raises(FileNotThere):
        uploads.read("a", short.id)
    assert uploads.all_of("a") == [long]
    assert len(files_of(tmp_path)) == 2
    uploads.sweep()
    (left,) = files_of(tmp_path)
    assert left.name == long.id


def test_a_changed_time_of_a_file_does_not_end_it(tmp_path: Path) -> None:
    uploads = room(tmp_path)
    kept = keep(uploads)
    os.utime(files_of(tmp_path)[0], (0, 0))  # as a careless copy would
    uploads.sweep()
    assert uploads.read("a", kept.id) == PNG


def test_what_is_no_file_of_ours_is_not_believed(tmp_path: Path) -> None:
    uploads = room(tmp_path)
    kept = keep(uploads)
    (path,) = files_of(tmp_path)
    whole = path.read_bytes()
    for broken in (b"", whole[:100], b"X" + whole[1:], whole[:8] + b"{}" + whole[10:]):
        path.write_bytes(broken)
        with pytest.raises(FileNotThere):
            uploads.read("a", kept.id)
        assert uploads.all_of("a") == []
    path.write_bytes(whole[:-1])
    with pytest.raises(FileStorageError):
        uploads.read("a", kept.id)
    path.unlink()
    path.symlink_to("/etc/passwd")
    with pytest.raises(FileStorageError):
        uploads.read("a", kept.id)


@pytest.mark.parametrize("step", ["pwrite", "fsync", "utime"])
def test_ops_18_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    uploads = room(tmp_path)

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, step, full)
    with pytest.raises(FileStorageError) as caught:
        keep(uploads)
    assert caught.value.status == 507
    assert "/" not in caught.value.message
    monkeypatch.undo()
    assert not files_of(tmp_path)


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("in the way")
    uploads = room(tmp_path)
    with pytest.raises(FileStorageError):
        keep(uploads)
    with pytest.raises((FileNotThere, FileStorageError)):
        uploads.find("a", "file-" + "0" * 32)


def test_ops_18_what_a_killed_process_left_is_swept(tmp_path: Path) -> None:
    uploads = room(tmp_path)
    script = (
        "import os, signal, sys; from pathlib import Path; from twinlens.media.uploads import Uploads;"
        "from twinlens.settings import Settings;"
        "draft = Uploads(Path(sys.argv[1]), Settings()).begin('a'); draft.write(b'x' * 100_000);"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "data")], check=False, timeout=60)
    assert done.returncode == -9
    assert len(files_of(tmp_path)) == 1
    assert uploads.all_of("a") == []
    mine = uploads.begin("a")  # of a living process: stays
    uploads.sweep()
    assert [path.name for path in files_of(tmp_path)] == [mine.path.name]
    mine.close()
    assert not files_of(tmp_path)


def test_a_late_thread_finds_the_file_closed(tmp_path: Path) -> None:
    uploads = room(tmp_path)
    draft = uploads.begin("a")
    draft.close()
    other = os.open(tmp_path / "other", os.O_WRONLY | os.O_CREAT)  # most likely gets the same number
    with pytest.raises(FileStorageError):
        draft.write(b"x")
    os.close(other)
    assert (tmp_path / "other").read_bytes() == b""
    draft.close()


def test_the_head_has_room_for_every_name(tmp_path: Path) -> None:
    uploads = room(tmp_path)
    kept = keep(uploads, name="𝔉" * 400)
    assert uploads.read("a", kept.id) == PNG
    assert files_of(tmp_path)[0].stat().st_size == HEAD + len(PNG)
