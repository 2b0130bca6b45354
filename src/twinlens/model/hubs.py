"""The two hubs that models are downloaded from. Adding one is adding a function to HUBS."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, cast

from twinlens.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable

# Weights in forms that no engine takes, and what is not needed to serve.
UNUSED = ["*.gguf", "*.pt", "*.pth", "*.h5", "*.msgpack", "*.onnx", "pytorch_model*.bin", "original/*", "*.md"]
SERVER_ERROR = 500  # from this HTTP status on the hub cannot be reached as it should
UNSAVED = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.ENOTDIR, errno.EEXIST)
_NETWORK = "Check the network and the hub's address, or give the folder of a model that is already here."


def download(hub: str, model: str, revision: str) -> Path:
    """Folder of a complete snapshot of `model`, from the hub's cache where it is there. Raises ModelError."""
    if hub not in HUBS:
        raise ModelError(f"There is no hub “{hub}”.", cure=f"Set hub to one of: {', '.join(HUBS)}.")
    return HUBS[hub](model, revision)


def _huggingface(model: str, revision: str) -> Path:
    # Imported here: it takes a third of a second, and most starts need no hub.
    from huggingface_hub import constants, errors, snapshot_download  # noqa: PLC0415

    # The client's HTTP library changed its name between versions; this is the root of its errors in each.
    http_error = cast("type[Exception]", errors.HfHubHTTPError.__bases__[0])
    hub = constants.ENDPOINT
    try:
        return Path(snapshot_download(model, revision=revision or None, ignore_patterns=UNUSED))
    except errors.GatedRepoError as error:
        raise ModelError(
            f"The model {model} at {hub} is gated.", cure="Accept its terms there and set HF_TOKEN."
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ModelError(
            f"There is no model {model} at {hub}.", cure="Check the id; a private model needs HF_TOKEN."
        ) from error
    except errors.RevisionNotFoundError as error:
        raise ModelError(f"The model {model} has no revision “{revision}”.", cure="Check revision.") from error
    except errors.HFValidationError as error:
        raise ModelError(f"“{model}” is not an id of the hub.", cure="An id is ORGANISATION/NAME.") from error
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
        raise _absent(model, hub, offline=constants.HF_HUB_OFFLINE) from error
    except (http_error, OSError) as error:
        raise _broken_off(model, hub, error) from error


def _modelscope(model: str, revision: str) -> Path:
    try:
        from modelscope import snapshot_download  # noqa: PLC0415
    except ImportError as error:
        raise ModelError("The hub modelscope needs its client.", cure="pip install 'twinlens[modelscope]'") from error
    from modelscope.hub import errors  # noqa: PLC0415
    from requests.exceptions import RequestException  # noqa: PLC0415 - a dependency of that client

    try:
        return Path(snapshot_download(model, revision=revision or None, ignore_patterns=UNUSED))
    except errors.NotExistError as error:
        raise _not_there(model) from error
    except (RequestException, errors.HubError, OSError, ValueError) as error:
        # The client says some of what the hub answered by an error of the library below it.
        status = _status(error)
        if status in (401, 403, 404):
            raise _not_there(model) from error
        away = isinstance(error, RequestException | ConnectionError | TimeoutError) and not status
        if not away and status < SERVER_ERROR:
            raise _broken_off(model, "ModelScope", error) from error
        try:  # what was downloaded before serves, as with the other hub, whose client does this by itself
            return Path(snapshot_download(model, revision=revision or None, local_files_only=True))
        except (errors.HubError, OSError, ValueError):
            raise _broken_off(model, "ModelScope", error) from error


def _status(error: Exception) -> int:
    """HTTP status that a client's error carries; 0: the hub gave no answer."""
    found = getattr(getattr(error, "response", None), "status_code", None) or getattr(error, "status_code", None)
    return found if isinstance(found, int) else 0


def _not_there(model: str) -> ModelError:
    cure = "Check the id and the revision; a private model needs MODELSCOPE_API_TOKEN."
    return ModelError(f"There is no model {model} at ModelScope, or no such revision of it.", cure=cure)


def _absent(model: str, hub: str, *, offline: bool) -> ModelError:
    if offline:
        return ModelError(
            f"The model {model} is not in the local cache, and HF_HUB_OFFLINE forbids downloading it.",
            cure="Unset HF_HUB_OFFLINE once, or give the folder of a model that is already here.",
        )
    return ModelError(f"The model {model} is not in the local cache, and {hub} does not answer.", cure=_NETWORK)


def _broken_off(model: str, hub: str, error: Exception) -> ModelError:
    if isinstance(error, OSError) and error.errno in UNSAVED:
        reason = os.strerror(error.errno)
        variable = "MODELSCOPE_CACHE" if hub == "ModelScope" else "HF_HOME"
        cure = f"Set {variable} to a folder that has room and may be written to."
        return ModelError(f"The model {model} cannot be saved: {reason}.", cure=cure)
    return ModelError(f"Downloading {model} from {hub} failed.", cure=_NETWORK)


HUBS: dict[str, Callable[[str, str], Path]] = {"huggingface": _huggingface, "modelscope": _modelscope}
