"""The app shows the alerts of a run in its header, above the events, and with what to do."""

from __future__ import annotations

import pytest
from app_driving import opened, top, until, until_shown
from rundir_factory import RunFactory

from tfckpt_trainer.rundir.records.worker import SaveStatus

FAILING = SaveStatus(
    failed=7,
    problem="worker 0: [Errno 30] Read-only file system\x1b[2J",
    saved_step=400,
    unsaved_steps=38,
)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
async def test_failing_saves_are_in_the_header_the_events_and_on_a_page(
    live: RunFactory, size: tuple[int, int]
) -> None:
    live.live_worker(0, saves=FAILING)
    async with opened(live.run, size=size) as pilot:
        await until_shown(pilot, "✗ 7 saves failed")
        assert "7 saves failed" in top(pilot.app).splitlines()[0]
        await until_shown(pilot, "✗ The last 7 saves failed: worker 0: [Errno 30]")
        await until_shown(pilot, "✗ 1 alert  o shows what to do")
        assert "\x1b" not in top(pilot.app)
        await pilot.press("o")
        await until_shown(pilot, "alerts and diagnostics")
        await until(
            pilot,
            lambda: "tfckpt-tui save" in " ".join(top(pilot.app).split()),
            "the command that helps",
        )
        live.live_worker(0, saves=SaveStatus(saved_step=438))
        await until_shown(pilot, "All alerts and diagnostics are resolved.")
