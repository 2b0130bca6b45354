"""What the operator asked for: merged once, frozen, handed out in small values. The only reader of os.environ.

Flags beat the environment (`TWINLENS_<NAME>`), which beats the file (`--config`, else `./twinlens.toml`, else
`~/.config/twinlens/config.toml`), which beats the defaults. Unknown keys are named, never dropped.
The page docs/settings.md is generated from this file.
"""

from __future__ import annotations

import difflib
import math
import os
import re
import tempfile
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import msgspec

from twinlens import __version__
from twinlens.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "TWINLENS_"
SOURCES = ("flag", "environment", "file", "default")


def setting(default: Any, help_: str, *, unit: str = "", secret: bool = False, minimum: float | None = None) -> Any:
    """A field of `Settings`: its default, what it is for, and whether it must never be shown."""
    meta = {"help": help_, "unit": unit, "secret": secret, "minimum": minimum}
    if isinstance(default, tuple | dict | list):
        return field(default_factory=lambda: default, metadata=meta)
    return field(default=default, metadata=meta)


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting of the service, in the order in which the documentation shows them."""

    model: str = setting("demo", "folder or hub id of the model; “demo” is the one in the package")
    served_name: str = setting("", "name that clients use; default: the last part of the model's name")
    hub: str = setting("huggingface", "where a hub id is looked up: huggingface or modelscope")
    revision: str = setting("", "branch, tag or commit at the hub")
    engine: str = setting("openvino", "engine to start: openvino (embedded) or fake (for tests)")
    engine_args: tuple[str, ...] = setting((), "more arguments for the engine's own command line")
    engine_url: str = setting("", "attach to a running engine instead: http(s)://host:port or unix:/path")
    engine_api_key: str = setting("", "key for the engine at engine_url, sent to it as bearer", secret=True)

    host: str = setting("127.0.0.1", "address to listen on; other than loopback only with keys")
    port: int = setting(8000, "port to listen on; 0 takes a free one", minimum=0)
    workers: int = setting(1, "gateway processes", minimum=1)
    api_keys: tuple[str, ...] = setting(
        (), "keys that may do everything; neither these nor a keys file: loopback only", secret=True
    )
    keys_file: str = setting("", "file of “twinlens keys”; default: keys.jsonl in the folder for data, if it exists")
    trusted_proxies: tuple[str, ...] = setting(
        (), "addresses or ranges of proxies whose X-Forwarded-For is believed, such as 10.0.0.0/8"
    )
    allowed_hosts: tuple[str, ...] = setting((), "further names by which clients without a key may call this service")
    cors_origins: tuple[str, ...] = setting((), "origins that browsers may call from; none: CORS is off")
    rate_requests: int = setting(30, "requests a minute of each key with the chat scope; 0: no limit", minimum=0)
    rate_burst: int = setting(5, "requests of a key that may come at once beyond the first", minimum=0)
    rate_vision_tokens: int = setting(1_000_000, "vision tokens a minute of each key; 0: no limit", minimum=0)
    rate_text_tokens: int = setting(
        1_000_000, "text tokens a minute of each key, prompt and answer; 0: no limit", minimum=0
    )
    address_requests: int = setting(0, "requests a minute of each client address; 0: no limit", minimum=0)
    address_burst: int = setting(5, "requests of an address that may come at once beyond the first", minimum=0)
    address_vision_tokens: int = setting(0, "vision tokens a minute of each client address; 0: no limit", minimum=0)
    address_text_tokens: int = setting(0, "text tokens a minute of each client address; 0: no limit", minimum=0)
    redis_url: str = setting(
        "", "redis://host:port/db whose limits several gateways share; empty: each host its own", secret=True
    )
    long_prompt_tokens: int = setting(8192, "a prompt with more counts as over-long", unit="tokens", minimum=1)
    long_prompt_share: float = setting(
        0.05, "over-long prompts above this share of the last minute's are refused for a while; 0: never", minimum=0
    )
    run_dir: str = setting("", "folder for sockets and process state; default: one per user")

    store: str = setting("", "folder of the store, on tmpfs; default: /dev/shm/twinlens-<uid>")
    store_bytes: int = setting(1 << 30, "size bound of the store", unit="bytes", minimum=1 << 20)

    max_body_bytes: int = setting(64 << 20, "largest request body", unit="bytes", minimum=1024)
    max_image_bytes: int = setting(32 << 20, "largest picture file", unit="bytes", minimum=1024)
    max_image_pixels: int = setting(100_000_000, "largest picture before resizing", unit="pixels", minimum=1)
    max_images: int = setting(32, "pictures in one request, over the whole conversation", minimum=1)
    max_messages: int = setting(1024, "messages in one request", minimum=1)
    max_text_chars: int = setting(1_000_000, "characters of text in one request", minimum=1)
    icc_to_srgb: bool = setting(True, "convert colours by a picture's embedded profile (ICC) to sRGB")
    min_pixels: int = setting(0, "lower bound of the resized picture; 0: as the model says", unit="pixels", minimum=0)
    max_pixels: int = setting(0, "upper bound of the resized picture; 0: as the model says", unit="pixels", minimum=0)

    max_pages: int = setting(200, "pages of documents in one request", minimum=1)
    page_dpi: float = setting(
        150.0, "resolution at which PDF pages are drawn, less where a page is too large", unit="dots an inch", minimum=1
    )
    page_timeout_s: float = setting(30.0, "longest work on one page of a PDF", unit="seconds", minimum=0.1)
    page_text: bool = setting(False, "add the text of PDF pages to the prompt, behind each page's picture")

    url_hosts: tuple[str, ...] = setting(
        (),
        "hosts whose https URLs are fetched, as img.example.org, *.example.org, host:8443, or * for all; none: off",
    )
    url_timeout_s: float = setting(10.0, "longest fetch of a picture, redirects included", unit="seconds", minimum=0.1)
    url_connections_per_host: int = setting(8, "connections to one host of URLs, per worker", minimum=1)
    url_user_agent: str = setting(
        f"Twinlens/{__version__} (picture fetcher)", "what fetches call themselves; some hosts want a contact in it"
    )

    max_file_bytes: int = setting(64 << 20, "largest file at /v1/files", unit="bytes", minimum=1024)
    files_bytes_per_owner: int = setting(1 << 30, "files that one tenant may keep", unit="bytes", minimum=1024)
    files_per_owner: int = setting(1000, "number of files that one tenant may keep", minimum=1)
    files_bytes: int = setting(10 << 30, "files of all tenants together", unit="bytes", minimum=1024)
    files_life_s: int = setting(
        7 * 24 * 3600, "life of a file whose upload names none (expires_after)", unit="seconds", minimum=60
    )

    max_running: int = setting(0, "requests at the engine at once; 0: as the engine says", minimum=0)
    max_queue: int = setting(256, "requests waiting in front of the engine", minimum=0)
    load_threads: int = setting(
        0, "threads that decode pictures, per worker; 0: the workers share the cores", minimum=0
    )
    request_timeout_s: float = setting(300.0, "deadline of a request", unit="seconds", minimum=0.1)
    idle_timeout_s: float = setting(60.0, "longest silence of the engine inside an answer", unit="seconds", minimum=0.1)
    default_max_tokens: int = setting(
        1024, "tokens of an answer when the client gives no limit", unit="tokens", minimum=1
    )

    kv_cache_gb: float = setting(1.0, "memory of the embedded engine's KV cache", unit="GB", minimum=0.1)
    max_num_seqs: int = setting(64, "sequences that share one step of the embedded engine", minimum=1)
    engine_threads: int = setting(0, "threads of the embedded engine; 0: as many as there are cores", minimum=0)
    engine_start_timeout_s: float = setting(600.0, "longest start of an engine", unit="seconds", minimum=1)
    engine_stall_timeout_s: float = setting(
        20.0, "no sign of life for so long: the engine is replaced", unit="seconds", minimum=1
    )
    drain_timeout_s: float = setting(60.0, "longest wait for running requests at SIGTERM", unit="seconds", minimum=0)

    tasks_dir: str = setting("", "folder of your own task files, beside those of the package")
    redact: tuple[str, ...] = setting(
        (), "what is hidden in every answer and log line: id, passport, phone, card, email, plate, name, or all"
    )
    redact_key: str = setting("", "key of hashes that stand for what is hidden", secret=True)
    audit: bool = setting(False, "write a line for every answer of a task, without its content")
    audit_content: bool = setting(False, "let the audit lines hold the finished answers too")
    audit_bytes: int = setting(64 << 20, "size at which a new audit file is begun", unit="bytes", minimum=4096)

    log_level: str = setting("info", "debug, info, warning or error")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from: one of SOURCES, and the exact place in words."""

    source: str
    place: str = ""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Merged settings together with the origin of each."""

    settings: Settings
    origins: Mapping[str, Origin]

    def shown(self) -> list[tuple[str, str, str]]:
        """(name, value with secrets masked, origin) of every setting, in order."""
        rows = []
        for item in fields(Settings):
            value = getattr(self.settings, item.name)
            origin = self.origins[item.name]
            if item.name == "engine_url":
                value = without_userinfo(value)
            text = _mask(value) if item.metadata["secret"] else msgspec.json.encode(value).decode()
            rows.append((item.name, text, f"{origin.source} {origin.place}".strip()))
        return rows


def load(
    flags: Mapping[str, Any] | None = None,
    *,
    config: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Loaded:
    """Merge flags, environment, file and defaults.

    `flags` holds only what was given on the command line. Raises SettingsError for an unknown key, a value of the
    wrong kind or out of range, and a configuration file that cannot be read.
    """
    environ = os.environ if environ is None else environ
    config = config or environ.get(PREFIX + "CONFIG") or None
    layers = (
        ("flag", "", _from_flags(flags or {})),
        ("environment", "", _from_environment(environ)),
        ("file", *_from_file(config, environ)),
    )
    values: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    for item in fields(Settings):
        for source, place, layer in layers:
            if item.name in layer:
                values[item.name] = _checked(item.name, layer[item.name], source, place)
                origins[item.name] = Origin(source, place or _place(source, item.name))
                break
        else:
            origins[item.name] = Origin("default")
    return Loaded(Settings(**values), origins)


def defaults() -> dict[str, Any]:
    """Name to default value."""
    plain = Settings()
    return {item.name: getattr(plain, item.name) for item in fields(Settings)}


def to_json(settings: Settings) -> bytes:
    """For a child process: settings travel through its standard input, so secrets are in no file or argument."""
    return msgspec.json.encode(settings)


def from_json(data: bytes) -> Settings:
    """The reverse of `to_json`."""
    return msgspec.json.decode(data, type=Settings)


def data_dir(environ: Mapping[str, str] | None = None) -> Path:
    """Folder for what must outlast a restart: `$TWINLENS_DATA`, default `~/.local/share/twinlens`. Not created here."""
    environ = os.environ if environ is None else environ
    return Path(environ.get(PREFIX + "DATA") or Path.home() / ".local/share/twinlens")


def run_dir(settings: Settings, environ: Mapping[str, str] | None = None) -> Path:
    """Folder for sockets and process state of this service; one per user and port. Not created here."""
    environ = os.environ if environ is None else environ
    if settings.run_dir:
        return Path(settings.run_dir).absolute()
    base = environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return Path(base) / f"twinlens-{os.getuid()}" / str(settings.port)


def store_dir(settings: Settings) -> Path:
    """Folder of the store: shared by all services of this user. Not created here."""
    if settings.store:
        return Path(settings.store).absolute()
    shm = Path("/dev/shm")  # noqa: S108 - the tmpfs that Linux provides; the store makes its folder 0700
    base = shm if shm.is_dir() and os.access(shm, os.W_OK) else Path(tempfile.gettempdir())
    return base / f"twinlens-{os.getuid()}"


def child_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """This process's environment with `extra` over it, for starting a child.

    Without the settings in it: a child has what it needs from its orders, and some of them are secret.
    """
    return {key: value for key, value in os.environ.items() if not key.startswith(PREFIX)} | dict(extra)


def without_userinfo(url: str) -> str:
    """An address fit to be shown: a user and a password in it are masked, whatever else is wrong with it."""
    if url.startswith("unix:"):
        return url
    return re.sub(r"^([A-Za-z][A-Za-z0-9+.-]*:)?(/*).*@", r"\1\2********@", url, flags=re.DOTALL)


def _from_flags(flags: Mapping[str, Any]) -> Mapping[str, Any]:
    for name in flags:
        _known(name, "flag")
    return flags


def _from_environment(environ: Mapping[str, str]) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for key, value in environ.items():
        if not key.startswith(PREFIX) or key in (PREFIX + "CONFIG", PREFIX + "DATA"):
            continue
        name = key.removeprefix(PREFIX).lower()
        _known(name, f"environment variable {key}")
        found[name] = value
    return found


def _from_file(config: str | None, environ: Mapping[str, str]) -> tuple[str, Mapping[str, Any]]:
    home = Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    candidates = [Path(config)] if config else [Path("twinlens.toml"), home / "twinlens/config.toml"]
    for path in candidates:
        if not config and not path.is_file():
            continue
        try:
            with path.open("rb") as file:
                table = tomllib.load(file)
        except OSError as error:
            raise SettingsError(f"The configuration file {path} cannot be read: {error.strerror}.") from error
        except tomllib.TOMLDecodeError as error:
            raise SettingsError(f"The configuration file {path} is not valid TOML: {error}.") from error
        for name in table:
            _known(name, str(path))
        return str(path), table
    return "", {}


def _known(name: str, place: str) -> None:
    names = [item.name for item in fields(Settings)]
    if name in names:
        return
    near = difflib.get_close_matches(name, names, n=1)
    hint = f" Did you mean “{near[0]}”?" if near else ""
    raise SettingsError(f"Unknown setting “{name}” ({place}).{hint}")


def _place(source: str, name: str) -> str:
    if source == "flag":
        return "--" + name.replace("_", "-")
    return PREFIX + name.upper() if source == "environment" else ""


def _checked(name: str, value: Any, source: str, place: str) -> Any:
    kind = get_type_hints(Settings)[name]
    where = f"{name} ({source} {place or _place(source, name)})"
    if isinstance(value, str) and get_args(kind):
        value = [part.strip() for part in value.split(",") if part.strip()]
    try:
        # Text from flags and environment becomes numbers here; a TOML file has to give the right kind itself.
        result = msgspec.convert(value, kind, strict=source == "file")
    except msgspec.ValidationError as error:
        raise SettingsError(f"{where}: {error}.") from error
    if isinstance(result, float) and not math.isfinite(result):
        raise SettingsError(f"{where}: {result} is not a number that can be counted with.")
    minimum = next(item.metadata["minimum"] for item in fields(Settings) if item.name == name)
    if minimum is not None and result < minimum:
        raise SettingsError(f"{where}: {result} is below the least value, {minimum:g}.")
    return result


def _mask(value: Any) -> str:
    """As many asterisks as there are secrets; none where none is set."""
    masked = ["********" for _ in value] if isinstance(value, tuple) else "********" if value else ""
    return msgspec.json.encode(masked).decode()
