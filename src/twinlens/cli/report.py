"""A bug's report: short, fit to be pasted, in a file that is named."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from twinlens import __version__
from twinlens.settings import data_dir

if TYPE_CHECKING:
    from collections.abc import Sequence


def written(error: Exception, argv: Sequence[str]) -> str:
    """Write the report; returns what to tell the user."""
    said = f"twinlens: This is a bug: {type(error).__name__}.\n"
    text = content(error, argv)
    for folder in (data_dir() / "reports", Path(tempfile.gettempdir())):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = folder / f"twinlens-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}.txt"
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError:
            continue
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        return f"{said}The report to send with it: {path}\n"
    return said + text


def content(error: Exception, argv: Sequence[str]) -> str:
    """Version, Python, system, command and traceback. Words of the command are left out: they may be private."""
    command = " ".join(_shown(word) for word in argv)
    trace = "".join(traceback.format_exception(error))
    return (
        f"twinlens {__version__}\npython {sys.version.split()[0]}\nsystem {platform.platform()}\n"
        f"command twinlens {command}\n\n{trace}"
    )


def _shown(word: str) -> str:
    if word.startswith("--"):
        return word.partition("=")[0]
    return word if word in ("serve", "ask", "batch", "config", "store", "show", "clear") else "…"
