"""What the app says of runs that begin, are gone, or save right now."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from app_driving import StillMonitor, opened, shown, top, until, until_shown
from rundir_factory import RunFactory

from tfckpt_trainer.catalog.scan.checkpoints import CheckpointState
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.worker import Activity
from tfckpt_tui.app.app import TfckptApp
from tfckpt_tui.monitor.snapshot_reader import SnapshotReader


async def test_a_save_in_progress_is_no_error(live: RunFactory) -> None:
    snapshot = SnapshotReader(live.run).read(live.now)
    newest = replace(
        snapshot.checkpoints[0], state=CheckpointState.WRITING, problem="It is being written."
    )
    snapshot = replace(snapshot, checkpoints=(newest, *snapshot.checkpoints[1:]))
    app = TfckptApp(live.run, monitor=StillMonitor(snapshot))
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, "◌ writing")
        assert "✗" not in top(app)


async def test_a_directory_that_vanished_does_not_look_empty(ended: RunFactory) -> None:
    async with opened(ended.run) as pilot:
        await until_shown(pilot, "ckpt-b1-400")
        moved = ended.run.root.rename(ended.run.root.with_name("moved"))
        await until_shown(pilot, "✗ the run directory is gone")
        await until_shown(pilot, "the run directory does not exist any more")
        moved.rename(ended.run.root)
        await until_shown(pilot, "ckpt-b1-400")
        await until(pilot, lambda: "is gone" not in shown(pilot.app), "the end of the alert")


async def test_a_restarted_run_shows_the_step_that_it_continues_from(live: RunFactory) -> None:
    for index in range(2):
        live.live_worker(index, activity=Activity.STARTING, step=0, branch=0, loss=None)
    async with opened(live.run) as pilot:
        await until_shown(pilot, "starting")
        text = top(pilot.app)
        assert "step 400 of 5,000" in text
        assert "branch 1" in text
    shutil.rmtree(live.run.root)


async def test_an_empty_directory_offers_to_launch(tmp_path: Path) -> None:
    async with opened(RunDirectory(tmp_path)) as pilot:
        await until_shown(pilot, "press L to launch training here")
        await pilot.press("L")
        await until_shown(pilot, "Type the command of each worker")
    async with opened(RunDirectory(tmp_path), read_only=True) as pilot:
        await until_shown(pilot, "no checkpoint in this directory")
        assert "press L" not in top(pilot.app)
