"""The checksum finds what goes wrong with memory: changed, moved, missing."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from twinlens.store.checksum import PAGE, checksum

LENGTHS = st.integers(0, 3 * PAGE)


def noise(length: int, seed: int = 0) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 256, length, dtype=np.uint8)


@given(LENGTHS.filter(bool), st.data())
def test_any_changed_byte_changes_it(length: int, data: st.DataObject) -> None:
    array = noise(length)
    before = checksum(array)
    array[data.draw(st.integers(0, length - 1))] ^= data.draw(st.integers(1, 255))
    assert checksum(array) != before


@given(st.integers(2, 6), st.data())
def test_pages_and_words_that_change_places_change_it(count: int, data: st.DataObject) -> None:
    array = noise(count * PAGE, seed=count)
    first, second = data.draw(st.lists(st.integers(0, count - 1), min_size=2, max_size=2, unique=True))
    pages = array.reshape(count, PAGE).copy()
    pages[[first, second]] = pages[[second, first]]
    assert checksum(pages.reshape(-1)) != checksum(array)
    words = array.view(np.uint64).copy()
    words[[first, 500 + second]] = words[[500 + second, first]]
    assert checksum(words.view(np.uint8)) != checksum(array)


@given(LENGTHS)
def test_zeros_of_another_length_differ(length: int) -> None:
    assert checksum(np.zeros(length, np.uint8)) != checksum(np.zeros(length + 1, np.uint8))


def test_a_page_that_was_never_written_is_seen() -> None:
    array = noise(40 * PAGE)
    torn = array.copy()
    torn[7 * PAGE : 8 * PAGE] = 0
    assert checksum(torn) != checksum(array)


def test_large_objects_use_the_same_weights() -> None:
    # Past the table that is made at import: 16 MiB.
    array = np.ones(17 << 20, np.uint8)
    before = checksum(array)
    array[-1] = 2
    assert checksum(array) != before
    assert checksum(array[: 15 << 20]) != before


def test_it_is_the_same_in_every_process() -> None:
    code = (
        "import numpy as np; from twinlens.store.checksum import checksum; print(checksum(np.arange(9999) .view('u1')))"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert int(other.stdout) == checksum(np.arange(9999).view(np.uint8))
