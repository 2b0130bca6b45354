"""On the path of the integration tests only: lets torchvision be imported beside a CPU build of torch.

The package index has torchvision built for CUDA. Its extension does not load without it, and torchvision then fails
at import, because two of the extension's operators are missing. Nobody here calls them: it is enough that they exist.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
kept: list[Any] = []  # a library's definitions go with the object


class BeforeTorchvision(MetaPathFinder):
    """Finds nothing; looks when somebody asks for torchvision."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Define the operators, once, if the extension does not."""
        if name != "torchvision" or self not in sys.meta_path:
            return
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec and spec.origin and not self.loads(Path(spec.origin).parent):
            import torch  # noqa: PLC0415

            library = torch.library.Library(name, "DEF")
            kept.append(library)
            for operator in OPERATORS:
                library.define(operator)

    def loads(self, folder: Path) -> bool:
        """Whether the extension works here."""
        import torch  # noqa: PLC0415

        try:
            for extension in folder.glob("_C*.so"):
                torch.ops.load_library(extension)
        except OSError:
            return False
        return True


sys.meta_path.insert(0, BeforeTorchvision())
