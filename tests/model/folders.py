"""Small model folders, made on the spot: everything a checkpoint has, with weights of a few bytes."""

from __future__ import annotations

import json
import struct
from functools import cache
from typing import TYPE_CHECKING, Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

if TYPE_CHECKING:
    from pathlib import Path

SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)

# As the three families are published; the sizes of pictures follow from these alone.
PROCESSORS: dict[str, dict[str, Any]] = {
    "qwen2_vl": {
        "image_processor_type": "Qwen2VLImageProcessor",
        "min_pixels": 3136,
        "max_pixels": 12845056,
        "patch_size": 14,
        "temporal_patch_size": 2,
        "merge_size": 2,
    },
    "qwen2_5_vl": {
        "image_processor_type": "Qwen2VLImageProcessor",
        "min_pixels": 3136,
        "max_pixels": 12845056,
        "patch_size": 14,
        "temporal_patch_size": 2,
        "merge_size": 2,
    },
    "qwen3_vl": {
        "image_processor_type": "Qwen2VLImageProcessorFast",
        "size": {"shortest_edge": 65536, "longest_edge": 16777216},
        "patch_size": 16,
        "temporal_patch_size": 2,
        "merge_size": 2,
    },
}

_TURN = """<|im_start|>{{ m.role }}{{ newline }}
{%- if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}
{%- if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part.text }}{% endif %}
{%- endfor %}{% endif -%}"""

PLAIN_TEMPLATE = (
    r"{%- set newline = '\n' -%}"
    "{%- for m in messages -%}"
    "{%- if loop.first and m.role != 'system' %}<|im_start|>system{{ newline }}Be helpful.<|im_end|>{{ newline }}"
    "{%- endif -%}" + _TURN + "<|im_end|>{{ newline }}{%- endfor -%}"
    "{%- if add_generation_prompt %}<|im_start|>assistant{{ newline }}{%- endif -%}"
)

TOOL_TEMPLATE = (
    r"{%- set newline = '\n' -%}"
    "{%- if tools %}<|im_start|>system{{ newline }}Tools: {{ tools | tojson }}<|im_end|>{{ newline }}{% endif -%}"
    "{%- for m in messages -%}"
    "{%- if m.role == 'system' and not loop.first %}{{ raise_exception('System message must be first.') }}{% endif -%}"
    + _TURN
    + "{%- for call in m.tool_calls %}<tool_call>"
    "{{ {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}</tool_call>{% endfor -%}"
    "<|im_end|>{{ newline }}{% endfor -%}"
    "{%- if add_generation_prompt %}<|im_start|>assistant{{ newline }}{%- endif -%}"
)

IR_PARTS = (
    "openvino_language_model",
    "openvino_text_embeddings_model",
    "openvino_vision_embeddings_model",
    "openvino_vision_embeddings_merger_model",
    "openvino_tokenizer",
    "openvino_detokenizer",
)


@cache
def tokenizer_json() -> str:
    """A byte-level BPE as Qwen's, trained on a few lines; special tokens from id 300 or so on."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(["What is in the picture?", "The picture shows a red square."], trainer)
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in SPECIAL])
    return str(tokenizer.to_str())


def safetensors(tensors: dict[str, bytes]) -> bytes:
    """A safetensors file with these tensors as U8 vectors."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, data in tensors.items():
        header[name] = {"dtype": "U8", "shape": [len(data)], "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(tensors.values())


def config(family: str, *, nested: bool = False, context: int = 4096) -> dict[str, Any]:
    """config.json as old (flat) or new (nested) transformers write it."""
    text = {"max_position_embeddings": context, "hidden_size": 8}
    return {"model_type": family, "text_config": text} if nested else {"model_type": family, **text}


def make_folder(
    folder: Path,
    *,
    family: str = "qwen2_vl",
    form: str = "safetensors",
    processor: dict[str, Any] | None = None,
    template: str = PLAIN_TEMPLATE,
    nested: bool = False,
) -> Path:
    """A complete model folder at `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config(family, nested=nested)))
    (folder / "preprocessor_config.json").write_text(json.dumps(processor or PROCESSORS[family]))
    (folder / "tokenizer.json").write_text(tokenizer_json())
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
    (folder / "chat_template.jinja").write_text(template)
    if form == "safetensors":
        (folder / "model.safetensors").write_bytes(safetensors({"a": b"12345678", "b": b"87654321"}))
    else:
        for part in IR_PARTS:
            (folder / f"{part}.xml").write_text("<net/>")
            (folder / f"{part}.bin").write_bytes(b"weights of " + part.encode())
    return folder
