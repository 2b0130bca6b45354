"""Makes the reference pages from the code, so that they cannot say anything else.

python -m docs.generate           writes docs/{settings,errors,cli,metrics}.md
python -m docs.generate --check   ends with 1, naming the pages, if any is not as it would be written
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from twinlens import errors
from twinlens.cli.main import parser
from twinlens.observe import metrics
from twinlens.settings import PREFIX, Settings, defaults
from twinlens.supervisor import deaths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

FOLDER = Path(__file__).parent
NOTE = "<!-- Made by “python -m docs.generate” from {source}. Change that instead. -->\n\n"
KINDS = {int: "whole number", float: "number", str: "text", bool: "true or false"}
CLI_HEAD = """# Command line

Exit codes: 0 done; 1 the request failed, or a bug, whose report is named; 2 something that the operator has to mend,
with its cure; 130 Ctrl-C.

Every command also takes each [setting](settings.md) as a flag, and `--config FILE`.
"""


def settings_page() -> str:
    """docs/settings.md."""
    kinds = get_type_hints(Settings)
    rows = []
    for item in fields(Settings):
        meta = item.metadata
        kind = KINDS.get(kinds[item.name], "list of texts") + (f", {meta['unit']}" if meta["unit"] else "")
        least = f"; at least {meta['minimum']}" if meta["minimum"] else ""
        secret = "; secret: shown masked, has no flag" if meta["secret"] else ""
        rows.append((f"`{item.name}`", kind, _default(item.name), _escaped(f"{meta['help']}{least}{secret}")))
    return (
        NOTE.format(source="src/twinlens/settings.py")
        + f"""# Settings

A setting `max_images` can be given as the flag `--max-images 8`, as the environment variable
`{PREFIX}MAX_IMAGES=8`, or in a TOML file as `max_images = 8`. Flags beat the environment, the environment beats the
file, the file beats the default. The file is the one named by `--config` or `{PREFIX}CONFIG`, else `./twinlens.toml`,
else `~/.config/twinlens/config.toml`. Lists are written with commas in flags and variables, as arrays in the file.
An unknown setting is an error that names it. `twinlens config` shows every value and where it came from.

`{PREFIX}DATA` names the folder for what outlasts a restart (default `~/.local/share/twinlens`).

"""
        + _table(("setting", "kind", "default", "what it is for"), rows)
    )


def errors_page() -> str:
    """docs/errors.md."""
    sent = [kind for kind in errors.tree() if not issubclass(kind, errors.OperatorError)]
    ours = [kind for kind in errors.tree() if issubclass(kind, errors.OperatorError)]
    seen = {kind.code: kind for kind in sent}  # of kinds with one code the most special has the words
    rows = [
        (f"`{kind.code}`", str(kind.status), "yes" if kind.retryable else "no", _first_sentence(kind), kind.cure)
        for kind in seen.values()
    ]
    told = [(f"`{kind.code}`", _first_sentence(kind), _cure(kind)) for kind in ours]
    return (
        NOTE.format(source="src/twinlens/errors.py")
        + """# Errors

Every refusal has OpenAI's error body, in a plain answer and inside a stream alike:

```json
{"error": {"message": "…", "type": "invalid_request_error", "param": "messages[0].content[1]", "code": "invalid_image"}}
```

`code` is for programs and does not change; `message` ends with the cure; `param` names the part of the request.
Where trying again helps, the answer has a `Retry-After` header.

"""
        + _table(("code", "status", "try again", "when", "cure"), rows)
        + """
## For whoever runs the command

These end the command with exit code 2 and are never sent to a client.

"""
        + _table(("code", "when", "cure"), told)
    )


def cli_page() -> str:
    """docs/cli.md. Not argparse's own text, which changes with the version of Python."""
    top = parser()
    commands = next(action for action in top._actions if isinstance(action, argparse._SubParsersAction))  # noqa: SLF001
    about = {choice.dest: choice.help or "" for choice in commands._choices_actions}  # noqa: SLF001
    parts = [NOTE.format(source="src/twinlens/cli"), CLI_HEAD]
    for name, command in commands.choices.items():
        parts.append(f"\n## twinlens {name}\n\n{about[name][:1].upper()}{about[name][1:]}.\n\n{_arguments(command)}")
    return "".join(parts)


def metrics_page() -> str:
    """docs/metrics.md."""
    found = [
        (metric.name + ("_total" if metric.type == "counter" else ""), metric.type, metric.documentation)
        for metric in metrics.REGISTRY.collect()
    ]
    found.append((f"{deaths.NAME}_total", "counter", deaths.HELP))
    rows = [(f"`{name}`", kind, text) for name, kind, text in sorted(found)]
    return (
        NOTE.format(source="src/twinlens/observe/metrics.py and src/twinlens/supervisor/deaths.py")
        + """# Metrics

`GET /metrics`, in Prometheus' text form: sums over all gateway processes of the service. Label values are from small
sets (route templates, codes of the error tree, names of processes), never from a request.

"""
        + _table(("metric", "kind", "what it counts"), rows)
    )


PAGES: dict[str, Callable[[], str]] = {
    "settings.md": settings_page,
    "errors.md": errors_page,
    "cli.md": cli_page,
    "metrics.md": metrics_page,
}


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def _default(name: str) -> str:
    value = defaults()[name]
    return f"`{value}`" if value not in ("", ()) else ""


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;")


def _cure(kind: type[errors.TwinlensError]) -> str:
    return "" if kind.cure == errors.TwinlensError.cure else kind.cure


def _first_sentence(kind: type[errors.TwinlensError]) -> str:
    return " ".join((kind.__doc__ or "").split("\n\n")[0].split())


def _arguments(command: argparse.ArgumentParser) -> str:
    names = {item.name for item in fields(Settings)} | {"help", "config"}
    rows = [(f"`{_shown(action)}`", action.help or "") for action in command._actions if action.dest not in names]  # noqa: SLF001
    return _table(("argument", "what it is for"), rows)


def _shown(action: argparse.Action) -> str:
    metavar: Any = action.metavar or ("|".join(action.choices) if action.choices else action.dest.upper())
    if not action.option_strings:
        return f"[{metavar}]" if action.nargs == "?" else str(metavar)
    return action.option_strings[0] if action.nargs == 0 else f"{action.option_strings[0]} {metavar}"


def stale() -> list[str]:
    """Pages that are not as the code says."""
    return [name for name, page in PAGES.items() if not _is(FOLDER / name, page())]


def _is(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


def main(argv: Sequence[str]) -> int:
    """Write or check."""
    if "--check" in argv:
        for name in stale():
            sys.stderr.write(f"docs/{name} is stale: run “python -m docs.generate”.\n")
        return int(bool(stale()))
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
