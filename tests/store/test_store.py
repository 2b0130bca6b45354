"""One process: what goes in comes out, the bound holds, and nothing bad on disk is ever an answer."""

from __future__ import annotations

import errno
import os
import pickle
import resource
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pytest

from tests.store.helpers import disk_use, key_of, picture, put
from twinlens.errors import InvalidField, StoreError, StoreMiss
from twinlens.store import Store, resolve
from twinlens.store.header import SIZE, Header

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIMIT = 8 << 20
TRAVERSAL = ["../../etc/passwd", "/etc/passwd", "..", "", "a" * 31, "A" * 64, "ab/" * 20, "a" * 64 + "\0", "é" * 64]


@pytest.mark.parametrize(
    "array",
    [
        picture(1),
        np.arange(24, dtype=np.float32).reshape(2, 3, 4),
        np.arange(10, dtype=np.float16)[::2],
        np.array(7, dtype=np.int64),
        np.empty((0, 3), np.uint8),
    ],
)
def test_what_is_put_comes_out(store: Store, root: Path, array: np.ndarray[Any, Any]) -> None:
    store.put(key_of(1), "pixels", array)
    for found in (store.get(key_of(1)), resolve(root, "twinlens:" + key_of(1))):
        assert found is not None
        assert found.dtype == array.dtype
        assert found.shape == array.shape
        assert np.array_equal(found, array)
        assert not found.flags.writeable


def test_create_publishes_on_a_clean_exit_only(store: Store, root: Path) -> None:
    with pytest.raises(ZeroDivisionError), store.create(key_of(1), "pixels", np.uint8, (2, 2)) as array:
        array[:] = 1 / 0
    assert store.get(key_of(1)) is None
    with store.create(key_of(1), "pixels", np.uint8, (2, 2)) as array:
        array[:] = 5
        assert store.get(key_of(1)) is None
    assert np.array_equal(resolve(root, "twinlens:" + key_of(1)), np.full((2, 2), 5))
    assert not list((root / "temporary").glob("*[0-9]"))


def test_cache_14_the_same_picture_again_and_after_a_restart_is_one_miss_and_nine_hits(root: Path) -> None:
    seen = []
    for _ in range(2):  # a process each, as far as the store can tell
        store = Store(root, LIMIT)
        for _ in range(5):
            with store.lease() as lease:
                if not store.has(key_of(1), lease):
                    store.put(key_of(1), "pixels", picture(1), lease)
        seen.append(store.stats())
    assert [(one.hits, one.misses) for one in seen] == [(4, 1), (5, 0)]
    assert seen[-1].objects == 1


def test_the_least_recently_used_goes_first_and_the_bound_holds(store: Store, root: Path) -> None:
    for number in range(60):
        put(store, number)
    assert store.get(key_of(0)) is not None  # used again
    for number in range(60, 110):
        put(store, number)
        assert disk_use(root) <= LIMIT
    assert store.get(key_of(0)) is not None
    assert store.get(key_of(1)) is None
    assert store.get(key_of(109)) is not None
    stats = store.stats()
    assert LIMIT * 0.9 < stats.bytes <= LIMIT == stats.limit
    assert stats.evictions == 110 - stats.objects


def test_leased_objects_survive_eviction_and_clear_and_count(store: Store, root: Path) -> None:
    with store.lease() as lease:
        for number in range(5):
            store.put(key_of(number), "pixels", picture(number), lease)
        for number in range(100, 300):
            put(store, number)
        assert all(store.get(key_of(number)) is not None for number in range(5))
        assert store.clear() > 50
        assert store.stats().leased_bytes == store.stats().bytes == 5 * 102_400
        assert store.stats().objects == 0
        for number in range(5):
            assert np.array_equal(resolve(root, "twinlens:" + key_of(number)), picture(number))
    assert store.stats().bytes == 0
    with pytest.raises(StoreMiss):
        resolve(root, "twinlens:" + key_of(0))


def test_a_store_full_of_leased_objects_says_so_and_recovers(store: Store, root: Path) -> None:
    held = 0
    with store.lease() as lease:
        with pytest.raises(StoreError) as caught:
            for number in range(1000):
                store.put(key_of(number), "pixels", picture(number), lease)
                held = number + 1
        assert caught.value.status == 507
        assert 0.95 * LIMIT < held * 102_400 <= LIMIT
        assert disk_use(root) <= LIMIT
    put(store, 2000)
    assert store.get(key_of(2000)) is not None


def test_idle_stores_give_their_room_to_whoever_needs_it(root: Path) -> None:
    idle = [Store(root, LIMIT) for _ in range(40)]
    for number, one in enumerate(idle):
        put(one, number, 3000)  # each sets room aside for itself
    busy = Store(root, LIMIT)
    with busy.lease() as lease:
        for number in range(100, 100 + int(LIMIT * 0.95) // 102_400):
            busy.put(key_of(number), "pixels", picture(number), lease)
    put(idle[3], 77, 3000)
    assert idle[3].get(key_of(77)) is not None


def test_objects_larger_than_the_store_are_refused_before_any_byte(store: Store, root: Path) -> None:
    with pytest.raises(StoreError, match="larger than the whole store"):
        store.put(key_of(1), "pixels", np.zeros(LIMIT, np.uint8))
    with pytest.raises(StoreError), store.create(key_of(1), "pixels", np.uint8, (1 << 33,)):
        pass
    assert not list((root / "temporary").iterdir())


@pytest.mark.parametrize("key", TRAVERSAL)
def test_only_keys_are_taken(store: Store, root: Path, key: str) -> None:
    with pytest.raises(StoreError):
        store.get(key)
    with store.lease() as lease, pytest.raises(StoreError):
        store.has(key, lease)
    with pytest.raises(StoreError):
        store.put(key, "pixels", picture(1))
    with pytest.raises(StoreError), store.create(key, "pixels", np.uint8, (1,)):
        pass
    with pytest.raises(InvalidField):
        resolve(root, "twinlens:" + key)


@pytest.mark.parametrize("reference", ["", "twinlens:", "file:///etc/passwd", key_of(1), "TWINLENS:" + key_of(1)])
def test_only_references_are_resolved(store: Store, root: Path, reference: str) -> None:
    put(store, 1)
    with pytest.raises(InvalidField) as caught:
        resolve(root, reference)
    assert "/" not in caught.value.message


def test_dtypes_that_are_not_plain_numbers_are_refused(store: Store) -> None:
    for array in (np.array([object()]), np.array(["text"]), np.zeros(2, dtype=[("a", "u1")]), np.zeros(2, ">f4")):
        with pytest.raises(StoreError, match="kind"):
            store.put(key_of(1), "pixels", array)


def damaged(path: Path) -> Iterator[tuple[str, bytes]]:
    """What may lie under a key that is not what was put there."""
    good = path.read_bytes()
    yield "empty", b""
    yield "short header", good[:100]
    yield "header only", good[:SIZE]
    yield "truncated", good[:-1]
    yield "longer", good + b"\0"
    yield "flipped bit", good[:5000] + bytes([good[5000] ^ 1]) + good[5001:]
    yield "page never written", good[:8192] + bytes(4096) + good[12288:]
    yield "another shape", Header(path.name, "pixels", "|u1", (2**40,), 1).pack() + good[SIZE:]
    yield "another key", Header(key_of(99), "pixels", "|u1", (333, 100, 3), 1).pack() + good[SIZE:]
    yield "zeros", bytes(len(good))
    yield "pickle", pickle.dumps(Marker(), protocol=4)
    yield "pickle after the magic", b"TWINLENS" + pickle.dumps(Marker(), protocol=4).ljust(4096, b".")


class Marker:
    """Unpickling it would end the test."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (os._exit, (3,))


def test_sec_09_damaged_and_foreign_files_are_misses_and_counted(store: Store, root: Path) -> None:
    path = root / "objects" / put(store, 1)
    for count, (what, data) in enumerate(damaged(path), start=1):
        path.write_bytes(data)
        with store.lease() as lease:
            assert store.get(key_of(1), lease) is None, what
            assert store.stats().corrupt == count, what
            assert not path.exists(), what  # out of the way of the next writer
            store.put(key_of(1), "pixels", picture(1), lease)
        path.write_bytes(data)
        with pytest.raises(StoreMiss):
            resolve(root, "twinlens:" + key_of(1))
        assert not path.exists(), what
        put(store, 1)
        assert np.array_equal(resolve(root, "twinlens:" + key_of(1)), picture(1)), what


def test_sec_09_a_numpy_or_torch_file_is_a_miss(store: Store, root: Path) -> None:
    path = root / "objects" / key_of(1)
    with path.open("wb") as file:
        np.save(file, np.array([Marker()], dtype=object), allow_pickle=True)
    assert store.get(key_of(1)) is None
    path.write_bytes(b"PK\x03\x04" + bytes(1000))  # how a torch file begins
    assert store.get(key_of(1)) is None
    assert store.stats().corrupt == 2


def test_has_reads_the_header_only_and_finds_truncation(store: Store, root: Path) -> None:
    path = root / "objects" / put(store, 1)
    os.truncate(path, 5000)
    with store.lease() as lease:
        assert not store.has(key_of(1), lease)
        assert not list((root / "leases").iterdir())
        assert not store.has(key_of(2), lease)
    assert (store.stats().corrupt, store.stats().misses) == (1, 2)


@pytest.mark.parametrize("kind", ["symlink", "folder", "pipe"])
def test_what_is_no_file_is_a_miss(store: Store, root: Path, kind: str) -> None:
    path = root / "objects" / put(store, 1)
    path.unlink()
    if kind == "symlink":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    assert store.get(key_of(1)) is None
    with pytest.raises(StoreMiss):
        resolve(root, "twinlens:" + key_of(1))


def test_a_symbolic_link_or_a_file_is_no_store(root: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    root.symlink_to(tmp_path / "real")
    with pytest.raises(StoreError, match="symbolic link"):
        Store(root, LIMIT)
    with pytest.raises(StoreError):
        resolve(root, "twinlens:" + key_of(1))
    root.unlink()
    root.write_text("")
    with pytest.raises(StoreError) as caught:
        Store(root, LIMIT)
    assert str(root) not in str(caught.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_another_users_folder_is_no_store(root: Path) -> None:
    root.mkdir()
    os.chown(root, 4321, 4321)
    with pytest.raises(StoreError, match="another user"):
        Store(root, LIMIT)
    with pytest.raises(StoreError):
        resolve(root, "twinlens:" + key_of(1))


def test_the_folder_is_closed_to_others(root: Path) -> None:
    root.mkdir(mode=0o755)
    store = Store(root, LIMIT)
    put(store, 1)
    assert {path.stat().st_mode & 0o077 for path in (root, *root.rglob("*"))} == {0}


def test_folders_removed_under_a_running_service_are_made_again(store: Store, root: Path) -> None:
    put(store, 1)
    for path in sorted(root.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    root.rmdir()
    assert store.clear() == store.stats().objects == 0
    store.sweep()
    with store.lease() as lease:
        assert not store.has(key_of(1), lease)
        assert store.get(key_of(1)) is None
        with pytest.raises(StoreMiss):
            resolve(root, "twinlens:" + key_of(1))
        store.put(key_of(1), "pixels", picture(1), lease)
        assert store.has(key_of(1), lease)
    assert store.get(key_of(1)) is not None


def test_a_file_size_limit_is_an_answer(store: Store, root: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        with pytest.raises(StoreError) as caught:
            put(store, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.status == 507
    assert not list((root / "temporary").glob("*[0-9]"))
    put(store, 1)


def test_a_full_file_system_first_costs_old_objects_then_is_an_answer(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = 10 * 102_400
    real = os.writev

    def writev(fd: int, parts: list[memoryview]) -> int:
        if disk_use(root) + sum(map(len, parts)) > room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, parts)

    monkeypatch.setattr("twinlens.store.files.os.writev", writev)
    for number in range(30):
        put(store, number)
    assert store.stats().evictions >= 20
    with store.lease() as lease, pytest.raises(StoreError) as caught:
        for number in range(30, 60):
            store.put(key_of(number), "pixels", picture(number), lease)
    assert caught.value.status == 507
    assert not list((root / "temporary").glob("*[0-9]"))
    put(store, 99)


def test_the_bound_is_never_more_than_the_file_system_has(root: Path) -> None:
    about = os.statvfs(root.parent)
    assert Store(root, 1 << 60).stats().limit <= about.f_blocks * about.f_frsize * 0.9


def test_no_descriptor_is_left_over(store: Store) -> None:
    put(store, 1, 3000)
    process = psutil.Process()
    before = process.num_fds(), len(process.memory_maps(grouped=False))
    for _ in range(5000):
        with store.lease() as lease:
            assert store.get(key_of(1), lease) is not None
            assert store.has(key_of(1), lease)
    assert process.num_fds() == before[0]
    assert len(process.memory_maps(grouped=False)) < before[1] + 20


def test_a_closed_lease_takes_nothing(store: Store, root: Path) -> None:
    put(store, 1)
    lease = store.lease()
    lease.close()
    lease.close()
    assert store.get(key_of(1), lease) is None
    assert not store.has(key_of(1), lease)
    store.put(key_of(2), "pixels", picture(2), lease)
    assert store.get(key_of(2)) is not None
    assert not list((root / "leases").iterdir())


def test_threads_share_a_store_and_a_lease(store: Store, root: Path) -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        with store.lease() as own:
            for step in range(30):
                lease = shared if step % 2 else own
                if not store.has(key_of(number % 7), lease):
                    store.put(key_of(number % 7), "pixels", picture(number % 7), lease)
                if not np.array_equal(resolve(root, "twinlens:" + key_of(number % 7)), picture(number % 7)):
                    wrong.append(number)

    with store.lease() as shared, ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(24)))
    assert not wrong
    assert not list((root / "leases").iterdir())
    assert threading.active_count() < 8


def test_creators_of_one_key_both_succeed(store: Store) -> None:
    with store.create(key_of(1), "pixels", np.uint8, (3,)) as first:
        with store.create(key_of(1), "pixels", np.uint8, (3,)) as second:
            second[:] = 1
        first[:] = 1
    found = store.get(key_of(1))
    assert found is not None
    assert found.tolist() == [1, 1, 1]
    assert store.stats().objects == 1


def test_closing_gives_the_room_back(store: Store, root: Path) -> None:
    put(store, 1)
    assert list((root / "temporary").iterdir())
    store.close()
    store.close()
    assert not list((root / "temporary").iterdir())
    put(store, 2)
