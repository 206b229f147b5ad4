"""Where the documentation is, and the scripts that make parts of it."""

from __future__ import annotations

import importlib.util
import re
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def load_tool(name: str, directory: Path = DOCS / "tools") -> ModuleType:
    """Imports a script that is in no package."""
    spec = importlib.util.spec_from_file_location(name, directory / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def python_blocks(page: Path) -> list[str]:
    """The blocks of Python on a page."""
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def extension(name: str) -> Any:
    """What the page on extensions declares under a name, such as `column`."""
    (block,) = (b for b in python_blocks(DOCS / "extending.md") if f"\n{name} = " in b)
    names: dict[str, Any] = {}
    exec(block, names)
    return names[name]


RUN_DIRECTORY_PAGE = DOCS / "reference" / "run-directory.md"
_DESCRIPTION_COLUMN = 33


def documented_paths() -> list[str]:
    """The paths that the page on the run directory lists, with names and numbers made general."""
    tree = RUN_DIRECTORY_PAGE.read_text().partition("RUN/\n")[2].partition("```")[0]
    paths = []
    for line in tree.splitlines():
        depth = len(line) - len(line.lstrip())
        for entry in line[:_DESCRIPTION_COLUMN].split() if depth < _DESCRIPTION_COLUMN else []:
            paths.append(_general(f".tfckpt/{entry}" if depth > 2 else entry))
    return paths


def is_listed(path: str) -> bool:
    """Whether the page lists the path itself, or, of a directory, something in it."""
    path = _general(path)
    return any(
        fnmatch(path, listed.rstrip("/")) or listed.startswith(f"{path}/")
        for listed in documented_paths()
    )


def undocumented(run: Path) -> list[str]:
    """The files of a run directory that the page neither lists nor covers by a directory."""
    listed = documented_paths()
    found = sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file())
    return [
        path
        for path in found
        if not any(
            fnmatch(_general(path), f"{known}*" if known.endswith("/") else known)
            for known in listed
        )
    ]


def _general(path: str) -> str:
    path = re.sub(r"ckpt(-b\d+)?-\d+", "NAME", path)
    path = re.sub(r"\d{8}T\d{6}-[-\w]+|\bID\b", "ID", path)
    return re.sub(r"\d+", "0", path)
