"""Toasts do not hide what a user acts on, and do not pile up."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import pytest
from app_driving import opened, top, type_ahead, until, until_screen, until_shown
from rundir_factory import RunFactory
from textual.pilot import Pilot

from tfckpt_trainer.errors import TfckptError
from tfckpt_tui.app.app import TfckptApp
from tfckpt_tui.app.dialogs.stop import StopDialog


@pytest.fixture(autouse=True)
def lasting_toasts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TfckptApp, "NOTIFICATION_TIMEOUT", 1000)


def toasts(pilot: Pilot[int]) -> Iterable[str]:
    return [str(toast.render()) for toast in pilot.app.screen.query("Toast")]


async def test_a_dialog_opens_without_the_toasts_of_the_dashboard(live: RunFactory) -> None:
    async with opened(live.run, size=(80, 24)) as pilot:
        await pilot.press("L", "u")
        await until_shown(pilot, "Not now: undo")
        await pilot.press("x")
        await until_shown(pilot, "stop without saving")
        await until(pilot, lambda: not toasts(pilot), "no toast", 5)
        assert "Not now" not in top(pilot.app)


async def test_a_toast_of_keys_typed_at_once_is_not_on_the_dialog(live: RunFactory) -> None:
    async with opened(live.run, size=(80, 24)) as pilot:
        type_ahead(pilot, "L", "u", "x")
        await until_screen(pilot, StopDialog)
        await until_shown(pilot, "stop without saving")
        await until(pilot, lambda: not toasts(pilot), "no toast", 5)


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 40)])
async def test_toasts_do_not_cover_the_buttons_of_a_dialog(
    live: RunFactory, size: tuple[int, int]
) -> None:
    async with opened(live.run, size=size) as pilot:
        await pilot.press("x")
        await until_shown(pilot, "stop without saving")
        for number in range(4):
            pilot.app.notify(f"Message {number}. " + "It has several lines. " * 4)
        await until(pilot, lambda: len(toasts(pilot)) == 4, "the toasts", 5)
        await until_shown(pilot, "Message 0", 5)
        text = top(pilot.app)
        for label in ("n  cancel", "s  save, then stop", "d  stop without saving"):
            assert label in text


async def test_a_toast_replaces_the_same_one_and_not_now_replaces_not_now(
    ended: RunFactory,
) -> None:
    async with opened(ended.run) as pilot:
        await pilot.press("s", "z")
        await until_shown(pilot, "Not now: pause")
        assert len(toasts(pilot)) == 1
        await pilot.press("y", "y")
        await until_shown(pilot, "clipboard")
        await pilot.pause()
        assert len(toasts(pilot)) == 2


async def test_the_toast_of_a_job_goes_when_the_job_fails(ended: RunFactory) -> None:
    def fail() -> None:
        assert release.wait(10)
        raise TfckptError("The disk is full.")

    release = threading.Event()
    async with opened(ended.run) as pilot:
        assert isinstance(pilot.app, TfckptApp)
        pilot.app.start_job("export", fail, progress="Exporting ckpt-500 …")
        await until_shown(pilot, "Exporting ckpt-500 …", 5)
        release.set()
        await until_shown(pilot, "The disk is full.", 5)
        await until(pilot, lambda: not toasts(pilot), "no toast", 5)
