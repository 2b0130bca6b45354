"""Which limits hold for whom, and how they are told: from settings to wants, from readings to headers and errors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twinlens.admission.rates import Limit, Want
from twinlens.core import KeyLimits
from twinlens.errors import OverTokenLimit, RateLimited

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinlens.admission.rates import Kind, Reading, Verdict
    from twinlens.core import Caller
    from twinlens.settings import Settings

_WORDS: dict[Kind, str] = {"requests": "requests", "vision_tokens": "vision tokens", "text_tokens": "text tokens"}
Headers = list[tuple[bytes, bytes]]
MOST_KINDS = 4096  # of limits of keys that are kept worked out
_AS_SET = KeyLimits()


@dataclass(frozen=True, slots=True)
class _Limits:
    """The limits of one kind of client; None: no limit."""

    requests: Limit | None
    vision: Limit | None
    text: Limit | None

    def tokens(self, name: str, vision: float, text: float) -> list[Want]:
        """What a request wants of the token limits."""
        pairs = ((self.vision, vision), (self.text, text))
        return [Want(limit, f"{name} {limit.kind}", cost) for limit, cost in pairs if limit and cost > 0]


class Rules:
    """The limits of a service, and of keys that have their own."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._own: dict[KeyLimits, _Limits] = {}
        self._key = _Limits(
            _requests(settings.rate_requests, settings.rate_burst),
            _tokens("vision_tokens", settings.rate_vision_tokens),
            _tokens("text_tokens", settings.rate_text_tokens),
        )
        self._address = _Limits(
            _requests(settings.address_requests, settings.address_burst),
            _tokens("vision_tokens", settings.address_vision_tokens),
            _tokens("text_tokens", settings.address_text_tokens),
        )
        self._addressed = self._address != _Limits(None, None, None)

    def apply(self, caller: Caller) -> bool:
        """Whether any limit holds for this caller."""
        return bool(caller.key) or self._addressed

    def entry(self, caller: Caller) -> list[Want]:
        """What one request of the caller wants before it is read."""
        wants = []
        limit = self._of(caller).requests if caller.key else None
        if limit and (not caller.batch or caller.limits.requests is not None):
            wants.append(Want(limit, f"key {caller.key} requests", 1.0))
        if self._address.requests and not caller.batch:
            wants.append(Want(self._address.requests, f"address {caller.address} requests", 1.0))
        return wants

    def tokens(self, caller: Caller, vision: int, text: int) -> list[Want]:
        """What the caller wants for so many tokens."""
        wants = self._of(caller).tokens(f"key {caller.key}", vision, text) if caller.key else []
        return wants + self._address.tokens(f"address {caller.address}", vision, text)

    def _of(self, caller: Caller) -> _Limits:
        if caller.limits == _AS_SET:
            return self._key
        found = self._own.get(caller.limits)
        if found is None:
            if len(self._own) >= MOST_KINDS:
                self._own.clear()
            found = self._own[caller.limits] = self._made(caller.limits)
        return found

    def _made(self, own: KeyLimits) -> _Limits:
        ours = self._settings

        def chosen(mine: int | None, theirs: int) -> int:
            return theirs if mine is None else mine

        return _Limits(
            _requests(chosen(own.requests, ours.rate_requests), chosen(own.burst, ours.rate_burst)),
            _tokens("vision_tokens", chosen(own.vision_tokens, ours.rate_vision_tokens)),
            _tokens("text_tokens", chosen(own.text_tokens, ours.rate_text_tokens)),
        )


def refusal(verdict: Verdict) -> RateLimited | OverTokenLimit:
    """The error of a verdict that denies."""
    denied = verdict.denied
    if denied is None:
        raise ValueError("nothing was denied")
    limit, words = denied.limit, _WORDS[denied.limit.kind]
    if math.isinf(denied.wait):
        return OverTokenLimit(f"The request has more {words} than the {limit.depth:.0f} that may ever come at once.")
    return RateLimited(
        f"The limit of {limit.per_minute:g} {words} a minute is reached; in {denied.wait:.1f} s this request can pass.",
        retry_after=denied.wait,
        headers=headers(verdict),
    )


def headers(verdict: Verdict) -> Headers:
    """The readings as OpenAI's headers; of several for one kind the tighter, and of a denial the one that denied."""
    chosen: dict[str, Reading] = {}
    for reading in verdict.readings:
        name = "requests" if reading.limit.kind == "requests" else "tokens"
        if name not in chosen or _tightness(reading) > _tightness(chosen[name]):
            chosen[name] = reading
    found: Headers = []
    for name, reading in chosen.items():
        found += [
            (b"x-ratelimit-limit-%s" % name.encode(), b"%d" % reading.limit.per_minute),
            (b"x-ratelimit-remaining-%s" % name.encode(), b"%d" % int(reading.remaining + 1e-6)),
            (b"x-ratelimit-reset-%s" % name.encode(), duration(reading.reset).encode()),
        ]
    return found


def duration(seconds: float) -> str:
    """A time as OpenAI writes it in headers: 250ms, 2s, 1m30s, 1h2m0s."""
    if seconds <= 0:
        return "0s"
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    whole = math.ceil(seconds)
    hours, minutes, rest = whole // 3600, whole % 3600 // 60, whole % 60
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if hours or minutes else "") + f"{rest}s"


def _tightness(reading: Reading) -> tuple[float, float]:
    return reading.wait, -reading.remaining / reading.limit.depth


def _requests(per_minute: int, burst: int) -> Limit | None:
    return Limit("requests", per_minute, burst + 1) if per_minute else None


def _tokens(kind: Kind, per_minute: int) -> Limit | None:
    return Limit(kind, per_minute, per_minute) if per_minute else None


def strictest(verdicts: Sequence[Verdict]) -> Verdict:
    """Of verdicts over the same wants the first that denies, else the last."""
    return next((verdict for verdict in verdicts if verdict.denied), verdicts[-1])
