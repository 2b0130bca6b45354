"""Start the embedded engine: `python -m twinlens.engines.openvino --folder MODEL --socket PATH`, settings on stdin."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from twinlens import settings as settings_
from twinlens.engines.process import serve
from twinlens.engines.server import EngineApp
from twinlens.errors import OperatorError
from twinlens.model import checkpoint
from twinlens.parent import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinlens.engines.openvino.engine import OpenVinoEngine

SWITCH_S = 0.001  # the steps' thread must not wait for the interpreter longer than a fraction of a step


def main(argv: Sequence[str] | None = None) -> int:
    """Load the model, warm it up, serve until SIGTERM. Exit code 2 with the cure when the model cannot be loaded."""
    args = _arguments(argv)
    die_with_parent(args.parent)
    data = b"" if sys.stdin.isatty() else sys.stdin.buffer.read()
    settings = settings_.from_json(data) if data.strip() else settings_.Settings()
    logging.basicConfig(level=settings.log_level.upper(), format="%(levelname)s %(name)s: %(message)s")
    sys.setswitchinterval(SWITCH_S)
    try:
        found = checkpoint.read(args.folder, revision=settings.revision, served_name=settings.served_name)
        engine = _engine(found, settings)
    except OperatorError as error:
        print(f"{error.message} {error.cure}", file=sys.stderr)  # noqa: T201 - for whoever started us
        return 2
    try:
        serve(EngineApp(engine, found.name), unix=args.socket, port=args.port or 0)
    finally:
        engine.close()
    return 0


def _engine(found: checkpoint.Checkpoint, settings: settings_.Settings) -> OpenVinoEngine:
    from twinlens.engines.openvino.engine import OpenVinoEngine  # noqa: PLC0415 - OpenVINO takes half a second to import
    from twinlens.engines.openvino.model import Model  # noqa: PLC0415

    return OpenVinoEngine(Model(found, settings), settings, settings_.store_dir(settings))


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m twinlens.engines.openvino", description="The embedded engine.")
    parser.add_argument("--folder", type=Path, required=True, help="model in OpenVINO's form")
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--socket", help="Unix socket to listen on")
    place.add_argument("--port", type=int, help="port of 127.0.0.1 to listen on")
    parser.add_argument("--parent", type=int, help="end when this process, which started us, ends")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
