"""The documentation names files, links, commands, options, kernels and variants that exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import typer

from bnnrt import cli
from bnnrt.variants import VARIANTS

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("bnnrt", "kernels", "converters", "preprocess", "deploy", "tests", "docs", "examples", "benchmarks")
PAGES = sorted(path.relative_to(ROOT).as_posix() for pattern in ("*.md", "docs/**/*.md") for path in ROOT.glob(pattern))

FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^    .*\n)+", re.MULTILINE)
SPAN = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
# A path from the root, perhaps with wildcards, or the bare name of a source file.
PATH = re.compile(rf"(?:{'|'.join(map(re.escape, FOLDERS))})/[\w./*-]*|[\w*-]+\.(?:py|h|cl|cu|toml|md)")
COMMAND = re.compile(r"(?:python -m )?bnnrt ([a-z]+\b.*)")
MAKE = re.compile(r"make ([a-z][\w-]*)")

pages = pytest.mark.parametrize("page", PAGES)


@cache
def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def prose(page: str) -> str:
    """A page without its code blocks."""
    return INDENTED.sub("\n", FENCED.sub("", text(page)))


def code(page: str) -> Iterator[str]:
    """The lines of a page's code blocks."""
    for block in FENCED.findall(text(page)) + INDENTED.findall(FENCED.sub("", text(page))):
        yield from (line.strip() for line in block.splitlines() if not line.startswith("```"))


def spans(page: str) -> list[str]:
    """Code in the text: what stands in backticks."""
    return [" ".join(span.split()) for span in SPAN.findall(prose(page))]


def named_paths(page: str) -> set[str]:
    words = [*spans(page), *(word for line in code(page) for word in line.split())]
    return {word.rstrip(",;") for word in words if PATH.fullmatch(word.rstrip(",;"))}


def exists(path: str, page: str) -> bool:
    """Whether a path from the root, from the page's folder, or a bare name of a source file leads to something."""
    if path.endswith("/"):
        return (ROOT / path).is_dir()
    if "/" in path:
        return any(ROOT.glob(path))
    # Tables name files of one folder, which the text before them names.
    return path in names_of_files() or any((ROOT / page).parent.glob(path))


@cache
def names_of_files() -> frozenset[str]:
    found = {path.name for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()}
    return frozenset(found | {path.name for path in ROOT.iterdir()})


@pages
def test_named_paths_exist(page: str) -> None:
    assert [path for path in sorted(named_paths(page)) if not exists(path, page)] == []


def anchors(page: str) -> set[str]:
    """The anchors that GitHub gives a page's headings."""
    kept = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(text(page))]
    return {heading.strip().replace(" ", "-") for heading in kept}


@pages
def test_links_resolve(page: str) -> None:
    broken = []
    for target in LINK.findall(prose(page)):
        if re.match(r"https?:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        if not file.exists() or (anchor and anchor not in anchors(file.resolve().relative_to(ROOT).as_posix())):
            broken.append(target)
    assert broken == []


@pytest.fixture(scope="module")
def commands() -> Mapping[str, set[str]]:
    """The options of every subcommand, those of the packages above the command line included."""
    app = typer.Typer()
    app.registered_commands = list(cli.app.registered_commands)
    for entry in entry_points(group="bnnrt.commands"):
        entry.load()(app)
    group: Any = typer.main.get_command(app)
    return {
        name: {"--help", *(option for parameter in command.params for option in parameter.opts)}
        for name, command in group.commands.items()
    }


def named_commands(page: str) -> Iterator[list[str]]:
    """Calls of bnnrt: the subcommand, then its arguments."""
    for line in [*spans(page), *code(page)]:
        if found := COMMAND.match(line):
            yield shlex.split(found[1], comments=True)


@pages
def test_named_commands_exist(page: str, commands: Mapping[str, set[str]]) -> None:
    unknown = []
    for name, *arguments in named_commands(page):
        known = commands.get(name, set())
        options = [argument.partition("=")[0].strip("[]") for argument in arguments]
        if not known or any(option.startswith("-") and option not in known for option in options):
            unknown.append([name, *arguments])
    assert unknown == []


@pages
def test_named_options_exist(page: str, commands: Mapping[str, set[str]]) -> None:
    """Options that stand alone in backticks."""
    known = set().union(*commands.values(), {"--version", "--import-mode=importlib"})
    named = [span.split()[0] for span in spans(page) if re.match(r"--[a-z]", span)]
    assert [option for option in named if option not in known] == []


def test_every_command_is_in_the_readme(commands: Mapping[str, set[str]]) -> None:
    assert {name for name, *_ in named_commands("README.md")} == set(commands)


@pages
def test_named_make_targets_exist(page: str) -> None:
    targets = set(re.findall(r"^([a-z][\w-]*):", text_of_makefile(), re.MULTILINE))
    named = {found[1] for line in [*spans(page), *code(page)] if (found := MAKE.match(line))}
    assert named - targets == set()


@cache
def text_of_makefile() -> str:
    return (ROOT / "Makefile").read_text(encoding="utf-8")


def first_cells(page: str) -> set[str]:
    """What stands in backticks in the first column of a page's tables."""
    rows = re.findall(r"^\| (.*?) \|", text(page), re.MULTILINE)
    return {span for cell in rows for span in SPAN.findall(cell)}


def test_every_kernel_file_is_on_its_page() -> None:
    files = [path for path in (ROOT / "kernels").rglob("*") if path.suffix in {".h", ".cl", ".cu"}]
    assert files
    named = set(spans("docs/kernels.md"))
    assert [path.relative_to(ROOT).as_posix() for path in files if path.name not in named] == []


def test_every_converter_module_is_in_the_architecture() -> None:
    """By its path below converters/, which also has to be right."""
    folder = ROOT / "converters"
    modules = {path.relative_to(folder).as_posix() for path in folder.rglob("[!_]*.py")}
    subpackages = {path.parent.name for path in folder.glob("*/__init__.py")}
    assert len(modules) > 50
    assert subpackages
    named = {span.removeprefix("converters/") for span in spans("docs/architecture.md")}
    assert modules - named == set()
    assert {name for name in named if name.partition("/")[0] in subpackages and name.endswith(".py")} - modules == set()


def test_every_kernel_function_is_on_its_page() -> None:
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "kernels").rglob("*.[hc]*"))
    entries = re.findall(r"^KERNEL (\w+)\(", sources, re.MULTILINE)
    assert len(entries) > 10
    assert set(entries) - set(spans("docs/kernels.md")) == set()


def test_every_variant_is_in_the_tables() -> None:
    assert {variant.name for variant in VARIANTS} - first_cells("docs/kernels.md") == set()
