"""A store of its own for every test, on tmpfs where there is one."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from twinlens.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

SHM = Path("/dev/shm")


@pytest.fixture
def root() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="twinlens-test-", dir=SHM if SHM.is_dir() else None))
    yield folder / "store"
    shutil.rmtree(folder)


@pytest.fixture
def store(root: Path) -> Store:
    return Store(root, 8 << 20)
