"""From tokens to text that can be shown: whole characters only, nothing after a stop string."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Vocabulary:
    """The bytes behind each token of a byte-level vocabulary; special tokens have no text."""

    def __init__(self, vocabulary: Mapping[bytes, int], special: frozenset[str]) -> None:
        silent = {text.encode() for text in special}
        self._bytes = [b""] * (max(vocabulary.values(), default=-1) + 1)
        for data, token in vocabulary.items():
            self._bytes[token] = b"" if data in silent else data

    def data(self, token: int) -> bytes:
        """Bytes of a token; a model may be wider than its vocabulary, and such tokens have none."""
        return self._bytes[token] if token < len(self._bytes) else b""


class Decoder:
    """Bytes to text, piece by piece. A character whose bytes are not all there yet is held back."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, data: bytes) -> str:
        """Text that is complete by now."""
        return self._decoder.decode(data)

    def end(self) -> str:
        """What is left: a mark in place of a character that was cut off."""
        return self._decoder.decode(b"", final=True)


class Stops:
    """Finds the first stop string, also across pieces: text that may be the beginning of one is held back."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.hit = False

    def feed(self, text: str) -> str:
        """Text that can be shown. After a hit nothing more is."""
        if not self._stops:
            return text
        if self.hit:
            return ""
        text = self._held + text
        found = [place for place in (text.find(stop) for stop in self._stops) if place >= 0]
        if found:
            self.hit = True
            self._held = ""
            return text[: min(found)]
        keep = max(_overlap(text, stop) for stop in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def end(self) -> str:
        """What was held back and turned out to be no stop string."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` with which `stop` begins, shorter than `stop`."""
    for length in range(min(len(stop) - 1, len(text)), 0, -1):
        if stop.startswith(text[-length:]):
            return length
    return 0
