"""A service with the fake engine and a task that answers with its variable."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.batch.harness import TASK
from tests.serving.harness import Service, serving

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("tasks")
    (folder / "words.toml").write_text(TASK)
    with serving("--tasks-dir", str(folder)) as running:
        yield running
