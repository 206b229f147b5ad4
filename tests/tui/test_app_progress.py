"""The progress of commands is on every screen and dialog, and no toast covers it."""

from __future__ import annotations

import pytest
from answering_trainer import AnsweringTrainer, done, final, working_for_ever
from app_driving import opened, resize, top, until, until_jobs_are_shown, until_shown
from rundir_factory import RunFactory
from textual.geometry import Region
from textual.pilot import Pilot

from tfckpt_trainer.rundir.records.command import CommandState
from tfckpt_tui.app.widgets.run.progress import Progress
from waiting import attempts

SIZES = [(60, 20), (120, 40)]

PAGES = {
    "checkpoint": ("enter",),
    "logs": ("l",),
    "events": ("J",),
    "trash": ("T",),
    "settings": ("comma",),
    "worker": ("w",),
    "charts": ("c",),
    "comparison": ("d",),
    "help": ("question_mark",),
    "restore": ("r",),
    "prune": ("p",),
    "stop": ("x",),
    "check": ("K",),
    "TensorBoard": ("t",),
    "export": ("e",),
}
"""The keys that open each screen and dialog."""


def progress_region(pilot: Pilot[int]) -> Region:
    """Where the topmost screen shows the progress."""
    return pilot.app.screen.query_one(Progress).region


async def test_a_command_in_progress_is_on_every_screen_and_above_no_toast(
    live: RunFactory,
) -> None:
    live.create(launched=True)
    with AnsweringTrainer(live.run, working_for_ever):
        async with opened(live.run, size=SIZES[0]) as pilot:
            await pilot.press("s")
            await until_shown(pilot, "save: working")
            for page, keys in PAGES.items():
                await pilot.press(*keys)
                await until(pilot, lambda: len(pilot.app.screen_stack) == 2, page)
                for size in SIZES:
                    await resize(pilot, *size)
                    await progress_is_shown_below_a_toast(pilot, f"{page}, {size}")
                for _ in attempts("back on the dashboard"):
                    if len(pilot.app.screen_stack) == 1:
                        break
                    await pilot.press("escape")


async def progress_is_shown_below_a_toast(pilot: Pilot[int], page: str) -> None:
    """Fails if the topmost screen hides the progress, or a toast does; closes the toast."""
    app = pilot.app
    app.notify("A toast of\nseveral\nlines", timeout=600, markup=False)
    await until(pilot, lambda: "A toast of" in top(app), f"the toast on {page}")
    await until(pilot, lambda: "save: working" in top(app), f"the progress on {page}")
    (toast,) = app.screen.query("Toast")
    # The screen may be laid out once more.
    await until(
        pilot,
        lambda: toast.region and toast.region.bottom <= progress_region(pilot).y,
        f"a toast above the progress on {page}",
    )
    assert progress_region(pilot).bottom == app.size.height - 1, page
    app.clear_notifications()


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_a_message_is_wrapped_and_not_cut(live: RunFactory, size: tuple[int, int]) -> None:
    words = [f"word{number}" for number in range(24)]
    with AnsweringTrainer(live.run, done(" ".join(words))):
        async with opened(live.run, size=size) as pilot:
            await pilot.press("s")
            await until_shown(pilot, words[0])
            await until(pilot, lambda: words[-1] in top(pilot.app), "the last word")
            assert all(word in top(pilot.app).split() for word in words[1:-1])


async def test_a_restore_is_followed_on_the_page_that_asked_for_it(live: RunFactory) -> None:
    with AnsweringTrainer(live.run, final(CommandState.REFUSED, "Shapes differ.")):
        async with opened(live.run, size=(80, 24)) as pilot:
            await pilot.press("enter")
            await until_shown(pilot, "r restore")
            await pilot.press("r")
            await until_shown(pilot, "which checkpoint?")
            await pilot.press("y")
            page = pilot.app.screen_stack[1]
            await until(
                pilot,
                lambda: pilot.app.screen is page and "Shapes differ." in top(pilot.app),
                "the outcome on the page",
            )
            await pilot.press("escape")
            await until(pilot, lambda: "Shapes differ." not in top(pilot.app), "no failure")
            assert pilot.app.screen is page
            await pilot.press("escape")
            await until(pilot, lambda: len(pilot.app.screen_stack) == 1, "the dashboard")
            assert "Shapes differ." not in top(pilot.app)


@pytest.mark.parametrize("keys", [("l",), ("J",), ("T",), ("comma",), ("w",), ("enter", "c")])
async def test_esc_dismisses_failures_before_it_closes_a_page(
    live: RunFactory, keys: tuple[str, ...]
) -> None:
    async with opened(live.run, size=(80, 24)) as pilot:
        await until_jobs_are_shown(pilot)
        for count, key in enumerate(keys, 2):
            await pilot.press(key)
            await until(pilot, lambda count=count: len(pilot.app.screen_stack) == count, key)
            await until_jobs_are_shown(pilot)
        pilot.app.progress.report_failure("export", "There is no room.")
        pilot.app.update_progress()
        page = pilot.app.screen
        await until(pilot, lambda: "There is no room." in top(pilot.app), "the failure")
        assert "esc dismiss" in top(pilot.app)
        await pilot.press("escape")
        await until(pilot, lambda: "There is no room." not in top(pilot.app), "no failure")
        assert pilot.app.screen is page
        await pilot.press("escape")
        await until(pilot, lambda: pilot.app.screen is not page, "the screen below")
