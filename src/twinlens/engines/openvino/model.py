"""A model in OpenVINO's form, loaded: the pipeline, and what its files say about sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import openvino as ov
import openvino_genai as genai

from twinlens.cores import usable
from twinlens.engines.openvino.text import Vocabulary
from twinlens.errors import ModelError

if TYPE_CHECKING:
    from pathlib import Path

    from twinlens.model.checkpoint import Checkpoint
    from twinlens.settings import Settings

BLOCK = 32  # tokens in a block of the KV cache on a CPU
STEP_TOKENS = 256  # most tokens of one step: longer prompts go in parts, between which answers go on
GB = 1 << 30


class Model:
    """The pipeline of one checkpoint. Raises ModelError when OpenVINO cannot load it."""

    def __init__(self, checkpoint: Checkpoint, settings: Settings) -> None:
        self.checkpoint = checkpoint
        self.blocks = _blocks(checkpoint, settings)
        config = genai.SchedulerConfig()
        config.num_kv_blocks = self.blocks
        config.max_num_seqs = settings.max_num_seqs
        config.max_num_batched_tokens = STEP_TOKENS
        config.dynamic_split_fuse = True
        config.enable_prefix_caching = True
        properties = {"INFERENCE_NUM_THREADS": settings.engine_threads or usable()}
        try:
            self.pipeline = genai.ContinuousBatchingPipeline(str(checkpoint.folder), config, "CPU", properties)
            self.width = _width(checkpoint.folder)
        except RuntimeError as error:
            raise ModelError(
                f"OpenVINO cannot load {checkpoint.folder}.", cure="Export the model again with this version."
            ) from error
        self.tokenizer = self.pipeline.get_tokenizer()
        self.defaults = self.pipeline.get_config()
        self.words = checkpoint.words()
        self.vocabulary = Vocabulary(self.tokenizer.get_vocab(), self.words.special_tokens)

    def need(self, tokens: int) -> int:
        """Blocks that a sequence of so many tokens takes at most."""
        return -(-tokens // BLOCK) + 1


def _blocks(checkpoint: Checkpoint, settings: Settings) -> int:
    """Blocks that fit into the memory given, but no more than all sequences at their longest could fill."""
    config = _language(checkpoint.folder)
    heads = config["num_attention_heads"]
    size = config.get("head_dim") or config["hidden_size"] // heads
    pairs = config["num_hidden_layers"] * (config.get("num_key_value_heads") or heads)
    # 8-bit values; keys have scale and zero point for each channel of a block, values for each token.
    block = pairs * (BLOCK * size + 8 * size + BLOCK * (size + 8))
    longest = -(-checkpoint.context // BLOCK) + 1
    return min(max(int(settings.kv_cache_gb * GB / block), 2), settings.max_num_seqs * longest)


def _language(folder: Path) -> dict[str, Any]:
    config = msgspec.json.decode((folder / "config.json").read_bytes(), type=dict[str, Any])
    nested = config.get("text_config")
    return {**config, **nested} if isinstance(nested, dict) else config


def _width(folder: Path) -> int:
    """Logits of a token; may be more than the vocabulary."""
    language = ov.Core().read_model(folder / "openvino_language_model.xml")
    return int(language.output("logits").partial_shape[-1].get_length())
