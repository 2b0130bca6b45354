"""All tasks of a service: those that the package ships, and those in the user's folder, which win by name."""

from __future__ import annotations

import difflib
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from twinlens.errors import TaskError, TaskNotFound
from twinlens.tasks import reading
from twinlens.tasks.task import Task, read

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinlens.settings import Settings

PREFIX = "task:"  # of the model's name in chat completions
MAX_TASKS = 1000


class Shelf:
    """Tasks by name. Read once, when the service starts."""

    def __init__(self, tasks: Mapping[str, Task]) -> None:
        self.tasks = dict(sorted(tasks.items()))

    def get(self, name: str, param: str | None = None) -> Task:
        """The task of that name. Raises TaskNotFound with the nearest one."""
        if name in self.tasks:
            return self.tasks[name]
        near = difflib.get_close_matches(name, self.tasks, n=1)
        hint = f" Did you mean “{near[0]}”?" if near else ""
        raise TaskNotFound(f"There is no task “{name[:60]}”.{hint}", param=param)


def shipped() -> Path:
    """The folder of the tasks in the package."""
    return Path(str(resources.files("twinlens.tasks"))) / "shipped"


def paths(tasks_dir: str) -> dict[str, Path]:
    """Name to file of all tasks. Raises TaskError for a folder that is not there and for a name that is there twice."""
    found: dict[str, Path] = {}
    own = Path(tasks_dir).expanduser() if tasks_dir else None
    if own and not own.is_dir():
        raise TaskError(f"tasks_dir: there is no folder {own}.", cure="Make it, or correct the setting tasks_dir.")
    for folder in filter(None, (shipped(), own)):
        here: dict[str, Path] = {}
        for path in sorted(folder.iterdir()):
            if path.suffix not in reading.ENDINGS or path.name.startswith("."):
                continue
            if path.stem in here:
                raise TaskError(f"{path} and {here[path.stem].name} are both the task “{path.stem}”.")
            here[path.stem] = path
        found |= here
    if len(found) > MAX_TASKS:
        raise TaskError(f"tasks_dir: {len(found)} tasks, limit {MAX_TASKS}.")
    return found


def load(settings: Settings) -> Shelf:
    """Read all tasks. Raises TaskError for the first that cannot be used: nobody shall miss one later."""
    files = paths(settings.tasks_dir)
    return Shelf({name: read(path, secret=settings.redact_key) for name, path in files.items()})
