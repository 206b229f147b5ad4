"""The layout of the two packages: rooms in layers, and modules that are found by their names."""

from __future__ import annotations

import ast
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver

ROOT = Path(__file__).parent.parent
PACKAGES = [ROOT / "trainer" / "tfckpt_trainer", ROOT / "tui" / "tfckpt_tui"]


def modules(package: Path) -> list[Path]:
    return [path for path in sorted(package.rglob("*.py")) if path.name != "__init__.py"]


def folders(package: Path) -> set[Path]:
    return {path.parent for path in package.rglob("__init__.py")}


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    """Each module as Python reads it."""
    paths = [path for package in PACKAGES for path in modules(package)]
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def exhaustive_layers() -> set[str]:
    """Returns the packages of which an import rule has to name every module and folder."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return {
        container
        for contract in settings["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers" and contract.get("exhaustive")
        for container in contract["containers"]
    }


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_import_rules_order_every_folder_that_has_folders(package: Path) -> None:
    with_folders = {folder.parent for folder in folders(package) if folder != package}
    names = {".".join(folder.relative_to(package.parent).parts) for folder in with_folders}
    assert names - exhaustive_layers() == set(), (
        "Add a contract to pyproject.toml: what may import what inside, with `exhaustive = true`."
    )


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_no_two_modules_of_one_layer_have_the_same_name(package: Path) -> None:
    named = defaultdict(list)
    for path in modules(package):
        place = path.relative_to(package)
        named[place.parts[0], path.name].append(str(place))
    twice = {name: places for name, places in named.items() if len(places) > 1}
    assert twice == {}, "Rename them: a name leads to one module of each layer."


def test_no_two_public_classes_have_the_same_name(trees: dict[Path, ast.Module]) -> None:
    named = defaultdict(list)
    for path, tree in trees.items():
        for thing in tree.body:
            if isinstance(thing, ast.ClassDef) and not thing.name.startswith("_"):
                named[thing.name].append(str(path.relative_to(ROOT)))
    twice = {name: places for name, places in named.items() if len(places) > 1}
    assert twice == {}, "Rename them: a class is named for what it is, and nothing else is that."


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_every_folder_says_what_belongs_there_and_what_does_not(package: Path) -> None:
    incomplete = []
    for folder in sorted(folders(package)):
        source = (folder / "__init__.py").read_text(encoding="utf-8")
        docstring = ast.get_docstring(ast.parse(source)) or ""
        if len(docstring.split("\n\n")) < 2:
            incomplete.append(str(folder.relative_to(package.parent)))
    assert incomplete == [], "Say in __init__.py what belongs in the folder and what does not."


def own_commands(tree: ast.AST) -> list[ast.List | ast.Tuple]:
    """Returns the commands that begin with this Python."""
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.List | ast.Tuple)
        and node.elts
        and isinstance(node.elts[0], ast.Attribute)
        and ast.unparse(node.elts[0]) == "sys.executable"
    ]


def test_no_process_of_this_library_imports_from_the_current_directory(
    trees: dict[Path, ast.Module],
) -> None:
    """Another user may have put a `numpy.py` there."""
    commands = {
        f"{path.relative_to(ROOT)}:{command.lineno}": ast.unparse(command.elts[1])
        for path, tree in trees.items()
        for command in own_commands(tree)
    }
    assert len(commands) >= 10
    assert {place for place, option in commands.items() if option != "'-P'"} == set()


def test_no_message_of_the_app_is_markup(trees: dict[Path, ast.Module]) -> None:
    """It may have a name from a disk or a process, such as `[/nope]`."""
    calls = [
        (f"{path.relative_to(ROOT)}:{call.lineno}", call)
        for path, tree in trees.items()
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "notify"
        and "tfckpt_tui" in path.parts
    ]
    assert len(calls) >= 20
    plain = {"markup": "False"}.items()
    assert [
        place
        for place, call in calls
        if not plain <= {word.arg: ast.unparse(word.value) for word in call.keywords}.items()
    ] == []


CHANGING_CALLS = {
    "os": {
        "rename", "replace", "unlink", "remove", "mkdir", "makedirs", "rmdir", "removedirs", "link",
        "symlink", "truncate", "ftruncate", "chmod", "fchmod", "chown", "utime", "fsync", "mkfifo",
    },
    "shutil": {"rmtree", "move", "copy", "copy2", "copyfile", "copytree", "copymode", "copystat"},
    "Path": {
        "write_text", "write_bytes", "touch", "mkdir", "unlink", "rmdir", "rename", "hardlink_to",
        "chmod",
    },
}  # fmt: skip
MODES = {"w", "a", "x", "wb", "ab", "xb", "r+b", "w+b", "a+b", "r+", "w+"}
OUTSIDE_OF_RUNS = {
    "bundle/exchange": "files that a person names",
    "examples": "programs to read",
    "tools/reporting/report_command.py": "a device that a person names",
}


def changes_files(call: ast.Call) -> bool:
    """Whether a call is one of Python's own that changes files."""
    function = call.func
    last = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if last == "open":
        modes = [*call.args, *(word.value for word in call.keywords if word.arg == "mode")]
        return any(isinstance(m, ast.Constant) and m.value in MODES for m in modes)
    if not isinstance(function, ast.Attribute):
        return False
    owner = getattr(function.value, "id", "")
    return last in CHANGING_CALLS[owner if owner in ("os", "shutil") else "Path"]


def test_files_of_a_run_are_changed_by_the_storage_alone(trees: dict[Path, ast.Module]) -> None:
    found = []
    for path, tree in trees.items():
        (package,) = (package for package in PACKAGES if package in path.parents)
        place = path.relative_to(package)
        if not str(place).startswith(("rundir/storage", *OUTSIDE_OF_RUNS)):
            calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
            found += [f"{place}:{c.lineno}: {ast.unparse(c)}" for c in calls if changes_files(c)]
    assert found == [], "Use `rundir/storage`: it follows no links, and shares what it makes."


def test_private_names_of_textual_are_explained(
    trees: dict[Path, ast.Module],
) -> None:
    page = (ROOT / "docs/how-it-works/terminals.md").read_text(encoding="utf-8")
    app = ROOT / "tui/tfckpt_tui/app"
    of_app = {path: tree for path, tree in trees.items() if app in path.parents}
    nodes = [(path, node) for path, tree in of_app.items() for node in ast.walk(tree)]
    methods = {
        (path, node.name)
        for path, node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    attributes = [
        (path, node)
        for path, node in nodes
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) != "os"
    ]
    ours = {name for _, name in methods} | {node.target.id for _, node in nodes if is_field(node)}
    ours |= {node.attr for _, node in attributes if is_set_by_its_owner(node)}
    bases = {app / "base_app.py": App, app / "terminal/driver.py": LinuxDriver}
    foreign = {(path, name) for path, name in methods if hasattr(bases.get(path), name)}
    foreign |= {(path, node.attr) for path, node in attributes if node.attr not in ours}
    foreign = {(path, name) for path, name in foreign if is_private(name)}
    foreign |= {
        (path, node.module.rpartition(".")[2])
        for path, node in nodes
        if isinstance(node, ast.ImportFrom) and "._" in (node.module or "")
    }
    assert {name for _, name in foreign} > {"_compositor", "_display", "_skip"}
    explained = [line for line in page.splitlines() if line.startswith("| `")]
    unexplained = {
        (path.name, name)
        for path, name in foreign
        if not any(f"{path.name}`" in line and f"{name}`" in line for line in explained)
    }
    assert not unexplained, "Say on the page why they are used, and instead of what."


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_replace"


def is_field(node: ast.AST) -> bool:
    return isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)


def is_set_by_its_owner(node: ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Store) and ast.unparse(node.value) in {"self", "cls"}
