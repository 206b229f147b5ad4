"""What is copied can be pasted: into a shell, into a table."""

from __future__ import annotations

import shlex
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tfckpt_trainer.catalog.scan.checkpoints import Checkpoint, CheckpointState
from tfckpt_trainer.rundir.paths import is_plain_name
from tfckpt_tui.formats.copying import path_of, row_of

ROOT = Path("/data/runs")


def checkpoint(name: str = "ckpt-b1-400", **changes: object) -> Checkpoint:
    fields = {
        "name": name,
        "step": 400,
        "branch": 1,
        "state": CheckpointState.VERIFIED,
        "size": 1234,
        "shards": 1,
        "saved_at": 1_790_000_000.0,
        "trigger": "every 50 steps",
        "metrics": {"loss": 2.5, "accuracy": None},
    }
    return Checkpoint(**{**fields, **changes})  # type: ignore[arg-type]


def test_a_plain_path_is_copied_as_it_is() -> None:
    assert path_of(ROOT, checkpoint()) == "/data/runs/ckpt-b1-400"


@given(st.text(st.characters(exclude_characters="\0/"), min_size=1).filter(is_plain_name))
def test_a_shell_takes_a_path_for_one_word(name):
    assert shlex.split(path_of(ROOT, checkpoint(name))) == [f"/data/runs/{name}"]


def test_a_row_has_all_that_is_known() -> None:
    assert row_of(ROOT, checkpoint()).split("\t") == [
        *("ckpt-b1-400", "400", "1", "verified", "2026-09-21T14:13:20+00:00", "1234"),
        *("every 50 steps", "accuracy=None loss=2.5", "/data/runs/ckpt-b1-400"),
    ]


@given(st.text(), st.text(), st.floats())
def test_a_row_is_one_line_of_nine_fields(trigger, metric, saved_at):
    row = row_of(ROOT, checkpoint(trigger=trigger, metrics={metric: 1.0}, saved_at=saved_at))
    assert row.count("\t") == 8
    assert len(row.splitlines()) == 1
