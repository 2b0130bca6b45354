"""The nouns that travel through the pipeline. All are frozen: a step that changes something makes a new one.

Who fills what: the gateway makes `Request`; *load* makes `Sight` (header only) and then `Image` (pixels in the
store); the engine yields `Piece`; *finish* yields `Piece` again, so a step can be left out without a gap.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

Role = Literal["system", "user", "assistant", "tool"]
Detail = Literal["auto", "low", "high"]
FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]
Box: TypeAlias = tuple[float, float, float, float]
Choice: TypeAlias = tuple[tuple[int, int], ...]  # of pages: (first, last), from 1; last 0 is the end of the document


@dataclass(frozen=True, slots=True)
class ImageRef:
    """A picture as the client named it; nothing is decoded yet.

    `where` is the place in the request, such as `messages[2].content[1]`, and goes into every error about it.
    """

    where: str
    url: str = field(repr=False)  # data URI, bare base64 or https URL; never logged
    detail: Detail = "auto"
    min_pixels: int | None = None  # of this part, in pixels of the resized picture
    max_pixels: int | None = None
    file_id: str = ""  # of an uploaded file; then `url` is empty
    pages: Choice = ()  # of a document; none: all of them
    first: int | None = None  # of these, only so many are used
    password: str = field(default="", repr=False)  # of a PDF
    text: bool | None = None  # whether the text of PDF pages goes into the prompt; None: as the settings say


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text of a message, as the client wrote it."""

    text: str


@dataclass(frozen=True, slots=True)
class ImagePart:
    """The place of a picture inside a message; `index` counts the pictures of the whole request from 0."""

    index: int


Part = TextPart | ImagePart


@dataclass(frozen=True, slots=True)
class Message:
    """One turn. The order of `parts` is the order in the prompt."""

    role: Role
    parts: tuple[Part, ...]
    tool_calls: tuple[dict[str, Any], ...] = ()  # of an assistant turn in the history, as received
    tool_call_id: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the answer is drawn. None means the engine's own default."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False  # go on to max_tokens: for measurements, where every answer has to be as long
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float | None = None
    n: int = 1
    logprobs: bool = False
    top_logprobs: int = 0


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """What the answer must look like. `schema` is a JSON schema, given for kind `json_schema` only."""

    kind: Literal["text", "json_object", "json_schema"] = "text"
    schema: dict[str, Any] | bool | None = None
    name: str = "answer"


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """Limits a minute that a key has of its own. None: as the settings say; 0: none."""

    requests: int | None = None
    burst: int | None = None  # requests at once beyond the first
    vision_tokens: int | None = None
    text_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, as keys and limits know it. Empty texts: there are no keys, or the address is not known."""

    tenant: str = ""
    key: str = ""  # id of the key, never the key
    address: str = ""  # of the client, as limits count it: IPv6 by its /64
    batch: bool = False  # no limit on requests a minute, unless the key has one of its own
    bulk: bool = False  # behind everybody else
    limits: KeyLimits = KeyLimits()


@dataclass(frozen=True, slots=True)
class Request:
    """One question, whichever route it came by."""

    id: str
    model: str  # the served name, already checked
    messages: tuple[Message, ...]
    images: tuple[ImageRef, ...]  # in the order of their places in `messages`
    sampling: Sampling = Sampling()
    answer: AnswerFormat = AnswerFormat()
    stream: bool = False
    tools: tuple[dict[str, Any], ...] = ()
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None  # None: the engine's own default
    caller: Caller = Caller()
    finishing: tuple[Any, ...] = ()  # plans of finishing steps (`finish.seam.Plan`) in their order; of a task
    variables: Mapping[str, Any] = field(default_factory=dict)  # of a task, already checked
    each_page: bool = False  # the pages of a document are asked one by one, and give an answer each


@dataclass(frozen=True, slots=True)
class PagePlace:
    """Which page of a document a picture is.

    `box` is the crop box of a PDF page in points, (left, lower, right, upper); `rotate` how it is turned for being
    shown, clockwise in degrees; `text` what its text layer says, where asked for.
    """

    number: int  # from 1
    total: int  # pages of the document
    box: Box | None = None
    rotate: int = 0
    text: str = field(default="", repr=False)
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Sight:
    """What the header of a picture and the digest of its bytes tell; no pixel is decoded yet.

    `source_size` and `size` are (height, width): upright size of the file, and the size that the model sees.
    `grid` is (t, h, w) in patches; `tokens` the places that the picture takes in the prompt. `ref` counts the pictures
    that the client named: a document gives several sights. A PDF page's `source_size` is that at the setting page_dpi.
    """

    where: str
    key: str  # of the pixels in the store; see store/keys
    data: bytes = field(repr=False)
    source_format: str  # "JPEG", "PNG", ... as sniffed from the bytes
    source_size: tuple[int, int]
    size: tuple[int, int]
    grid: tuple[int, int, int]
    tokens: int
    warnings: tuple[str, ...] = ()
    ref: int = 0
    page: PagePlace | None = None  # None: a picture that is no page


@dataclass(frozen=True, slots=True)
class Image:
    """A picture whose pixels (height, width, 3; uint8 RGB; upright; at the size the model sees) are in the store."""

    where: str
    key: str
    size: tuple[int, int]
    grid: tuple[int, int, int]
    tokens: int
    hit: bool  # whether the store already had it
    warnings: tuple[str, ...] = ()

    @property
    def reference(self) -> str:
        """What processes hand each other instead of megabytes."""
        return f"twinlens:{self.key}"


@dataclass(frozen=True, slots=True)
class Usage:
    """Exact token counts. `prompt_tokens` holds text and vision tokens together."""

    prompt_tokens: int
    completion_tokens: int
    vision_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Prompt and completion together."""
        return self.prompt_tokens + self.completion_tokens

    def plus(self, other: Usage) -> Usage:
        """Both together."""
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.vision_tokens + other.vision_tokens,
        )


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Natural logarithm of the probability of one token of the answer."""

    token: str
    logprob: float
    bytes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class StepReport:
    """What a finishing step did to an answer: places and kinds with how often, never content.

    `changes` is for example {"/id_number id": 1}.
    """

    step: str
    changes: Mapping[str, int] = field(default_factory=dict)

    @property
    def changed(self) -> int:
        """How many places were changed."""
        return sum(self.changes.values())


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the answer of one choice. The last one of a choice carries `finish_reason`.

    `usage` comes once, with the very last piece of a request (its text is empty, `index` is -1); so do `reports`.
    """

    index: int
    text: str = ""
    finish_reason: FinishReason | None = None
    logprobs: tuple[TokenLogprob, ...] = ()
    tool_calls: tuple[dict[str, Any], ...] = ()  # deltas, passed through from engines that can
    usage: Usage | None = None
    reports: tuple[StepReport, ...] = ()  # of the finishing steps of a task, all choices together


@dataclass(frozen=True, slots=True)
class Abilities:
    """What an engine can do beyond text; asked of it once when it becomes ready."""

    references: bool = True  # resolves `twinlens:` references
    json_schema: bool = True
    logprobs: bool = False
    top_logprobs: int = 0  # largest value taken
    tools: bool = False
    max_n: int = 1
    seed: bool = True
