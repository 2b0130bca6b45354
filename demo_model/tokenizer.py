# ruff: noqa: PLC0415  (heavy libraries are imported where they are needed)
"""Byte-level BPE of a few thousand entries with the special tokens and file formats of the Qwen2 family.

    python -m demo_model.tokenizer OUT_DIR

trains on the generator's own prompts, labels and answer skeletons. Values (names, numbers, ids) are kept out of
the corpus on purpose: the model must spell what it reads, and short pieces spell unseen strings best.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from demo_model.architecture import CHAT_TEMPLATE, FIRST_SPECIAL, SPECIAL_IDS, SPECIAL_TOKENS, VOCABULARY

if TYPE_CHECKING:
    from collections.abc import Iterable

# The splitting rule of the Qwen2 family: digits one by one, a leading space or sign stays with its word.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _parts(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def train(corpus: Iterable[str]) -> Tokenizer:
    """Learn the merges. Fewer merges than room leaves unused ids below the special tokens, never moves those."""
    tokenizer = _parts(Tokenizer(models.BPE()))
    tokenizer.train_from_iterator(
        corpus,
        trainers.BpeTrainer(
            vocab_size=FIRST_SPECIAL,
            min_frequency=2,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    learnt = json.loads(tokenizer.to_str())["model"]
    vocabulary: dict[str, int] = dict(learnt["vocab"])
    for place in range(len(vocabulary), FIRST_SPECIAL):
        # An id without a string makes readers disagree on the vocabulary's size.
        vocabulary[f"<|unused_{place}|>"] = place
    merges = [tuple(pair) if isinstance(pair, list) else tuple(pair.split(" ")) for pair in learnt["merges"]]
    tokenizer = _parts(Tokenizer(models.BPE(vocab=vocabulary, merges=merges)))
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIAL_TOKENS])
    if tokenizer.get_vocab_size() != VOCABULARY:
        raise ValueError(f"{tokenizer.get_vocab_size()} entries instead of {VOCABULARY}")
    return tokenizer


def tokenizer_config() -> dict[str, Any]:
    """`tokenizer_config.json` as `Qwen2Tokenizer` and its fast form read it."""
    return {
        "tokenizer_class": "Qwen2Tokenizer",
        "processor_class": "Qwen2VLProcessor",
        "add_prefix_space": False,
        "added_tokens_decoder": {
            str(number): {
                "content": token,
                "lstrip": False,
                "normalized": False,
                "rstrip": False,
                "single_word": False,
                "special": True,
            }
            for token, number in SPECIAL_IDS.items()
        },
        "additional_special_tokens": list(SPECIAL_TOKENS[1:]),
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "unk_token": None,
        "clean_up_tokenization_spaces": False,
        "errors": "replace",
        "model_max_length": 4096,
        "split_special_tokens": False,
        "chat_template": CHAT_TEMPLATE,
    }


def save(tokenizer: Tokenizer, folder: Path) -> None:
    """Write every file in which some reader looks for the tokenizer or the chat template."""
    folder.mkdir(parents=True, exist_ok=True)
    text = tokenizer.to_str(pretty=False)
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")
    model = json.loads(text)["model"]
    (folder / "vocab.json").write_text(json.dumps(model["vocab"], ensure_ascii=False), encoding="utf-8")
    lines = [" ".join(pair) if isinstance(pair, list) else pair for pair in model["merges"]]
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(lines) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(
        json.dumps(tokenizer_config(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
    (folder / "chat_template.json").write_text(
        json.dumps({"chat_template": CHAT_TEMPLATE}, indent=2) + "\n", encoding="utf-8"
    )
    added = {token: SPECIAL_IDS[token] for token in SPECIAL_TOKENS}
    (folder / "added_tokens.json").write_text(json.dumps(added, indent=2) + "\n", encoding="utf-8")
    (folder / "special_tokens_map.json").write_text(
        json.dumps(
            {
                "additional_special_tokens": list(SPECIAL_TOKENS[1:]),
                "eos_token": "<|im_end|>",
                "pad_token": "<|endoftext|>",
            },
            indent=2,
        )
        + "\n",
        encoding="utf-8",
    )


def load(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def main() -> None:
    from demo_model.data import corpus

    folder = Path(sys.argv[1])
    tokenizer = train(corpus())
    save(tokenizer, folder)
    print(f"{folder}: {tokenizer.get_vocab_size()} entries")


if __name__ == "__main__":
    main()
