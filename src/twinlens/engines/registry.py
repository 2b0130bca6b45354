"""The engines that ship: how each is started, which form of a model it takes. A plain dict; adding one is an entry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

ATTACH = (
    "Start it with “vllm serve MODEL --served-model-name NAME --port 8001” and attach it with "
    "“twinlens serve MODEL --served-name NAME --engine-url http://127.0.0.1:8001”."
)
# Engines that serve what the embedded one cannot, and that somebody has to start so far; with how to attach one.
NOT_STARTED_HERE = {"vllm": ATTACH}
EXPORT = "optimum-cli export openvino --model MODEL --task image-text-to-text FOLDER"


@dataclass(frozen=True, slots=True)
class EngineKind:
    """How an engine is started: `python` + `arguments(...)`, the settings as JSON on its standard input.

    `form` is the form of model that it takes; empty if any does. `cure` is what to do when the form is another.
    """

    name: str
    module: str
    form: str
    cure: str

    def arguments(self, folder: Path, socket: Path, parent: int) -> tuple[str, ...]:
        """Arguments of the interpreter. The engine ends when process `parent`, which starts it, ends."""
        place = ("--socket", str(socket), "--parent", str(parent))
        return ("-m", self.module, *place, *(("--folder", str(folder)) if self.form else ()))


ENGINES: dict[str, EngineKind] = {
    kind.name: kind
    for kind in (
        EngineKind(
            name="openvino",
            module="twinlens.engines.openvino",
            form="openvino",
            cure=f"Export it once with “{EXPORT}”, or let a vLLM of your own serve it on a GPU. {ATTACH}",
        ),
        EngineKind(
            name="fake",
            module="twinlens.engines.fake",
            form="",
            cure="Any model folder will do.",
        ),
    )
}
