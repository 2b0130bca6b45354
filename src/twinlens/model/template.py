"""The chat template of a model folder: found, compiled in a sandbox, rendered.

The sandbox and the names inside it are those that checkpoints are written for (the ones of transformers). The
template comes with the model and is the operator's; nothing of a request is ever compiled.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from twinlens.errors import InvalidRequest, ModelError
from twinlens.model.files import read_json, read_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_JSON_FILES = ("chat_template.json", "tokenizer_config.json", "processor_config.json")


class ChatTemplate:
    """A compiled template. `takes_tools` says whether it writes tools and calls of tools into the prompt."""

    def __init__(self, source: str, names: Mapping[str, str]) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            autoescape=False,  # a prompt is no HTML; clients' text is data here and is never compiled
            extensions=["jinja2.ext.loopcontrols"],
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = _strftime_now
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise ModelError("The model's chat template is not valid Jinja.", cure="Download it again.") from error
        self._names = dict(names)
        self.takes_tools = "tool_call" in source

    def render(self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]) -> str:
        """The prompt, ready for the model's answer. Raises InvalidRequest when the template refuses the turns."""
        try:
            return self._template.render(
                messages=messages, tools=list(tools) or None, add_generation_prompt=True, **self._names
            )
        except (TemplateError, TypeError, ValueError, KeyError, AttributeError, IndexError, ArithmeticError) as error:
            raise InvalidRequest(
                "The model's chat template does not take these messages.",
                param="messages",
                cure="Send turns as the model expects them: system first, then user and assistant in turn.",
            ) from error


def read_template(folder: Path) -> ChatTemplate:
    """The template of a model folder. Raises ModelError when there is none."""
    return ChatTemplate(template_of(folder), _special_names(folder))


def template_of(folder: Path) -> str:
    """Source of the template: chat_template.jinja, else the entry of a JSON file. Raises ModelError without one."""
    plain = folder / "chat_template.jinja"
    if plain.is_file():
        return read_text(plain)
    for name in _JSON_FILES:
        if (folder / name).is_file():
            source = _chosen(read_json(folder / name).get("chat_template"))
            if source:
                return source
    raise ModelError(
        f"{folder} has no chat template ({plain.name}, {', '.join(_JSON_FILES)}).",
        cure="Give the instruct form of the model, or copy chat_template.json from it.",
    )


def _chosen(value: Any) -> str:
    """Some folders keep several templates as a list of names and texts; the one called “default” is meant."""
    if isinstance(value, list):
        named = {item.get("name"): item.get("template") for item in value if isinstance(item, dict)}
        value = named.get("default")
    return value if isinstance(value, str) else ""


def _special_names(folder: Path) -> dict[str, str]:
    """bos_token, eos_token and their like, which templates may write."""
    path = folder / "tokenizer_config.json"
    config = read_json(path) if path.is_file() else {}
    found = {}
    for name, value in config.items():
        text = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(text, str):
            found[name] = text
    return found


def _tojson(value: Any, indent: int | None = None, **_: Any) -> str:
    # Templates expect JSON as Python writes it, with a space after commas and colons, and no HTML escapes.
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)  # local time is what templates mean
