"""The campaign notices what it is for, and says how to see it again."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from campaign.growth import Used, grown
from campaign.ledger import Ledger
from real_file_systems import POWER_CUT_NEEDS
from requirements import require

CHECKOUT = Path(__file__).parents[1]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory with two checkpoints and a file of somebody else, as bytes alone."""
    root = tmp_path / "run"
    root.mkdir()
    for name in ("ckpt-1", "ckpt-2"):
        for ending in ("index", "data-00000-of-00001"):
            (root / f"{name}.{ending}").write_text(f"{name} {ending}")
    listed = "".join(f'all_model_checkpoint_paths: "ckpt-{n}"\n' for n in (1, 2))
    (root / "checkpoint").write_text(f'model_checkpoint_path: "ckpt-2"\n{listed}')
    (root / "notes.txt").write_text("mine")
    return root


def trash(root: Path, *files: str) -> None:
    """Moves files to the trash, and the checkpoint from the list."""
    place = root / ".tfckpt" / "trash" / "prune-1" / "root"
    place.mkdir(parents=True, exist_ok=True)
    for file in files:
        (root / file).rename(place / file)
    (root / "checkpoint").write_text('all_model_checkpoint_paths: "ckpt-1"\n')


BOTH = ("ckpt-2.index", "ckpt-2.data-00000-of-00001")


def test_nothing_is_violated_where_a_checkpoint_is_whole_in_the_trash(root: Path) -> None:
    ledger = Ledger(root, ["notes.txt"])
    assert ledger.violations() == []
    trash(root, *BOTH)
    assert ledger.violations() == []


def test_a_stranger_s_shard_is_no_part_of_a_checkpoint(root: Path) -> None:
    shard = "ckpt-2.data-99999-of-99999"
    (root / shard).write_text("of another")
    ledger = Ledger(root, [shard])
    trash(root, *BOTH)
    assert ledger.violations() == []
    trash(root, shard)
    assert f"{shard} of somebody else is gone" in ledger.violations()


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "half in the trash": (lambda root: trash(root, BOTH[0]), "ckpt-2 is whole nowhere"),
    "a file gone": (lambda root: (root / BOTH[1]).unlink(), f"{BOTH[1]} is nowhere"),
    "other bytes": (lambda root: (root / BOTH[1]).write_text("other"), f"{BOTH[1]} is nowhere"),
    "listed and gone": (
        lambda root: [(root / file).rename(root.parent / file) for file in BOTH],
        "the state file lists ckpt-2, which is not whole",
    ),
    "a stranger's bytes": (
        lambda root: (root / "notes.txt").write_text("yours"),
        "notes.txt of somebody else has changed",
    ),
    "a stranger's times": (
        lambda root: os.utime(root / "notes.txt", (5, 5)),
        "notes.txt of somebody else has changed",
    ),
    "a stranger's name": (
        lambda root: (root / "notes.txt").rename(root / "notes.bak"),
        "notes.txt of somebody else is gone",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_lost_or_touched_is_violated(root: Path, damage: str) -> None:
    ledger = Ledger(root, ["notes.txt"])
    act, told = DAMAGES[damage]
    act(root)
    assert told in ledger.violations()


def test_what_was_to_be_deleted_may_go(root: Path) -> None:
    ledger = Ledger(root)
    trash(root, *BOTH)
    shutil.rmtree(root / ".tfckpt")
    assert ledger.violations(["ckpt-2"]) == []
    assert ledger.violations() != []


@pytest.mark.parametrize("judge", ["ledger", "live_ledger", "live_reading"])
def test_what_judges_a_run_imports_nothing_of_the_product(judge: str) -> None:
    tree = ast.parse((CHECKOUT / "tests" / "campaign" / f"{judge}.py").read_text(encoding="utf-8"))
    imported = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    imported += [
        n.name for node in ast.walk(tree) if isinstance(node, ast.Import) for n in node.names
    ]
    assert not [name for name in imported if str(name).startswith("tfckpt")]


def campaign(*words: str, before: str = "pass") -> subprocess.CompletedProcess[str]:
    """Runs the campaign, after a change of the product."""
    code = f"import sys; {before}; sys.argv[1:] = {list(words)!r}; "
    code += "import runpy; runpy.run_module('tests.campaign', run_name='__main__')"
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=CHECKOUT, check=False
    )


LOSES_INDEXES = (
    "import os; from tfckpt_trainer.rundir.storage.disk import LocalDisk; "
    "move = lambda a, b: os.unlink(a) if a.name == 'ckpt-100.index' else os.replace(a, b); "
    "LocalDisk.rename = lambda self, source, target: move(source, target)"
)
"""A disk that loses what it renames."""

FLUSHES_NOTHING = (
    "from tfckpt_trainer.rundir.storage.disk import LocalDisk; "
    "LocalDisk.flush = lambda self, descriptor: None"
)


@pytest.mark.parametrize(
    ("area", "case", "defect", "told"),
    [
        ("storage", "prune fail-once 500", LOSES_INDEXES, "ckpt-100.index is nowhere"),
        ("pairs", "prune verify 1 goes-on", LOSES_INDEXES, "ckpt-100.index is nowhere"),
        ("power", "undo xfs-log 500", FLUSHES_NOTHING, "run/checkpoint was not flushed"),
    ],
)
def test_a_defect_is_told_with_the_line_that_repeats_it(
    area: str, case: str, defect: str, told: str
) -> None:
    if area == "power":
        require("mount namespaces", *POWER_CUT_NEEDS["xfs"])
    found = campaign("--only", area, "--case", case, before=defect)
    assert found.returncode == 1
    assert f"python -m tests.campaign --only {area} --case {case!r}" in found.stdout
    assert told in found.stdout


def test_an_error_of_the_campaign_itself_is_a_violation() -> None:
    found = campaign("--only", "storage", "--case", "no-command kill 3")
    assert found.returncode == 1
    assert "The case itself failed: KeyError: 'no-command'" in found.stdout


def test_a_few_cases_of_each_area_violate_nothing() -> None:
    ended = campaign("--budget", "1s")
    told = [line for line in ended.stderr.splitlines() if "left out" not in line]
    assert (ended.returncode, told) == (0, []), ended.stdout
    areas = {line.split()[0] for line in ended.stdout.splitlines()[1:]}
    assert areas == {"storage", "power", "pairs", "strangers", "accounts", "keys", "input"}


def test_what_grows_without_bound_is_told() -> None:
    steady = [Used(10, 5, 50 << 20, 30 + at % 2) for at in range(40)]
    assert [*grown("app", steady)] == []
    leaking = [one._replace(descriptors=10 + at) for at, one in enumerate(steady)]
    assert [*grown("app", leaking)] == ["app: descriptors grew from 24 to 44 in 40 rounds"]
