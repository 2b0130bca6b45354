from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests.model.folders import PROCESSORS, config, make_folder, safetensors
from twinlens.errors import ModelError
from twinlens.model import checkpoint, weights
from twinlens.model.pictures import PictureRule

if TYPE_CHECKING:
    from pathlib import Path


def refusal(folder: Path) -> str:
    with pytest.raises(ModelError) as caught:
        checkpoint.read(folder)
    assert caught.value.cure
    return caught.value.message


@pytest.mark.parametrize("family", sorted(PROCESSORS))
@pytest.mark.parametrize("form", ["safetensors", "openvino"])
@pytest.mark.parametrize("nested", [False, True])
def test_reads_every_family_form_and_layout(tmp_path: Path, family: str, form: str, nested: bool) -> None:
    found = checkpoint.read(make_folder(tmp_path / "my-model", family=family, form=form, nested=nested))
    assert (found.family, found.form, found.name, found.context) == (family, form, "my-model", 4096)
    assert found.rule.factor == (32 if family == "qwen3_vl" else 28)
    assert len(bytes.fromhex(found.weights_id)) == 32
    assert "<|image_pad|>" in found.words().special_tokens


@pytest.mark.parametrize(
    ("processor", "bounds"),
    [
        ({"min_pixels": 784, "max_pixels": 78400}, (784, 78400)),
        ({"size": {"shortest_edge": 784, "longest_edge": 78400}}, (784, 78400)),
        ({"min_pixels": 784, "size": {"shortest_edge": 1, "longest_edge": 78400}}, (784, 78400)),
        ({}, (3136, 1003520)),
        ({"min_pixels": None, "max_pixels": None, "size": None}, (3136, 1003520)),
        ({"size": {"min_pixels": 5, "max_pixels": 6}}, (3136, 1003520)),
    ],
)
def test_bounds_are_found_where_the_processors_look_for_them(
    tmp_path: Path, processor: dict[str, Any], bounds: tuple[int, int]
) -> None:
    processor = {"patch_size": 14, **processor}
    rule = checkpoint.read(make_folder(tmp_path, processor=processor)).rule
    assert rule == PictureRule(14, 2, 2, *bounds)


def test_processor_settings_of_newer_exports(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, family="qwen3_vl")
    inner = (folder / "preprocessor_config.json").read_text()
    (folder / "preprocessor_config.json").unlink()
    (folder / "processor_config.json").write_text(json.dumps({"image_processor": json.loads(inner)}))
    assert checkpoint.read(folder).rule.max_pixels == 16777216


@pytest.mark.parametrize(
    "processor",
    [{"min_pixels": "many"}, {"patch_size": 14.5}, {"min_pixels": 800, "max_pixels": 900}, {"merge_size": -1}],
)
def test_unusable_processor_settings_are_named(tmp_path: Path, processor: dict[str, Any]) -> None:
    assert "preprocessor_config.json" in refusal(make_folder(tmp_path, processor=processor))


@pytest.mark.parametrize("name", ["config.json", "preprocessor_config.json", "chat_template.jinja"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    folder = make_folder(tmp_path)
    (folder / name).unlink()
    assert name in refusal(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", '"x"', "\xff"])
def test_a_damaged_config_is_named(tmp_path: Path, text: str) -> None:
    folder = make_folder(tmp_path)
    (folder / "config.json").write_bytes(text.encode("latin-1"))
    assert "config.json" in refusal(folder)


def test_a_missing_folder_and_an_empty_one(tmp_path: Path) -> None:
    assert "no model folder" in refusal(tmp_path / "nowhere")
    assert "empty" in refusal(tmp_path)


def test_a_gguf_folder_is_called_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "qwen2-vl-q4.gguf").write_bytes(b"GGUF")
    assert "GGUF" in refusal(tmp_path)


@pytest.mark.parametrize("kind", ["llava", "qwen2", "qwen3_vl_moe", None, 7])
def test_another_architecture_is_named(tmp_path: Path, kind: Any) -> None:
    folder = make_folder(tmp_path)
    (folder / "config.json").write_text(json.dumps({**config("qwen2_vl"), "model_type": kind}))
    assert (f"“{kind}”" if isinstance(kind, str) else "unnamed") in refusal(folder)


@pytest.mark.parametrize("value", [None, 0, "32768"])
def test_a_context_that_is_not_said(tmp_path: Path, value: Any) -> None:
    folder = make_folder(tmp_path)
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen2_vl", "max_position_embeddings": value}))
    assert "max_position_embeddings" in refusal(folder)


def sharded(folder: Path, names: tuple[str, ...] = ("one.safetensors", "two.safetensors")) -> Path:
    make_folder(folder)
    (folder / "model.safetensors").unlink()
    for number, name in enumerate(names):
        (folder / name).write_bytes(safetensors({f"t{number}": b"12345678"}))
    index = {"weight_map": {f"t{number}": name for number, name in enumerate(names)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = sharded(tmp_path)
    assert checkpoint.read(folder).form == "safetensors"
    (folder / "two.safetensors").unlink()
    assert "two.safetensors" in refusal(folder)


def test_shards_without_their_index(tmp_path: Path) -> None:
    folder = sharded(tmp_path, ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"))
    (folder / "model.safetensors.index.json").unlink()
    assert "index" in refusal(folder)


@pytest.mark.parametrize("index", ["[]", "{}", '{"weight_map": {}}', '{"weight_map": {"a": "../x.safetensors"}}', "{"])
def test_an_index_that_is_none(tmp_path: Path, index: str) -> None:
    folder = sharded(tmp_path)
    (folder / "model.safetensors.index.json").write_text(index)
    assert "model.safetensors.index.json" in refusal(folder)


@pytest.mark.parametrize("keep", [0, 4, 8, 40, -1])
def test_a_cut_off_shard_is_named(tmp_path: Path, keep: int) -> None:
    folder = make_folder(tmp_path)
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    assert "model.safetensors" in refusal(folder)


def test_a_git_lfs_pointer_is_no_weight(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    assert "Git LFS" in refusal(folder)
    folder = make_folder(tmp_path / "ir", form="openvino")
    (folder / "openvino_language_model.bin").write_text("version https://git-lfs.github.com/spec/v1\n")
    assert "Git LFS" in refusal(folder)


@pytest.mark.parametrize("name", ["openvino_language_model.bin", "openvino_detokenizer.xml", "openvino_tokenizer.xml"])
def test_a_missing_part_of_an_export_is_named(tmp_path: Path, name: str) -> None:
    folder = make_folder(tmp_path, form="openvino")
    (folder / name).unlink()
    assert name in refusal(folder)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.onnx"])
def test_other_forms_of_weights_are_named(tmp_path: Path, name: str) -> None:
    folder = make_folder(tmp_path)
    (folder / "model.safetensors").unlink()
    assert "no weights" in refusal(folder)
    (folder / name).write_bytes(b"x")
    assert name in refusal(folder)


def test_two_models_never_share_an_identity(tmp_path: Path) -> None:
    first = make_folder(tmp_path / "a")
    same = tmp_path / "b"
    shutil.copytree(first, same)
    base = checkpoint.read(first)
    assert checkpoint.read(same).weights_id == base.weights_id
    assert checkpoint.read(first, revision="v2").weights_id != base.weights_id
    # a fine-tune: same configuration, same headers, other numbers
    (same / "model.safetensors").write_bytes(safetensors({"a": b"12345678", "b": b"87654320"}))
    assert checkpoint.read(same).weights_id != base.weights_id
    shutil.copy(first / "model.safetensors", same)
    (same / "config.json").write_text(json.dumps({**config("qwen2_vl"), "hidden_act": "gelu"}))
    assert checkpoint.read(same).weights_id != base.weights_id


@pytest.mark.parametrize("form", ["safetensors", "openvino"])
def test_large_files_are_told_apart_by_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setattr(weights, "WHOLE", 16)
    folder = make_folder(tmp_path, form=form)
    before = checkpoint.read(folder).weights_id
    if form == "safetensors":
        (folder / "model.safetensors").write_bytes(safetensors({"a": b"12345678", "b": b"87654320"}))
    else:
        (folder / "openvino_vision_embeddings_model.bin").write_bytes(b"another fine-tune of just this size ")
    assert checkpoint.read(folder).weights_id != before


def test_names(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--Qwen--Qwen2-VL-2B-Instruct" / "snapshots" / "0123abc"
    assert checkpoint.read(make_folder(snapshot)).name == "Qwen2-VL-2B-Instruct"
    assert checkpoint.read(snapshot, served_name="mine").name == "mine"
