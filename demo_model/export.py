# ruff: noqa: PLC0415  (heavy libraries are imported where they are needed)
"""Turn trained weights into the two forms that ship: a safetensors checkpoint and OpenVINO IR with int8 weights.

    python -m demo_model.export WEIGHTS.safetensors TOKENIZER_DIR OUT_DIR

Runs in an environment of its own (transformers below 5, optimum-intel, nncf, openvino-tokenizers): it is a build
step of this repository, never a dependency of the package. See requirements-export.txt.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from pathlib import Path

from demo_model.architecture import generation_config, model_config, preprocessor_config

TOKENIZER_FILES = (
    "tokenizer.json",
    "vocab.json",
    "merges.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
)


def define_missing_vision_operators() -> None:
    """Let torchvision from PyPI import beside a CPU-only torch: its compiled operators are not registered there."""
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for schema in (
        "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
        "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    ):
        with contextlib.suppress(RuntimeError):  # a torchvision whose operators did load
            library.define(schema)
    # A library that is collected takes its operators along.
    globals()["_operators"] = library


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def to_safetensors(weights: Path, tokenizer: Path, folder: Path) -> None:
    """The checkpoint: bf16 weights under the published Qwen2-VL names, and everything readers look for beside them."""
    import torch
    from safetensors.torch import load_file, save_file

    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in load_file(weights).items()}
    tensors.pop("lm_head.weight", None)  # tied to the embedding
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    write_json(folder / "config.json", model_config())
    write_json(folder / "generation_config.json", generation_config())
    write_json(folder / "preprocessor_config.json", preprocessor_config())
    for name in TOKENIZER_FILES:
        shutil.copyfile(tokenizer / name, folder / name)


def to_openvino(checkpoint: Path, folder: Path) -> None:
    """Int8 weights in every part; activations stay in floating point."""
    define_missing_vision_operators()
    import openvino
    from openvino_tokenizers import convert_tokenizer
    from optimum.intel import OVModelForVisualCausalLM, OVWeightQuantizationConfig
    from transformers import AutoTokenizer

    if folder.exists():
        shutil.rmtree(folder)
    model = OVModelForVisualCausalLM.from_pretrained(
        checkpoint, export=True, compile=False, quantization_config=OVWeightQuantizationConfig(bits=8, sym=False)
    )
    model.save_pretrained(folder)
    (folder / "openvino_config.json").unlink(missing_ok=True)  # names this machine's folders, and no runtime reads it
    converted = convert_tokenizer(
        AutoTokenizer.from_pretrained(checkpoint), with_detokenizer=True, skip_special_tokens=True
    )
    for part, name in zip(converted, ("openvino_tokenizer.xml", "openvino_detokenizer.xml"), strict=True):
        openvino.save_model(part, folder / name)
    write_json(folder / "config.json", model_config())
    write_json(folder / "generation_config.json", generation_config())
    write_json(folder / "preprocessor_config.json", preprocessor_config())
    for name in TOKENIZER_FILES:
        shutil.copyfile(checkpoint / name, folder / name)


def megabytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def main() -> None:
    weights, tokenizer, out = (Path(argument) for argument in sys.argv[1:4])
    to_safetensors(weights, tokenizer, out / "safetensors")
    to_openvino(out / "safetensors", out / "openvino")
    for form in ("safetensors", "openvino"):
        print(f"{form}: {megabytes(out / form):.2f} MB")


if __name__ == "__main__":
    main()
