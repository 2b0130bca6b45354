"""The worked-out plan: engines that exist, what an engine's process is told, and what it must not know."""

from __future__ import annotations

import json
import os
import shutil
import sys
from typing import TYPE_CHECKING

import pytest

from tests.models import model_folder
from twinlens.errors import ModelError, SettingsError
from twinlens.settings import Settings
from twinlens.supervisor.children import Child, Command
from twinlens.supervisor.plan import engine_command, work_out
from twinlens.supervisor.runfolder import RunFolder

if TYPE_CHECKING:
    from pathlib import Path


def settings(**more: object) -> Settings:
    return Settings(model=str(model_folder()), **more)  # type: ignore[arg-type]


def test_an_engine_that_cannot_be_started_here_is_said_to_and_how_to_attach_it(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot start “vllm” itself yet") as caught:
        work_out(settings(engine="vllm"), RunFolder(tmp_path / "r"))
    assert "--engine-url" in caught.value.cure


def test_attached_it_is_taken(tmp_path: Path) -> None:
    plan = work_out(settings(engine="vllm", engine_url="http://127.0.0.1:8001/v1"), RunFolder(tmp_path / "r"))
    assert (plan.attached, plan.engine.url) == (True, "http://127.0.0.1:8001")


def test_an_unknown_engine_is_named_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="“vlm” is not one of openvino, fake"):
        work_out(settings(engine="vlm"), RunFolder(tmp_path / "r"))


def test_safetensors_without_vllm_names_both_cures(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(model_folder(), folder)
    for path in folder.glob("openvino_*"):
        path.unlink()
    if not (folder / "model.safetensors").exists():
        header = b"{}"
        (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(ModelError, match="holds safetensors") as caught:
        work_out(Settings(model=str(folder)), RunFolder(tmp_path / "r"))
    assert "optimum-cli export openvino" in caught.value.cure
    assert "--engine-url" in caught.value.cure
    assert "--engine vllm" not in caught.value.cure  # which this build refuses


def test_the_engine_is_told_no_secrets(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "r")
    plan = work_out(settings(engine="fake", api_keys=("hidden",), engine_api_key="hidden too"), folder)
    orders = engine_command(plan, folder).orders
    assert b"hidden" not in orders
    assert json.loads(orders)["model"] == str(model_folder())


async def test_children_get_no_settings_by_their_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TWINLENS_API_KEYS", "hidden")
    monkeypatch.setenv("OTHER", "stays")
    script = "import os; print(sorted(key for key in os.environ if key.startswith(('TWINLENS_', 'OTHER', 'MORE'))))"
    child = await Child.start(Command("child", (sys.executable, "-c", script), b"", {"MORE": "1"}, piped=True))
    await child.wait()
    assert "['MORE', 'OTHER']" in capsys.readouterr().err
    assert os.environ["TWINLENS_API_KEYS"] == "hidden"
