"""Opens every screen and dialog in one app, and computes flaws of layout and colour.

async with walking(made) as walk:
    async for name in walk.screens():
        found = await walk.flaws()
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from app_driving import StillMonitor, top, until
from rich.cells import cell_len
from rich.style import Style
from rundir_factory import RunFactory
from textual.app import App
from textual.color import Color, ColorParseError
from textual.containers import VerticalScroll
from textual.geometry import Region
from textual.pilot import Pilot
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Button, Input, Static, Tooltip
from textual.widgets._toast import ToastRack

from recorded_slurm import RecordedSlurm, job_line
from tfckpt_trainer.catalog.retention.prune import move_to_trash
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.slurm.jobs import read_jobs
from tfckpt_trainer.rundir.documents import store
from tfckpt_trainer.rundir.health import RunState
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.job import BatchJob
from tfckpt_tui.app.app import TfckptApp
from tfckpt_tui.app.dialogs.batch_job import CancelJobDialog, SubmitJobDialog
from tfckpt_tui.app.dialogs.delete import DeleteForGoodDialog
from tfckpt_tui.app.dialogs.force_stop import ForceStopDialog
from tfckpt_tui.app.dialogs.foreign_trainer import BesideTrainerDialog
from tfckpt_tui.app.screens.track import TrackScreen
from tfckpt_tui.app.widgets.base.pane import Pane
from tfckpt_tui.app.widgets.run.dashboard_panes import DashboardPanes
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.monitor.snapshot_reader import SnapshotReader
from tfckpt_tui.services.batch.force_stop import ForceStopPlan
from tfckpt_tui.services.batch.job_view import JobView
from tfckpt_tui.services.inspect import inspect

SIZES = ((60, 20), (80, 24), (120, 40), (200, 50))
"""Smallest, default, large and largest terminal."""
THEMES = ("tfckpt-dark", "tfckpt-contrast", "tfckpt-colour-blind", "tfckpt-light")
_FRAME = 6
"""Cells around the title of a frame."""
_SPARE = 16
"""Cells at the end of a cut line that a column may leave empty."""
LEAST_CONTRAST = 4.5
"""Of text, by the Web Content Accessibility Guidelines 2.1, level AA."""
FAINT_CONTRAST = 3.0
"""Of times, ages and the parts of branches that training left."""

FRESH: Any = SimpleNamespace(
    processes=(),
    fresh_seconds=12.0,
    wait_seconds=48,
    open_checkpoints=frozenset(),
    fresh_checkpoints=frozenset({"ckpt-500"}),
    unseen_processes=0,
    other_machines=False,
)
"""Evidence of another trainer: a checkpoint that has just been written."""

Open = tuple[str, ...] | Callable[[RunSnapshot], Screen[Any]]

SETTLE_SECONDS = 5.0
"""How long a screen may take to get its layout."""


@dataclass(frozen=True)
class Stop:
    """One screen of the walk.

    Attributes:
        name: For messages.
        open: The keys that open it from the dashboard, or what makes it, if keys cannot.
        shows: A text that is on it once it has loaded.
        state: The state of the run.
        job: The batch job of the run.
    """

    name: str
    open: Open
    shows: str
    state: RunState = RunState.TRAINING
    job: JobView | None = None


def waiting_job() -> JobView:
    """A job that is held in the queue."""
    slurm = RecordedSlurm(job_line(reason="JobHeldUser"))
    record = BatchJob(
        scheduler="slurm", id="1234", user="ada", submitted_at=1795341252.0, script="job.sbatch"
    )
    return JobView(record, read_jobs(["1234"], runner=slurm).jobs["1234"])


JOB = waiting_job()
NINE_PROCESSES = tuple(f"worker {n} (process {4711 + n})" for n in range(9))
SCRIPT = Path("/data/runs/language-model/.tfckpt/job.sbatch")


def track_screen(run: RunSnapshot) -> TrackScreen:
    """The chart of a variable of the newest checkpoint."""
    directory = RunDirectory(Path(run.path))
    newest = run.checkpoints[0]
    return TrackScreen(directory, run, newest, inspect(directory, newest).variables[0])


STOPS = (
    Stop("dashboard", (), "history"),
    Stop("filter", ("slash", *"step>100"), "step>100"),
    Stop("checkpoint", ("enter",), "variables"),
    Stop("track", track_screen, "lowest"),
    Stop("compare", ("d",), "reads what changed"),
    Stop("measured", ("d", "n"), "all tensors together"),
    Stop("worker", ("w",), "step time"),
    Stop("charts", ("c",), "loss"),
    Stop("events", ("J", "down"), "event"),
    Stop("logs", ("l",), "step 590"),
    Stop("trash", ("T",), "trash"),
    Stop("settings", ("comma",), "config.toml"),
    Stop("help", ("question_mark",), "Keys of the dashboard"),
    Stop("help of the logs", ("l", "question_mark"), "Keys of the logs"),
    Stop("diagnostics", ("o",), "model-50"),
    Stop("restore", ("down", "r"), "which checkpoint?"),
    Stop("prune", ("p", "2"), "move to the trash"),
    Stop("prune marked", ("space", "down", "space", "p"), "prune marked"),
    Stop("undo", ("u",), "undo a prune"),
    Stop("undo from the trash", ("T", "u"), "undo a prune"),
    Stop("empty the trash", ("T", "E"), "delete for good"),
    Stop("export", ("e",), "export"),
    Stop("stop", ("x",), "stop"),
    Stop("tensorboard", ("t",), "not running"),
    Stop("launch", ("L",), "Starts ", RunState.STOPPED),
    Stop(
        "end the processes",
        lambda run: ForceStopDialog(run, ForceStopPlan(None, NINE_PROCESSES)),
        "and 1 more",
    ),
    Stop(
        "cancel an active job",
        lambda run: ForceStopDialog(run, ForceStopPlan(JOB)),
        "Slurm cancels it",
    ),
    Stop("queued", (), "JobHeld", RunState.QUEUED, JOB),
    Stop(
        "cancel the job",
        lambda run: CancelJobDialog(replace(run, job=JOB), JOB),
        "place in the queue",
    ),
    Stop("submit the job", lambda run: SubmitJobDialog(run, JOB, SCRIPT), "submit the job again"),
    Stop("disk full", lambda run: DeleteForGoodDialog(run, names_of(run)), "disk is full"),
    Stop(
        "beside another trainer",
        lambda run: BesideTrainerDialog(run, FRESH, 3),
        "new files?",
    ),
)


def names_of(run: RunSnapshot) -> tuple[str, ...]:
    return tuple(checkpoint.name for checkpoint in run.checkpoints)


def furnish(made: RunFactory) -> RunFactory:
    """Adds what the screens need: a trash, a damaged checkpoint, logs, a launch."""
    move_to_trash(made.run, ["ckpt-300"], by="ada@trainhost", now=made.now, update_state_file=True)
    (made.run.root / "ckpt-200.data-00000-of-00001").unlink()
    made.checkpoint(50, name="model-50", recorded=False, listed=False, seconds_ago=3000)
    made.run.pin("ckpt-100").touch()
    made.run.worker_log(0).write_text("".join(f"step {10 * n} loss 2.5\n" for n in range(60)))
    options = LaunchOptions(
        run_directory="/data/runs/language-model",
        command=("sh", "train.sh", "--steps", "5000"),
        working_directory="/",
        workers=2,
    )
    store(made.run.launch_file, options)
    made.create(command=["sh", "train.sh"])
    return made


class Look:
    """Takes the topmost screen of an app through sizes and themes."""

    def __init__(self, pilot: Pilot[Any]) -> None:
        self._pilot = pilot
        self._sizes = list(SIZES)
        self._themes = list(THEMES)

    @property
    def screen(self) -> Screen[Any]:
        """The topmost screen."""
        return self._pilot.app.screen

    async def press(self, *keys: str) -> None:
        """Presses keys."""
        await self._pilot.press(*keys)

    async def flaws(self) -> list[str]:
        """Returns the flaws in all sizes and themes; each time, it goes the other way.

        The themes at the ends are taken in all sizes, those between them in one.
        """
        found = []
        self._themes.reverse()
        for theme in self._themes:
            await self._take_theme(theme)
            if theme not in (THEMES[0], THEMES[-1]):
                found += [f"{theme}: {p}" for p in await self.settled(colour_problems)]
                continue
            self._sizes.reverse()
            for width, height in self._sizes:
                await self._take_size(width, height)
                where = f"{theme}, {width}x{height}"
                found += [f"{where}: {p}" for p in await self.settled(_layout_and_colour)]
        return found

    async def settled(self, problems: Callable[[Screen[Any]], list[str]]) -> list[str]:
        """Returns what `problems` finds once the screen has its layout, or after a limit."""
        until = time.monotonic() + SETTLE_SECONDS
        while (found := problems(self.screen)) and time.monotonic() < until:
            await self._pilot.pause(0.02)
        return found

    async def _take_size(self, width: int, height: int) -> None:
        if self._pilot.app.size != (width, height):
            await self._pilot.resize_terminal(width, height)
            await self._pilot.pause()

    async def _take_theme(self, theme: str) -> None:
        if self._pilot.app.theme != theme:
            self._pilot.app.theme = theme
            await self._pilot.pause()


def _layout_and_colour(screen: Screen[Any]) -> list[str]:
    return [*layout_problems(screen), *colour_problems(screen)]


class Walk(Look):
    """An app that shows one snapshot of a run."""

    def __init__(self, pilot: Pilot[int], monitor: StillMonitor, snapshot: RunSnapshot) -> None:
        super().__init__(pilot)
        self._monitor = monitor
        self._snapshot = snapshot

    @property
    def app(self) -> TfckptApp:
        app = self._pilot.app
        assert isinstance(app, TfckptApp)
        return app

    async def screens(self) -> AsyncIterator[str]:
        """Opens each screen, yields its name, and closes it."""
        for stop in STOPS:
            await self._show(stop)
            if callable(stop.open):
                self.app.push_screen(stop.open(self._snapshot))
            else:
                await self._pilot.press("home", *stop.open)
            await until(
                self._pilot, lambda stop=stop: stop.shows in top(self.app), f"{stop.name} is open"
            )
            yield stop.name
            while len(self.app.screen_stack) > 1:
                await self.app.pop_screen()
            await self._pilot.press("escape", "escape")

    async def _show(self, stop: Stop) -> None:
        self._monitor.give(replace(self._snapshot, state=stop.state, job=stop.job))
        await self._pilot.pause()


@asynccontextmanager
async def walking(made: RunFactory) -> AsyncIterator[Walk]:
    """The app on a run that `furnish` completed."""
    snapshot = SnapshotReader(made.run).read(made.now)
    monitor = StillMonitor(snapshot)
    app = TfckptApp(made.run, monitor=monitor)
    async with app.run_test(size=SIZES[0]) as pilot:
        await until(pilot, lambda: app.snapshot, "the snapshot")
        await pilot.pause()
        yield Walk(pilot, monitor, snapshot)


# -- layout ----------------------------------------------------------------------------------


def layout_problems(screen: Screen[Any]) -> list[str]:
    """Returns what is cut, lies outside of its parent or on another widget, or stays empty."""
    widgets = _shown(screen)
    return [
        *(problem for widget in widgets for problem in (*_outside(widget), *_cut(widget))),
        *_overlapping(widgets),
        *(_off_centre(screen) if isinstance(screen, ModalScreen) else _uncovered(screen, widgets)),
    ]


def _shown(screen: Screen[Any]) -> list[Widget]:
    """Returns the widgets of a screen that take part in its layout."""
    return [
        widget
        for widget in screen.walk_children(Widget)
        if not isinstance(widget, ToastRack | Tooltip)
        and all(one.display for one in widget.ancestors_with_self if isinstance(one, Widget))
        # The dashboard gives no place to panes that it does not show.
        and (widget.region.area or not isinstance(widget.parent, DashboardPanes))
    ]


def _named(widget: Widget) -> str:
    return f"{type(widget).__name__}{f'#{widget.id}' if widget.id else ''}"


def _scrolls(widget: Widget) -> bool:
    return isinstance(widget, VerticalScroll)


def _outside(widget: Widget) -> Iterator[str]:
    parent = widget.parent
    if not isinstance(parent, Widget):
        return
    room, own = parent.content_region, widget.region
    across = own.x >= room.x and own.right <= room.right
    stays = not _scrolls(parent) or widget.styles.dock != "none"
    down = own.y >= room.y and own.bottom <= room.bottom
    if not own.area:
        yield f"{_named(widget)} has no room"
    elif not across or (stays and not down):
        yield f"{_named(widget)} at {own} is outside of {_named(parent)} at {room}"
    elif (
        _scrolls(parent)
        and not isinstance(widget, Button)
        and own.width < room.width - 1 - widget.styles.margin.width
    ):
        yield f"{_named(widget)} at {own} does not fill {_named(parent)} at {room}"


def _cut(widget: Widget) -> Iterator[str]:
    width, height = widget.content_size
    if isinstance(widget, Button) and cell_len(str(widget.label)) > width:
        yield f"the button {str(widget.label)!r} is cut at {width}"
    elif isinstance(widget, Input) and not widget.value and cell_len(widget.placeholder) > width:
        yield f"the placeholder {widget.placeholder!r} is cut at {width}"
    elif (
        isinstance(widget, Static)
        and widget.get_content_height(widget.size, widget.screen.size, width) > height
    ):
        yield f"{_named(widget)} is cut at line {height}"
    for title in (widget.border_title, widget.border_subtitle):
        if title and cell_len(title.strip()) > widget.outer_size.width - _FRAME:
            yield f"the title {title!r} is cut at {widget.outer_size.width}"
    if isinstance(widget, Pane):
        yield from _cut_lines(widget)


def _cut_lines(pane: Pane) -> Iterator[str]:
    """Yields lines that are cut although there is room at their end."""
    for y in range(pane.size.height):
        text = pane.render_line(y).text.strip("│┃ ")
        room = pane.inner_size[0] - cell_len(text)
        if "…" in text and room > _SPARE:
            yield f"{_named(pane)} cuts {text!r} with {room} cells to spare"


def _overlapping(widgets: Sequence[Widget]) -> Iterator[str]:
    for parent in {widget.parent for widget in widgets}:
        children = [w for w in widgets if w.parent is parent and w.styles.dock == "none"]
        for one, other in combinations(children, 2):
            if one.region.overlaps(other.region):
                yield f"{_named(one)} at {one.region} overlaps {_named(other)} at {other.region}"


def _uncovered(screen: Screen[Any], widgets: Sequence[Widget]) -> Iterator[str]:
    parents = {widget.parent for widget in widgets}
    covered = sum(widget.region.area for widget in widgets if widget not in parents)
    if covered != screen.size.area:
        yield f"{covered} of {screen.size.area} cells are covered"


def _off_centre(screen: Screen[Any]) -> Iterator[str]:
    box = _box(screen)
    width, height = screen.size
    if abs(box.x - (width - box.right)) > 1 or abs(box.y - (height - box.bottom)) > 1:
        yield f"{box} is not in the middle of {screen.size}"


def _box(screen: Screen[Any]) -> Region:
    """Returns the region of a dialog."""
    return next(w.region for w in screen.children if not isinstance(w, ToastRack | Tooltip))


# -- colours ---------------------------------------------------------------------------------


def colour_problems(screen: Screen[Any]) -> list[str]:
    """Returns texts that cannot be read, and colours that the theme does not have."""
    known = theme_colours(screen.app)
    found: dict[str, tuple[int, int, str]] = {}
    for x, y, text, style in _texts(screen):
        if style is None or style.color is None or style.bgcolor is None:
            continue
        fore, back = (Color.from_rich_color(c) for c in (style.color, style.bgcolor))
        if style.reverse:
            fore, back = back, fore
        for problem in _colours_of(text, fore, back, known):
            found.setdefault(problem, (x, y, text))
    return [
        f"{problem} in {_named(screen.get_widget_at(x, y)[0])}: {text.strip()!r}"
        for problem, (x, y, text) in found.items()
        # The selection of a field is a mixture of colours.
        if not (isinstance(screen.get_widget_at(x, y)[0], Input) and "background" in problem)
    ]


def _colours_of(text: str, fore: Color, back: Color, known: Mapping[str, Color]) -> Iterator[str]:
    if back not in known.values():
        yield f"background {back.hex} is not of the theme"
    if not re.search(r"\w", text):
        return
    if fore not in known.values():
        yield f"colour {fore.hex} is not of the theme"
    if contrast(fore, back) < _least_contrast(fore, known):
        yield f"contrast {contrast(fore, back):.1f} of {fore.hex} on {back.hex}"


def _least_contrast(fore: Color, known: Mapping[str, Color]) -> float:
    if fore == known["faint"] or any(fore == known[f"branch-{n}-past"] for n in range(6)):
        return FAINT_CONTRAST
    return LEAST_CONTRAST


@cache
def contrast(one: Color, other: Color) -> float:
    """Returns the contrast ratio of two colours, as the guidelines define it."""
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: Color) -> float:
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour.normalized
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def theme_colours(app: App[Any]) -> dict[str, Color]:
    """Returns the colours of the theme by their names."""
    known = {}
    for name, value in app.theme_variables.items():
        with suppress(ColorParseError):
            known[name] = Color.parse(value)
    return known


def _texts(screen: Screen[Any]) -> Iterator[tuple[int, int, str, Style | None]]:
    """Yields the segments of a screen with their positions; of a dialog, those in its box."""
    box = screen.region
    if isinstance(screen, ModalScreen):
        box = _box(screen)
    for y, strip in enumerate(screen._compositor.render_strips()):
        if box.y <= y < box.bottom:
            x = box.x
            for text, style, _ in strip.crop(box.x, box.right):
                yield x, y, text, style
                x += cell_len(text)
