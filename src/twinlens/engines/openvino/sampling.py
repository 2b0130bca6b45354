"""How an answer is drawn: from the wire to the pipeline's own configuration."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import openvino_genai as genai

from twinlens.errors import InvalidField, UnsupportedField

if TYPE_CHECKING:
    from twinlens.engines import wire

MAX_N = 8
MAX_STOPS = 16
MAX_STOP_CHARS = 256
GREEDY_BELOW = 1e-3  # a temperature so low draws the likeliest token anyway, and dividing by it overflows
SEED_STEP = 0x9E3779B9  # choices of one request draw from seeds far apart


def check(chat: wire.Chat) -> None:
    """Refuse what this engine cannot honour. Raises UnsupportedField or InvalidField naming the field."""
    if chat.tools:
        raise UnsupportedField("The embedded engine calls no tools.", param="tools")
    if chat.top_logprobs:
        raise UnsupportedField("The embedded engine gives no alternatives to a token.", param="top_logprobs")
    if chat.n > MAX_N:
        raise UnsupportedField(f"n is {chat.n}; this engine gives at most {MAX_N} answers to a request.", param="n")
    if chat.ignore_eos and chat.response_format is not None and chat.response_format.type != "text":
        raise InvalidField(
            "“ignore_eos” goes on after the end of the answer, and JSON has to end there: leave out one of the two.",
            param="ignore_eos",
        )
    if len(chat.stops) > MAX_STOPS or any(len(stop) > MAX_STOP_CHARS for stop in chat.stops):
        raise InvalidField(f"stop: at most {MAX_STOPS} strings of {MAX_STOP_CHARS} characters.", param="stop")


def seed_of(chat: wire.Chat) -> int:
    """The seed asked for, or one by chance."""
    return secrets.randbits(32) if chat.seed is None else chat.seed & 0xFFFFFFFF


def configuration(
    chat: wire.Chat,
    model: genai.GenerationConfig,
    *,
    max_tokens: int,
    seed: int,
    grammar: genai.StructuredOutputConfig | None,
) -> genai.GenerationConfig:
    """Configuration of one choice. `model` has the model's own defaults; `grammar` what it is held to.

    Stop strings are not in it: `text.Stops` finds them to the character, while the pipeline's own search works on
    tokens and holds back a fixed number of them.
    """
    config = genai.GenerationConfig(
        max_new_tokens=max_tokens,
        eos_token_id=model.eos_token_id,
        stop_token_ids=model.stop_token_ids,
        repetition_penalty=model.repetition_penalty if chat.repetition_penalty is None else chat.repetition_penalty,
        presence_penalty=chat.presence_penalty,
        frequency_penalty=chat.frequency_penalty,
        logprobs=int(chat.logprobs),
        ignore_eos=chat.ignore_eos,
        rng_seed=seed,
    )
    config.apply_chat_template = False  # the prompt is rendered already
    _draw(config, chat, model)
    config.structured_output_config = grammar
    return config


def _draw(config: genai.GenerationConfig, chat: wire.Chat, model: genai.GenerationConfig) -> None:
    temperature = chat.temperature
    if temperature is None:
        temperature = model.temperature if model.do_sample else 0.0
    if temperature < GREEDY_BELOW:
        return
    config.do_sample = True
    config.temperature = temperature
    config.top_p = model.top_p if chat.top_p is None else chat.top_p
    top_k = chat.top_k if chat.top_k is not None else model.top_k
    if top_k > 0:
        config.top_k = top_k
