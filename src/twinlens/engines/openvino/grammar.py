"""Compiles a JSON schema's grammar before the pipeline sees it.

The pipeline compiles a grammar inside a step, where a failure would take every running answer with it. So each
schema is tried first in a scratch pipeline: a model that is one constant, with the same tokenizer. It also shares the
compiler's cache, so the step finds the grammar ready. The compiler's messages hold paths and are never passed on.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import openvino as ov
import openvino_genai as genai

from twinlens.engines.openvino import ebnf, unheld
from twinlens.engines.openvino.constant import constant_model
from twinlens.engines.openvino.means import Means, invalid

if TYPE_CHECKING:
    from twinlens.engines import wire

MAX_SCHEMA = 64 << 10  # bytes
KNOWN = 256  # schemas remembered as good


def wanted_schema(chat: wire.Chat) -> Any:
    """The schema that the answer is held to; None for free text. Raises InvalidSchema when it would cost too
    much, or when no grammar would hold the answer to its shape."""
    wanted = chat.response_format
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return {"type": "object"}
    schema = wanted.json_schema.schema if wanted.json_schema is not None else None
    if schema is None:
        raise invalid("There is no schema.")
    afforded = Means().afford(schema)
    unheld.refuse(afforded)
    return afforded


class Grammar:
    """Compiles schemas. Not to be called while a step runs that meets a grammar for the first time."""

    def __init__(self, tokenizer: genai.Tokenizer, width: int) -> None:
        self._good: OrderedDict[bytes, genai.StructuredOutputConfig] = OrderedDict()
        xml, weights = constant_model(width)
        self._scratch = genai.LLMPipeline(
            xml, weights, tokenizer, "CPU", genai.GenerationConfig(), ATTENTION_BACKEND="SDPA", INFERENCE_NUM_THREADS=1
        )

    def compile(self, schema: Any) -> genai.StructuredOutputConfig:
        """What holds an answer to the schema. Raises InvalidSchema."""
        text = msgspec.json.encode(schema)
        if len(text) > MAX_SCHEMA:
            raise invalid(f"The schema is over {MAX_SCHEMA} bytes.")
        config = self._good.get(text) or self._compiled(schema, text.decode())
        self._good[text] = config
        self._good.move_to_end(text)
        if len(self._good) > KNOWN:
            self._good.popitem(last=False)
        return config

    def _compiled(self, schema: Any, text: str) -> genai.StructuredOutputConfig:
        ours = ebnf.grammar(schema)
        if ours is not None:
            with contextlib.suppress(RuntimeError):
                return self._tried(genai.StructuredOutputConfig(grammar=ours))
        try:
            return self._tried(genai.StructuredOutputConfig(json_schema=text))
        except RuntimeError as error:
            raise invalid(
                "The schema cannot be enforced: it asks for something that the grammar does not know, contradicts "
                "itself, or refers to something that is not there."
            ) from error

    def _tried(self, wanted: genai.StructuredOutputConfig) -> genai.StructuredOutputConfig:
        config = genai.GenerationConfig(max_new_tokens=1)
        config.apply_chat_template = False
        config.structured_output_config = wanted
        self._scratch.generate(ov.Tensor(np.zeros((1, 1), dtype=np.int64)), config)
        return wanted
