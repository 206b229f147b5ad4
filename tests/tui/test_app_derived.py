"""Checkpoints that `average` and `edit` made, in the app."""

from __future__ import annotations

import pytest
from app_driving import opened, top, until, until_shown
from rundir_factory import RunFactory

from command_running import Tool


@pytest.fixture
def made(ended: RunFactory, capsys: pytest.CaptureFixture[str]) -> RunFactory:
    """A run with an average and an edited checkpoint."""
    tool, root = Tool(capsys), ended.run.root
    for index in range(2):
        ended.run.worker_status(index).unlink()
    assert tool("average", root, "100", "200", "--weights", "1,3").code == 0
    assert tool("edit", root, "ckpt-300", "--cast", "v", "float16", "--yes").code == 0
    return ended


async def test_the_history_says_what_they_were_made_from(made: RunFactory) -> None:
    async with opened(made.run, size=(160, 40)) as pilot:
        await until_shown(pilot, "average of ckpt-100, ckpt-200")
        assert "edit of ckpt-300" in top(pilot.app)
        nodes = [row for row in top(pilot.app).splitlines() if "◇" in row]
        assert len(nodes) == 2
        assert all(" of ckpt-" in row for row in nodes)


async def test_the_page_has_weights_and_changes(made: RunFactory) -> None:
    async with opened(made.run, select="average-200") as pilot:
        await pilot.press("enter")
        await until_shown(pilot, "made by average of ckpt-100 (0.25), ckpt-200 (0.75)")
        assert "saved average" not in top(pilot.app)
        await pilot.press("escape")
        edited = next(c.name for c in pilot.app.snapshot.checkpoints if c.trigger == "edit")  # type: ignore[attr-defined]
        pilot.app.screen.go_to(edited)  # type: ignore[attr-defined]
        await pilot.press("enter")
        await until_shown(pilot, "made by edit of ckpt-300")
        await until(pilot, lambda: "float16" in top(pilot.app), "the change")
