"""The planted bugs fit the product as it is, and who catches one is told truly."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .__main__ import main
from .bugs import Bug, StaleBugError, read_bugs
from .catches import CaughtBy, catch, failing_without_bug
from .checkout import Copy

ROOT = Path(__file__).parents[2]
BUGS = read_bugs()


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_can_be_planted(bug: Bug) -> None:
    right = (ROOT / bug.path).read_text(encoding="utf-8")
    wrong = bug.applied_to(right)
    assert ast.parse(wrong)
    assert wrong.split() != right.split()
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", bug.name)
    assert bug.tests
    for test in bug.tests:
        file, _, name = test.partition("::")
        assert (ROOT / file).exists(), file
        assert not name or f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), test


def test_there_are_enough_of_them() -> None:
    assert len(BUGS) >= 50
    assert len({bug.sentence for bug in BUGS}) == len(BUGS)


def test_the_page_of_tests_lists_each_bug_with_what_is_wrong() -> None:
    page = (ROOT / "docs/how-it-works/testing.md").read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| ([a-z0-9-]+) \| (.+) \| [a-z]+ \| (?:quick|run) \|$", page)
    assert dict(rows) == {bug.name: bug.sentence for bug in BUGS}


def test_a_bug_whose_text_is_gone_or_there_twice_is_stale() -> None:
    bug = Bug("two-words", "wrong", "file.py", "right", "wrong", ())
    assert bug.applied_to("a right one") == "a wrong one"
    for text in ("none", "right and right"):
        with pytest.raises(StaleBugError, match=r"two-words: file\.py has its text"):
            bug.applied_to(text)


PRODUCT = """
def add(a, b):
    return a + b


def halve(a):
    return a / 2


def count(values):
    return len(values)


def is_fine():
    return True
"""

TESTS = """
import pytest
from tfckpt_trainer import numbers_


def test_adds():
    assert numbers_.add(2, 1) == 3


@pytest.mark.slow
def test_halves():
    assert numbers_.halve(4) == 2
"""

CONFTEST = """
import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        if not item.get_closest_marker("slow"):
            item.add_marker("quick")
"""

SETTINGS = """
[tool.pytest.ini_options]
testpaths = ["tests"]
markers = ["quick: fast", "weekly: rare", "slow: not quick"]
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A small product with tests of it, in the layout of ours."""
    root = tmp_path / "checkout"
    files = {
        "trainer/tfckpt_trainer/__init__.py": "",
        "trainer/tfckpt_trainer/numbers_.py": PRODUCT,
        "tui/tfckpt_tui/__init__.py": "",
        "tui/tfckpt_tui/app/__init__.py": "",
        "tui/tfckpt_tui/app/app.py": "",
        "tui/tfckpt_tui/cli/__init__.py": "",
        "tui/tfckpt_tui/cli/main.py": "from tfckpt_trainer import numbers_\nnumbers_.is_fine()\n",
        "tests/conftest.py": CONFTEST,
        "tests/test_numbers.py": TESTS,
        "tests/test_others.py": "def test_nothing():\n    pass\n",
        "pyproject.toml": SETTINGS,
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    return root


def bug(name: str, before: str, after: str, tests: str = "tests/test_others.py") -> Bug:
    return Bug(name, name, "trainer/tfckpt_trainer/numbers_.py", before, after, (tests,))


@pytest.mark.e2e
@pytest.mark.weekly
def test_each_bug_is_caught_by_the_cheapest_tests_that_notice_it(
    checkout: Path, tmp_path: Path
) -> None:
    copy = Copy.of(checkout, tmp_path / "copy")
    subtracts = bug("subtracts", "a + b", "a - b")
    catches = {
        one.name: catch(copy, one, likely_only=False)
        for one in (
            subtracts,
            # Of the same size: Python must not take what it compiled before.
            bug("multiplies", "a + b", "a * b", "tests/test_numbers.py"),
            bug("doubles", "a / 2", "a * 2"),
            bug("counts-one-more", "len(values)", "len(values) + 1"),
            bug("does-not-compile", "return True", "return ("),
            bug("does-not-start", "return True", "raise ValueError"),
            bug("is-stale", "no such text", ""),
        )
    }
    assert {name: one.by for name, one in catches.items()} == {
        "subtracts": CaughtBy.QUICK,
        "multiplies": CaughtBy.QUICK,
        "doubles": CaughtBy.RUN,
        "counts-one-more": CaughtBy.NOBODY,
        "does-not-compile": CaughtBy.BROKEN,
        "does-not-start": CaughtBy.BROKEN,
        "is-stale": CaughtBy.BROKEN,
    }
    assert catches["subtracts"].test == "tests/test_numbers.py::test_adds"
    assert catches["doubles"].test == "tests/test_numbers.py::test_halves"
    assert catch(copy, subtracts, likely_only=True).by is CaughtBy.NOBODY
    assert (copy.root / subtracts.path).read_text(encoding="utf-8") == PRODUCT
    # A test that fails without a bug too has caught none.
    assert failing_without_bug(copy, list(catches.values())) == set()
    (copy.root / "tests/test_others.py").write_text("def test_nothing():\n    assert False\n")
    caught = catch(copy, subtracts, likely_only=True)
    assert failing_without_bug(copy, [caught, catches["doubles"]]) == {caught.test}


def test_a_name_that_no_bug_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["planted", "--only", "nonsense"])
    with pytest.raises(SystemExit, match="There is no bug nonsense"):
        main()
