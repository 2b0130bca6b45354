"""Reads a task file, TOML or YAML, into plain tables: bounded, and nothing in it runs or refers to anything."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any

import yaml

from twinlens.errors import TaskError

if TYPE_CHECKING:
    from pathlib import Path

MAX_FILE = 256 << 10  # bytes of a task file, and of each file that it names
ENDINGS = (".toml", ".yaml", ".yml")


class _Loader(yaml.SafeLoader):
    """YAML without what surprises: no aliases, no repeated keys, and “no”, “on” or a date are texts."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - the library's own form
        first: [
            (tag, pattern) for tag, pattern in several if tag.rpartition(":")[2] in ("int", "float", "null", "merge")
        ]
        for first, several in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not taken")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys = [key.value for key, _ in node.value]
        repeated = next((key for key in keys if keys.count(key) > 1), None)
        if repeated is not None:
            raise yaml.YAMLError(f"the key “{str(repeated)[:60]}” stands twice")
        return super().construct_mapping(node, deep)


_BOOL = re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")
for _first in "tTfF":
    _Loader.yaml_implicit_resolvers.setdefault(_first, []).append(("tag:yaml.org,2002:bool", _BOOL))


def content(path: Path) -> bytes:
    """The bytes of a file. Raises TaskError for one that cannot be read or is too large."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE + 1)
    except OSError as error:
        raise TaskError(f"{path} cannot be read: {error.strerror}.") from error
    if len(data) > MAX_FILE:
        raise TaskError(f"{path} has more than {MAX_FILE} bytes.")
    return data


def tables(path: Path, data: bytes) -> dict[str, Any]:
    """What the file says. Raises TaskError naming the file and, where it is known, the line."""
    try:
        text = data.decode()
        found = tomllib.loads(text) if path.suffix == ".toml" else yaml.load(text, _Loader)  # noqa: S506 - a safe one
    except UnicodeDecodeError as error:
        raise TaskError(f"{path} is not UTF-8.") from error
    except tomllib.TOMLDecodeError as error:
        raise TaskError(f"{path} is not valid TOML: {error}.") from error
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise TaskError(f"{path} is not valid YAML: {line}{error.problem}.") from error
    except yaml.YAMLError as error:
        raise TaskError(f"{path} is not a task file: {str(error)[:200]}.") from error
    except (RecursionError, ValueError) as error:
        raise TaskError(f"{path} is nested too deeply, or holds a value that is none.") from error
    if not isinstance(found, dict):
        raise TaskError(f"{path} holds no table of keys.")
    return found
