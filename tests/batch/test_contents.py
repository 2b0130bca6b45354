"""Archives whose words about themselves are not to be believed."""

from __future__ import annotations

import gzip
import io
import os
import struct
import tarfile
import tracemalloc
import zipfile
from typing import TYPE_CHECKING

import pytest

from tests.serving.harness import picture
from twinlens.batch import contents
from twinlens.batch.spool import Source
from twinlens.errors import ImageError, ImageTooLarge, TwinlensError

if TYPE_CHECKING:
    from pathlib import Path

MOST = 1 << 20


def read(path: Path, most: int = MOST) -> list[tuple[str, bytes | TwinlensError]]:
    """(path, bytes or why not) of all files, each read before the next is looked for, as a batch does."""
    source = Source(1, str(path).encode(), path.stat().st_size, 0)
    found: list[tuple[str, bytes | TwinlensError]] = []
    for file in contents.files(source, lambda name: most, lambda why: None):
        try:
            found.append((file.path.removeprefix(f"{path}/"), file.read()))
        except TwinlensError as error:
            found.append((file.path.removeprefix(f"{path}/"), error))
    return found


def member(name: str, data: bytes) -> tuple[tarfile.TarInfo, io.BytesIO]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    return info, io.BytesIO(data)


def test_a_member_above_the_bound_is_not_unpacked_whole(tmp_path: Path) -> None:
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb.png", bytes(40 << 20))
        archive.writestr("good.png", picture(1))
    tracemalloc.start()
    try:
        (_, bomb), (_, good) = read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(bomb, ImageTooLarge)
    assert good == picture(1)
    assert peak < 20 << 20


def test_a_size_that_is_a_lie_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "liar.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb.png", bytes(50 << 20))
    data = path.read_bytes().replace(struct.pack("<L", 50 << 20), struct.pack("<L", 100))
    path.write_bytes(data)
    ((_, said),) = read(path)
    assert isinstance(said, ImageError)


def test_many_members_that_are_one_bomb_end_the_archive(tmp_path: Path) -> None:
    """Every member is within the bound of a file; together they are far more than was packed."""
    path = tmp_path / "many.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(200):
            archive.writestr(f"{number}.png", bytes(MOST))
    source = Source(1, str(path).encode(), 1000, 0)  # as though it were packed better still
    said: list[TwinlensError] = []
    good = 0
    for file in contents.files(source, lambda name: MOST, lambda why: None):
        try:
            good += len(file.read()) == MOST
        except TwinlensError as error:
            said.append(error)
    assert good == (contents.FREE + contents.MOST_RATIO * 1000) // MOST
    assert len(said) == 2  # the member in which it ended, and the rest of the archive
    assert all(isinstance(error, ImageTooLarge) for error in said)


def test_a_tar_that_unpacks_for_ever_ends(tmp_path: Path) -> None:
    path = tmp_path / "bomb.tar.gz"
    info = tarfile.TarInfo("big.bin")  # not even wanted: it is unpacked to come behind it
    info.size = 1 << 40
    zeros = gzip.compress(bytes(64 << 20), 1)
    path.write_bytes(gzip.compress(info.tobuf()) + zeros * 3)
    source = Source(1, str(path).encode(), 1000, 0)
    (file,) = contents.files(source, lambda name: MOST, lambda why: None)
    with pytest.raises(ImageTooLarge, match="far more than its size"):
        file.read()


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_name_of_megabytes_is_not_read(tmp_path: Path, kind: bytes) -> None:
    path = tmp_path / "name.tar.gz"
    info = tarfile.TarInfo("x")
    info.type, info.size = kind, 50 << 20
    path.write_bytes(gzip.compress(info.tobuf() + bytes(50 << 20) + bytes(1024)))
    tracemalloc.start()
    try:
        ((_, said),) = read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(said, ImageTooLarge)
    assert peak < 10 << 20


def test_a_tar_that_is_cut_off_gives_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "cut.tar"
    with tarfile.open(path, "w") as archive:
        for number in range(3):
            archive.addfile(*member(f"{number}.png", picture(number)))
    path.write_bytes(path.read_bytes()[: 512 + 512 * 2 + len(picture(0)) // 2])
    found = read(path)
    assert all(isinstance(said, ImageError) for _, said in found[1:])
    assert len(found) >= 1


def test_archives_in_archives_are_passed_over_and_counted(tmp_path: Path) -> None:
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("deep.png", picture(1))
    with zipfile.ZipFile(tmp_path / "outer.zip", "w") as archive:
        archive.writestr("inner.zip", inner.getvalue())
        archive.writestr("a.png", picture(2))
    skipped: list[str] = []
    source = Source(1, str(tmp_path / "outer.zip").encode(), 1000, 0)
    files = [file.path.rpartition("/")[2] for file in contents.files(source, lambda name: MOST, skipped.append)]
    assert (files, skipped) == (["a.png"], ["archives"])


def test_a_member_with_a_password_fails_alone(tmp_path: Path) -> None:
    path = tmp_path / "locked.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("locked.png", picture(1))
        archive.writestr("open.png", picture(2))
    data = bytearray(path.read_bytes())
    for mark, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        data[data.index(mark) + flags] |= 1  # says that it is encrypted
    path.write_bytes(data)
    (_, locked), (_, good) = read(path)
    assert isinstance(locked, ImageError)
    assert good == picture(2)


def test_names_lead_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "names.tar"
    names = ["../../../etc/x.png", "/abs/x.png", "C:\\win\\x.png", "a/./b//../x.png", "new\nline.png"]
    with tarfile.open(path, "w") as archive:
        for number, name in enumerate(names):
            archive.addfile(*member(name, picture(number)))
    assert [name for name, _ in read(path)] == [
        "etc/x.png",
        "abs/x.png",
        "C:/win/x.png",
        "a/b/x.png",
        "new\nline.png",
    ]


def test_two_members_of_one_name_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "twice.tar"
    with tarfile.open(path, "w") as archive:
        for number, name in enumerate(("a/x.png", "a/x.png", "a/./x.png")):
            archive.addfile(*member(name, picture(number)))
    found = read(path)
    assert [name for name, _ in found] == ["a/x.png", "a/x.png (member 2)", "a/x.png (member 3)"]
    assert [data for _, data in found] == [picture(number) for number in range(3)]


def test_a_file_that_has_become_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    os.mkfifo(path)
    (file,) = contents.files(Source(1, str(path).encode(), 5, 0), lambda name: MOST, lambda why: None)
    with pytest.raises(ImageError, match="no file any more"):
        file.read()
