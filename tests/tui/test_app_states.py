"""What the app says of runs that begin, are gone, or save right now."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
from app_driving import StillMonitor, opened, shown, top, until, until_screen, until_shown
from msgspec.structs import replace
from rundir_factory import RunFactory
from textual.widgets import Input

from tfckpt_trainer.catalog.directory.checkpoints import CheckpointState
from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.rundir.heartbeats.health import RunState
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.worker import Activity, Ending, Phase
from tfckpt_tui.app.app import TfckptApp
from tfckpt_tui.app.dashboard import DashboardScreen
from tfckpt_tui.app.dashboard_panes import DashboardPanes
from tfckpt_tui.app.dialogs.prune import PruneDialog
from tfckpt_tui.app.screens.trash import TrashScreen
from tfckpt_tui.app.widgets.checkpoints.history import History
from tfckpt_tui.monitor.snapshot_reader import SnapshotReader


async def test_a_save_in_progress_is_no_error(live: RunFactory) -> None:
    snapshot = SnapshotReader(live.run).read(live.now)
    newest = msgspec.structs.replace(
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
        for false_of_it in ("unattended", "not trained with", "no step yet"):
            assert false_of_it not in top(pilot.app)
        # In the header, and in place of the checkpoints.
        gone = "the run directory is gone"
        await until(pilot, lambda: shown(pilot.app).count(gone) == 2, "both places")
        for key, label in (("enter", "inspect"), ("p", "prune"), ("L", "launch")):
            await pilot.press(key)
            await until_shown(pilot, f"Not now: {label}")
            assert "The run directory is gone" in top(pilot.app)
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


async def test_a_worker_whose_process_is_gone_waits_for_nothing(ended: RunFactory) -> None:
    since = ended.now - 30
    ended.worker(0, activity=Activity.STARTING, phase=Phase.JOIN, phase_since=since)
    snapshot = SnapshotReader(ended.run).read(ended.now + 60)
    app = TfckptApp(ended.run, monitor=StillMonitor(snapshot))
    async with app.run_test(size=(240, 40)) as pilot:
        await until_shown(pilot, "✗ lost")
        assert "waiting for" not in top(app)


async def test_an_empty_directory_offers_to_launch(tmp_path: Path) -> None:
    async with opened(RunDirectory(tmp_path)) as pilot:
        await until_shown(pilot, "Press L to launch training here.")
        await pilot.press("L")
        await until_shown(pilot, "python train.py --steps 5000")
        assert "✗" not in top(pilot.app)
        await pilot.press("y")
        await until(pilot, lambda: pilot.app.screen.query_one("#command", Input).value, "a letter")
        await pilot.press("backspace")
        await until_shown(pilot, "✗ Type the command of each worker")
        await pilot.press("escape", "L", "enter")
        await until_shown(pilot, "✗ Type the command of each worker")
    async with opened(RunDirectory(tmp_path), read_only=True) as pilot:
        await until_shown(pilot, "There is no checkpoint yet.")
        assert "Press L" not in top(pilot.app)


async def test_a_directory_without_a_run_has_none_that_ended(tmp_path: Path) -> None:
    async with opened(RunDirectory(tmp_path)) as pilot:
        await pilot.press("x")
        await until_shown(pilot, "No run was launched in this directory.")


async def test_without_a_trainer_the_key_that_launches_one_is_named(ended: RunFactory) -> None:
    async with opened(ended.run) as pilot:
        await pilot.press("s")
        await until_shown(pilot, "Press L to launch training.")


async def test_an_empty_trash_offers_nothing(ended: RunFactory) -> None:
    async with opened(ended.run) as pilot:
        await pilot.press("T")
        await until_screen(pilot, TrashScreen)
        await until_shown(pilot, "? help")
        for words in ("delete all for good", "bring back", "╭─ in it"):
            assert words not in top(pilot.app)


async def test_a_run_that_waits_in_the_queue_does_not_offer_to_launch(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    snapshot = replace(SnapshotReader(run).read(0.0), state=RunState.QUEUED)
    app = TfckptApp(run, monitor=StillMonitor(snapshot))
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, "Training begins when the batch job starts.")


async def test_a_worker_that_exited_is_in_no_script(ended: RunFactory) -> None:
    for index in range(2):
        ended.worker(
            index,
            activity=Activity.EXITED,
            ending=Ending.FINISHED,
            phase=Phase.SCRIPT,
            phase_since=ended.now,
        )
    async with opened(ended.run) as pilot:
        await pilot.press("w")
        await until_shown(pilot, "ended finished")
        assert "in the script" not in top(pilot.app)


async def test_a_message_of_several_lines_has_no_pictures_of_them(live: RunFactory) -> None:
    def fail() -> None:
        raise TfckptError("It failed:\n  first this,\n  then that.")

    async with opened(live.run) as pilot:
        assert isinstance(pilot.app, TfckptApp)
        pilot.app.start_job("export", fail)
        await until_shown(pilot, "It failed: first this, then that.")


async def test_the_footer_of_a_run_that_ended_has_launch_and_events(ended: RunFactory) -> None:
    async with opened(ended.run) as pilot:
        await until_shown(pilot, "L launch")
        assert "J events" in top(pilot.app)


async def test_an_example_of_a_rule_does_not_look_like_a_value(ended: RunFactory) -> None:
    async with opened(ended.run) as pilot:
        await pilot.press("p")
        await until_screen(pilot, PruneDialog)
        fields = pilot.app.screen.query(Input)
        assert "e.g. loss:min:3" in {field.placeholder for field in fields}


async def test_actions_of_packages_may_come_while_the_app_quits(
    live: RunFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []

    def take_late(panes: DashboardPanes) -> None:
        dashboard = panes.screen
        assert isinstance(dashboard, DashboardScreen)
        dashboard.add_actions(())
        taken.append(bool(panes.query(History)))

    monkeypatch.setattr(DashboardPanes, "on_unmount", take_late, raising=False)
    async with opened(live.run):
        pass
    assert taken == [False]


@pytest.mark.parametrize("saves", ["only at its end", "every 500 steps"])
async def test_a_run_that_saves_at_no_other_time_says_so(live: RunFactory, saves: str) -> None:
    live.create(saves=saves)
    async with opened(live.run, size=(160, 40)) as pilot:
        await until_shown(pilot, "a step")
        assert ("saves only at its end" in top(pilot.app)) == (saves == "only at its end")
