"""The same network as transformers' Qwen2VLForConditionalGeneration, written for training speed.

Parameters carry the names of the published Qwen2-VL checkpoints. What makes it fast: all pictures of a batch have
one size, so the vision tower is dense attention without a loop over pictures; the two equal frames of a still
picture are folded into one product; only answer positions meet the vocabulary; one compiled function serves every
block of a tower, for every size.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from demo_model import architecture as arch

if TYPE_CHECKING:
    from collections.abc import Callable

PER_FRAME = 3 * arch.PATCH * arch.PATCH


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    turned = torch.cat((-second, first), -1)
    return (x.float() * cos + turned.float() * sin).to(x.dtype)


def vision_block(x: Tensor, cos: Tensor, sin: Tensor, p: list[Tensor]) -> Tensor:
    """One block of the vision tower; x is (pictures, patches, width)."""
    n1w, n1b, qkv_w, qkv_b, out_w, out_b, n2w, n2b, fc1_w, fc1_b, fc2_w, fc2_b = p
    kind = x.dtype
    pictures, patches, width = x.shape
    y = F.layer_norm(x.float(), (width,), n1w.float(), n1b.float(), 1e-6).to(kind)
    y = F.linear(y, qkv_w.to(kind), qkv_b.to(kind)).view(pictures, patches, 3, arch.VISION_HEADS, -1)
    q, k, v = y.permute(2, 0, 3, 1, 4).unbind(0)
    y = F.scaled_dot_product_attention(_rotate(q, cos, sin), _rotate(k, cos, sin), v)
    y = y.transpose(1, 2).reshape(pictures, patches, width)
    x = x + F.linear(y, out_w.to(kind), out_b.to(kind))
    y = F.layer_norm(x.float(), (width,), n2w.float(), n2b.float(), 1e-6).to(kind)
    y = F.linear(y, fc1_w.to(kind), fc1_b.to(kind))
    y = y * torch.sigmoid(1.702 * y)
    return x + F.linear(y, fc2_w.to(kind), fc2_b.to(kind))


def _rms(x: Tensor, weight: Tensor) -> Tensor:
    y = x.float()
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + arch.RMS_EPS)
    return (y * weight.float()).to(x.dtype)


def text_block(x: Tensor, cos: Tensor, sin: Tensor, p: list[Tensor]) -> Tensor:
    """One block of the decoder; x is (batch, length, width). Padding stands right, so causality alone hides it."""
    n1, q_w, q_b, k_w, k_b, v_w, v_b, o_w, n2, gate_w, up_w, down_w = p
    kind = x.dtype
    batch, length, width = x.shape
    y = _rms(x, n1)
    q = F.linear(y, q_w.to(kind), q_b.to(kind)).view(batch, length, arch.TEXT_HEADS, -1).transpose(1, 2)
    k = F.linear(y, k_w.to(kind), k_b.to(kind)).view(batch, length, arch.TEXT_KV_HEADS, -1).transpose(1, 2)
    v = F.linear(y, v_w.to(kind), v_b.to(kind)).view(batch, length, arch.TEXT_KV_HEADS, -1).transpose(1, 2)
    groups = arch.TEXT_HEADS // arch.TEXT_KV_HEADS
    q, k = _rotate(q, cos, sin), _rotate(k, cos, sin)
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    x = x + F.linear(y.transpose(1, 2).reshape(batch, length, width), o_w.to(kind))
    y = _rms(x, n2)
    y = F.silu(F.linear(y, gate_w.to(kind))) * F.linear(y, up_w.to(kind))
    return x + F.linear(y, down_w.to(kind))


def answer_loss(hidden: Tensor, embedding: Tensor, norm: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Loss of each answer token, and whether it would be chosen greedily."""
    logits = F.linear(_rms(hidden, norm), embedding.to(hidden.dtype)).float()
    return F.cross_entropy(logits, target, reduction="none"), logits.argmax(-1) == target


VISION_NAMES = [
    "norm1.weight",
    "norm1.bias",
    "attn.qkv.weight",
    "attn.qkv.bias",
    "attn.proj.weight",
    "attn.proj.bias",
    "norm2.weight",
    "norm2.bias",
    "mlp.fc1.weight",
    "mlp.fc1.bias",
    "mlp.fc2.weight",
    "mlp.fc2.bias",
]
TEXT_NAMES = [
    "input_layernorm.weight",
    "self_attn.q_proj.weight",
    "self_attn.q_proj.bias",
    "self_attn.k_proj.weight",
    "self_attn.k_proj.bias",
    "self_attn.v_proj.weight",
    "self_attn.v_proj.bias",
    "self_attn.o_proj.weight",
    "post_attention_layernorm.weight",
    "mlp.gate_proj.weight",
    "mlp.up_proj.weight",
    "mlp.down_proj.weight",
]


def shapes() -> dict[str, tuple[int, ...]]:
    """Every parameter of the checkpoint and its shape."""
    v, t, kv = arch.VISION_WIDTH, arch.TEXT_WIDTH, arch.TEXT_KV_HEADS * arch.HEAD_DIM
    wide, merged = v * arch.VISION_MLP_RATIO, v * arch.MERGE**2
    out: dict[str, tuple[int, ...]] = {"visual.patch_embed.proj.weight": (v, 3, 2, arch.PATCH, arch.PATCH)}
    vision = [(v,), (v,), (3 * v, v), (3 * v,), (v, v), (v,), (v,), (v,), (wide, v), (wide,), (v, wide), (v,)]
    text = [
        (t,),
        (t, t),
        (t,),
        (kv, t),
        (kv,),
        (kv, t),
        (kv,),
        (t, t),
        (t,),
        (arch.TEXT_MLP, t),
        (arch.TEXT_MLP, t),
        (t, arch.TEXT_MLP),
    ]
    for depth in range(arch.VISION_DEPTH):
        out |= {f"visual.blocks.{depth}.{name}": shape for name, shape in zip(VISION_NAMES, vision, strict=True)}
    out |= {"visual.merger.ln_q.weight": (v,), "visual.merger.ln_q.bias": (v,)}
    out |= {"visual.merger.mlp.0.weight": (merged, merged), "visual.merger.mlp.0.bias": (merged,)}
    out |= {"visual.merger.mlp.2.weight": (t, merged), "visual.merger.mlp.2.bias": (t,)}
    out["model.embed_tokens.weight"] = (arch.VOCABULARY, t)
    for depth in range(arch.TEXT_DEPTH):
        out |= {f"model.layers.{depth}.{name}": shape for name, shape in zip(TEXT_NAMES, text, strict=True)}
    out["model.norm.weight"] = (t,)
    return out


def initial(seed: int) -> dict[str, Tensor]:
    """Random weights: norms at one, biases at zero, products into the residual stream small."""
    generator = torch.Generator().manual_seed(seed)
    out = {}
    for name, shape in shapes().items():
        if len(shape) == 1:
            out[name] = torch.ones(shape) if name.endswith("weight") else torch.zeros(shape)
            continue
        spread = 0.02 if "embed_tokens" in name else math.prod(shape[1:]) ** -0.5
        if name.endswith(("attn.proj.weight", "fc2.weight", "o_proj.weight", "down_proj.weight")):
            spread *= 0.3
        out[name] = torch.randn(shape, generator=generator) * spread
    return out


class DemoModel(nn.Module):  # type: ignore[misc, unused-ignore]
    """Weights by their checkpoint names, and a forward over one-size batches."""

    def __init__(self, weights: dict[str, Tensor], dtype: torch.dtype, compiled: bool) -> None:
        super().__init__()
        self.dtype = dtype
        self.names = list(shapes())
        self.weights = nn.ParameterList([nn.Parameter(weights[name].float()) for name in self.names])
        self.place = {name: number for number, name in enumerate(self.names)}

        def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
            return torch.compile(function, dynamic=True) if compiled else function

        self.vision_block, self.text_block, self.answer_loss = wrap(vision_block), wrap(text_block), wrap(answer_loss)
        mean, std = torch.tensor(arch.IMAGE_MEAN), torch.tensor(arch.IMAGE_STD)
        self.register_buffer("mean", mean * 255, persistent=False)
        self.register_buffer("scale", 1 / (std * 255), persistent=False)
        vision = 1.0 / 10000 ** (torch.arange(0, arch.HEAD_DIM // 2, 2).float() / (arch.HEAD_DIM // 2))
        text = 1.0 / arch.ROPE_THETA ** (torch.arange(0, arch.HEAD_DIM, 2).float() / arch.HEAD_DIM)
        self.register_buffer("vision_rate", vision, persistent=False)
        self.register_buffer("text_rate", text, persistent=False)
        self.register_buffer("section", torch.tensor([0] * 8 + [1] * 12 + [2] * 12), persistent=False)

    def __getitem__(self, name: str) -> Tensor:
        return self.weights[self.place[name]]

    def named(self) -> dict[str, Tensor]:
        return {name: parameter.detach() for name, parameter in zip(self.names, self.weights, strict=True)}

    def _some(self, prefix: str, names: list[str]) -> list[Tensor]:
        return [self[prefix + name] for name in names]

    def see(self, pixels: Tensor) -> Tensor:
        """(pictures, height, width, 3) in 0..255 -> (pictures, vision tokens, text width)."""
        count, height, width, _ = pixels.shape
        down, across = height // arch.FACTOR, width // arch.FACTOR
        x = ((pixels.float() - self.mean) * self.scale).to(self.dtype)
        x = x.view(count, down, arch.MERGE, arch.PATCH, across, arch.MERGE, arch.PATCH, 3)
        x = x.permute(0, 1, 4, 2, 5, 7, 3, 6).reshape(count, -1, PER_FRAME)
        kernel = self["visual.patch_embed.proj.weight"].sum(2).view(arch.VISION_WIDTH, PER_FRAME)
        x = F.linear(x, kernel.to(self.dtype))
        rows = torch.arange(height // arch.PATCH, device=x.device)
        columns = torch.arange(width // arch.PATCH, device=x.device)
        order = (down, arch.MERGE, across, arch.MERGE)
        rows = rows[:, None].expand(-1, len(columns)).reshape(order).permute(0, 2, 1, 3).reshape(-1)
        columns = columns[None].expand(height // arch.PATCH, -1).reshape(order).permute(0, 2, 1, 3).reshape(-1)
        angles = torch.cat((rows[:, None] * self.vision_rate, columns[:, None] * self.vision_rate), -1)
        angles = torch.cat((angles, angles), -1)
        cos, sin = angles.cos(), angles.sin()
        block = self.vision_block if torch.is_grad_enabled() else vision_block  # measuring is not worth compiling for
        for depth in range(arch.VISION_DEPTH):
            x = block(x, cos, sin, self._some(f"visual.blocks.{depth}.", VISION_NAMES))
        norm_w, norm_b = self["visual.merger.ln_q.weight"], self["visual.merger.ln_q.bias"]
        x = F.layer_norm(x.float(), (arch.VISION_WIDTH,), norm_w, norm_b, 1e-6).to(self.dtype)
        x = x.view(count, down * across, -1)
        x = F.linear(
            x, self["visual.merger.mlp.0.weight"].to(self.dtype), self["visual.merger.mlp.0.bias"].to(self.dtype)
        )
        x = F.gelu(x)
        return F.linear(
            x, self["visual.merger.mlp.2.weight"].to(self.dtype), self["visual.merger.mlp.2.bias"].to(self.dtype)
        )

    def forward(self, pixels: Tensor, ids: Tensor, positions: Tensor, image_at: Tensor) -> Tensor:
        """Hidden states before the last norm. `image_at`: flat places of the vision tokens in `ids`."""
        return self.tell(self.see(pixels), ids, positions, image_at)

    def tell(self, seen: Tensor, ids: Tensor, positions: Tensor, image_at: Tensor) -> Tensor:
        """`forward` from the vision tokens on, so that several conversations share one look at the pictures."""
        batch, length = ids.shape
        x = F.embedding(ids, self["model.embed_tokens.weight"]).to(self.dtype)
        x = (
            x.view(batch * length, -1)
            .index_copy(0, image_at, seen.reshape(-1, arch.TEXT_WIDTH))
            .view(batch, length, -1)
        )
        angles = positions[self.section].permute(1, 2, 0).float() * self.text_rate
        angles = torch.cat((angles, angles), -1)[:, None]
        cos, sin = angles.cos(), angles.sin()
        block = self.text_block if torch.is_grad_enabled() else text_block
        for depth in range(arch.TEXT_DEPTH):
            x = block(x, cos, sin, self._some(f"model.layers.{depth}.", TEXT_NAMES))
        return x

    def losses(self, hidden: Tensor, answer_at: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        chosen = hidden.reshape(-1, arch.TEXT_WIDTH)[answer_at]
        loss = self.answer_loss if torch.is_grad_enabled() else answer_loss
        both: tuple[Tensor, Tensor] = loss(chosen, self["model.embed_tokens.weight"], self["model.norm.weight"], target)
        return both

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(_rms(hidden, self["model.norm.weight"]), self["model.embed_tokens.weight"].to(hidden.dtype))
