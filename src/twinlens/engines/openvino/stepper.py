"""One thread drives the pipeline's steps and hands what they gave to the event loop; idle, it sleeps.

It is the only one that touches the handles of requests, so that a cancellation never meets a read. All it does
between two steps is to collect tokens; turning them into text is the event loop's work, while the next step runs.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import openvino_genai as genai

if TYPE_CHECKING:
    from collections.abc import Callable

    from twinlens.core import FinishReason
    from twinlens.engines.openvino.turns import Turns

RUNNING = genai.GenerationStatus.RUNNING
IGNORED = genai.GenerationStatus.IGNORED
REASONS: dict[Any, FinishReason] = {
    genai.GenerationFinishReason.STOP: "stop",
    genai.GenerationFinishReason.LENGTH: "length",
}


@dataclass(frozen=True, slots=True)
class Told:
    """What a step said about one sequence. `ended` is the last that is said of it."""

    tokens: list[int]
    logprobs: list[float]
    reason: FinishReason | None = None
    ended: bool = False
    failed: bool = False  # the pipeline gave it up


@dataclass(slots=True, eq=False)
class Track:
    """A sequence in the pipeline. `tell` is called on the event loop; `cancelled` may be set from any thread."""

    handle: genai.GenerationHandle
    tell: Callable[[Told], None]
    cancelled: bool = False
    _sent: bool = field(default=False, init=False)  # the cancellation, to the pipeline

    def cancel(self) -> None:
        """Pass a cancellation on. To be followed by a step, which frees the sequence."""
        if self.cancelled and not self._sent:
            self.handle.cancel()
            self._sent = True

    def read(self) -> Told | None:
        """What came since the last time."""
        if self._sent:
            return Told([], [], ended=True)
        status = self.handle.get_status()  # first: what is pushed before it changes is then read below
        if status == RUNNING and not self.handle.can_read():
            return None
        tokens: list[int] = []
        logprobs: list[float] = []
        reason = None
        while self.handle.can_read():
            for output in self.handle.read().values():
                tokens += output.generated_ids
                logprobs += output.generated_log_probs
                reason = REASONS.get(output.finish_reason, reason)
        return Told(tokens, logprobs, reason, ended=status != RUNNING, failed=status == IGNORED)


class Stepper:
    """Drives a pipeline. `deliver` gets the words of each step, to be taken to the event loop; it must not block."""

    def __init__(
        self,
        pipeline: genai.ContinuousBatchingPipeline,
        turns: Turns,
        deliver: Callable[[list[tuple[Track, Told]]], None],
        broken: Callable[[], None],
    ) -> None:
        self.steps = 0
        self._pipeline = pipeline
        self._turns = turns
        self._deliver = deliver
        self._broken = broken
        self._new: deque[Track] = deque()
        self._tracks: list[Track] = []
        self._wake = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="steps", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def add(self, track: Track) -> None:
        """Follow a sequence that is in the pipeline. From any thread."""
        self._new.append(track)
        self._wake.set()

    def wake(self) -> None:
        """Look again: a sequence was cancelled. From any thread."""
        self._wake.set()

    def close(self) -> None:
        """Stop after the step that runs."""
        self._closing = True
        self._wake.set()
        self._thread.join(timeout=10)

    def _run(self) -> None:
        try:
            while not self._closing:
                self._wake.clear()
                while self._new:
                    self._tracks.append(self._new.popleft())
                if self._tracks:
                    self._step()
                else:
                    self._wake.wait()
        finally:
            # After a failure the pipeline is in no known state: the process has to go, and another takes its place.
            if not self._closing:
                self._broken()

    def _step(self) -> None:
        for track in self._tracks:
            track.cancel()
        with self._turns.stepping():
            self._pipeline.step()
        self.steps += 1
        told = [(track, said) for track in self._tracks if (said := track.read()) is not None]
        gone = {id(track) for track, said in told if said.ended}
        if gone:
            self._tracks = [track for track in self._tracks if id(track) not in gone]
        if told:
            self._deliver(told)
