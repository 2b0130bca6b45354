"""Which form the weights of a folder have, whether they are all there, and whose they are.

The identity is a digest over the configuration, the headers of the weights and the weights themselves. Files up to
64 MiB are read whole. Of larger ones the header is read whole and so is a sample of every tensor, which tells apart
two fine-tunes of one model, whose headers are alike, without reading gigabytes at every start.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from blake3 import blake3

from twinlens.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Form = Literal["safetensors", "openvino"]

WHOLE = 64 << 20  # bytes; files up to this size are digested whole
SAMPLE = 512  # bytes from the middle of a tensor
_INDEX = "model.safetensors.index.json"
_IR_PARTS = (
    "openvino_language_model",
    "openvino_text_embeddings_model",
    "openvino_vision_embeddings_model",
    "openvino_vision_embeddings_merger_model",
    "openvino_tokenizer",
    "openvino_detokenizer",
)
_AGAIN = "Download or export the model again."


def form(folder: Path) -> Form:
    """What the folder holds; checks that every file of it is there. Raises ModelError naming the first that is not."""
    if any(folder.glob("openvino_*.xml")):
        _check_ir(folder)
        return "openvino"
    if any(folder.glob("*.safetensors")) or (folder / _INDEX).is_file():
        for shard in _shards(folder):
            _header(shard)
        return "safetensors"
    other = sorted(
        path.name for pattern in ("*.gguf", "*.pt", "*.pth", "*.bin", "*.onnx") for path in folder.glob(pattern)
    )
    if other:
        raise ModelError(
            f"{folder} holds weights only as {other[0]}, which no engine of Twinlens takes.",
            cure="Give the safetensors form of the model or its OpenVINO export.",
        )
    raise ModelError(f"{folder} holds no weights (*.safetensors or openvino_*.xml).", cure=_AGAIN)


def identity(folder: Path, kind: Form, revision: str) -> str:
    """Hex digest of 256 bits of configuration, weights and revision."""
    digest = blake3(f"twinlens weights 1\0{kind}\0{revision}\0".encode())
    files = [folder / "config.json", *(_shards(folder) if kind == "safetensors" else _ir_files(folder))]
    for path in files:
        digest.update(f"{path.name}\0{path.stat().st_size}\0".encode())
        for block in _telling(path):
            digest.update(block)
    return digest.hexdigest()


def _telling(path: Path) -> Iterator[bytes]:
    """The bytes of a file that tell it from another."""
    size = path.stat().st_size
    if size <= WHOLE:
        yield path.read_bytes()
        return
    spots = _tensor_spots(path) if path.suffix == ".safetensors" else range(0, size, max(SAMPLE, size // 4096))
    if path.suffix == ".safetensors":
        yield _header(path)[0]
    with path.open("rb") as file:
        for spot in spots:
            file.seek(spot)
            yield file.read(SAMPLE)


def _tensor_spots(path: Path) -> list[int]:
    raw, tensors = _header(path)
    base = 8 + len(raw)
    return [base + sum(item["data_offsets"]) // 2 for _, item in sorted(tensors.items())]


def _shards(folder: Path) -> list[Path]:
    index = folder / _INDEX
    if not index.is_file():
        return [_whole_or_missing(path) for path in sorted(folder.glob("*.safetensors"))]
    try:
        names = sorted(set(msgspec.json.decode(index.read_bytes())["weight_map"].values()))
    except (OSError, msgspec.DecodeError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{index} is not a safetensors index.", cure=_AGAIN) from error
    if not names or any(type(name) is not str or "/" in name or not name.endswith(".safetensors") for name in names):
        raise ModelError(f"{index} names files that are not safetensors shards.", cure=_AGAIN)
    for name in names:
        if not (folder / name).is_file():
            raise ModelError(f"{folder / name} is missing: {index.name} names it.", cure=_AGAIN)
    return [folder / name for name in names]


def _whole_or_missing(path: Path) -> Path:
    """A shard of several needs the index: without it nobody knows whether all are there."""
    if "-of-" in path.stem and not path.stem.endswith("-00001-of-00001"):
        raise ModelError(f"{path.parent / _INDEX} is missing, but {path.name} is one of several shards.", cure=_AGAIN)
    return path


def _header(path: Path) -> tuple[bytes, dict[str, Any]]:
    """The raw header of a safetensors file and its tensors. Raises ModelError when the file is cut off or no such."""
    with path.open("rb") as file:
        start = file.read(8)
        _refuse_pointer(path, start)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        size = path.stat().st_size
        if not 2 <= length <= min(size - 8, 100 << 20):
            raise ModelError(f"{path} is not a complete safetensors file.", cure=_AGAIN)
        raw = file.read(length)
    try:
        tensors = {name: item for name, item in msgspec.json.decode(raw).items() if name != "__metadata__"}
        end = max((item["data_offsets"][1] for item in tensors.values()), default=0)
        complete = 8 + length + end <= size
    except (msgspec.DecodeError, AttributeError, KeyError, IndexError, TypeError) as error:
        raise ModelError(f"{path} is not a safetensors file.", cure=_AGAIN) from error
    if not complete:
        raise ModelError(
            f"{path} is cut off: its header tells of {8 + length + end} bytes, it has {size}.", cure=_AGAIN
        )
    return raw, tensors


def _refuse_pointer(path: Path, start: bytes) -> None:
    if start == b"version ":
        raise ModelError(f"{path} is a Git LFS pointer, not the weights.", cure="Run “git lfs pull” in the folder.")


def _check_ir(folder: Path) -> None:
    for part in _IR_PARTS:
        if not (folder / f"{part}.xml").is_file():
            raise ModelError(
                f"{folder / part}.xml is missing.", cure="Export the model again, tokenizer and detokenizer included."
            )
    for path in sorted(folder.glob("openvino_*.xml")):
        weights = path.with_suffix(".bin")
        if not weights.is_file():
            raise ModelError(f"{weights} is missing beside {path.name}.", cure=_AGAIN)
        with weights.open("rb") as file:
            _refuse_pointer(weights, file.read(8))


def _ir_files(folder: Path) -> list[Path]:
    return [path for xml in sorted(folder.glob("openvino_*.xml")) for path in (xml, xml.with_suffix(".bin"))]
