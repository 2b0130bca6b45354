"""The pipeline alone, given the work of the service: no HTTP, no store, pictures decoded beforehand.

    python -m bench.bare_pipeline FOLDER THREADS PICTURE...

For each line on standard input, a number of seconds, it works for so long with AT_ONCE requests at a time and prints
one line of JSON. The pipeline is made with the engine's own settings, so that only what is around it differs.
"""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import openvino as ov

from bench.load import AT_ONCE, NUMBERED, PROMPT
from twinlens.core import ImagePart, Message, TextPart
from twinlens.engines import wire
from twinlens.engines.openvino import sampling
from twinlens.engines.openvino.model import Model
from twinlens.media import decode
from twinlens.model import checkpoint
from twinlens.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence


class Worked(msgspec.Struct):
    """What was done in one go."""

    answers: int
    tokens: int
    seconds: float


class Bare:
    """One pipeline, driven by one thread that adds, steps and reads in turn."""

    def __init__(self, folder: Path, threads: int, pictures: Sequence[str], max_tokens: int) -> None:
        found = checkpoint.read(folder)
        self._model = Model(found, Settings(engine_threads=threads))
        self._tokenizer = self._model.tokenizer
        self._words = found.words()
        self._tensors = itertools.cycle([_tensor(Path(picture), found) for picture in pictures])
        chat = wire.Chat(messages=[], temperature=0.0, ignore_eos=True)
        self._config = sampling.configuration(chat, self._model.defaults, max_tokens=max_tokens, seed=0, grammar=None)
        self._ids = itertools.count()

    def work(self, seconds: float) -> Worked:
        """Closed loop, AT_ONCE at a time; what runs at the end is finished."""
        done = Worked(0, 0, 0.0)
        running: list[Any] = []
        began = time.perf_counter()
        while True:
            going = time.perf_counter() - began < seconds
            while going and len(running) < AT_ONCE:
                running.append(self._add())
            if not running:
                done.seconds = time.perf_counter() - began
                return done
            self._model.pipeline.step()
            for handle in [handle for handle in running if handle.get_status().name != "RUNNING"]:
                running.remove(handle)
                ids = handle.read_all()[0].generated_ids
                self._tokenizer.decode(ids)
                done.answers += 1
                done.tokens += len(ids)

    def _add(self) -> Any:
        number = next(self._ids)
        parts = (TextPart(NUMBERED % number), ImagePart(0), TextPart(PROMPT))
        text = self._words.render([Message("user", parts)])
        return self._model.pipeline.add_request(number, text, [next(self._tensors)], self._config)


def _tensor(picture: Path, found: checkpoint.Checkpoint) -> ov.Tensor:
    data = picture.read_bytes()
    header = decode.look(data, "", 1 << 30)
    size = found.rule.target(*header.size)
    return ov.Tensor(np.asarray(decode.pixels(data, "JPEG", size, ""))[None].copy())


def main() -> None:
    """Work when told."""
    folder, threads, max_tokens, *pictures = sys.argv[1:]
    bare = Bare(Path(folder), int(threads), pictures, int(max_tokens))
    print("ready", flush=True)
    for line in sys.stdin:
        print(msgspec.json.encode(bare.work(float(line))).decode(), flush=True)


if __name__ == "__main__":
    main()
