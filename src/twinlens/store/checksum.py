"""A fast checksum against torn, stale and flipped memory. It is no protection against an attacker.

A weighted sum modulo 2**64: every 8-byte word counts with an odd weight by its place in its page of 4 KiB, every page
with an odd weight by its place in the object. So one changed word is always seen, and stale, missing or moved pages are
all but always; what can cancel is a pair of errors that touch nothing but the same few highest bits of their words.
Measured on the machine of docs/performance.md: 0.08 ms a megabyte, where
zlib.crc32 takes 0.4 ms and BLAKE3 0.3 ms; plain numpy sums take 0.04 ms and do not see words that changed places.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

PAGE = 4096
WORDS = PAGE // 8


def checksum(data: NDArray[np.uint8]) -> int:
    """Of a flat, contiguous array of bytes: 0 <= result < 2**64. Releases the GIL while it reads."""
    count = len(data) // PAGE
    sums = np.einsum("ij,j->i", data[: count * PAGE].view(np.uint64).reshape(-1, WORDS), _IN_PAGE)
    tail = np.zeros(PAGE, dtype=np.uint8)
    tail[: len(data) % PAGE] = data[count * PAGE :]
    last = int(np.einsum("i,i->", tail.view(np.uint64), _IN_PAGE))
    weights = _PAGES if count < len(_PAGES) else _weights(count + 1, seed=2)
    total = int(np.einsum("i,i->", sums, weights[:count])) + last * int(weights[count])
    return (total + len(data) * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF


def _weights(count: int, seed: int) -> NDArray[np.uint64]:
    """Odd pseudo-random numbers (the finalizer of splitmix64 over the place), the same in every process."""
    mixed = (np.arange(1, count + 1, dtype=np.uint64) + np.uint64(seed << 40)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    odd: NDArray[np.uint64] = (mixed ^ (mixed >> np.uint64(31))) | np.uint64(1)
    return odd


_IN_PAGE = _weights(WORDS, seed=1)
_PAGES = _weights(4096, seed=2)  # made once for objects up to 16 MiB
