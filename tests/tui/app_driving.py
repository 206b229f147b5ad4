"""Drives the real app without a terminal: what it shows, and waiting until it shows it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from faster_textual import text_of
from textual.app import App
from textual.events import Key
from textual.geometry import Size
from textual.keys import _character_to_key
from textual.pilot import Pilot
from textual.screen import Screen

from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.app.app import TfckptApp
from tfckpt_tui.app.widgets.checkpoints.history import History
from tfckpt_tui.charting.choices import ChartChoices
from tfckpt_tui.formats.sort_order import ListOrder
from tfckpt_tui.monitor.snapshot import NewestRows, RunSnapshot
from tfckpt_tui.settings.config import Config
from waiting import LEAST_SECONDS, attempts, pause_after, took_too_long

Result = TypeVar("Result")
ScreenT = TypeVar("ScreenT", bound=Screen[Any])

POLL = 5.0
"""Seconds between reads of a run that nobody waits for; `until` asks for one when it waits."""
ASKING_SECONDS = 0.2
"""How often it does."""


class StillMonitor:
    """Hands over the snapshots it is given, and nothing else: no clock, no files."""

    def __init__(self, snapshot: RunSnapshot, snapshot_timeout: float = float("inf")) -> None:
        self.snapshot_timeout = snapshot_timeout
        self._snapshot = snapshot
        self._take: Callable[[RunSnapshot], None] | None = None

    def start(
        self,
        on_snapshot: Callable[[RunSnapshot], None],
        on_newest: Callable[[NewestRows], None],
        count: int,
    ) -> None:
        del on_newest, count
        self._take = on_snapshot
        on_snapshot(self._snapshot)

    def give(self, snapshot: RunSnapshot) -> None:
        assert self._take is not None
        self._take(snapshot)

    def refresh(self) -> None:
        pass

    def stop(self) -> None:
        pass


def shown(app: App[int]) -> str:
    """Returns the text of all screens that are open, the topmost last."""
    return "\n".join(map(text_of, app.screen_stack))


def top(app: App[int]) -> str:
    """Returns the text of the topmost screen."""
    return text_of(app.screen)


def type_ahead(pilot: Pilot[int], *keys: str) -> None:
    """Sends keys at once, as a fast typist or a slow line does: nobody waits between them."""
    driver = pilot.app._driver
    assert driver is not None
    for key in keys:
        name = _character_to_key(key) if len(key) == 1 and not key.isalnum() else key
        event = Key(name, key if len(key) == 1 else None)
        event.set_sender(pilot.app)
        driver.send_message(event)


async def until(
    pilot: Pilot[int], condition: Callable[[], Result], what: str, timeout: float = LEAST_SECONDS
) -> Result:
    """Waits until `condition` is true, with the app running and reading the run meanwhile."""
    app, began, asked = pilot.app, time.monotonic(), 0.0
    while True:
        result = condition()
        if result:
            return result
        waited = time.monotonic() - began
        if took_too_long(waited, timeout):
            raise AssertionError(f"{what}: not within {waited:.0f} s\n{shown(app)}")
        if isinstance(app, TfckptApp) and waited > asked + ASKING_SECONDS:
            app._monitor.refresh()
            asked = waited
        # A pause of the pilot sends messages to all widgets, and many tests wait.
        await asyncio.sleep(pause_after(waited))


async def until_shown(pilot: Pilot[int], text: str, timeout: float = LEAST_SECONDS) -> None:
    """Waits until `text` is on the screen, with what came at the same time.

    It may be wrapped: where, depends on the length of a path before it.
    """

    def is_shown() -> bool:
        screens = shown(pilot.app)
        return text in screens or text in " ".join(screens.replace("│", " ").split())

    await until(pilot, is_shown, f"{text!r} on the screen", timeout)
    await pilot.pause()


async def until_screen(pilot: Pilot[int], kind: type[ScreenT]) -> ScreenT:
    """Waits until a screen of this kind is the topmost one, and has its widgets."""

    def opened_screen() -> ScreenT | None:
        screen = pilot.app.screen
        return screen if isinstance(screen, kind) and screen.is_mounted else None

    screen = await until(pilot, opened_screen, kind.__name__)
    assert screen is not None
    return screen


async def until_told(pilot: Pilot[int], text: str) -> None:
    """Waits until a toast says `text`: at its place, lines of the screen may be beside its own."""

    def is_told() -> bool:
        return any(text in toast.message for toast in pilot.app._notifications)

    await until(pilot, is_told, f"a toast with {text!r}")
    await pilot.pause()


async def resize(pilot: Pilot[int], width: int, height: int) -> None:
    """Resizes the terminal, and waits until the topmost screen is laid out in that size.

    The pilot waits for messages, and Textual lays out by a timer.
    """
    await pilot.resize_terminal(width, height)
    size = Size(width, height)
    await until(
        pilot, lambda: pilot.app.screen._compositor.size == size, f"a layout in {width}×{height}"
    )
    await pilot.pause()


async def until_jobs_are_shown(pilot: Pilot[int]) -> None:
    """Waits until no job runs in a thread, and the screen shows what all of them found.

    What one found may start another.
    """

    def running() -> bool:
        return any(thread.name.startswith("job: ") for thread in threading.enumerate())

    await pilot.pause()
    for _ in attempts("the end of all jobs"):
        if not running():
            break
        await until(pilot, lambda: not running(), "the end of all jobs")
        await pilot.pause()


@asynccontextmanager
async def opened(
    run: RunDirectory,
    *,
    read_only: bool = False,
    select: str | None = None,
    charts: ChartChoices | None = None,
    listing: ListOrder | None = None,
    size: tuple[int, int] = (120, 40),
    config: Config | None = None,
) -> AsyncIterator[Pilot[int]]:
    """The app on a run, when it has looked at it once; the cursor is on a checkpoint, if named."""
    app = TfckptApp(
        run, read_only=read_only, poll=POLL, listing=listing, charts=charts, config=config
    )
    async with app.run_test(size=size, notifications=True) as pilot:
        await until(pilot, lambda: app.snapshot, "a first snapshot")
        await pilot.pause()
        if select is not None:
            app.screen.query_one(History).select(select)
        yield pilot
