"""The one place that says which model the tests use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinlens.model import hub

if TYPE_CHECKING:
    from pathlib import Path


def model_folder() -> Path:
    """The demo model in its OpenVINO form; most tests assert behaviour, not what its answers say."""
    return hub.demo_folder("openvino")
