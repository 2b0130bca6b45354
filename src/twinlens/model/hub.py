"""From what the operator named to a folder: the demo model, a folder, or an id at a hub.

The hubs' own clients do the loading, so their variables count: HF_ENDPOINT, HF_HUB_OFFLINE, HF_HOME, HF_TOKEN and
MODELSCOPE_DOMAIN, MODELSCOPE_CACHE and so on. Whatever goes wrong ends as a ModelError with the cure.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from twinlens.errors import ModelError
from twinlens.model import hubs

if TYPE_CHECKING:
    from twinlens.model.weights import Form
    from twinlens.settings import Settings

DEMO = "demo"
_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def find(model: str, settings: Settings, *, form: Form = "openvino") -> Path:
    """The model's folder, downloaded if need be. `form` chooses between the two forms of the demo model.

    Raises ModelError.
    """
    if model == DEMO:
        return demo_folder(form)
    folder = Path(model).expanduser()
    if model and folder.is_dir():
        return folder.absolute()
    if folder.is_file():
        raise ModelError(f"{model} is a file, not a model folder.", cure="Give the folder that it lies in.")
    if not _ID.fullmatch(model) or model.startswith(("/", ".", "~")):
        raise ModelError(
            f"“{model}” is neither a folder nor a hub id.",
            cure="Give a folder, or an id such as Qwen/Qwen2-VL-2B-Instruct.",
        )
    return hubs.download(settings.hub, model, settings.revision)


def demo_folder(form: Form) -> Path:
    """The demo model inside the package. Raises ModelError while it is not there."""
    folder = Path(__file__).parent.parent / DEMO / form
    if (folder / "config.json").is_file():
        return folder
    raise ModelError(
        f"This build of Twinlens has no demo model in its {form} form.",
        cure="Name a model: twinlens serve FOLDER_OR_HUB_ID.",
    )
