"""Takes an answer through its finishing steps. Plain answers and streams take this same path.

Per-piece steps pass on what may leave at once. From the first whole-answer step on the answer is gathered, worked on
in a thread, and then leaves; a stream is kept alive meanwhile by whoever sends it. A step may find the answer unfit:
then the model is asked once more, with the reason, and after that the answer fails.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from twinlens.core import Message, Piece, Request, StepReport, TextPart, Usage
from twinlens.errors import AnswerError, AnswerStalled, ContextLengthExceeded, FinishError, TwinlensError
from twinlens.finish.schema import Blanks, SchemaCheck
from twinlens.finish.seam import Draft, Seals, unfit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from twinlens.core import FinishReason
    from twinlens.finish.seam import PieceRun, Plan, Seen, WholeRun

log = logging.getLogger("twinlens.finish")

R = TypeVar("R")
Ask: TypeAlias = Callable[[Request], AsyncGenerator[Piece, None]]
Trace: TypeAlias = Callable[["Plan", Draft, Draft], None]

ATTEMPTS = 2
MAX_ECHO = 4000  # characters of an unfit answer that the model is shown again
MAX_CHANGES = 100  # different places that a report lists


def finished(ask: Ask, request: Request, seen: Seen) -> AsyncGenerator[Piece, None]:
    """The pieces after all steps. `ask` begins an answer; closing this closes it."""
    plans: Sequence[Plan] = request.finishing
    if not plans:
        return _checked(ask(request), request)
    if all(plan.per_piece for plan in plans):
        return _streamed(ask(request), [Stage(plan, seen) for plan in plans])
    return _gathered(ask, request, seen)


async def _checked(pieces: AsyncGenerator[Piece, None], request: Request) -> AsyncGenerator[Piece, None]:
    check = None if request.answer.kind == "text" else SchemaCheck(request.answer)
    async with aclosing(pieces):
        async for piece in pieces:
            for out in (piece,) if check is None else check.feed(piece):
                yield out


class Stage:
    """A per-piece step over the pieces of all choices."""

    def __init__(self, plan: Plan, seen: Seen) -> None:
        self.plan = plan
        self._seen = seen
        self._runs: dict[int, PieceRun] = {}

    def feed(self, piece: Piece) -> Sequence[Piece]:
        """The pieces that may leave now."""
        if piece.index < 0:
            return (piece,)
        run = self._runs.get(piece.index)
        if run is None:
            run = self._runs[piece.index] = self.plan.begin(self._seen)
        text = _guarded(self.plan, lambda: run.feed(piece.text))
        if piece.finish_reason is not None:
            reason = piece.finish_reason
            text += _guarded(self.plan, lambda: run.end(reason))
        # Log probabilities belong to the tokens as the model wrote them.
        same = text == piece.text and not self.plan.private
        out = replace(
            piece,
            text=text,
            logprobs=piece.logprobs if same else (),
            tool_calls=() if self.plan.private else piece.tool_calls,
        )
        return (out,) if out.text or out.finish_reason or out.logprobs or out.tool_calls else ()

    def report(self) -> StepReport:
        """What it did to all choices."""
        return StepReport(self.plan.name, _summed(run.changes() for run in self._runs.values()))


async def _streamed(pieces: AsyncGenerator[Piece, None], stages: Sequence[Stage]) -> AsyncGenerator[Piece, None]:
    async with aclosing(pieces):
        async for piece in pieces:
            ready: Sequence[Piece] = (piece,)
            for stage in stages:
                ready = [out for waiting in ready for out in stage.feed(waiting)]
            for out in ready:
                yield replace(out, reports=tuple(stage.report() for stage in stages)) if out.usage else out


async def _gathered(ask: Ask, request: Request, seen: Seen) -> AsyncGenerator[Piece, None]:
    plans: Sequence[Plan] = request.finishing
    spent: Usage | None = None
    last: AnswerError | None = None
    for attempt in range(ATTEMPTS):
        drafts: dict[int, Draft] = {}
        try:
            usage = await _gather(ask(request), request, drafts)
            spent = _plus(spent, usage)
            worked = await asyncio.to_thread(_all, plans, drafts, seen)
        except ContextLengthExceeded:
            if last is None:
                raise
            raise last from None  # there is no room for a second attempt
        except AnswerError as error:
            last = _kept(error, plans, drafts)
            if attempt + 1 == ATTEMPTS or error.told is None:
                raise last from error
            request = _again(request, drafts, error.told)
        else:
            done, reports = worked
            for index, draft in sorted(done.items()):
                yield Piece(index, draft.text, draft.reason)
            yield Piece(-1, usage=spent, reports=reports)
            return


async def _gather(pieces: AsyncGenerator[Piece, None], request: Request, drafts: dict[int, Draft]) -> Usage | None:
    """Fill `drafts` with what each choice says, and give the usage. Raises AnswerStalled where that is only blanks."""
    texts: dict[int, list[str]] = {}
    blanks = None if request.answer.kind == "text" else Blanks()
    usage: Usage | None = None
    reasons: dict[int, FinishReason] = {}
    try:
        async with aclosing(pieces):
            async for piece in pieces:
                usage = piece.usage or usage
                if piece.index < 0:
                    continue
                texts.setdefault(piece.index, []).append(piece.text)
                if blanks and blanks.stalled(piece):
                    raise unfit(STALLED, _COMPACT, AnswerStalled)
                if piece.finish_reason:
                    reasons[piece.index] = piece.finish_reason
    finally:
        for index, parts in texts.items():
            drafts[index] = Draft("".join(parts), reason=reasons.get(index, "stop"))
    return usage


STALLED = "The answer stalled: the model wrote nothing but white space."
_COMPACT = "Your answer was nothing but white space. Answer again, in compact JSON without line breaks."


def _all(
    plans: Sequence[Plan], drafts: Mapping[int, Draft], seen: Seen
) -> tuple[dict[int, Draft], tuple[StepReport, ...]]:
    done: dict[int, Draft] = {}
    reports: list[list[StepReport]] = []
    for index, draft in drafts.items():
        done[index], said = work(plans, draft, seen)
        reports.append(said)
    return done, tuple(
        StepReport(plan.name, _summed(said[at].changes for said in reports)) for at, plan in enumerate(plans)
    )


def work(plans: Sequence[Plan], draft: Draft, seen: Seen, trace: Trace | None = None) -> tuple[Draft, list[StepReport]]:
    """One whole answer through all steps; `trace` is told the answer before and after each.

    Raises errors of the tree only: whatever else a step raises is its own fault, and becomes a FinishError.
    """
    reports = []
    for plan in plans:
        before = draft
        run = plan.begin(seen)
        draft = _guarded(plan, lambda run=run, plan=plan, draft=draft: _through(plan, run, draft))  # type: ignore[misc]
        reports.append(StepReport(plan.name, _summed([run.changes()])))
        if trace:
            trace(plan, before, draft)
    return draft, reports


def _through(plan: Plan, run: PieceRun | WholeRun, draft: Draft) -> Draft:
    if not plan.per_piece:
        return run.finish(draft)  # type: ignore[union-attr]
    text = run.feed(draft.text) + run.end(draft.reason)  # type: ignore[union-attr]
    return draft if text == draft.text else draft.with_text(text)


def _guarded(plan: Plan, step: Callable[[], R]) -> R:
    try:
        return step()
    except TwinlensError:
        raise
    except Exception as error:
        # The text of a foreign error may hold a part of the answer: neither log nor client gets it.
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        line = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place else "?"
        log.error("the finishing step %s raised %s at %s", plan.name, type(error).__name__, line)  # noqa: TRY400
        raise FinishError(f"The finishing step “{plan.name}” failed.") from error


def _kept(error: AnswerError, plans: Sequence[Plan], drafts: Mapping[int, Draft]) -> AnswerError:
    """The error with the raw answer, cleaned by every private step; without it where one cannot clean text."""
    raw = drafts[min(drafts)].text if drafts else ""
    private = [plan for plan in plans if plan.private]
    if not raw or not all(isinstance(plan, Seals) for plan in private):
        return error
    for plan in private:
        raw = _guarded(plan, lambda plan=plan, raw=raw: plan.seal(raw))  # type: ignore[misc]
    error.raw = raw
    return error


def _again(request: Request, drafts: Mapping[int, Draft], told: str) -> Request:
    """The request with the unfit answer, and what is wrong with it, as two more turns."""
    said = drafts[min(drafts)].text.strip() if drafts else ""
    turns = (Message("assistant", (TextPart(said[:MAX_ECHO] or "{}"),)), Message("user", (TextPart(told),)))
    return replace(request, messages=(*request.messages, *turns))


def _plus(one: Usage | None, other: Usage | None) -> Usage | None:
    if one is None or other is None:
        return one or other
    return one.plus(other)


def _summed(several: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for changes in several:
        total.update(changes)
    if len(total) <= MAX_CHANGES:
        return dict(total)
    listed = dict(list(total.items())[:MAX_CHANGES])
    return listed | {"others": sum(total.values()) - sum(listed.values())}
