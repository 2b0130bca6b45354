"""The step `schema`: a whole answer is what was asked for, or it is mended where that is certain, or asked for once
more, or it fails. It is never half a record: an answer that was cut at the token limit fails at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from twinlens.errors import AnswerError, AnswerTruncated, TaskError
from twinlens.finish import options, repair
from twinlens.finish.schema import UNFIT_CURE, Judge
from twinlens.finish.seam import unfit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinlens.finish.seam import About, Draft, Seen


class Options(msgspec.Struct, frozen=True):
    """`retry`: whether the model is asked once more, with what is wrong."""

    retry: bool = True


class HeldToSchema:
    """Plan of the step."""

    name, per_piece, private = "schema", False, False

    def __init__(self, given: Mapping[str, Any], about: About) -> None:
        if about.answer.kind == "text":
            raise TaskError(f"{about.where}: the step “schema” needs a schema.", cure="Give the task a [schema].")
        self.retry = options.read(Options, given, about.where).retry
        self.judge = Judge(about.answer)

    def begin(self, seen: Seen) -> HeldRun:
        """See `Plan.begin`."""
        return HeldRun(self)


class HeldRun:
    """Run of the step."""

    def __init__(self, plan: HeldToSchema) -> None:
        self._plan = plan
        self._mended: list[str] = []

    def finish(self, draft: Draft) -> Draft:
        """See `WholeRun.finish`."""
        if draft.reason == "length":
            raise AnswerTruncated("The answer was cut at the token limit.")
        if draft.reason != "stop":
            raise AnswerError("The model ended its answer before it was whole.")
        try:
            value, self._mended = repair.read(draft.text)
        except repair.Ambiguous as error:
            raise self._unfit("The model's answer is not valid JSON.", "it is not valid JSON") from error
        if fault := self._plan.judge.fault(value):
            raise self._unfit(fault, self._plan.judge.told(value), UNFIT_CURE)
        try:
            return draft.with_value(value)
        except (UnicodeEncodeError, OverflowError) as error:  # half of a surrogate pair, or a number of 30 digits
            raise self._unfit("The model's answer cannot be written as JSON.", "it holds half a character") from error

    def changes(self) -> Mapping[str, int]:
        """What was mended."""
        return dict.fromkeys(self._mended, 1)

    def _unfit(self, message: str, reason: str, cure: str | None = None) -> AnswerError:
        if not self._plan.retry:
            return AnswerError(message, cure=cure)
        told = f"Your answer does not fit the schema: {reason}. Answer again, with the JSON and nothing else."
        return unfit(message, told, cure=cure)
