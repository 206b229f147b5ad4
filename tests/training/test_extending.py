"""What the page on extensions shows works in a script."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from command_running import Tool
from documentation import DOCS, python_blocks
from tensorflow_processes import run_with_tensorflow
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.storage.documents import load

pytestmark = pytest.mark.tensorflow

PAGE = DOCS / "extending.md"


def script(total_steps: int) -> str:
    """The blocks of the page that are one script."""
    parts = [block for block in python_blocks(PAGE) if "tfckpt_tui" not in block]
    assert len(parts) == 5
    text = "\n".join(parts).replace("total_steps=30", f"total_steps={total_steps}")
    return f'{text}\nprint("level", curriculum.level)\n'


def train(directory: Path, run: RunDirectory, total_steps: int) -> str:
    program = directory / "extended.py"
    program.write_text(script(total_steps))
    done = run_with_tensorflow(program, TFCKPT_RUN_DIR=str(run.root))
    assert done.returncode == 0, done.stderr
    return done.stdout


def halvings(run: RunDirectory) -> set[int]:
    """The steps that the trigger of the page saved."""
    records = [load(path, CheckpointRecord) for path in run.records_directory.glob("*.json")]
    return {one.step for one in records if one.trigger.startswith("loss halved to ")}


def test_the_script_of_the_page_saves_keeps_and_restores_what_it_says(tmp_path, capsys):
    run = RunDirectory(tmp_path / "run")
    assert "level 30" in train(tmp_path, run, 30)
    # Each step makes the loss 0.9216 of what it was, from any initial value.
    milestones = halvings(run)
    assert milestones == {10, 19, 28}
    kept = {int(path.stem.removeprefix("ckpt-")) for path in run.root.glob("*.index")}
    assert kept == {30} | milestones

    info = load(run.run_file, RunInfo)
    assert info.strategy == "MirroredStrategy"
    assert [guard.rule for guard in info.guards] == ["falls_to 0.25: notify"]
    (fired,) = [entry for entry in read_entries(run) if entry.kind is EventKind.GUARD]
    assert (fired.step, fired.details["what"]) == (18, "loss is 0.25 of the first")
    reasons = info.retention["keep_by_own_rules"]["reasons"]
    assert {name for name, reason in reasons.items() if reason} == {
        f"ckpt-{step}" for step in milestones
    }
    shown = Tool(capsys)("prune", run.root, "--keep-last", "1", "--dry-run").data
    for step in milestones:
        assert re.search(rf"keep +ckpt-{step} .* a milestone at step {step}", shown)

    # The next start goes on from the level and the loss that were saved.
    assert "level 38" in train(tmp_path, run, 38)
    assert halvings(run) == {10, 19, 28, 37}
