"""`stacks`: at which line of Python each worker is."""

from __future__ import annotations

import os
import threading
from functools import partial
from pathlib import Path

import pytest
from json_reference import check
from rundir_factory import RunFactory, two_branches, without_heartbeats

from accounts import BOB
from command_running import Tool
from requirements import needs
from tfckpt_trainer.rundir.records.stacks import StackRequest, ThreadStack, WorkerStacks
from tfckpt_trainer.rundir.storage.documents import load, store, try_read
from tfckpt_tui.reports.stacks import StacksReport
from waiting import wait_until

FRAMES = [f"/lib/frame.py:{number} in \x1b[31mcall" for number in range(8)]


@pytest.fixture
def live(tmp_path: Path) -> RunFactory:
    """A run of two workers, of which the first answers."""
    made = two_branches(tmp_path / "run", live=True)
    threading.Thread(target=partial(answer, made), daemon=True).start()
    return made


def answer(made: RunFactory, index: int = 0, user: int = 0) -> None:
    read = partial(try_read, partial(load, made.run.stacks_request, StackRequest))
    request = wait_until(read, 30, "a request")
    main = ThreadStack(
        name="MainThread", is_main=True, frames=FRAMES, script_line="train.py:7: step(batch)"
    )
    other = ThreadStack(name="reader", is_main=False, frames=["/lib/read.py:1 in read"])
    stacks = WorkerStacks(request=request.id, index=index, at=1.0, threads=[main, other])
    written = made.run.stacks_directory / "written"
    store(written, stacks)
    os.chown(written, user or os.geteuid(), -1)
    written.rename(made.run.worker_stacks(index))


def test_stacks_shows_the_line_of_the_script_and_the_innermost_frames(
    tool: Tool, live: RunFactory
) -> None:
    said = tool("stacks", live.run.root, "--timeout", "1")
    assert said.code == 1
    first, left_out, *frames, second = said.data.splitlines()
    assert first.endswith(": train.py:7: step(batch)")
    assert left_out.strip() == "… 3 more"
    assert [frame.strip() for frame in frames] == [
        f"/lib/frame.py:{number} in \N{SYMBOL FOR ESCAPE}[31mcall" for number in range(3, 8)
    ]
    assert "It did not answer; its last heartbeat was " in second


def test_stacks_shows_all_threads(tool: Tool, live: RunFactory) -> None:
    said = tool("stacks", live.run.root, "--all", "--timeout", "1")
    assert "frame.py:0 in" in said.data
    assert "  reader\n    /lib/read.py:1 in read\n" in said.data


@needs("root")
def test_stacks_that_others_wrote_are_none(tool: Tool, tmp_path: Path) -> None:
    made = two_branches(tmp_path / "run", live=True)
    forger = threading.Thread(target=answer, args=(made, 1, BOB))
    forger.start()
    said = tool("stacks", made.run.root, "--timeout", "1")
    forger.join()
    assert "train.py" not in said.data
    assert f"user {BOB} wrote {made.run.worker_stacks(1)} in its place" in said.data


def test_stacks_as_json(tool: Tool, live: RunFactory) -> None:
    said = tool("stacks", live.run.root, "--json", "--timeout", "1")
    check(StacksReport, said.json)
    assert [len(worker["threads"]) for worker in said.json["workers"]] == [2, 0]


def test_without_workers_nobody_is_asked(tool: Tool, tmp_path: Path) -> None:
    made = without_heartbeats(two_branches(tmp_path / "run"))
    said = tool("stacks", made.run.root)
    assert said.code == 3
    assert "No worker of " in said.words
    assert not made.run.stacks_request.exists()
