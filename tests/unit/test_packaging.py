"""Wheel, sdist and editable install hold the same files as git, and nothing generic lands in site-packages."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any

import grimp
import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
# Top-level folder -> where it is installed.
FOLDERS = {
    "bnnrt": "bnnrt",
    "kernels": "bnnrt/kernels",
    "converters": "bnnrt/converters",
    "preprocess": "bnnrt/preprocess",
    "deploy": "bnnrt/deploy",
}
PACKAGES = [folder.replace("/", ".") for folder in FOLDERS.values()]

# Prints, for one installed copy, where it is, all its files, its versions and what is wrong with its entry points.
PROBE = """
import importlib, importlib.metadata, json, pathlib, site, sys
copy, packages, dependencies = sys.argv[1], sys.argv[2].split(","), sys.argv[3:]
site.addsitedir(copy)           # reads the .pth file of an editable install
sys.path.extend(dependencies)   # as plain paths: the .pth file of the bnnrt that runs the tests must not count
files = set()
for name in packages:
    top = pathlib.Path(importlib.import_module(name).__file__).resolve().parent
    files |= {name.replace(".", "/") + "/" + file.relative_to(top).as_posix() for file in top.rglob("*")
              if file.is_file() and "__pycache__" not in file.parts}
distribution = importlib.metadata.distribution("bnnrt")
entry_points = {}
for entry in distribution.entry_points:
    try:
        entry_points[f"{entry.group}:{entry.name}"] = "" if callable(entry.load()) else "not callable"
    except Exception as error:
        entry_points[f"{entry.group}:{entry.name}"] = repr(error)
json.dump({"where": sys.modules["bnnrt"].__file__, "files": sorted(files), "entry_points": entry_points,
           "versions": [distribution.version, sys.modules["bnnrt"].__version__]}, sys.stdout)
"""


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Run a command and return what it printed; if it fails, the test shows that."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def tracked() -> list[str]:
    """Every file that git knows or would add, as it is on disk."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("needs git and a checkout: the packages are compared with what git lists")
    # A checkout that belongs to another user, as in a container, is no reason to refuse to list it.
    git = ["git", "-c", f"safe.directory={ROOT}"]
    listed = run(*git, "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    return sorted(name for name in set(listed.split("\0")) - {""} if os.path.lexists(ROOT / name))


@pytest.fixture(scope="module")
def packaged(tracked: list[str]) -> list[str]:
    """The files of the five package folders; a link to a folder is none."""
    return [name for name in tracked if name.split("/")[0] in FOLDERS and not (ROOT / name).is_symlink()]


@pytest.fixture(scope="module")
def installed_names(packaged: list[str]) -> list[str]:
    """The same files as they are named below site-packages."""
    return sorted(FOLDERS[name.split("/")[0]] + "/" + name.split("/", 1)[1] for name in packaged)


@pytest.fixture(scope="module")
def source(tracked: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree without anything that git ignores."""
    copy = tmp_path_factory.mktemp("source")
    for name in tracked:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name, follow_symlinks=False)
    return copy


@pytest.fixture(scope="module")
def built(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An sdist, a wheel from that sdist, a wheel straight from the tree and an editable wheel."""
    made = {}
    for kind, flags in {"sdist": [], "tree": ["--wheel"]}.items():
        made[kind] = tmp_path_factory.mktemp(kind)
        run(sys.executable, "-m", "build", "--no-isolation", *flags, "--outdir", made[kind], source, cwd=made[kind])
        shutil.rmtree(source / "build", ignore_errors=True)
    made["editable"] = tmp_path_factory.mktemp("editable")
    hook = "import sys; from setuptools.build_meta import build_editable; build_editable(sys.argv[1])"
    run(sys.executable, "-c", hook, made["editable"], cwd=source)
    return {
        "sdist": only(made["sdist"], "*.tar.gz"),
        "wheel": only(made["sdist"], "*.whl"),
        "wheel from tree": only(made["tree"], "*.whl"),
        "editable": only(made["editable"], "*.whl"),
    }


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    """pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def only(folder: Path, pattern: str) -> Path:
    """The one file in a folder that fits."""
    (found,) = folder.glob(pattern)
    return found


def wheel_names(wheel: Path) -> list[str]:
    """The names in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return sorted(archive.namelist())


def install(wheel: Path, folder: Path) -> dict[str, Any]:
    """Install a wheel into an empty folder and say what Python finds there; the bnnrt that runs the tests is hidden."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    run(*pip, "--disable-pip-version-check", "--target", folder, wheel, cwd=folder)
    dependencies = [path for path in sys.path if PurePosixPath(path).name in {"site-packages", "dist-packages"}]
    # -S: without site-packages.
    probe = [sys.executable, "-S", "-B", "-c", PROBE, folder, ",".join(PACKAGES), *dependencies]
    found: dict[str, Any] = json.loads(run(*probe, cwd=folder, PYTHONPATH=""))
    return found


@pytest.fixture(scope="module")
def copies(built: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What Python finds in a wheel's and in an editable installation."""
    return {kind: install(built[kind], tmp_path_factory.mktemp("site")) for kind in ("wheel", "editable")}


def test_every_subpackage_is_listed(packaged: list[str], project: dict[str, Any]) -> None:
    folders = {PurePosixPath(name).parent for name in packaged if name.endswith(".py")}
    expected = {"/".join((FOLDERS[folder.parts[0]], *folder.parts[1:])).replace("/", ".") for folder in folders}
    assert sorted(project["tool"]["setuptools"]["packages"]) == sorted(expected)
    missing = [f"{folder}/__init__.py" for folder in folders if f"{folder}/__init__.py" not in packaged]
    assert not missing, "folders with Python files are packages"


@pytest.mark.parametrize("kind", ["wheel", "wheel from tree"])
def test_wheel_holds_what_git_lists(kind: str, built: dict[str, Path], installed_names: list[str]) -> None:
    names = [name for name in wheel_names(built[kind]) if ".dist-info/" not in name]
    assert names == installed_names, "see `packages` and `package-data` in pyproject.toml"


def test_sdist_holds_what_git_lists(built: dict[str, Path], packaged: list[str], tracked: list[str]) -> None:
    with tarfile.open(built["sdist"]) as archive:
        names = {member.name.split("/", 1)[1] for member in archive.getmembers() if not member.isdir()}
    assert sorted(name for name in names if name.split("/")[0] in FOLDERS) == packaged
    # What is needed to build and test again.
    others = {name for name in tracked if name.startswith("tests/")} | {"LICENSE", "README.md", "pyproject.toml"}
    assert others - names == set()


@pytest.mark.parametrize("kind", ["wheel", "wheel from tree", "editable"])
def test_only_bnnrt_lands_in_site_packages(kind: str, built: dict[str, Path]) -> None:
    tops = {name.split("/")[0] for name in wheel_names(built[kind])}
    tops = {top for top in tops if not top.endswith(".dist-info")}
    if kind == "editable":
        assert tops
        assert all(top.startswith("__editable__") for top in tops), tops
    else:
        assert tops == {"bnnrt"}


@pytest.mark.parametrize("kind", ["wheel", "editable"])
def test_installed_copy_is_whole(
    kind: str, copies: dict[str, dict[str, Any]], source: Path, installed_names: list[str], project: dict[str, Any]
) -> None:
    found = copies[kind]
    where = Path(found["where"]).resolve()
    assert not where.is_relative_to(ROOT)
    assert where.is_relative_to(source.resolve()) == (kind == "editable")
    assert found["files"] == installed_names
    assert found["versions"] == [project["project"]["version"]] * 2


@pytest.mark.parametrize("kind", ["wheel", "editable"])
def test_entry_points_resolve(kind: str, copies: dict[str, dict[str, Any]], project: dict[str, Any]) -> None:
    expected = {"console_scripts": project["project"]["scripts"], **project["project"]["entry-points"]}
    names = {f"{group}:{name}" for group, entries in expected.items() for name in entries}
    assert copies[kind]["entry_points"] == dict.fromkeys(names, "")


def test_installation_is_up_to_date(project: dict[str, Any]) -> None:
    """Fails if the entry points in pyproject.toml have changed since bnnrt was installed here: install it again."""
    here = {(entry.group, entry.name, entry.value) for entry in importlib.metadata.distribution("bnnrt").entry_points}
    groups = {"console_scripts": project["project"]["scripts"], **project["project"]["entry-points"]}
    assert here == {(group, name, value) for group, entries in groups.items() for name, value in entries.items()}


def test_import_rules_see_every_module(packaged: list[str]) -> None:
    """The linked folders too: a rule about modules that import-linter does not see would always hold."""
    expected = set()
    for name in packaged:
        if name.endswith(".py"):
            parts = [*FOLDERS[name.split("/")[0]].split("/"), *PurePosixPath(name).with_suffix("").parts[1:]]
            expected.add(".".join(parts).removesuffix(".__init__"))
    assert set(grimp.build_graph("bnnrt", cache_dir=None).modules) == expected
