"""One store, several services: the same model finds what was decoded before, another model never does."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.models import model_folder
from tests.serving.harness import image_part, serving

if TYPE_CHECKING:
    from pathlib import Path

    from tests.serving.harness import Service

pytestmark = pytest.mark.slow


def objects(service: Service) -> set[str]:
    """Names of the published objects."""
    return {path.name for path in (service.folder / "store" / "objects").rglob("*") if path.is_file()}


def test_cache_08_two_models_never_share_an_object_and_one_model_does(tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(model_folder(), other)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "twinlens_test": "another revision"}))

    with serving(folder=tmp_path) as first:
        first.chat("x", image_part(1))
        mine = objects(first)
    with serving(model=str(other), folder=tmp_path) as second:
        second.chat("x", image_part(1))
        theirs = objects(second) - mine
    assert mine
    assert theirs
    with serving(folder=tmp_path) as again:
        again.chat("x", image_part(1))
        assert objects(again) == mine | theirs


def test_tampered_objects_are_never_believed(tmp_path: Path) -> None:
    with serving(folder=tmp_path) as service:
        service.chat("x", image_part(2))
        for path in (tmp_path / "store" / "objects").rglob("*"):
            if path.is_file():
                path.write_bytes(b"\0" * path.stat().st_size)
        assert service.chat("x", image_part(2)).status_code == 200
