"""A model folder, read once: family, picture rule, context length, identity of the weights.

Every fault of a folder is a ModelError that names what is missing and how to get it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from twinlens.errors import ModelError
from twinlens.model import weights
from twinlens.model.files import read_json
from twinlens.model.pictures import PictureRule
from twinlens.model.template import template_of
from twinlens.model.words import Words

if TYPE_CHECKING:
    from pathlib import Path

Family = Literal["qwen2_vl", "qwen2_5_vl", "qwen3_vl"]

# What the processors assume where preprocessor_config.json is silent: patch, least and largest picture in pixels.
_ASSUMED: dict[str, tuple[int, int, int]] = {
    "qwen2_vl": (14, 56 * 56, 28 * 28 * 1280),
    "qwen2_5_vl": (14, 56 * 56, 28 * 28 * 1280),
    "qwen3_vl": (16, 56 * 56, 28 * 28 * 1280),
}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What the rest of the service needs to know of a model; nothing here changes while it is served.

    `context` is in tokens. `weights_id` is the hex digest of configuration, weights and revision: two models share
    it only if they are the same.
    """

    folder: Path
    family: Family
    name: str
    form: weights.Form
    rule: PictureRule
    context: int
    weights_id: str

    @property
    def box_units(self) -> Literal["thousandths", "seen"]:
        """How this family writes boxes: in thousandths of the picture, or in pixels of the resized picture it saw."""
        return "seen" if self.family == "qwen2_5_vl" else "thousandths"

    def words(self) -> Words:
        """Tokenizer and chat template. Raises ModelError when they are missing or unreadable."""
        return Words.read(self.folder)


def read(folder: Path, *, revision: str = "", served_name: str = "") -> Checkpoint:
    """Read a model folder. `revision` is the hub's, if it came from one; it is part of the identity.

    Raises ModelError when the folder is not a complete Qwen2-VL, Qwen2.5-VL or Qwen3-VL model.
    """
    if not folder.is_dir():
        raise ModelError(f"There is no model folder {folder}.")
    config = _config(folder)
    family = _family(folder, config)
    form = weights.form(folder)
    template_of(folder)
    return Checkpoint(
        folder=folder,
        family=family,
        name=served_name or _name(folder),
        form=form,
        rule=_rule(folder, family),
        context=_context(folder, config),
        weights_id=weights.identity(folder, form, revision),
    )


def _config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if path.is_file():
        return read_json(path)
    ggufs = sorted(file.name for file in folder.glob("*.gguf"))
    if ggufs:
        raise ModelError(
            f"{folder} holds a GGUF model ({ggufs[0]}), which no engine of Twinlens takes.",
            cure="Give the original safetensors folder or its OpenVINO export.",
        )
    if not any(folder.iterdir()):
        raise ModelError(f"The model folder {folder} is empty.", cure="Download the model into it.")
    raise ModelError(f"{path} is missing.", cure="Give a complete model folder; download the model again.")


def _family(folder: Path, config: dict[str, Any]) -> Family:
    kind = config.get("model_type")
    if kind in _ASSUMED:
        return cast("Family", kind)
    named = f"a “{kind}” model" if isinstance(kind, str) else "a model of unnamed type"
    raise ModelError(f"{folder} holds {named}, which Twinlens does not serve.")


def _context(folder: Path, config: dict[str, Any]) -> int:
    # New configurations nest the language model's settings; old ones have them at the top.
    nested = config.get("text_config")
    for settings in (nested if isinstance(nested, dict) else {}, config):
        value = settings.get("max_position_embeddings")
        if isinstance(value, int) and value > 0:
            return value
    raise ModelError(f"{folder / 'config.json'} does not say max_position_embeddings.", cure="Download it again.")


def _rule(folder: Path, family: Family) -> PictureRule:
    path, settings = _processor(folder)
    patch, low, high = _ASSUMED[family]
    size = settings.get("size")
    size = size if isinstance(size, dict) else {}
    # Where a file has both, the processors let min_pixels and max_pixels win over size.
    chosen = {
        "patch": settings.get("patch_size") or patch,
        "merge": settings.get("merge_size") or 2,
        "temporal": settings.get("temporal_patch_size") or 2,
        "min_pixels": settings.get("min_pixels") or size.get("shortest_edge") or low,
        "max_pixels": settings.get("max_pixels") or size.get("longest_edge") or high,
    }
    for name, value in chosen.items():
        if type(value) is not int or value < 1:
            raise ModelError(f"{path}: {name} is not a whole number above 0.", cure="Correct the file.")
    rule = PictureRule(**chosen)
    if not rule.feasible:
        raise ModelError(
            f"{path}: min_pixels {rule.min_pixels} and max_pixels {rule.max_pixels} leave no picture size.",
            cure=f"Make max_pixels at least {rule.factor**2} larger than min_pixels.",
        )
    return rule


def _processor(folder: Path) -> tuple[Path, dict[str, Any]]:
    """The picture settings and their file: preprocessor_config.json, or the nested form of newer exports."""
    path = folder / "preprocessor_config.json"
    if path.is_file():
        return path, read_json(path)
    newer = folder / "processor_config.json"
    if newer.is_file():
        nested = read_json(newer).get("image_processor")
        if isinstance(nested, dict):
            return newer, nested
    raise ModelError(f"{path} is missing.", cure="Copy it from the original model; picture sizes depend on it.")


def _name(folder: Path) -> str:
    # A snapshot in a hub's cache lies in models--ORG--NAME/snapshots/COMMIT or models/ORG--NAME/snapshots/master:
    # the last part is no name to show.
    folder = folder.absolute()
    if folder.parent.name == "snapshots":
        return folder.parent.parent.name.rsplit("--", 1)[-1]
    return folder.name
