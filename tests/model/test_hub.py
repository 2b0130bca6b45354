from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.model.fake_hub import FakeHub, running
from tests.model.folders import make_folder
from twinlens.errors import ModelError
from twinlens.model import checkpoint, hub
from twinlens.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
CLOSED = "http://127.0.0.1:9"  # the discard port: nothing listens


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeHub]:
    folder = make_folder(tmp_path / "origin")
    (folder / "model-q4.gguf").write_bytes(b"GGUF")
    (folder / "README.md").write_text("card")
    with running() as served:
        served.repos["org/tiny-vl"] = folder
        yield served


class Client:
    """Runs the real loading code in a process of its own, with a cache of its own."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache

    def find(
        self, model: str, endpoint: str, name: str = "huggingface", revision: str = "", **more: str
    ) -> dict[str, str]:
        variables = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "MODELSCOPE_"))}
        variables |= {
            "HF_ENDPOINT": endpoint,
            "HF_HOME": str(self.cache / "hf"),
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "MODELSCOPE_ENDPOINT": endpoint,
            "MODELSCOPE_CACHE": str(self.cache / "ms"),
            "HOME": str(self.cache),
            **more,
        }
        done = subprocess.run(
            [sys.executable, "-m", "tests.model.find_model", model, name, revision],
            env=variables, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
        return found


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return Client(tmp_path / "cache")


def test_a_hub_id_is_downloaded_and_served_from_the_cache_afterwards(fake: FakeHub, client: Client) -> None:
    found = client.find("org/tiny-vl", fake.url)
    read = checkpoint.read(Path(found["folder"]))
    assert (read.name, read.form) == ("tiny-vl", "safetensors")
    assert not list(Path(found["folder"]).glob("*.gguf"))
    assert not any("gguf" in path or "README" in path for path in fake.asked)
    files = [path for path in fake.asked if path.endswith("model.safetensors")]
    assert files
    # offline, with the switch, and with a hub that is gone: what is there is enough
    fake.asked.clear()
    assert client.find("org/tiny-vl", fake.url, HF_HUB_OFFLINE="1") == found
    assert fake.asked == []
    assert client.find("org/tiny-vl", CLOSED) == found


def test_a_revision_and_a_token_are_passed_on(fake: FakeHub, client: Client) -> None:
    assert "folder" in client.find("org/tiny-vl", fake.url, revision="v2", HF_TOKEN="hf_secret")
    assert "Bearer hf_secret" in fake.tokens
    assert any(path.endswith("/revision/v2") for path in fake.asked)
    refused = client.find("org/tiny-vl", fake.url, revision="v3")
    assert "no revision “v3”" in refused["message"]


def test_a_model_that_is_not_there(fake: FakeHub, client: Client) -> None:
    refused = client.find("org/nothing", fake.url)
    assert refused["message"] == f"There is no model org/nothing at {fake.url}."
    assert "HF_TOKEN" in refused["cure"]


def test_a_gated_model(fake: FakeHub, client: Client) -> None:
    fake.gated.add("org/tiny-vl")
    refused = client.find("org/tiny-vl", fake.url)
    assert "gated" in refused["message"]
    assert "HF_TOKEN" in refused["cure"]


def test_the_offline_switch_without_a_cached_model(fake: FakeHub, client: Client) -> None:
    refused = client.find("org/tiny-vl", fake.url, HF_HUB_OFFLINE="1")
    assert "HF_HUB_OFFLINE" in refused["message"]
    assert fake.asked == []


def test_a_network_that_is_down(client: Client) -> None:
    refused = client.find("org/tiny-vl", CLOSED)
    assert "does not answer" in refused["message"]
    assert "network" in refused["cure"]


@pytest.mark.slow
def test_a_hub_that_fails(fake: FakeHub, client: Client) -> None:
    fake.broken = True
    assert "message" in client.find("org/tiny-vl", fake.url)


def test_a_file_that_is_listed_and_missing(fake: FakeHub, client: Client) -> None:
    fake.hidden.add("model.safetensors")
    refused = client.find("org/tiny-vl", fake.url)
    assert refused["message"] == f"Downloading org/tiny-vl from {fake.url} failed."


def test_a_repository_without_what_a_model_needs(fake: FakeHub, client: Client) -> None:
    (fake.repos["org/tiny-vl"] / "preprocessor_config.json").unlink()
    found = client.find("org/tiny-vl", fake.url)
    with pytest.raises(ModelError, match=r"preprocessor_config\.json"):
        checkpoint.read(Path(found["folder"]))


def test_a_cache_that_cannot_be_written(fake: FakeHub, client: Client, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    refused = client.find("org/tiny-vl", fake.url, HF_HOME=str(tmp_path / "file"))
    assert "message" in refused


def test_modelscope_without_its_client(fake: FakeHub, client: Client) -> None:
    if importlib.util.find_spec("modelscope"):
        pytest.skip("the client is installed: see the next tests")
    refused = client.find("org/tiny-vl", fake.url, "modelscope")
    assert refused["cure"] == "pip install 'twinlens[modelscope]'"


@pytest.mark.slow
def test_modelscope(fake: FakeHub, client: Client) -> None:
    pytest.importorskip("modelscope")
    found = client.find("org/tiny-vl", fake.url, "modelscope")
    read = checkpoint.read(Path(found["folder"]))
    assert (read.name, read.form) == ("tiny-vl", "safetensors")
    assert not list(Path(found["folder"]).glob("*.gguf"))
    assert "folder" in client.find("org/tiny-vl", fake.url, "modelscope", revision="v2")
    assert "no model org/nothing" in client.find("org/nothing", fake.url, "modelscope")["message"]
    assert "no model" in client.find("org/tiny-vl", fake.url, "modelscope", revision="v3")["message"]
    # what is there is enough when the hub is gone, and nothing else is
    assert client.find("org/tiny-vl", CLOSED, "modelscope") == found
    assert client.find("org/tiny-vl", CLOSED, "modelscope", revision="v2") != found
    assert "ModelScope failed" in client.find("org/tiny-vl", CLOSED, "modelscope", revision="v4")["message"]


@pytest.mark.slow
def test_a_hub_modelscope_that_fails_is_served_from_the_cache(fake: FakeHub, client: Client) -> None:
    pytest.importorskip("modelscope")
    found = client.find("org/tiny-vl", fake.url, "modelscope")
    fake.broken = True
    assert client.find("org/tiny-vl", fake.url, "modelscope") == found
    fake.broken = False
    fake.hidden.add("more.safetensors")  # a file that is listed and not there is no fault of the network
    (fake.repos["org/tiny-vl"] / "more.safetensors").write_bytes(b"new")
    assert "ModelScope failed" in client.find("org/tiny-vl", fake.url, "modelscope")["message"]


@pytest.mark.slow
def test_a_cache_of_modelscope_that_cannot_be_written(fake: FakeHub, client: Client, tmp_path: Path) -> None:
    pytest.importorskip("modelscope")
    (tmp_path / "file").write_text("in the way")
    refused = client.find("org/tiny-vl", fake.url, "modelscope", MODELSCOPE_CACHE=str(tmp_path / "file"))
    assert "MODELSCOPE_CACHE" in refused["cure"]


@pytest.mark.slow
def test_modelscope_with_the_network_down(client: Client) -> None:
    pytest.importorskip("modelscope")
    assert "ModelScope failed" in client.find("org/tiny-vl", CLOSED, "modelscope")["message"]


def test_an_unknown_hub() -> None:
    with pytest.raises(ModelError, match="wherever"):
        hub.find("org/name", Settings(hub="wherever"))


@pytest.mark.parametrize(
    "model", ["gpt2", "a/b/c", "", "/no/such/folder", "./nothing", "~/nothing", "../x/y", "org/na me", "-x/y"]
)
def test_what_is_neither_a_folder_nor_an_id(model: str) -> None:
    with pytest.raises(ModelError, match="neither a folder nor a hub id"):
        hub.find(model, Settings())


def test_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_folder(tmp_path / "org" / "name")
    assert hub.find(str(folder), Settings()) == folder
    monkeypatch.chdir(tmp_path)
    assert hub.find("org/name", Settings()) == folder  # a folder that is there beats a hub id
    with pytest.raises(ModelError, match="is a file"):
        hub.find(str(folder / "config.json"), Settings())


def test_the_demo_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(hub, "__file__", str(tmp_path / "twinlens" / "model" / "hub.py"))
    with pytest.raises(ModelError, match="no demo model in its openvino form"):
        hub.find("demo", Settings())
    for form in ("openvino", "safetensors"):
        make_folder(tmp_path / "twinlens" / "demo" / form, form=form)
    assert hub.find("demo", Settings()).name == "openvino"
    assert hub.find("demo", Settings(), form="safetensors").name == "safetensors"
