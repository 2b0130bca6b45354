"""The step `template`: the answer in the user's own shape, JSON or text, by a Jinja2 template in the task file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from twinlens.errors import FinishError, TaskError
from twinlens.finish import options
from twinlens.finish.sandbox import Bounded, TemplateProblem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinlens.finish.seam import About, Draft, Seen


class Options(msgspec.Struct, frozen=True):
    """`template`, or `file`: its name beside the task file. `output`: whether it writes JSON or text."""

    template: str = ""
    file: str = ""
    output: Literal["json", "text"] = "json"


class Template:
    """Plan of the step.

    A template sees `answer` (the decoded JSON, or the text where the task has no schema), `variables`, and `pictures`,
    each with `width` and `height` in pixels. The filter `tojson` writes any value as JSON.
    """

    name, per_piece, private = "template", False, False

    def __init__(self, given: Mapping[str, Any], about: About) -> None:
        chosen = options.read(Options, given, about.where)
        if bool(chosen.template) == bool(chosen.file):
            raise TaskError(f"{about.where}: needs either “template” or “file”.")
        source = chosen.template
        if chosen.file:
            try:
                source = about.file(chosen.file).decode()
            except UnicodeDecodeError as error:
                raise TaskError(f"{about.where}.file: {chosen.file} is not UTF-8.") from error
        self.template = Bounded(source, f"{about.where}.template")
        self.json_in = about.answer.kind != "text"
        self.json_out = chosen.output == "json"

    def begin(self, seen: Seen) -> TemplateRun:
        """See `Plan.begin`."""
        return TemplateRun(self, seen)


class TemplateRun:
    """Run of the step."""

    def __init__(self, plan: Template, seen: Seen) -> None:
        self._plan = plan
        self._seen = seen
        self._done = 0

    def finish(self, draft: Draft) -> Draft:
        """See `WholeRun.finish`."""
        values = {
            "answer": draft.decoded().value if self._plan.json_in else draft.text,
            "variables": dict(self._seen.variables),
            "pictures": [{"width": frame.size[1], "height": frame.size[0]} for frame in self._seen.frames],
        }
        try:
            text = self._plan.template.render(values)
        except TemplateProblem as error:
            raise FinishError(f"The template of the task could not be filled: {error}.") from error
        self._done = 1
        if not self._plan.json_out:
            return draft.with_text(text)
        try:
            return draft.with_value(msgspec.json.decode(text))
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise FinishError("What the template of the task wrote is not JSON.") from error

    def changes(self) -> Mapping[str, int]:
        """One change: all of it."""
        return {"whole answer": self._done}
