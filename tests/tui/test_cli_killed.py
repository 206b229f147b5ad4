"""Commands that write new files, killed before any change: the same command then succeeds."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from checkpoint_directory import contents
from cut_off import DONE, killed_at

from bundle_writing import NUMBERS, Stored, array, write
from command_running import BINARY, Tool
from tfckpt_trainer.bundle.verify import verify
from tfckpt_trainer.catalog.directory.checkpoints import CheckpointState
from tfckpt_trainer.catalog.scan.foreign_writers import foreign_writers
from tfckpt_trainer.rundir.paths import WRITER, RunDirectory
from tfckpt_tui.cli.main import run as run_command
from tfckpt_tui.services.checkpoints.look_up import list_checkpoints
from waiting import attempts, wait_until
from weekly import weekly

pytestmark = pytest.mark.faults


COMMANDS = {
    "average": ["average", "RUN", "1", "2", "--name", "new-2"],
    "edit": ["edit", "RUN", "2", "--rename", "w", "v", "--name", "new-2", "--yes"],
    "convert": ["convert", "RUN", "new-2", "RUN/w.npz"],
    "extract": ["extract", "RUN", "2", "--to", "npz", "-o", "RUN/out"],
    "extract npy": ["extract", "RUN", "2", "--to", "npy", "-o", "RUN/out"],
}


def make(root: Path) -> dict[str, bytes]:
    root.mkdir(parents=True)
    for step in (1, 2):
        for path in write(root / f"ckpt-{step}", {"w": array(np.ones(3) * step)}):
            os.utime(path, (1e9 + step, 1e9 + step))
    np.savez(root / "w.npz", w=np.ones(3))
    return contents(root)


def words_for(root: Path, command: str) -> list[str]:
    return [word.replace("RUN", str(root)) for word in COMMANDS[command]]


def leftovers(root: Path) -> list[str]:
    return [name for name in os.listdir(root) if name.endswith(("_temp", ".tmp"))]


@pytest.mark.parametrize(
    "command", ["convert", "extract", "extract npy", *weekly("average", "edit")]
)
def test_the_same_command_succeeds_wherever_it_was_killed(
    tool: Tool, tmp_path: Path, command: str
) -> None:
    seen = set()
    for call in attempts("a command that is not killed"):
        root = tmp_path / str(call) / "run"
        before = make(root)
        words = words_for(root, command)
        if killed_at(call, lambda: run_command(words)) == DONE:  # noqa: B023
            break
        now = contents(root)
        assert {name: now[name] for name in before} == before
        run = RunDirectory(root)
        state = {one.name: one.state for one in list_checkpoints(run)}.get("new-2")
        seen.add(state)
        assert state in {None, CheckpointState.ORPHANED, CheckpointState.VERIFIED}
        assert not foreign_writers(run, time.time()).is_likely
        assert tool("inspect", root, "2").data.startswith("checkpoint  ckpt-2,")
        again = tool(*words)
        if state is CheckpointState.VERIFIED or ((root / "out").exists() and again.code):
            assert "choose another" in again.words
        else:
            assert again.code == 0, (call, again.words)
            assert leftovers(root) == []
        made = contents(root)
        assert {name: made[name] for name in before} == before
        if not command.startswith("extract"):
            assert verify(root / "new-2").ok
    assert call > 3
    if not command.startswith("extract"):
        assert {None, CheckpointState.ORPHANED} <= seen


def written(root: Path) -> list[Path]:
    """The files, without its mark, that a command has begun to write.

    It may rename a directory while that is read, which `os.walk` takes for an empty one.
    """
    found = [root / name for name in leftovers(root)]
    inside = [
        Path(place, name) for path in found for place, _, names in os.walk(path) for name in names
    ]
    return [p for p in (*found, *inside) if p.is_file() and not p.name.startswith(WRITER)]


@contextmanager
def stopped_while_it_writes(root: Path, words: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A command on sparse files, which takes seconds, and is stopped by a signal meanwhile."""
    size = 8 << 30
    for name in ("ckpt-1", "ckpt-2"):
        write(root / name, {"w": Stored(NUMBERS["float32"], (size // 4,), [], size=size)})
        os.truncate(root / f"{name}.data-00000-of-00001", size)
    process = subprocess.Popen([BINARY, *words], stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: written(root), 60, "the beginning of the file")
        process.send_signal(signal.SIGSTOP)
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_command_that_writes_is_told_from_one_that_was_killed(tool: Tool, tmp_path: Path) -> None:
    root = tmp_path / "run"
    root.mkdir()
    with stopped_while_it_writes(root, words_for(root, "average")):
        for path in root.rglob("*"):
            os.utime(path, (1e9, 1e9))
        listed = tool("ls", root, "--json").json["checkpoints"]
        assert {one["name"]: one["state"] for one in listed}["new-2"] == "writing"
        refused = tool(*words_for(root, "average"))
        assert (refused.code, "choose another name" in refused.words) == (4, True)
    listed = tool("ls", root, "--json").json["checkpoints"]
    assert {one["name"]: one["state"] for one in listed}["new-2"] == "orphaned"
    said = tool("ls", root)
    assert "The command that wrote or deleted it was ended. Run it again." in said.data
    pruned = tool("prune", root, "new-2", "--yes")
    assert pruned.code == 0, pruned.words
    assert leftovers(root) == []


def test_what_an_extract_left_is_removed_and_a_live_one_is_not_disturbed(
    tool: Tool, tmp_path: Path
) -> None:
    root = tmp_path / "run"
    root.mkdir()
    words = words_for(root, "extract")
    small = [word if word != "2" else "3" for word in words]
    with stopped_while_it_writes(root, words):
        write(root / "ckpt-3", {"w": array(np.ones(3))})
        (live,) = leftovers(root)
        assert tool(*small).code == 0
        assert leftovers(root) == [live]
    (root / "out").unlink()
    assert tool(*small).code == 0
    assert leftovers(root) == []
