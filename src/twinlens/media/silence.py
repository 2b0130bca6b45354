"""Libraries below Pillow that write to standard error of their own accord, past every log."""

from __future__ import annotations

import contextlib
import ctypes

from PIL import _imaging


def libtiff() -> None:
    """Take libtiff's handlers of warnings and errors away; what fails is raised by Pillow all the same.

    They write a line for each fault of a client's file, with the client's words in it, and the operator can do nothing
    about it. Where Pillow was linked in another way nothing is changed.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(_imaging.__file__)  # loaded already; its dependencies are searched too
        for name in ("TIFFSetErrorHandler", "TIFFSetWarningHandler"):
            handler = getattr(library, name)
            handler.argtypes, handler.restype = [ctypes.c_void_p], ctypes.c_void_p
            handler(None)
