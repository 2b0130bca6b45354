"""Environments of the peers, made once a machine and kept under .cache/venvs."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
CACHE = ROOT / ".cache"


def python_of(name: str) -> Path:
    """Interpreter of the environment that bench/requirements-<name>.txt describes; installed if it is not there."""
    requirements = Path(__file__).parent / f"requirements-{name}.txt"
    folder = CACHE / "venvs" / f"bench-{name}-{hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]}"
    python, done = folder / "bin/python", folder / "installed"
    if not done.exists():
        print(f"Installing the environment of “{name}” ...", file=sys.stderr, flush=True)
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "-r", requirements], check=True)
        done.touch()
    return python
