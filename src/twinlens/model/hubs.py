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
    except RequestException as error:
        # The client says most of what the hub answered by this error of the library below it.
        if getattr(error.response, "status_code", 0) in (401, 403, 404):
            raise _not_there(model) from error
        raise _broken_off(model, "ModelScope", error) from error
    except (errors.HubError, OSError, ValueError) as error:
        raise _broken_off(model, "ModelScope", error) from error


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
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
        reason = os.strerror(error.errno)
        return ModelError(f"The model {model} cannot be saved: {reason}.", cure="Set HF_HOME to a folder with room.")
    return ModelError(f"Downloading {model} from {hub} failed.", cure=_NETWORK)


HUBS: dict[str, Callable[[str, str], Path]] = {"huggingface": _huggingface, "modelscope": _modelscope}
