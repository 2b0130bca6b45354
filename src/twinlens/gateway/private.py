"""What is hidden in every answer and log line of a service, by the setting `redact`, with or without a task."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from twinlens.core import AnswerFormat
from twinlens.errors import SettingsError, TaskError, UnsupportedField
from twinlens.finish.held import HeldToSchema
from twinlens.finish.redact import Redact
from twinlens.finish.redact_fields import KINDS
from twinlens.finish.seam import About

if TYPE_CHECKING:
    from twinlens.core import Request
    from twinlens.finish.seam import Plan
    from twinlens.settings import Settings


class Private:
    """Adds the service's own redaction to requests."""

    def __init__(self, settings: Settings) -> None:
        """Raises SettingsError for a kind that is not known."""
        self._text = plan_of(settings)
        self._json = plan_of(settings, AnswerFormat("json_object"))

    def request(self, request: Request) -> Request:
        """The request with the redaction as its last step. Raises UnsupportedField for what would go round it."""
        private = any(plan.private for plan in request.finishing)
        if self._text is None and not private:
            return request
        if request.sampling.logprobs:
            raise UnsupportedField("Answers are redacted here, and log probabilities would tell.", param="logprobs")
        if request.tools:
            raise UnsupportedField("Answers are redacted here, and calls of tools cannot be.", param="tools")
        if self._text is None or self._json is None:
            return request
        plans: tuple[Plan, ...] = request.finishing
        if not plans and request.answer.kind != "text":
            plans = (HeldToSchema({"retry": False}, About(request.answer)),)
        plain = request.answer.kind == "text" and all(plan.per_piece for plan in plans)
        return replace(request, finishing=(*plans, self._text if plain else self._json))


def plan_of(settings: Settings, answer: AnswerFormat | None = None) -> Redact | None:
    """The redaction that the settings ask for; None: none. Raises SettingsError."""
    if not settings.redact:
        return None
    kinds = list(KINDS) if settings.redact == ("all",) else list(settings.redact)
    try:
        return Redact({"kinds": kinds}, About(answer or AnswerFormat(), "redact", secret=settings.redact_key))
    except TaskError as error:
        raise SettingsError(f"redact: {error.message}", cure=f"Known are {', '.join(KINDS)}, or all.") from error


class CleanFormatter(logging.Formatter):
    """Formats log lines and takes out of them what answers are cleaned of: a client's request id, a bug's words."""

    def __init__(self, form: str, plan: Redact) -> None:
        super().__init__(form)
        self._plan = plan

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter.format`."""
        return self._plan.seal(super().format(record))
