"""Memory that the allocator keeps of pictures that are gone."""

from __future__ import annotations

import contextlib
import ctypes


def give_back() -> None:
    """Return free memory to the system, from all threads' pools; takes milliseconds and belongs in a thread.

    Each thread's pool keeps as much as its largest picture took, because getting it anew costs more than half of a
    picture's decoding. That is right from one picture to the next and wrong for the life of a process. Where the C
    library is not glibc nothing happens.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
