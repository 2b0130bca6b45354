# ruff: noqa: PLC0415  (heavy libraries are imported where they are needed)
"""Train the demo model: workers draw, the GPU learns, and nothing waits for anything it need not wait for.

    python -m demo_model.train --tokenizer DIR --out DIR --minutes 9 --plan-minutes 25

A run stops by the clock, writes a full checkpoint (`--state`, for the next run on the same machine) and bf16 weights
under `--out`. The schedule follows the training minutes spent so far over `--plan-minutes`, so runs of any length add
up to one. `--weights` starts from bf16 weights alone, with fresh optimizer state and a warm-up.
"""

from __future__ import annotations

import argparse
import json
import math
import mmap
import multiprocessing as mp
import os
import queue
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F

from demo_model import data
from demo_model.architecture import FACTOR
from demo_model.data import TRAINED
from demo_model.model import DemoModel, initial

#: Room for the pixels of one batch: the cost of a batch bounds its patches.
SLOT_BYTES: Final = (data.COST // 5 + 1400) * FACTOR * FACTOR * 3
#: Pixels of a picture from which on two conversations share one look at it.
SHARED_LOOK: Final = 40 * FACTOR * FACTOR
#: What the allocator starts with on the GPU; a run needed up to 32 GB.
RESERVED_BYTES: Final = 48 << 30
STAGE_ENDS: Final = (("lines", 0.05), ("mixed", 0.35), ("pages", 1.01))


def stage_at(progress: float) -> str:
    return next(name for name, end in STAGE_ENDS if progress < end)


# ---- workers ------------------------------------------------------------------------------------------------------
class Workers:
    """Processes that draw batches into shared slots. Forked before CUDA starts."""

    def __init__(self, count: int, tokenizer: Path, seed: int, cost: int, slots: int, stage: str | None = None) -> None:
        context = mp.get_context("fork")
        self.free: Any = context.Queue()
        self.done: Any = context.Queue()
        self.asked: Any = context.Queue()
        self.progress = context.Value("d", 0.0)
        self.cost = cost
        self.stage = stage
        self.slots = [mmap.mmap(-1, SLOT_BYTES) for _ in range(slots)]
        for number in range(slots):
            self.free.put(number)
        self.processes = [
            context.Process(target=self._work, args=(tokenizer, data.train_seed(seed, number, 0)), daemon=True)
            for number in range(count)
        ]
        for process in self.processes:
            process.start()

    def _work(self, tokenizer: Path, first: int) -> None:
        from demo_model import tokenizer as tokenizers

        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        os.nice(10)  # drawing is ahead anyway; what launches the GPU's work must not wait
        encoder = data.Encoder(tokenizers.load(tokenizer))
        number = 0
        while True:
            try:
                asked = self.asked.get_nowait()
            except queue.Empty:
                asked = None
            slot = self.free.get()

            def room(shape: tuple[int, ...], slot: int = slot) -> np.ndarray:
                return np.frombuffer(self.slots[slot], np.uint8, math.prod(shape)).reshape(shape)

            if asked is None:
                number += 1
                seed = first + number
                stage = self.stage or stage_at(self.progress.value)
                batch = data.make_batch(seed, encoder, stage, cost=self.cost, room_for=room)
            else:
                batch = data.make_batch(asked, encoder, "pages", held=True, packs=1, cost=self.cost, room_for=room)
            self.done.put((slot, batch.pixels.shape, batch.noisy, batch.tilted, batch.packs, asked))

    def stop(self) -> None:
        for process in self.processes:
            process.kill()


@dataclass
class Loaded:
    """A batch on the device. A pack holds the arrays of `data.pack`."""

    pixels: Tensor
    noisy: Tensor  # in main memory, as `tilted`: choosing pictures there lets the GPU run on
    tilted: Tensor
    packs: list[dict[str, Tensor]]
    used: int = 0


class Loader:
    """Moves drawn batches to the device from a thread; hands out old ones again when drawing falls behind."""

    def __init__(self, workers: Workers, device: torch.device, keep: int) -> None:
        self.workers, self.device = workers, device
        self.ready: queue.Queue[Loaded] = queue.Queue(8)
        self.old: deque[Loaded] = deque(maxlen=keep)
        self.probe: list[Loaded] = []
        self.fresh = 0
        self.repeated = 0
        self.drawn_pictures = 0
        self.running = True
        self.cuda = device.type == "cuda"
        self.thread = threading.Thread(target=self._move, daemon=True)
        self.thread.start()

    def _to(self, array: np.ndarray, pinned: Tensor | None = None) -> Tensor:
        tensor = torch.from_numpy(array)
        if not self.cuda:
            return tensor.clone()
        if pinned is not None:
            room = pinned[: tensor.numel()].view(tensor.shape)
            room.copy_(tensor)
            return room.to(self.device, non_blocking=True)
        return tensor.to(self.device)  # pinning each small array would cost more than it saves

    def _move(self) -> None:
        pinned = None
        stream = None
        if self.cuda:
            torch.cuda.set_device(self.device)
            pinned = torch.empty(SLOT_BYTES, dtype=torch.uint8, pin_memory=True)
            stream = torch.cuda.Stream()
        while self.running:
            try:
                slot, shape, noisy, tilted, packs, asked = self.workers.done.get(timeout=0.2)
            except queue.Empty:
                continue
            pixels = np.frombuffer(self.workers.slots[slot], np.uint8, math.prod(shape)).reshape(shape)
            if stream is None:
                loaded = self._load(pixels, noisy, tilted, packs, None)
            else:
                with torch.cuda.stream(stream):
                    loaded = self._load(pixels, noisy, tilted, packs, pinned)
                stream.synchronize()
            self.workers.free.put(slot)
            if asked is not None:
                self.probe.append(loaded)
                continue
            self.drawn_pictures += shape[0]
            while self.running:
                try:
                    self.ready.put(loaded, timeout=0.2)
                    break
                except queue.Full:
                    continue

    def _load(
        self,
        pixels: np.ndarray,
        noisy: np.ndarray,
        tilted: np.ndarray,
        packs: list[dict[str, np.ndarray]],
        pinned: Tensor | None,
    ) -> Loaded:
        moved = [{name: self._to(array) for name, array in each.items()} for each in packs]
        return Loaded(self._to(pixels, pinned), torch.from_numpy(noisy), torch.from_numpy(tilted), moved)

    def next(self) -> tuple[Loaded, list[dict[str, Tensor]]]:
        """A batch and the packs to learn from: where looking costs most, all that share the look."""
        wait = len(self.old) < 24
        try:
            batch = self.ready.get(timeout=300) if wait else self.ready.get_nowait()
            self.fresh += 1
            self.old.append(batch)
        except queue.Empty:
            if not self.old:
                raise RuntimeError("no batch was drawn in 300 s") from None
            batch = self.old.popleft()
            self.old.append(batch)
            self.repeated += 1
        batch.used += 1
        if batch.pixels.shape[1] * batch.pixels.shape[2] > SHARED_LOOK and batch.used == 1:
            return batch, batch.packs
        return batch, [batch.packs[batch.used % len(batch.packs)]]


# ---- wear on the device -------------------------------------------------------------------------------------------
def worn(pixels: Tensor, noisy: Tensor, tilted: Tensor, generator: torch.Generator) -> Tensor:
    """What `canvas.wear` and `canvas.skew` do, for a whole batch: (pictures, height, width, 3) in 0..255, as float.

    `noisy` and `tilted` are in main memory.
    """
    device = pixels.device

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, device=device)

    def places(mask: Tensor) -> Tensor:
        return mask.nonzero()[:, 0].to(device, non_blocking=True)

    out = pixels.float()
    count, height, width, _ = out.shape
    chosen = places(tilted & (torch.rand(count) < 0.4))
    if len(chosen):
        x = out[chosen].permute(0, 3, 1, 2)
        angle = (uniform(len(chosen)) * 2 - 1) * math.radians(2.2)
        cos, sin = angle.cos(), angle.sin()
        zero = torch.zeros_like(cos)
        ratio = height / width
        turn = torch.stack((torch.stack((cos, -sin * ratio, zero), -1), torch.stack((sin / ratio, cos, zero), -1)), 1)
        x = F.grid_sample(
            x,
            F.affine_grid(turn, list(x.shape), align_corners=False),
            mode="bilinear",
            padding_mode="border",
            align_corners=False,
        )
        out[chosen] = x.permute(0, 2, 3, 1)
    chosen = places(noisy)
    if len(chosen):
        x = out[chosen].permute(0, 3, 1, 2)
        n = len(chosen)
        kernel = torch.tensor([0.25, 0.5, 0.25], device=device)
        kernel = (kernel[:, None] * kernel[None]).view(1, 1, 3, 3).expand(3, 1, 3, 3)
        for _ in range(2):
            soft = F.conv2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), kernel, groups=3)
            x = torch.lerp(x, soft, uniform(n, 1, 1, 1) * (uniform(n, 1, 1, 1) < 0.5))
        dark = 1 - uniform(n, 1, 3, 3) * 0.43
        dark = F.interpolate(dark, (height, width), mode="bicubic", align_corners=False)
        x = torch.where(uniform(n, 1, 1, 1) < 0.5, x * dark, x)
        grain = uniform(n, 1, max(2, height // 6), max(2, width // 6)) - 0.5
        grain = F.interpolate(grain, (height, width), mode="bilinear", align_corners=False) * (
            uniform(n, 1, 1, 1) * 0.11 + 0.03
        )
        fine = (uniform(n, 1, height, width) - 0.5) * (uniform(n, 1, 1, 1) * 0.12)
        x = torch.where(uniform(n, 1, 1, 1) < 0.5, x + 255 * (grain + fine), x)
        out[chosen] = x.permute(0, 2, 3, 1)
    gain = 1 + (uniform(count, 1, 1, 1) - 0.5) * 0.12
    return (out * gain).clamp_(0, 255)


# ---- optimizer ----------------------------------------------------------------------------------------------------
def orthogonal(matrices: Tensor) -> Tensor:
    """The nearest orthogonal directions of a stack of matrices, by Newton-Schulz steps in bf16."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrices.bfloat16() if matrices.is_cuda else matrices.float()
    upright = x.size(-2) > x.size(-1)
    if upright:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return (x.mT if upright else x).float()


class Optimizer:
    """Muon for the matrices of the blocks, AdamW for everything else; of one schedule."""

    def __init__(self, model: DemoModel, decay: float = 0.05) -> None:
        self.decay = decay
        groups: dict[tuple[int, ...], list[tuple[Tensor, int]]] = {}
        rest = []
        for name, parameter in zip(model.names, model.weights, strict=True):
            if parameter.ndim > 1 and "embed_tokens" not in name:
                # Query, key and value are three matrices in one; the patch kernel is one matrix.
                parts = 3 if "qkv" in name else 1
                shape = (parameter.shape[0] // parts, math.prod(parameter.shape[1:]))
                groups.setdefault(shape, []).append((parameter, parts))
            else:
                rest.append(parameter)
        self.groups = groups
        self.momentum = {
            shape: torch.zeros(sum(parts for _, parts in members), *shape, device=members[0][0].device)
            for shape, members in groups.items()
        }
        fused = rest[0].device.type == "cuda"
        self.adam = torch.optim.AdamW(rest, lr=1e-3, betas=(0.9, 0.98), weight_decay=0.0, fused=fused)

    @torch.no_grad()
    def step(self, rate: float, momentum: float = 0.95) -> None:
        for shape, members in self.groups.items():
            gradient = torch.cat([parameter.grad.view(parts, *shape) for parameter, parts in members])  # type: ignore[union-attr]
            held = self.momentum[shape]
            held.lerp_(gradient, 1 - momentum)
            update = orthogonal(gradient.lerp(held, momentum))
            update *= 0.2 * math.sqrt(max(shape))
            place = 0
            for parameter, parts in members:
                parameter.mul_(1 - rate * self.decay)
                parameter.view(parts, *shape).sub_(update[place : place + parts], alpha=rate)
                place += parts
        for group in self.adam.param_groups:
            group["lr"] = rate * 0.6
        self.adam.step()

    def state(self) -> dict[str, Any]:
        return {"momentum": {str(shape): held for shape, held in self.momentum.items()}, "adam": self.adam.state_dict()}

    def load(self, state: dict[str, Any]) -> None:
        for shape, held in self.momentum.items():
            held.copy_(state["momentum"][str(shape)])
        self.adam.load_state_dict(state["adam"])


def rate_at(progress: float, step: int, warm: int, peak: float, plateau: float = 0.6) -> float:
    """Warm-up by steps, a plateau, then down to a hundredth at the end of the planned time."""
    ramp = min(1.0, (step + 1) / warm)
    fall = 1.0 if progress < plateau else max(0.01, 1 - (progress - plateau) / (1 - plateau))
    return peak * ramp * fall


# ---- probe --------------------------------------------------------------------------------------------------------
@torch.no_grad()
def probe(model: DemoModel, batches: list[Loaded]) -> dict[str, tuple[float, int]]:
    """Share of held-out turns answered exactly. All answer tokens right in one pass is the same as greedy decoding
    giving the right answer, so nothing has to be generated."""
    right: dict[str, list[float]] = {}
    for batch in batches:
        pack = batch.packs[0]
        hidden = model(batch.pixels, pack["ids"].int(), pack["positions"], pack["image_at"].long())
        _, hit = model.losses(hidden, pack["answer_at"].long(), pack["answer_id"].long())
        turns = len(pack["turn_skill"])
        wrong = torch.zeros(turns, device=hit.device).index_add_(0, pack["answer_turn"].long(), (~hit).float())
        for skill, each in zip(pack["turn_skill"].tolist(), (wrong == 0).tolist(), strict=True):
            right.setdefault(TRAINED[skill], []).append(float(each))
    return {name: (sum(each) / len(each), len(each)) for name, each in sorted(right.items())}


def save_split(model: DemoModel, folder: Path) -> None:
    """bf16 weights in two files, each small enough to be carried."""
    tensors = {name: tensor.to(torch.bfloat16).cpu().contiguous() for name, tensor in model.named().items()}
    for part, wanted in (("visual", True), ("text", False)):
        some = {name: tensor for name, tensor in tensors.items() if name.startswith("visual") == wanted}
        save_file(some, folder / f"{part}.safetensors")


def load_weights(path: Path) -> dict[str, Tensor]:
    """From a checkpoint file, or from what `save_split` wrote."""
    if path.is_file():
        return load_file(path)
    folder = path
    return {**load_file(folder / "visual.safetensors"), **load_file(folder / "text.safetensors")}


# ---- the run ------------------------------------------------------------------------------------------------------
def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--state", type=Path, default=Path("/tmp/demo_model_state.pt"))
    parser.add_argument("--weights", type=Path, help="a checkpoint file, or a folder written by a run")
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--plan-minutes", type=float, default=25)
    parser.add_argument("--spent", type=float, default=0, help="training minutes before, where no state is resumed")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--slots", type=int, default=40)
    parser.add_argument("--keep", type=int, default=32)
    parser.add_argument("--plateau", type=float, default=0.6, help="share of the plan before the rate falls")
    parser.add_argument("--stage", choices=list(data.STAGES), help="one stage throughout")
    parser.add_argument("--cost", type=int, default=data.COST)
    parser.add_argument("--rate", type=float, default=2.5e-3)
    parser.add_argument("--warm", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plain", action="store_true", help="no compilation")
    parser.add_argument("--log-every", type=float, default=20, help="seconds")
    parser.add_argument("--probe-every", type=float, default=120, help="seconds")
    parser.add_argument("--probes", type=int, default=10, help="held-out batches")
    options = parser.parse_args()
    started = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    run = int(time.time()) % data.RUNS  # other pictures in every run
    workers = Workers(options.workers, options.tokenizer, run, options.cost, options.slots, options.stage)
    for number in range(options.probes):
        workers.asked.put(data.HELD_SEED + number)

    cuda = torch.cuda.is_available()
    device = torch.device("cuda:0" if cuda else "cpu")
    if cuda:
        # cuDNN plans its attention anew for every shape, and here nearly every batch has one of its own.
        torch.backends.cuda.enable_cudnn_sdp(False)
        # Given back at once to the allocator, which then cuts every size from it instead of asking the driver.
        torch.empty(RESERVED_BYTES, dtype=torch.uint8, device=device)
    else:
        torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    state: dict[str, Any] = {}
    if options.state.exists():
        state = torch.load(options.state, map_location="cpu", weights_only=True)
        weights = state["weights"]
    else:
        weights = load_weights(options.weights) if options.weights else initial(options.seed)
    model = DemoModel(weights, torch.bfloat16 if cuda else torch.float32, not options.plain).to(device)
    optimizer = Optimizer(model)
    spent, step = options.spent, 0
    if state:
        optimizer.load(state["optimizer"])
        spent, step = state["minutes"], state["step"]
    del state
    generator = torch.Generator(device).manual_seed(run)
    loader = Loader(workers, device, options.keep)
    log = (options.out / "train.log").open("a", encoding="utf-8")

    def say(**values: object) -> None:
        line = json.dumps(values)
        print(line, flush=True)
        log.write(line + "\n")
        log.flush()

    def save() -> float:
        """Keep everything: a machine can go away at any time. Gives the minutes of training so far."""
        minutes = spent + (time.monotonic() - started) / 60
        save_split(model, options.out)
        kept = {"weights": model.named(), "optimizer": optimizer.state(), "minutes": minutes, "step": step}
        unfinished = options.state.with_suffix(".new")
        torch.save(kept, unfinished)
        unfinished.replace(options.state)
        return minutes

    parameters = list(model.weights)
    sums = torch.zeros(len(TRAINED), 2, device=device)
    begun = time.monotonic()
    say(
        event="start",
        seconds=round(begun - started, 1),
        spent=spent,
        step=step,
        parameters=sum(each.numel() for each in parameters),
    )
    limit = options.minutes * 60
    last_log, last_probe, last_step, pictures, tokens, seen = begun, begun, step, 0, 0, 0
    while True:
        now = time.monotonic()
        elapsed = now - started
        progress = (spent + elapsed / 60) / options.plan_minutes
        if elapsed > limit:
            break
        workers.progress.value = progress
        batch, packs = loader.next()
        with torch.no_grad():
            pixels = worn(batch.pixels, batch.noisy, batch.tilted, generator)
        look = model.see(pixels)
        each = []
        for pack in packs:
            hidden = model.tell(look, pack["ids"].int(), pack["positions"], pack["image_at"].long())
            each.append(model.losses(hidden, pack["answer_at"].long(), pack["answer_id"].long())[0])
        losses, weight = torch.cat(each), torch.cat([pack["answer_weight"] for pack in packs])
        loss = (losses * weight).sum() / weight.sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
        optimizer.step(rate_at(progress, step, options.warm, options.rate, options.plateau))
        for parameter in parameters:
            parameter.grad = None
        with torch.no_grad():
            kind = torch.cat([pack["turn_skill"].long()[pack["answer_turn"].long()] for pack in packs])
            sums.index_add_(0, kind, torch.stack((losses.detach(), torch.ones_like(losses)), 1))
        step += 1
        pictures += len(batch.pixels)
        tokens += sum(pack["ids"].numel() for pack in packs)
        seen += len(weight)
        if now - last_log > options.log_every or (step - last_step == 5 and step < 6):
            span = time.monotonic() - last_log
            per = (sums[:, 0] / sums[:, 1].clamp(min=1)).tolist()
            say(
                step=step,
                seconds=round(elapsed),
                progress=round(progress, 3),
                stage=options.stage or stage_at(progress),
                rate=round(rate_at(progress, step, options.warm, options.rate, options.plateau), 5),
                loss=round(float(loss.detach()), 3),
                steps_s=round((step - last_step) / span, 2),
                pictures_s=round(pictures / span),
                answers_s=round(seen / span),
                drawn=loader.drawn_pictures,
                fresh=loader.fresh,
                repeated=loader.repeated,
                ready=loader.ready.qsize(),
                memory=round(torch.cuda.max_memory_allocated() / 1e9, 1) if cuda else 0,
                skills={name: round(value, 3) for name, value in zip(TRAINED, per, strict=True)},
            )
            sums.zero_()
            last_log, last_step, pictures, tokens, seen = time.monotonic(), step, 0, 0, 0
        if now - last_probe > options.probe_every:
            last_probe = time.monotonic()
            result = probe(model, loader.probe)
            say(
                event="probe",
                step=step,
                seconds=round(elapsed),
                took=round(time.monotonic() - last_probe, 1),
                exact={name: [round(share, 3), count] for name, (share, count) in result.items()},
            )
            save()
    loader.running = False
    minutes = save()
    result = probe(model, loader.probe)
    say(
        event="end",
        step=step,
        minutes=round(minutes, 2),
        exact={name: [round(share, 3), count] for name, (share, count) in result.items()},
    )
    workers.stop()
    log.close()
    sys.stdout.flush()
    os._exit(0)  # queues of killed workers would be waited for


if __name__ == "__main__":
    main()
