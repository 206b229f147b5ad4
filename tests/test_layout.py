"""The layout of the two packages: small folders, and one module per file name."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = [ROOT / "trainer" / "tfckpt_trainer", ROOT / "tui" / "tfckpt_tui"]
LARGEST_FOLDER = 15

SAME_VERB = "same verb, another layer"
SAME_SUBJECT = "same subject, another layer"

SHARED_NAMES = {
    "tfckpt_trainer": {
        "check.py": SAME_VERB,
        "export.py": SAME_VERB,
        "standby.py": SAME_SUBJECT,
        "trash.py": SAME_SUBJECT,
    },
    "tfckpt_tui": {
        "average.py": SAME_VERB,
        "check.py": SAME_VERB,
        "compare.py": SAME_VERB,
        "config.py": SAME_SUBJECT,
        "control.py": SAME_SUBJECT,
        "copy.py": SAME_VERB,
        "edit.py": SAME_VERB,
        "export.py": SAME_VERB,
        "extract.py": SAME_VERB,
        "force_stop.py": SAME_VERB,
        "inspect.py": SAME_VERB,
        "launch.py": SAME_VERB,
        "logs.py": SAME_SUBJECT,
        "prune.py": SAME_VERB,
        "restore.py": SAME_VERB,
        "tensorboard.py": SAME_VERB,
        "track.py": SAME_VERB,
        "trash.py": SAME_SUBJECT,
        "verify.py": SAME_VERB,
    },
}
"""File names that occur in several folders of a package, with the reason."""


def modules(package: Path) -> list[Path]:
    return [path for path in sorted(package.rglob("*.py")) if path.name != "__init__.py"]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_no_folder_has_too_many_modules(package: Path) -> None:
    counts = Counter(path.parent.relative_to(package) for path in modules(package))
    large = {str(folder): n for folder, n in counts.items() if n > LARGEST_FOLDER}
    assert large == {}, f"At most {LARGEST_FOLDER} modules: use an existing one, or a sub-folder."


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_file_names_are_unique_except_for_verbs_with_one_home_per_layer(package: Path) -> None:
    folders = defaultdict(list)
    for path in modules(package):
        folders[path.name].append(str(path.parent.relative_to(package)))
    shared = {name: places for name, places in folders.items() if len(places) > 1}
    allowed = SHARED_NAMES[package.name]
    twice = {name: places for name, places in shared.items() if name not in allowed}
    assert twice == {}, "Rename them, or add them to SHARED_NAMES with the reason."
    assert sorted(allowed.keys() - shared.keys()) == [], (
        "These names are unique: remove them from SHARED_NAMES."
    )


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_every_folder_says_what_belongs_there_and_what_does_not(package: Path) -> None:
    folders = {path.parent for path in modules(package)}
    incomplete = []
    for folder in sorted(folders):
        source = (folder / "__init__.py").read_text(encoding="utf-8")
        docstring = ast.get_docstring(ast.parse(source)) or ""
        if len(docstring.split("\n\n")) < 2:
            incomplete.append(str(folder.relative_to(package.parent)))
    assert incomplete == [], "Say in __init__.py what belongs in the folder and what does not."
