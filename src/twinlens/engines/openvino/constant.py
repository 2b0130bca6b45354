"""A language model of no weight, for the scratch pipeline in which grammars are tried."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import openvino as ov
from openvino import opset13 as ops


def constant_model(vocabulary: int) -> tuple[str, ov.Tensor]:
    """A language model of no weight: every token is equally likely, whatever came before."""
    shape: list[int] = [-1, -1]
    names = {"input_ids": np.int64, "attention_mask": np.int64, "position_ids": np.int64, "beam_idx": np.int32}
    inputs = []
    for name, kind in names.items():
        parameter = ops.parameter(shape[:1] if name == "beam_idx" else shape, kind, name=name)
        parameter.output(0).get_tensor().set_names({name})
        inputs.append(parameter)
    size = ops.concat([ops.shape_of(inputs[0]), ops.constant(np.array([vocabulary]))], 0)
    logits = ops.broadcast(ops.constant(np.float32(0)), size)
    for parameter in inputs[1:]:  # inputs that lead nowhere would be taken out
        every = ops.constant(np.arange(1 if parameter.get_friendly_name() == "beam_idx" else 2))
        nothing = ops.multiply(ops.convert(ops.reduce_sum(parameter, every), "f32"), ops.constant(np.float32(0)))
        logits = ops.add(logits, nothing)
    logits.output(0).get_tensor().set_names({"logits"})
    model = ov.Model([ops.result(logits)], inputs, "constant")
    return _serialised(model)


def _serialised(model: ov.Model) -> tuple[str, ov.Tensor]:
    with tempfile.TemporaryDirectory(prefix="twinlens-") as folder:
        xml = Path(folder) / "model.xml"
        ov.serialize(model, xml)
        weights = np.fromfile(xml.with_suffix(".bin"), dtype=np.uint8)
        return xml.read_text(), ov.Tensor(weights if weights.size else np.zeros(1, dtype=np.uint8))
