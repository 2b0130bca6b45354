"""Run in an environment with transformers: decode to patches by its Qwen2-VL processor, beside ours. Prints JSON."""

from __future__ import annotations

import importlib
import io
import json
import sys
import time
from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image

from bench.pictures import photo
from twinlens.media import decode
from twinlens.model.pictures import PictureRule

MEAN, SPREAD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
RULE = PictureRule(patch=14, merge=2, temporal=2, min_pixels=3136, max_pixels=1003520)


def patches(pixels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """(patches, 3 * 2 * 14 * 14), in the order of Qwen2-VL."""
    scale = np.float32(1 / 255) / np.asarray(SPREAD, np.float32)
    shift = np.asarray(MEAN, np.float32) / np.asarray(SPREAD, np.float32)
    values = pixels.astype(np.float32) * scale - shift
    height, width = pixels.shape[0] // 28, pixels.shape[1] // 28
    cut = values.reshape(height, 2, 14, width, 2, 14, 3).transpose(0, 3, 1, 4, 6, 2, 5)
    twice = np.broadcast_to(cut[:, :, :, :, :, None], (*cut.shape[:5], 2, 14, 14))
    return twice.reshape(height * width * 4, -1)


def main() -> None:
    """Time all ways in turns."""
    torch.set_num_threads(1)
    data = photo("1 MB")
    size = RULE.target(*decode.look(data, "", 10**9).size)
    bounds = {"min_pixels": 3136, "max_pixels": 1003520}
    kinds = [
        getattr(importlib.import_module(f"transformers.models.qwen2_vl.{module}"), name)
        for module, name in (
            ("image_processing_pil_qwen2_vl", "Qwen2VLImageProcessorPil"),
            ("image_processing_qwen2_vl", "Qwen2VLImageProcessor"),
        )
    ]
    processors = {f"transformers {transformers.__version__}, {kind.__name__}": kind(**bounds) for kind in kinds}
    ways: dict[str, Any] = {
        "ours, decode to patches": lambda: patches(np.asarray(decode.pixels(data, "JPEG", size, "")))
    }
    for name, processor in processors.items():
        ways[name] = lambda processor=processor: processor(
            images=Image.open(io.BytesIO(data)).convert("RGB"), return_tensors="pt"
        )
    wanted = ways[next(iter(processors))]()["pixel_values"].numpy()
    ours = ways["ours, decode to patches"]()
    if ours.shape != wanted.shape or np.abs(ours - wanted).mean() > 0.02:
        raise SystemExit(f"not the same patches: {ours.shape}, {wanted.shape}, {np.abs(ours - wanted).mean()}")
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(int(sys.argv[1])):
        for name, work in ways.items():
            began = time.perf_counter()
            work()
            times[name].append(1e3 * (time.perf_counter() - began))
    print(json.dumps(times))


if __name__ == "__main__":
    main()
