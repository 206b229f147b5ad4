"""Directories of any depth that others put where a command looks."""

from __future__ import annotations

from pathlib import Path

import pytest
from rundir_factory import two_branches, without_heartbeats

from command_running import Tool
from deep_trees import make_deep
from tfckpt_trainer.rundir.storage.files import delete_tree


@pytest.mark.parametrize(
    "place",
    [
        ".tfckpt/trash/20301130T200000-0000aa/x",
        ".tfckpt/workers/ckpt-100/x",
        ".tfckpt/saving/ckpt-100_temp/x",
        ".tfckpt/records/x",
        "ckpt-100_temp/x",
        "deep",
    ],
)
def test_no_command_ends_at_a_deep_directory(tool: Tool, tmp_path: Path, place: str) -> None:
    made = without_heartbeats(two_branches(tmp_path / "run"))
    root = made.run.root
    make_deep(root / place)
    try:
        for words in (
            ("ls", root),
            ("runs", tmp_path),
            ("prune", root, "ckpt-100", "--yes"),
            ("undo", root),
            ("prune", root, "ckpt-100", "--delete", "--yes"),
            ("trash", root, "empty", "--yes"),
        ):
            said = tool(*words)
            assert "Recursion" not in said.words, words
            assert "Traceback" not in said.words, words
        assert not (root / "ckpt-100.index").exists()
    finally:
        # The end of the tests would not be able to.
        delete_tree(root)
