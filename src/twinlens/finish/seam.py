"""The seam of the finishing steps: what a step is, and what it is told.

A kind of step is a function `prepare(options, about) -> Plan`: it checks the options of a task file once and gives a
plan. A plan says whether it works per piece or on the whole answer, and begins a run for every choice of every answer.
The smallest step of one's own:

    class Shout:
        name, per_piece, private = "shout", True, False

        def __init__(self, options, about): ...
        def begin(self, seen): return self
        def feed(self, text): return text.upper()
        def end(self, reason): return ""
        def changes(self): return {}

registered in a package of one's own as entry point `shout = "my_package:Shout"` of the group `twinlens.finish`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec
from msgspec import UNSET

from twinlens.core import AnswerFormat, FinishReason
from twinlens.errors import AnswerError, TaskError

if TYPE_CHECKING:
    from twinlens.finish.boxes import Page

#: How a model family writes boxes: thousandths of the picture, or pixels of the resized picture that it saw.
Units: TypeAlias = Literal["thousandths", "seen"]


@dataclass(frozen=True, slots=True)
class About:
    """What a step may know of its task when it is prepared."""

    answer: AnswerFormat = field(default_factory=AnswerFormat)
    where: str = "steps[0]"  # its place in the task file, for errors
    variables: frozenset[str] = frozenset()  # names that the task declares
    read: Callable[[str], bytes] | None = field(default=None, repr=False)  # a file beside the task file; TaskError
    secret: str = field(default="", repr=False)  # the setting redact_key

    def file(self, name: str) -> bytes:
        """A file beside the task file. Raises TaskError where there is none."""
        if self.read is None:
            raise TaskError(f"{self.where}: this task is no file and has none beside it: {name[:80]}.")
        return self.read(name)


@dataclass(frozen=True, slots=True)
class Frame:
    """The frames of one picture: sizes are (height, width) in pixels.

    `size` is that of the upright picture, `seen` that which the model saw. `orientation` is the file's EXIF tag
    (1 to 8): how the stored pixels have to be turned to stand upright. `page`: of a PDF; None for any other picture.
    """

    size: tuple[int, int]
    seen: tuple[int, int]
    orientation: int = 1
    page: Page | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What a run may know of its request."""

    frames: tuple[Frame, ...] = ()  # of the pictures, in the order of the request
    units: Units = "thousandths"
    variables: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Draft:
    """One whole answer between two steps. `value` is the decoded JSON; UNSET while nobody has decoded it."""

    text: str
    value: Any = UNSET
    reason: FinishReason = "stop"

    def with_value(self, value: Any) -> Draft:
        """The same answer saying `value`; the text becomes compact JSON, not escaped beyond need."""
        return replace(self, text=msgspec.json.encode(value).decode(), value=value)

    def with_text(self, text: str) -> Draft:
        """The same answer saying `text`, which is not looked at as JSON."""
        return replace(self, text=text, value=UNSET)

    def decoded(self) -> Draft:
        """With `value` set. Raises AnswerError when the text is not JSON."""
        if self.value is not UNSET:
            return self
        try:
            return replace(self, value=msgspec.json.decode(self.text))
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            raise AnswerError("The model's answer is not valid JSON.") from error


class PieceRun(Protocol):
    """The run of a per-piece step over one choice."""

    def feed(self, text: str) -> str:
        """Take the next text; give what may leave now. What must not leave yet is held back, within a bound."""
        ...

    def end(self, reason: FinishReason) -> str:
        """What was held back. Raises an error of the tree to refuse the answer."""
        ...

    def changes(self) -> Mapping[str, int]:
        """Places and kinds that were changed, with how often; never content."""
        ...


class WholeRun(Protocol):
    """The run of a whole-answer step over one choice. It runs in a thread, not on the event loop."""

    def finish(self, draft: Draft) -> Draft:
        """The answer after this step. Raises an error of the tree to refuse it."""
        ...

    def changes(self) -> Mapping[str, int]:
        """See `PieceRun.changes`."""
        ...


class Plan(Protocol):
    """A step as a task asks for it: made once, shared by all requests, never changed.

    After a `private` step an answer carries neither log probabilities nor tool calls, which could tell what it hides.
    """

    @property
    def name(self) -> str:
        """What reports and errors call it."""
        ...

    @property
    def per_piece(self) -> bool:
        """True: `begin` gives a PieceRun, and the answer can stream through it. False: a WholeRun."""
        ...

    @property
    def private(self) -> bool:
        """Whether it hides something."""
        ...

    def begin(self, seen: Seen) -> Any:
        """A run for one choice: PieceRun or WholeRun, as `per_piece` says."""
        ...


@runtime_checkable
class Seals(Protocol):
    """A private plan that can also clean text which is not the answer itself: a raw answer that is kept, a log line."""

    def seal(self, text: str) -> str:
        """`text` without what the step hides."""
        ...


Kind: TypeAlias = Callable[[Mapping[str, Any], About], Plan]


def unfit(message: str, told: str, kind: type[AnswerError] = AnswerError, *, cure: str | None = None) -> AnswerError:
    """The answer does not fit, and the model may be told so once; `message` goes to the client, without content."""
    error = kind(message, cure=cure)
    error.told = told
    return error
