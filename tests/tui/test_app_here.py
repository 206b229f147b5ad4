"""Actions work on the page where the user is."""

from __future__ import annotations

import sys
from pathlib import Path

from app_driving import opened, resize, top, until, until_jobs_are_shown, until_screen, until_shown
from rundir_factory import RunFactory

from tfckpt_trainer.catalog.directory.history import resume_point
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.supervision.stop import stop_supervisor
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.heartbeats.reading import read_supervisor
from tfckpt_trainer.rundir.records.command import CommandKind
from tfckpt_trainer.rundir.storage.documents import store
from tfckpt_tui.app.dashboard import DashboardScreen
from tfckpt_tui.app.screens.checkpoint import CheckpointScreen
from tfckpt_tui.app.widgets.checkpoints.history import History
from tfckpt_tui.services.control.prune import undo
from tfckpt_tui.services.control.request import FrontEnd


async def test_a_checkpoint_is_restored_from_its_page(live: RunFactory) -> None:
    async with opened(live.run) as pilot:
        await pilot.press("space", "down", "enter")
        await until_screen(pilot, CheckpointScreen)
        await until_shown(pilot, "r restore")
        await pilot.press("r")
        await until_shown(pilot, "which checkpoint?")
        assert "ckpt-400" in top(pilot.app)
        await pilot.press("y")
        await until(pilot, lambda: "restore ckpt-400: requested" in top(pilot.app), "its progress")
        command = await until(pilot, CommandQueue(live.run).pending, "the command")
        assert command[0].arguments["name"] == "ckpt-400"


async def test_a_checkpoint_is_pinned_exported_and_pruned_from_its_page(ended: RunFactory) -> None:
    async with opened(ended.run) as pilot:
        await pilot.press("space", "down", "enter")
        page = await until_screen(pilot, CheckpointScreen)
        await until_shown(pilot, "* pin")
        assert "e export" not in top(pilot.app).splitlines()[-1]
        await pilot.press("*")
        await until(pilot, lambda: page._checkpoint.pinned, "the pin on the page")
        await pilot.press("*")
        await until_shown(pilot, "is no longer pinned")
        # Until the next snapshot, a prune is refused.
        await until(pilot, lambda: not page._checkpoint.pinned, "the page without the pin")
        await pilot.press("e")
        await until_shown(pilot, "Not now: export")
        assert pilot.app.screen is page
        await pilot.press("p")
        await until_shown(pilot, "prune 1 checkpoint")
        await pilot.press("y")
        await until_shown(pilot, "This checkpoint no longer exists")
        await pilot.press("p")
        await until_shown(pilot, "This checkpoint is in the trash, or was deleted.")
        await pilot.press("escape")
        undo(ended.run, through=FrontEnd.COMMAND_LINE)
        await until(pilot, lambda: "no longer exists" not in top(pilot.app), "it is back")
        await pilot.press("p")
        await until_shown(pilot, "prune 1 checkpoint")
        await pilot.press("y")
        await until_shown(pilot, "This checkpoint no longer exists")
        await pilot.press("escape")
        await until_screen(pilot, DashboardScreen)
        await until_shown(pilot, "1 marked")


async def test_a_click_on_a_heading_sorts(ended: RunFactory) -> None:
    async with opened(ended.run) as pilot:
        history = pilot.app.screen.query_one("#history", History)
        head = history.region.y + 1
        column = top(pilot.app).splitlines()[head].index(" step ") + 2

        async def click() -> None:
            await pilot.click(offset=(column, head))

        await click()
        await until_shown(pilot, "step ▼")
        assert history.selected is not None
        await click()
        await until_shown(pilot, "step ▲")
        await click()
        await until(pilot, lambda: "▲" not in top(pilot.app), "the order of the history")


async def test_a_wide_terminal_has_all_columns_of_a_narrower_one(live: RunFactory) -> None:
    def headings(pilot) -> set[str]:
        app = pilot.app
        lists = [app.screen.query_one("#history", History), app.screen.query_one("#workers")]
        spans = (one.head_lines(one.inner_size[0])[0].spans for one in lists)
        return {text.strip() for found in spans for text, _ in found} - {""}

    async with opened(live.run, size=(120, 50)) as pilot:
        before = headings(pilot)
        assert "ada@trainhost" in top(pilot.app)
        for width in (150, 199, 200, 300):
            await resize(pilot, width, 50)
            assert headings(pilot) >= before, width
            assert "ada@trainhost" in top(pilot.app)


async def test_messages_do_not_cover_progress(live: RunFactory) -> None:
    async with opened(live.run, size=(80, 24)) as pilot:
        CommandQueue(live.run).submit(CommandKind.SAVE, requested_by="ada")
        await until_shown(pilot, "save: requested")
        await pilot.press("u")
        await until_shown(pilot, "Not now: undo")
        screen = pilot.app.screen
        toasts, progress = screen.query("Toast"), screen.query_one("#progress")
        await until(
            pilot,
            lambda: not any(toast.region.overlaps(progress.region) for toast in toasts),
            "toasts beside the progress",
        )
        assert "save: requested" in top(pilot.app)


async def test_values_are_beside_the_labels_of_settings(live: RunFactory) -> None:
    async with opened(live.run, size=(200, 50)) as pilot:
        await pilot.press("comma")
        await until_shown(pilot, "config.toml")
        rows = [row for row in top(pilot.app).splitlines() if "◂" in row]
        assert rows
        titles = [len(row.partition("◂")[0].rstrip()) for row in rows]
        assert {row.index("◂") for row in rows} == {rows[0].index("◂")}
        assert rows[0].index("◂") < 80 >= max(titles)


async def test_the_palette_looks_like_a_dialog(live: RunFactory) -> None:
    async with opened(live.run, size=(120, 40)) as pilot:
        await pilot.press("colon")
        await until_shown(pilot, "save: Save a checkpoint now")
        screen = pilot.app.screen
        widths = [screen.query_one(one).region.width for one in ("#--input", "CommandList")]
        assert widths == [92, 92]
        assert "🔎" not in top(pilot.app)


async def test_help_is_about_the_screen_and_short(ended: RunFactory) -> None:
    async with opened(ended.run, size=(80, 40)) as pilot:
        await pilot.press("enter")
        page = await until_screen(pilot, CheckpointScreen)
        await until_shown(pilot, "* pin")
        await pilot.press("question_mark")
        await until_shown(pilot, "Keys of a checkpoint")
        text = top(pilot.app)
        assert "Keys of the dashboard" not in text
        assert "Writes this checkpoint" not in text
        assert "Moves this checkpoint to the trash." in text
        assert len([row for row in text.splitlines() if row.strip(" │")]) < 30
        await pilot.press("escape")
        await until(pilot, lambda: pilot.app.screen is page, "the page")


async def test_r_on_a_stopped_run_launches_it_from_that_checkpoint(
    ended: RunFactory, tmp_path: Path
) -> None:
    options = LaunchOptions(
        run_directory=str(ended.run.root),
        command=(sys.executable, "-c", "import time; time.sleep(1000)"),
        working_directory=str(tmp_path),
        standby=False,
    )
    store(ended.run.launch_file, options)
    async with opened(ended.run) as pilot:
        await until_shown(pilot, "r restore")
        await pilot.press("end", "up", "r")
        await until_shown(pilot, "restore, then launch")
        await until_shown(pilot, "ckpt-200")
        assert "restore in part" not in top(pilot.app)
        await pilot.press("y")
        await until_shown(pilot, "Training continues from ckpt-200.")
        before = resume_point(ended.run)
        assert before is not None
        assert before.checkpoint == "ckpt-b1-400"
        await pilot.press("enter")
        try:
            await until(pilot, lambda: read_supervisor(ended.run), "the supervisor")
            resumed = resume_point(ended.run)
            assert resumed is not None
            assert (resumed.checkpoint, resumed.branch) == ("ckpt-200", 2)
            await until_jobs_are_shown(pilot)
        finally:
            stop_supervisor(ended.run, 0.0, by="a test")


async def test_a_filter_that_hides_all_checkpoints_is_named(live: RunFactory) -> None:
    async with opened(live.run) as pilot:
        await pilot.press("slash", *"nowhere", "enter")
        await until_shown(pilot, "no checkpoint matches nowhere")
        for key in ("enter", "*", "v", "e", "d", "y", "Y", "space"):
            pilot.app.clear_notifications()
            await pilot.pause()
            assert "No checkpoint matches the filter." not in top(pilot.app)
            await pilot.press(key)
            await until_shown(pilot, "No checkpoint matches the filter.")
