"""Reading the small files of a model folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from twinlens.errors import ModelError

if TYPE_CHECKING:
    from pathlib import Path

_AGAIN = "Download the model again."


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a model folder. Raises ModelError when it cannot be read or is not an object."""
    try:
        value = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.") from error
    except msgspec.DecodeError as error:
        raise ModelError(f"{path} is not valid JSON.", cure=_AGAIN) from error
    if not isinstance(value, dict):
        raise ModelError(f"{path} does not hold a JSON object.", cure=_AGAIN)
    return value


def read_text(path: Path) -> str:
    """A text file of a model folder. Raises ModelError when it cannot be read or is not UTF-8."""
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.", cure=_AGAIN) from error
    except UnicodeDecodeError as error:
        raise ModelError(f"{path} is not UTF-8 text.", cure=_AGAIN) from error
