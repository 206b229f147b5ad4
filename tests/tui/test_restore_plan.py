"""The dialog and the command line announce the branch on which the trainer continues."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rundir_factory import RunFactory, two_branches

from command_running import Tool
from tfckpt_trainer.catalog.directory.trash import list_trash
from tfckpt_trainer.catalog.retention.emptying import empty_trash
from tfckpt_trainer.catalog.retention.prune import move_to_trash, undo
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.catalog.scan.lineage import BranchStep, RestorePlan, plan_restore
from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.rundir.paths import checkpoint_name, parse_checkpoint_name
from tfckpt_trainer.rundir.records.run import Head
from tfckpt_trainer.rundir.storage.documents import store
from tfckpt_tui.app.dialogs.restore import RestoreDialog
from tfckpt_tui.monitor.snapshot_reader import SnapshotReader
from tfckpt_tui.services.control.restore import describe_plan, plan_restore_of
from weekly import tries


def dialog_words(look: SnapshotReader, name: str) -> str:
    """What the restore dialog says about a checkpoint."""
    snapshot = look.read(time.time())
    dialog = RestoreDialog(snapshot, snapshot.checkpoint(name), lambda *_: None, str)
    return "\n".join("".join(text for text, _ in line) for line in dialog.text())


def announced_branch(words: str) -> tuple[int, bool]:
    """The branch that words announce, and whether they call it new."""
    found = re.search(r"continues on (new )?branch (\d+)\.", words)
    assert found is not None, words
    return int(found[2]), found[1] is not None


def test_a_tip_in_the_trash_makes_the_restore_start_a_branch(tmp_path: Path) -> None:
    made = two_branches(tmp_path, live=True)
    names = ["ckpt-400", "ckpt-500"]
    move_to_trash(made.run, names, by="a test", now=made.now, update_state_file=True)
    look = SnapshotReader(made.run)
    assert announced_branch(dialog_words(look, "ckpt-300")) == (2, True)
    empty_trash(made.run)
    assert announced_branch(dialog_words(look, "ckpt-300")) == (0, False)


def test_restore_without_a_trainer_refuses_before_it_plans(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = two_branches(tmp_path, now=time.time() - 3600)
    said = Tool(capsys)("restore", made.run.root, "--step", "300")
    assert said.code == 3
    assert said.words.startswith("tfckpt-tui: No trainer answers")
    assert "Restoring" not in said.words


class History:
    """A run directory, and a model of it that shares no code with the product."""

    def __init__(self, root: Path) -> None:
        self._made = RunFactory(root).create(worker_count=1)
        self._run = self._made.run
        self._look = SnapshotReader(self._run)
        self._position = BranchStep(0, 0)
        self._parent: str | None = None
        self._begun = 0
        # Names in view, in the trash or in a record alone.
        self._taken: set[str] = set()
        self.save(1)

    def save(self, hundreds: int) -> None:
        """Trains on, and saves a checkpoint whose name must be free."""
        branch, step = self._position
        self._move(branch, step + 100 * hundreds)
        name = checkpoint_name(self._position.step, branch)
        assert name not in self._taken, "a save would overwrite a checkpoint"
        self._parent = self._made.checkpoint(self._position.step, branch, self._parent)
        self._taken.add(name)

    def train(self, steps: int) -> None:
        """Trains on without a save."""
        self._move(self._position.branch, self._position.step + steps)

    def restore(self, number: int) -> None:
        """Restores a checkpoint as the trainer does."""
        plans = self.compare()
        if not plans:
            return
        decided = plans[number % len(plans)]
        target = decided.target
        self._made._sequence += 1
        head = Head(
            checkpoint=target.name,
            step=target.step or 0,
            branch=decided.branch,
            sequence=self._made._sequence,
        )
        store(self._run.head_file, head)
        self._begun, self._parent = decided.branch, target.name
        self._move(decided.branch, target.step or 0)

    def prune(self, number: int) -> None:
        """Moves a checkpoint to the trash."""
        with suppress(TfckptError):
            names = [self._name(number)]
            move_to_trash(self._run, names, by="a test", now=time.time(), update_state_file=True)

    def undo(self, _: int) -> None:
        """Brings the last prune back."""
        with suppress(TfckptError):
            undo(self._run, None, update_state_file=True)

    def empty(self, _: int) -> None:
        """Deletes the trash: its names are free."""
        with suppress(TfckptError):
            self._taken -= set(empty_trash(self._run).names)

    def damage(self, number: int) -> None:
        """Removes the data file of a checkpoint."""
        name = self._name(number)
        (self._run.root / f"{name}.data-00000-of-00001").unlink(missing_ok=True)

    def remove(self, number: int) -> None:
        """Removes all files of a checkpoint by hand; its record stays."""
        for path in self._run.root.glob(f"{self._name(number)}.*"):
            path.unlink()

    def compare(self) -> list[RestorePlan]:
        """Compares all announcements with what the trainer decides, for each checkpoint."""
        catalog = Catalog(self._run)
        checkpoints = catalog.scan(time.time())
        tips = catalog.branch_tips(list_trash(self._run))
        plans = [
            plan_restore(checkpoints, tips, checkpoint, self._position)
            for checkpoint in checkpoints
            if checkpoint.restorable
        ]
        for plan in plans:
            self._compare(plan)
        return plans

    def _compare(self, decided: RestorePlan) -> None:
        branch, is_new = self._expected(decided.target.name)
        assert (decided.branch, decided.is_new_branch) == (branch, is_new)
        asked = plan_restore_of(self._run, name=decided.target.name)
        assert asked == decided
        assert announced_branch(describe_plan(asked)) == (branch, is_new)
        words = dialog_words(self._look, decided.target.name)
        assert announced_branch(words) == (branch, is_new)
        back = max(0, self._position.step - (decided.target.step or 0))
        assert decided.steps_back == back
        assert ("goes back" in words) == ("goes back" in describe_plan(asked)) == (back > 0)
        ancestors = self._look.read(time.time()).checkpoints
        assert set(decided.left_behind) < {checkpoint.name for checkpoint in ancestors}
        assert decided.target.name not in decided.left_behind

    def _expected(self, name: str) -> tuple[int, bool]:
        said = [parse_checkpoint_name(taken) for taken in self._taken]
        steps = [(found.branch, found.step) for found in said if found is not None]
        target = parse_checkpoint_name(name)
        assert target is not None
        if target.step >= max(step for branch, step in steps if branch == target.branch):
            return target.branch, False
        return max([self._begun, *(branch for branch, _ in steps)]) + 1, True

    def _name(self, number: int) -> str:
        names = sorted(path.stem for path in self._run.root.glob("*.index")) or ["none"]
        return names[number % len(names)]

    def _move(self, branch: int, step: int) -> None:
        self._position = BranchStep(branch, step)
        self._made.live_worker(0, branch=branch, step=step)


OPERATIONS: list[Callable[[History, int], None]] = [
    History.save,
    History.train,
    History.restore,
    History.prune,
    History.undo,
    History.empty,
    History.damage,
    History.remove,
]
LIKELY = [*OPERATIONS[:4], *OPERATIONS[:4], *OPERATIONS]


@tries(60)
@given(st.lists(st.tuples(st.sampled_from(LIKELY), st.integers(1, 9)), max_size=25))
def test_what_is_announced_is_what_the_trainer_does(
    steps: list[tuple[Callable[[History, int], None], int]],
) -> None:
    with tempfile.TemporaryDirectory() as root:
        history = History(Path(root))
        for act, number in steps:
            act(history, number)
        history.compare()
