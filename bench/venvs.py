"""Environments of the peers, made at their first use and shared by all checkouts of this user."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
CACHE = ROOT / ".cache"
SHARED = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "twinlens/venvs"


def python_of(name: str) -> Path:
    """Interpreter of the environment that bench/requirements-<name>.txt describes; installed if it is not there."""
    requirements = Path(__file__).parent / f"requirements-{name}.txt"
    mark = hashlib.sha256(sys.version.encode() + requirements.read_bytes()).hexdigest()[:12]
    folder = SHARED / f"bench-{name}-{mark}"
    make = '. scripts/common.sh; environment "$@"'
    subprocess.run(["bash", "-ec", make, "bash", folder, sys.executable, "-r", requirements], cwd=ROOT, check=True)
    return folder / "bin/python"
