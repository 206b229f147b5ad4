"""How soon a key shows, on every page and dialog of a run with many workers, checkpoints, metrics.

    python tests/benchmarks/page_keys.py [--more-workers N ...] [--only PAGE] [--profile KEY]

The real app runs without a terminal, on one snapshot of a run, at 140 by 40. The time runs from a
key to the first frame that it changes, in which the page that it opens is on top, with the escape
sequences of the frame made. Writing them is not in it. `chart_keys.py` tells when the charts beside
the chosen one follow.

Beside it, the same keys are pressed in a bare Textual app: one `OptionList` with as many rows. A
key that opens a page is compared with one that opens a screen with such a list of a few rows, and a
key that means nothing to a list with `down`; by processor time, which others disturb least.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from msgspec.structs import replace

for part in ("", "tui"):
    sys.path.insert(0, str(Path(__file__).parents[1] / part))
from app_driving import StillMonitor, type_ahead, until_jobs_are_shown
from chart_keys import KEYS as CHART_KEYS
from chart_keys import series_of
from large_list import enlarged
from rich.console import Console
from rundir_factory import two_branches
from screen_walk import STOPS, Stop, furnish
from scripts.figures import report
from scripts.machine import on_quiet_machine
from textual._compositor import CompositorUpdate
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Input, OptionList

from tfckpt_tui.app import base_app
from tfckpt_tui.app.app import TfckptApp
from tfckpt_tui.app.terminal.cells import TerminalCells
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.monitor.snapshot_reader import SnapshotReader

SIZE = (140, 40)
MOVES = ("down", "up", "pagedown", "pageup", "end", "home", "tab")
KEYS = {
    "dashboard": (*MOVES, "tab", "down", "tab", "down", "shift+tab", ">", "=", "<", "space", "M"),
    "charts": CHART_KEYS,
    "logs": (*MOVES, "slash", "5", "9", "enter", "n", "escape"),
    "palette": ("v", "e", "r", "down"),
    "filter": ("1", "backspace", "space", "p"),
}
"""Of each page; the others get those that move."""
BARE_KEYS = (*MOVES, "o")
BARE_ROUNDS = 3
MOST_ROWS_OF_A_PAGE = 40


class Times(NamedTuple):
    """Seconds, or how long something took.

    Attributes:
        clock: Of the clock.
        processor: Of processor time of this process.
    """

    clock: float
    processor: float


class KeyTime(NamedTuple):
    """How long a key took.

    Attributes:
        key: The key.
        opens: Whether it opens a page.
        took: The time from it to its frame.
    """

    key: str
    opens: bool
    took: Times


def now() -> Times:
    """Returns the times now."""
    return Times(time.perf_counter(), time.process_time())


class NotesFrames(App[Any]):
    """Notes when each frame that changes cells was made.

    Attributes:
        frames: The screen on top of each, and when it was made.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.frames: list[tuple[Screen[Any], Times]] = []
        self._cells = TerminalCells()
        self._terminal = Console(color_system="truecolor", force_terminal=True)

    def _display(self, screen: Screen[Any], renderable: Any) -> None:
        if isinstance(renderable, CompositorUpdate) and self._cells.changes(
            renderable, self._terminal
        ):
            self.frames.append((screen, now()))
        super()._display(screen, renderable)

    async def timed(self, pilot: Pilot[Any], key: str) -> Times | None:
        """Presses a key; returns when its first frame came, None if it changes nothing."""
        self.frames.clear()
        began = now()
        type_ahead(pilot, key)
        await settled(pilot)
        shown = next((at for screen, at in self.frames if screen is self.screen), None)
        if shown is None:
            return None
        return Times(shown.clock - began.clock, shown.processor - began.processor)


class TimedApp(NotesFrames, TfckptApp):
    """The app."""

    CSS_PATH = Path(base_app.__file__).with_name("app.tcss")


class BareList(Screen[None]):
    """A screen with a list."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape", "dismiss", "Back")]

    def __init__(self, rows: int) -> None:
        super().__init__()
        self._rows = rows

    def compose(self) -> ComposeResult:
        """Makes the list."""
        yield OptionList(*(f"row {number}" for number in range(self._rows)))


class BareApp(NotesFrames):
    """A bare app with one list."""

    BINDINGS: ClassVar[list[BindingType]] = [("o", "open", "Open")]

    def __init__(self, rows: int) -> None:
        super().__init__()
        self._rows = rows

    def get_default_screen(self) -> Screen[None]:
        """Returns the list."""
        return BareList(self._rows)

    def action_open(self) -> None:
        """Opens another screen."""
        self.push_screen(BareList(MOST_ROWS_OF_A_PAGE))


@on_quiet_machine
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument(
        "--more-workers", type=int, nargs="*", default=(256, 1024), help="on the dashboard alone"
    )
    parser.add_argument("--checkpoints", type=int, default=20_000)
    parser.add_argument("--metrics", type=int, default=100)
    parser.add_argument("--points", type=int, default=50_000)
    parser.add_argument("--only", metavar="PAGE", help="press the keys of this page alone")
    parser.add_argument("--profile", metavar="KEY", help="say where the time of this key goes")
    options = parser.parse_args()
    stops = [stop for stop in STOPS if not stop.toast and options.only in (None, stop.name)]
    bare = asyncio.run(bare_keys(options.checkpoints))
    taken = measured(options, options.workers, stops)
    report_slowest("all pages", taken)
    for what in Times._fields:
        report(
            f"the slowest key, {what}", [1e3 * max(getattr(key.took, what) for key in taken)], "ms"
        )
    report_against(bare, taken)
    dashboard = [stop for stop in STOPS if stop.name == "dashboard"]
    for workers in (options.workers, *options.more_workers):
        taken = measured(options, workers, dashboard, told=False)
        report_slowest("the dashboard", taken, along="workers", at=workers)


async def bare_keys(rows: int) -> dict[str, float]:
    """Returns the seconds of processor time from each key to its frame in a bare app: medians."""
    app = BareApp(rows)
    times: dict[str, list[float]] = {}
    async with app.run_test(size=SIZE) as pilot:
        await settled(pilot)
        for key in (*BARE_KEYS, *BARE_KEYS[::-1]) * BARE_ROUNDS:
            took = await app.timed(pilot, key)
            if took is not None:
                times.setdefault(key, []).append(took.processor)
            if len(app.screen_stack) > 1:
                await pilot.press("escape")
    return {key: statistics.median(several) for key, several in times.items()}


def report_against(bare: Mapping[str, float], taken: Sequence[KeyTime]) -> None:
    """Reports how many times as long as in a bare app keys take."""
    for key, seconds in bare.items():
        report(f"bare app, key {key}", [1e3 * seconds], "ms processor")
    ratios = sorted(
        one.took.processor / bare["o" if one.opens else one.key if one.key in bare else "down"]
        for one in taken
    )
    against = "the same key in a bare Textual app"
    late = ratios[int(0.95 * len(ratios))]
    report("95 % of keys on all pages, beside a bare app", [late], "times", against=against)
    report("the slowest key, beside a bare app", [ratios[-1]], "times", against=against)


def measured(
    options: argparse.Namespace, workers: int, stops: Sequence[Stop], *, told: bool = True
) -> list[KeyTime]:
    """Presses the keys of pages of a run with so many workers.

    Args:
        options: Those of the command line.
        workers: How many workers the run has.
        stops: The pages.
        told: Whether to report the slowest key of each page.
    """
    with tempfile.TemporaryDirectory() as directory:
        made = furnish(two_branches(Path(directory) / "run", live=True))
        for index in range(2, workers):
            made.live_worker(index)
        snapshot = SnapshotReader(made.run).read(made.now)
        many = enlarged(snapshot, options.checkpoints).checkpoints
        snapshot = replace(
            snapshot,
            # Those of the run itself are on disk, and come first.
            checkpoints=(*snapshot.checkpoints, *many[: -len(snapshot.checkpoints)]),
            samples=series_of(options.metrics, options.points, made.now).samples,
        )
        app = TimedApp(made.run, monitor=StillMonitor(snapshot))
        return asyncio.run(measure(app, snapshot, stops, options.profile, told=told))


def report_slowest(where: str, taken: Sequence[KeyTime], along: str = "", at: float = 0.0) -> None:
    """Reports what 95 % of keys take at most."""
    for what in Times._fields:
        times = sorted(1e3 * getattr(one.took, what) for one in taken)
        late = times[int(0.95 * len(times))]
        report(f"95 % of keys on {where} to their frames, {what}", [late], "ms", along=along, at=at)


async def measure(
    app: TimedApp, snapshot: RunSnapshot, stops: Sequence[Stop], profiled: str | None, *, told: bool
) -> list[KeyTime]:
    """Presses the keys of pages, and reports the slowest of each."""
    taken: list[KeyTime] = []
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        while app.snapshot is None:
            await pilot.pause(0.05)
        await settled(pilot)
        for stop in stops:
            keys = Keys(app, pilot, profiled)
            await keys.press_on(stop, snapshot)
            taken += keys.taken.values()
            if keys.taken and told:
                for what in Times._fields:
                    name, slowest = max(
                        keys.taken.items(), key=lambda one: getattr(one[1].took, what)
                    )
                    seconds = getattr(slowest.took, what)
                    report(f"{stop.name}, key {name}", [1e3 * seconds], f"ms {what}")
    return taken


class Keys:
    """Presses the keys of one page.

    Attributes:
        taken: By key, how long it took; the longest time of a key that is pressed twice.
    """

    def __init__(self, app: TimedApp, pilot: Pilot[int], profiled: str | None) -> None:
        self.taken: dict[str, KeyTime] = {}
        self._app = app
        self._pilot = pilot
        self._profiled = profiled

    async def press_on(self, stop: Stop, snapshot: RunSnapshot) -> None:
        """Opens a page, presses its keys, and closes it."""
        app = self._app
        if stop.state is not snapshot.state:
            app._monitor.give(replace(snapshot, state=stop.state, job=stop.job))
            await settled(self._pilot)
        if callable(stop.open):
            app.push_screen(stop.open(snapshot))
            await settled(self._pilot)
        else:
            await self._pilot.press("home")
            await settled(self._pilot)
            for key in stop.open:
                await self._press(f"{key} to open", key)
        for key in KEYS.get(stop.name, MOVES):
            for line in app.screen.query(Input):
                # A blinking cursor is a frame too.
                line.cursor_blink = False
            await self._press(key, key)
        while len(app.screen_stack) > 1:
            await app.pop_screen()
        await self._pilot.press("escape", "escape")
        app.clear_notifications()
        await settled(self._pilot)

    async def _press(self, name: str, key: str) -> None:
        profile = cProfile.Profile() if key == self._profiled else None
        if profile is not None:
            profile.enable()
        took = await self._app.timed(self._pilot, key)
        if profile is not None:
            profile.disable()
            pstats.Stats(profile).sort_stats("cumulative").print_stats(45)
        if took is not None:
            took = max(took, self.taken[name].took) if name in self.taken else took
            self.taken[name] = KeyTime(key, opens=name != key, took=took)


async def settled(pilot: Pilot[int]) -> None:
    """Waits until all frames of a key are there."""
    await until_jobs_are_shown(pilot)
    await asyncio.sleep(0.05)
    await pilot.pause()


if __name__ == "__main__":
    main()
