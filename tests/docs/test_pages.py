"""The documentation fails here when it goes stale."""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from docs import generate
from twinlens.cli.main import parsed
from twinlens.engines.fake import Behaviour

ROOT = Path(__file__).parents[2]
PAGES = sorted(path for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
READMES = [ROOT / "README.md", ROOT / "README.zh-CN.md"]


def blocks(path: Path, language: str) -> list[str]:
    """The code blocks of a page."""
    return re.findall(rf"^```{language}\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_generated_pages_are_as_the_code_says() -> None:
    assert generate.stale() == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_both_readmes_show_the_same_commands() -> None:
    for language in ("sh", "console", "python"):
        english, chinese = (blocks(path, language) for path in READMES)
        assert english == chinese


def test_both_readmes_have_the_same_sections() -> None:
    english, chinese = (re.findall(r"^#+", path.read_text(encoding="utf-8"), re.MULTILINE) for path in READMES)
    assert english == chinese
    english, chinese = (re.findall(r"\]\((\S+?)\)", path.read_text(encoding="utf-8"))[1:] for path in READMES)
    assert english == chinese


def test_the_commands_of_the_readme_exist() -> None:
    lines = "".join(blocks(READMES[0], "sh") + blocks(READMES[0], "console")).splitlines()
    commands = [shlex.split(line.removeprefix("$ "), comments=True) for line in lines]
    shown = [
        command for command in commands if command and command[0] in ("twinlens", "./scripts/start", "./scripts/test")
    ]
    assert len(shown) > 6
    for program, *words in shown:
        if program == "twinlens":
            parsed(words)
        else:
            assert (ROOT / program).exists()


def test_the_code_of_the_readme_is_code() -> None:
    for block in blocks(READMES[0], "python"):
        ast.parse(block)


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (ROOT / "docs/decisions/dependencies.md").read_text(encoding="utf-8")
    wanted = {re.split(r"[<>=\[; ]", line)[0].lower() for line in project["dependencies"]}
    wanted |= {re.split(r"[<>=\[; ]", line)[0] for extra in project["optional-dependencies"].values() for line in extra}
    told = {name.strip(" *") for row in re.findall(r"^\| ([^|]+) \|", page, re.MULTILINE) for name in row.split(",")}
    assert wanted <= told | set(re.findall(r"\*\*([\w-]+)\*\*", page))
    assert told - {"library", "---"} <= wanted


def test_every_decision_is_in_the_index() -> None:
    folder = ROOT / "docs/decisions"
    named = re.findall(r"\]\(([^)]+)\)", (folder / "README.md").read_text(encoding="utf-8"))
    assert sorted(named) == sorted(path.name for path in folder.glob("*.md") if path.name != "README.md")


def test_every_behaviour_of_the_fake_engine_is_described() -> None:
    page = (ROOT / "docs/fake-engine.md").read_text(encoding="utf-8")
    rows = [row for row in page.splitlines() if row.startswith("| `--")]
    told = {name for row in rows for name in re.findall(r"`--([\w-]+)`", row.split("|")[1])}
    assert told == {name.replace("_", "-") for name in Behaviour.__dataclass_fields__}


def test_the_command_of_the_fake_engine_is_one() -> None:
    for line in "".join(blocks(ROOT / "docs/fake-engine.md", "sh")).splitlines():
        settings = parsed(shlex.split(line)[1:])
        assert settings
