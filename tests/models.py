"""The one place that says which model the tests use."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from twinlens.errors import ModelError
from twinlens.model import hub

# Random weights in the same form, for a working tree that has no demo model yet.
STAND_IN = Path(tempfile.gettempdir()) / "tl" / "random_model" / "openvino"


def model_folder() -> Path:
    """A small Qwen2-VL in its OpenVINO form; tests assert behaviour, not what its answers say."""
    try:
        return hub.demo_folder("openvino")
    except ModelError:
        if not (STAND_IN / "config.json").is_file():
            pytest.skip("there is no demo model in this working tree")
        return STAND_IN
