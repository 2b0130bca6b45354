"""The address of an engine that somebody else runs: checked and normalised once, before anything starts."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from twinlens.errors import SettingsError
from twinlens.orders import EngineAddress
from twinlens.settings import without_userinfo
from twinlens.supervisor.runfolder import SOCKET_PATH_LIMIT

if TYPE_CHECKING:
    from twinlens.settings import Settings

CURE = "Give http://host:port, https://host:port or unix:/path/of/socket."
UNIX = "unix:"
HOST = re.compile(r"[\w.-]+|[0-9A-Fa-f:.]+(%\w+)?")  # a name or an address; never a slash, a space or a bracket
API = re.compile(r"/*(v1/*)?")  # people copy the base of OpenAI clients, which ends with /v1


def attached(settings: Settings) -> EngineAddress:
    """`engine_url` as the client takes it, with its key. Raises SettingsError saying what is wrong with it."""
    url = settings.engine_url.strip()
    if not url.isprintable() or " " in url:
        raise _wrong(url, "holds spaces or control characters")
    if url.startswith(UNIX):
        return EngineAddress(UNIX + _socket(url), settings.engine_api_key)
    try:
        parts = urlsplit(url)
        normal = _normal(url, parts)
    except ValueError as error:  # a port or brackets that are none
        raise _wrong(url, "is not an address") from error
    if settings.engine_api_key and "@" in parts.netloc:
        raise _wrong(url, "holds a user while engine_api_key is set: only one of them can be sent")
    return EngineAddress(normal, settings.engine_api_key)


def _normal(url: str, parts: SplitResult) -> str:
    if parts.scheme not in ("http", "https"):
        raise _wrong(url, "does not begin with http://, https:// or unix:/")
    if not parts.hostname or not HOST.fullmatch(parts.hostname) or parts.port == 0:
        raise _wrong(url, "names no host and port")
    if parts.query or parts.fragment or not API.fullmatch(parts.path):
        raise _wrong(url, "goes on behind host and port")
    return f"{parts.scheme}://{parts.netloc}"


def _socket(url: str) -> str:
    path = url.removeprefix(UNIX)
    if not path.startswith("/"):
        raise _wrong(url, "is not an absolute path")
    path = "/" + path.lstrip("/")  # unix:///path is a habit too
    if len(os.fsencode(path)) > SOCKET_PATH_LIMIT:
        raise _wrong(url, "is too long a path for a socket")
    return path


def _wrong(url: str, why: str) -> SettingsError:
    return SettingsError(f"engine_url: “{without_userinfo(url)}” {why}.", cure=CURE)
