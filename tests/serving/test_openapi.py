"""schemathesis against our own OpenAPI document, on a real service."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.serving.harness import Service


@pytest.mark.slow
def test_the_service_keeps_its_document(service: Service) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{service.url}/openapi.json"),
            *("--max-examples", "50", "--seed", "1", "--generation-database", "none", "--no-color"),
            # A well-formed body can still name a model or picture that is not there: a 4xx is no breach.
            *("--exclude-checks", "positive_data_acceptance"),
        ],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        cwd=service.folder,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "twinlens: error" not in service.log()
    assert "Traceback" not in service.log()
