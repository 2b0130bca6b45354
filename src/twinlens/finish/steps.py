"""The kinds of finishing steps: ours, and those that other packages bring."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from twinlens.errors import TaskError
from twinlens.finish import options
from twinlens.finish.geometry import Geometry
from twinlens.finish.held import HeldToSchema
from twinlens.finish.redact import Redact
from twinlens.finish.template import Template

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinlens.finish.seam import About, Kind, Plan

GROUP = "twinlens.finish"
OURS: dict[str, Kind] = {"schema": HeldToSchema, "redact": Redact, "geometry": Geometry, "template": Template}


@cache
def kinds() -> Mapping[str, Kind]:
    """Name to kind. Raises TaskError for an entry point that cannot be loaded or takes one of our names."""
    found = dict(OURS)
    for entry in entry_points(group=GROUP):
        if entry.name in found:
            raise TaskError(
                f"The package “{entry.dist.name if entry.dist else entry.module}” brings a finishing step "
                f"“{entry.name}”, which there is already.",
                cure="Rename its entry point, or uninstall the package.",
            )
        found[entry.name] = _loaded(entry)
    return found


def _loaded(entry: Any) -> Kind:
    try:
        kind: Kind = entry.load()
    except (ImportError, AttributeError) as error:
        raise TaskError(
            f"The finishing step “{entry.name}” ({entry.value}) cannot be loaded: {error}.",
            cure="Mend or uninstall the package that brings it.",
        ) from error
    return kind


def prepare(given: Mapping[str, Any], about: About) -> Plan:
    """The plan of one step of a task file: `use` names the kind, the other keys are its options.

    Raises TaskError naming the place.
    """
    name = given.get("use")
    if not isinstance(name, str):
        raise TaskError(f"{about.where}: “use” names the kind of the step: {', '.join(kinds())}.")
    if name not in kinds():
        options.known([name], kinds(), f"{about.where}.use")
    return kinds()[name]({key: value for key, value in given.items() if key != "use"}, about)
