"""A service with nothing but a keys file asks itself its first question; nobody else gets in by that."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.serving.harness import picture, serving, until
from tests.serving.test_keys import new_key

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

LOGGED = re.compile(r"\d{4}-\d\d-\d\d [\d:,]{12} [A-Z]+ .*\n")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_first_question_is_answered_with_a_keys_file_alone(tmp_path: Path, workers: str) -> None:
    (tmp_path / "a.png").write_bytes(picture(9))
    new_key(tmp_path, "lab", "chat")
    flags = ("--ask", str(tmp_path / "a.png"), "say it works", "--workers", workers)
    with serving(*flags, folder=tmp_path) as service:
        # The workers' log lines may stand between the pieces of the answer.
        until(lambda: "it works\n" in LOGGED.sub("", service.log()).partition("say it works\n")[2], 60)
        assert "No answer" not in service.log()
        assert "bearer" in service.log().lower()  # the line to try it tells of the key
        assert service.http.get("/v1/models").status_code == 401
