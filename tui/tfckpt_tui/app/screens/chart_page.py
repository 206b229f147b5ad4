"""The base of the pages of charts: a grid of charts with one cursor, in one view."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar

from msgspec.structs import replace
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from tfckpt_trainer.rundir.records.event import EventEntry
from tfckpt_tui.app.protocols import copy_text
from tfckpt_tui.app.screens.page import Page
from tfckpt_tui.app.widgets.base.icons import EVENT_ICONS
from tfckpt_tui.app.widgets.base.keybar import KeyBar
from tfckpt_tui.app.widgets.base.list_pane import TextPane
from tfckpt_tui.app.widgets.base.pane import is_open
from tfckpt_tui.app.widgets.base.search_input import SearchInput, search_binding
from tfckpt_tui.app.widgets.base.styled_text import Span, StyledLine, flow, shorten
from tfckpt_tui.app.widgets.charts.chart import Chart, charted_events
from tfckpt_tui.app.widgets.charts.grid import ChartGrid
from tfckpt_tui.charting.axis import Window, pan, zoom
from tfckpt_tui.charting.choices import ChartChoices
from tfckpt_tui.charting.curves import Across, possible_axes
from tfckpt_tui.charting.distributions import Distribution
from tfckpt_tui.charting.grid import (
    GridSize,
    Tile,
    is_incomplete,
    next_grid,
    tiles_of,
    usual_grid,
)
from tfckpt_tui.charting.measurements import Measurement
from tfckpt_tui.charting.series import (
    AT,
    INDEX,
    STEP,
    VALUE,
    WEIGHTS,
    Sample,
    Segment,
)
from tfckpt_tui.charting.statistics import statistics_of
from tfckpt_tui.charting.view import RunSeries, View, marked_events, moved, places_of, snapped
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean, clean_message, csv_line
from tfckpt_tui.monitor.snapshot import RunSnapshot

_STRIDE = 0.25
_GAP = "   "
_NOT_READ = "older values are still being read"
_THINNED = "of older steps, the ends and extremes of intervals are kept"
_EXAMPLE = "a part of a name, a glob such as val_*, or ~ and a regular expression"


class ChartPage(Page):
    """Charts of all measurements. The keys act on the chosen one, the cursor is in all."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "down,j,tab",
            "turn(1)",
            "next",
            key_display="↓",
            tooltip="Shows the next chart; ↑ the previous one.",
        ),
        Binding("up,k,shift+tab", "turn(-1)", "Previous", show=False),
        Binding(
            "plus,equals_sign",
            "zoom(0.5)",
            "zoom",
            key_display="+",
            tooltip="Zooms in; - zooms out. ← and → scroll.",
        ),
        Binding("minus", "zoom(2.0)", "Wider", show=False),
        Binding("left,h", "move(-1)", "Earlier", show=False),
        Binding("right,l", "move(1)", "Later", show=False),
        Binding(
            "full_stop",
            "move_cursor(1)",
            "cursor",
            key_display=".",
            tooltip="Shows the values at a cursor in all charts and moves it right; , moves it "
            "left, > and < ten columns.",
        ),
        Binding("comma", "move_cursor(-1)", "Left", show=False),
        Binding("greater_than_sign", "move_cursor(10)", "Right", show=False),
        Binding("less_than_sign", "move_cursor(-10)", "Left", show=False),
        Binding(
            "v",
            "select",
            "select",
            tooltip="Begins a selection at the cursor, which , and . extend. Press the key again "
            "to zoom to it. Or drag with the mouse.",
        ),
        Binding("0", "whole", "all", tooltip="Shows the whole run."),
        Binding(
            "enter",
            "open",
            "full",
            key_display="⏎",
            tooltip="Shows the chosen chart alone. At a mark, opens its checkpoint or event.",
        ),
        search_binding(
            "filter",
            "Shows charts by a part of their names, a glob, or a regular expression after ~.",
        ),
        Binding("s", "smooth", "smooth", tooltip="Smooths more, and after 0.99 not at all."),
        Binding("L", "turn_scale", "log", tooltip="Switches to a logarithmic axis and back."),
        Binding(
            "o", "turn_outliers", "outliers", tooltip="Shows a few values far from the others."
        ),
        Binding(
            "t",
            "turn_axis",
            "axis",
            tooltip="Switches the axis between steps, time and, if the run tells the steps of an "
            "epoch, epochs.",
        ),
        Binding("n", "visit(1)", "mark", tooltip="Moves to the next mark; N to the previous one."),
        Binding("N", "visit(-1)", "Previous mark", show=False),
        Binding(
            "space",
            "mark",
            "choose",
            tooltip="Marks the chart, to join it with others, and goes to the next.",
        ),
        Binding(
            "m",
            "join",
            "join",
            tooltip="Draws the marked charts in one. Without marks, separates them again.",
        ),
        Binding("b", "turn_branch", "branch", tooltip="Shows one branch after the other, or all."),
        Binding("g", "turn_grid", "grid", tooltip="Shows more charts at a time, then one."),
        Binding(
            "pagedown", "page(1)", "page", tooltip="Shows the next page of charts; pgup goes back."
        ),
        Binding("pageup", "page(-1)", "Previous page", show=False),
        Binding("y", "copy", "copy", tooltip="Copies the values as CSV."),
        Binding("c", "close", "Back", show=False),
    ]

    AUTO_FOCUS = "#charts"

    def __init__(self, choices: ChartChoices) -> None:
        """Makes the screen.

        Args:
            choices: How the charts are looked at first.
        """
        super().__init__()
        self._chosen = choices.chosen
        self._view = choices.view
        self._grid_size = choices.grid_size
        self._is_full = False
        self._pattern = choices.pattern
        self._marked: tuple[str, ...] = ()
        self._joined = choices.joined
        self._cursor: float | None = None
        self._is_pointed = False
        self._anchor: float | None = None
        self._mark: EventEntry | None = None
        self._was_dragged = False

    # -- for subclasses ----------------------------------------------------------------------

    def charted(self) -> RunSnapshot:
        """Returns the snapshot whose points are drawn."""
        raise NotImplementedError

    def measurements(self) -> Sequence[Measurement]:
        """Returns what the charts can draw; at least one measurement."""
        raise NotImplementedError

    def csv_lines(self) -> Iterable[str]:
        """Returns what the copy key copies; by default the visible values of the chart."""
        tile = self.tile
        yield csv_line(("step", "branch", "at", *(one.name for one in tile)))
        rows: dict[float, list[object]] = {}
        for column, one in enumerate(tile, 3):
            for branch, sample in self._visible(one):
                place = [int(sample[STEP]), branch, sample[AT], *[""] * len(tile)]
                rows.setdefault(sample[INDEX], place)[column] = sample[VALUE]
        for _, row in sorted(rows.items()):
            yield csv_line(row)

    def _visible(self, shown: Measurement) -> list[tuple[int, Sample]]:
        """Returns the visible values of a measurement, each after its branch."""
        return self._view.visible(self.charted().samples.segments(shown.key))

    def distributions(self, tile: Tile) -> Sequence[Distribution]:
        """Returns the distributions that a chart draws in place of curves; none by default."""
        return ()

    def _is_thinned(self) -> bool:
        """Whether the copied values are the extremes of more that were recorded."""
        channels = [self.charted().samples.channels.get(one.key) for one in self.tile]
        return any(channel is not None and channel.is_thinned for channel in channels)

    def why_nothing(self, tile: Tile) -> str:
        """Returns what a chart without values says; empty for the usual words."""
        if tile:
            return ""
        if is_incomplete(self._pattern):
            return "The regular expression is not complete yet."
        return "No chart matches the filter."

    def open_mark(self, entry: EventEntry) -> None:
        """Opens what a mark stands for."""

    reference: RunSeries | None = None
    """Another run, or a branch, that is drawn under the curves."""

    # -- what is shown -----------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        """Makes the charts, a line of statistics, the search line and the keys."""
        yield ChartGrid(id="charts")
        figures = TextPane(boxed=False, id="figures")
        # The arrow keys belong to the charts.
        figures.can_focus = False
        yield figures
        yield SearchInput(_EXAMPLE, focus_after="#charts", text=self._pattern)
        yield KeyBar(id="keys")

    @property
    def tiles(self) -> list[Tile]:
        """All charts that match the filter."""
        return tiles_of(self.measurements(), self._joined, self._pattern)

    @property
    def tile(self) -> Tile:
        """What the chosen chart draws."""
        tiles = self.tiles
        return tiles[self._place_in(tiles)] if tiles else (self.measurements()[0],)

    @property
    def shown(self) -> Measurement:
        """The measurement of which the statistics are shown."""
        return self.tile[0]

    @property
    def chart(self) -> Chart:
        """The chosen chart."""
        return self.query_one(ChartGrid).chart_of(self._chosen)

    def update_charts(self) -> None:
        """Draws the page of the chosen chart, and shows its statistics."""
        snapshot, tiles = self.charted(), self.tiles
        epoch_steps = snapshot.epoch_steps
        if epoch_steps != self._view.epoch_steps:
            self._view = replace(self._view, epoch_steps=epoch_steps)
        if self._view.across not in possible_axes(snapshot.samples, epoch_steps):
            self._view = replace(self._view, across=Across.STEPS, window=None)
        size = self._fitting_grid()
        place = self._place_in(tiles)
        first = place - place % size.count
        here = tiles[first : first + size.count]
        selection = None
        if self._anchor is not None and self._cursor is not None:
            selection = (self._anchor, self._cursor)
        for chart, tile in self.query_one(ChartGrid).show_tiles(size, here):
            names = {one.name for one in tile}
            chart.nothing = self.why_nothing(tile)
            chart.is_chosen = size.count > 1 and bool(tiles) and tile == tiles[place]
            chart.is_marked = not names.isdisjoint(self._marked)
            chart.look(
                snapshot,
                tile,
                self._view,
                reference=self.reference,
                cursor=self._cursor,
                selection=selection,
                distributions=self.distributions(tile),
            )
        # The others follow in the frames after this, so that keys do not wait for them. The chart
        # has to ask: its request to be redrawn is not in the queue of the screen yet.
        chart = self.chart
        chart.draw()
        chart.call_after_refresh(self._draw_next)
        self.query_one("#figures", TextPane).show_lines([self._figures(place, len(tiles))])

    def _draw_next(self) -> None:
        """Draws the next chart that has its size and is not drawn yet."""
        if is_open(self):
            sized = [chart for chart in self.query_one(ChartGrid).charts if chart.size.area]
            if any(chart.draw() for chart in sized):
                self.call_later(self._draw_next)

    def _place_in(self, tiles: Sequence[Tile]) -> int:
        """Returns which of the charts is chosen."""
        places = (n for n, tile in enumerate(tiles) if any(o.name == self._chosen for o in tile))
        return next(places, 0)

    def _fitting_grid(self) -> GridSize:
        if self._is_full:
            return GridSize()
        width, height = self._room()
        return (self._grid_size or usual_grid(len(self.tiles), width, height)).fitted(width, height)

    def _room(self) -> tuple[int, int]:
        """Returns the columns and lines for charts."""
        return self.size.width, self.size.height - 2

    def _figures(self, place: int, count: int) -> StyledLine:
        """Returns the position of the cursor, or else statistics of the chosen chart."""
        groups: list[Sequence[Span]] = []
        if count > 1 or self._pattern:
            shown = clean(self._pattern)
            groups.append(
                [
                    (f"{place + 1 if count else 0:,} of {count:,}", "value"),
                    (f"  {shown}" if shown else "", "accent"),
                ]
            )
        groups.append([(_words(self._view), "accent")])
        width = self.query_one("#figures", TextPane).inner_size[0]
        if self._cursor is None:
            groups += self.statistics()
        else:
            groups += self._at_cursor(
                width - StyledLine(flow(groups, width, _GAP)).width - len(_GAP)
            )
        return StyledLine(flow(groups, width, _GAP))

    def _at_cursor(self, width: int) -> list[Sequence[Span]]:
        """Returns what is at the cursor: the step, the time, and the mark that is visited."""
        places = ((x, branch, sample) for x, branch, sample in self._placed() if x == self._cursor)
        here = max(places, key=lambda one: one[2][INDEX], default=None)
        groups: list[Sequence[Span]] = []
        if self._anchor is not None:
            groups.append([("v", "key"), (" zooms to the selection", "label")])
        if self._mark is not None:
            icon = EVENT_ICONS[self._mark.kind]
            told = clean_message(self._mark.message) or self._mark.kind.value
            when = "" if self._mark.step is None else f"step {self._mark.step:,}  "
            before: list[Span] = [(when, "value"), (f"{icon.glyph} ", icon.style)]
            words = shorten(told, width - StyledLine(tuple(before)).width)
            return [*groups, [*before, (words, "value")]]
        if here is not None:
            _, branch, sample = here
            groups.append([("step ", "label"), (f"{int(sample[STEP]):,}", "value")])
            groups.append([(units.local_time(sample[AT]), "muted")])
            groups.append([("branch ", "label"), (str(branch), "value")])
        return groups

    def statistics(self) -> list[Sequence[Span]]:
        """Returns the visible range, and statistics of its values."""
        shown = self.shown
        visible = [sample for _, sample in self._visible(shown)]
        found = statistics_of(visible)
        if found is None:
            return [[("no measurements in this range", "muted")]]
        steps = f"{int(visible[0][STEP]):,} to {int(max(one[STEP] for one in visible)):,}"
        seconds = visible[-1][AT] - visible[0][AT]
        # Lines of a CSV file that were read at once have one time.
        duration = [("  in ", "label"), (units.duration(seconds), "value")] if seconds else []
        groups: list[Sequence[Span]] = [[("steps ", "label"), (steps, "value"), *duration]]
        for word, one in (
            ("lowest", found.lowest),
            ("highest", found.highest),
            ("last", found.last),
        ):
            if one is not None:
                groups.append([(f"{word} ", "label"), (shown.show(one[VALUE]), "value")])
        if self.charted().lacks_samples:
            groups.insert(0, [(_NOT_READ, "warn")])
        elif self.charted().series_is_thinned:
            groups.append([(_THINNED, "muted")])
        return groups

    def on_resize(self) -> None:
        """Shows as many charts and statistics as fit."""
        self.call_after_refresh(self._resized)

    def _resized(self) -> None:
        if is_open(self):
            self.update_charts()

    # -- keys --------------------------------------------------------------------------------

    def action_turn(self, places: int) -> None:
        """Chooses the next or the previous chart."""
        tiles = self.tiles
        if tiles:
            self._choose(tiles[(self._place_in(tiles) + places) % len(tiles)])

    def action_page(self, pages: int) -> None:
        """Shows the next or the previous page."""
        tiles, size = self.tiles, self._fitting_grid().count
        if tiles:
            page = self._place_in(tiles) // size + pages
            self._choose(tiles[page % math.ceil(len(tiles) / size) * size])

    def _choose(self, tile: Tile) -> None:
        self._chosen = tile[0].name
        self.update_charts()

    def action_turn_grid(self) -> None:
        """Shows more charts at a time."""
        self._grid_size, self._is_full = next_grid(self._fitting_grid(), *self._room()), False
        self.update_charts()

    def action_open(self) -> None:
        """Opens the visited mark, or shows the chosen chart alone."""
        if self._mark is not None:
            self.open_mark(self._mark)
            return
        self._is_full = not self._is_full
        self.update_charts()

    def action_turn_axis(self) -> None:
        """Switches to the next axis, and shows the whole run."""
        axes = possible_axes(self.charted().samples, self._view.epoch_steps)
        across = axes[(axes.index(self._view.across) + 1) % len(axes)]
        self._forget_cursor()
        self._look(across=across, window=None)

    def action_smooth(self) -> None:
        """Smooths more, or not at all."""
        place = WEIGHTS.index(self._view.smoothing) if self._view.smoothing in WEIGHTS else 0
        self._look(smoothing=WEIGHTS[(place + 1) % len(WEIGHTS)])

    def action_turn_scale(self) -> None:
        """Switches between a linear and a logarithmic axis."""
        self._look(logarithmic=not self._view.logarithmic)

    def action_turn_outliers(self) -> None:
        """Shows or cuts off values far from the others."""
        self._look(clips_outliers=not self._view.clips_outliers)

    def action_turn_branch(self) -> None:
        """Shows the next branch alone, and after the last one all."""
        branches = self.charted().samples.branches
        alone = [frozenset(branches) - {branch} for branch in branches]
        turns = [frozenset(), *alone] if len(branches) > 1 else [frozenset[int]()]
        place = turns.index(self._view.hidden) if self._view.hidden in turns else 0
        self._look(hidden=turns[(place + 1) % len(turns)])

    def action_zoom(self, factor: float) -> None:
        """Zooms in or out."""
        self._change_window(lambda window, whole: zoom(window, whole, factor))

    def action_move(self, direction: int) -> None:
        """Scrolls forward or back."""
        self._change_window(lambda window, whole: pan(window, whole, direction * _STRIDE))

    def action_whole(self) -> None:
        """Shows the whole run."""
        self._look(window=None)

    def _change_window(self, change: Callable[[Window | None, Window], Window | None]) -> None:
        whole = self.chart.whole
        if whole is not None:
            self._look(window=change(self._view.window, whole))

    def _look(self, **changes: object) -> None:
        """Changes the view, and draws the charts in it."""
        self._view = replace(self._view, **changes)
        self.update_charts()

    def action_mark(self) -> None:
        """Marks or unmarks the chosen chart, and chooses the next one."""
        names = tuple(one.name for one in self.tile)
        if set(names) <= set(self._marked):
            self._marked = tuple(name for name in self._marked if name not in names)
        else:
            self._marked += names
        self.action_turn(1)

    def action_join(self) -> None:
        """Joins the marked charts, or separates the chosen one."""
        names = self._marked or tuple(one.name for one in self.tile)
        joined = [group for group in self._joined if set(group).isdisjoint(names)]
        if len(self._marked) > 1:
            joined.append(self._marked)
        elif len(names) == 1:
            self.notify("Mark two or more charts with space first.", markup=False)
        self._joined, self._chosen, self._marked = tuple(joined), names[0], ()
        self.update_charts()

    def action_copy(self) -> None:
        """Copies values as CSV."""
        header, *rows = [*self.csv_lines()] or [""]
        if not rows:
            self.notify("There are no values to copy.", severity="warning", markup=False)
            return
        what = f"{units.count(len(rows), 'row')} of CSV ({header.replace(',', ', ')})"
        if self._is_thinned():
            recorded = "more" if self.charted().series_is_thinned else "all"
            what += f", the ends and extremes of intervals (.tfckpt/series.jsonl has {recorded})"
        if self.charted().lacks_samples:
            what += f": {_NOT_READ}"
        copy_text(self, "\n".join(map(clean, (header, *rows))), what)

    # -- the cursor --------------------------------------------------------------------------

    def action_move_cursor(self, columns: int) -> None:
        """Moves the cursor to a point some columns away; it begins at the newest one."""
        shows = self._view.shows
        if self._cursor is not None:
            places = [x for x in self._places() if shows(x)]
            distance = columns * self.chart.plot.column_width
            self._point_at(moved(places, self._cursor, distance))
            return
        placed = (one for one in self._placed() if shows(one[0]))
        # After a restore, the farthest point is on the branch that was left.
        newest = max(placed, key=lambda one: one[2][INDEX], default=None)
        if newest is not None:
            self._point_at(newest[0])

    def action_select(self) -> None:
        """Begins a selection, or zooms to it."""
        if self._cursor is None:
            self.action_move_cursor(-1)
        if self._anchor is None:
            self._anchor = self._cursor
            self.update_charts()
        elif self._cursor is not None:
            self._zoom_to(self._anchor, self._cursor)

    def action_visit(self, places: int) -> None:
        """Moves the cursor to the next or the previous mark."""
        marks = marked_events(charted_events(self.charted(), self.tile), self._view)
        if not marks:
            self.notify("There are no marks in this range.", markup=False)
            return
        entries = [entry for _, entry in marks]
        if self._mark in entries:
            place = (entries.index(self._mark) + places) % len(marks)
        elif self._cursor is None:
            place = 0 if places > 0 else -1
        else:
            after = (n for n, (x, _) in enumerate(marks) if x >= (self._cursor or 0.0))
            place = next(after, 0) - (places < 0)
        x, entry = marks[place]
        self._point_at(x)
        self._mark = entry
        self.update_charts()

    def _segments(self) -> Iterator[Segment]:
        """Yields the visible branches of what the chosen chart draws; else of all measurements."""
        samples = self.charted().samples
        drawn = [one.key for one in self.tile if one.key in samples.channels]
        for key in drawn or samples.channels:
            for segment in samples.segments(key):
                if segment.branch not in self._view.hidden:
                    yield segment

    def _placed(self) -> Iterator[tuple[float, int, Sample]]:
        """Yields the position, the branch and the sample of each value of the chosen chart."""
        for segment in self._segments():
            for x, sample in zip(self._view.x_of(segment), segment.samples, strict=True):
                if x == x:
                    yield x, segment.branch, sample

    def _places(self) -> Sequence[float]:
        return places_of(self._segments(), self._view.x_of)

    def _point_at(self, x: float | None) -> None:
        self._cursor, self._mark, self._is_pointed = x, None, False
        self.update_charts()

    def _forget_cursor(self) -> None:
        self._cursor = self._anchor = self._mark = None

    def _zoom_to(self, start: float, end: float) -> None:
        self._forget_cursor()
        low, high = sorted((start, end))
        self._look(window=Window(low, high) if low < high else self._view.window)

    def end_current(self) -> bool:
        """Ends the search, the selection, the cursor, or shows all charts again."""
        if super().end_current():
            return True
        if self._anchor is not None:
            self._anchor = None
        elif self._cursor is not None and not self._is_pointed:
            self._forget_cursor()
        elif self._is_full:
            self._is_full = False
        else:
            return False
        self.update_charts()
        return True

    # -- the mouse and the search ------------------------------------------------------------

    @on(Chart.Pointed)
    def _follow_mouse(self, event: Chart.Pointed) -> None:
        event.stop()
        is_held = self._cursor is not None and not self._is_pointed
        if is_held or self._anchor is not None:
            return
        cursor = None if event.x is None else snapped(self._places(), event.x)
        if cursor != self._cursor:
            self._cursor, self._is_pointed = cursor, True
            self.update_charts()

    @on(Chart.Pressed)
    def _press(self, event: Chart.Pressed) -> None:
        event.stop()
        if event.chart.measurements:
            self._chosen = event.chart.measurements[0].name
        if event.is_double:
            self._is_full = not self._is_full
        if event.x is not None and not self._was_dragged:
            self._point_at(snapped(self._places(), event.x))
        self._was_dragged = False
        self.update_charts()

    @on(Chart.Dragged)
    def _drag(self, event: Chart.Dragged) -> None:
        event.stop()
        start, end = event.selection
        if event.has_ended:
            self._was_dragged = True
            self._zoom_to(start, end)
        else:
            self._anchor, self._cursor, self._mark = start, end, None
            self.update_charts()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Zooms in with the wheel."""
        event.stop()
        self.action_zoom(0.5)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Zooms out with the wheel."""
        event.stop()
        self.action_zoom(2.0)

    @on(SearchInput.Searched)
    def _search(self, event: SearchInput.Searched) -> None:
        self._pattern = event.text
        self.update_charts()


def _words(view: View) -> str:
    """Returns what of a view changes the values of a chart, as words; empty for none."""
    parts = (
        f"smoothed {view.smoothing:g}" if view.smoothing else "",
        "log" if view.logarithmic else "",
        "" if view.clips_outliers else "with outliers",
    )
    return ", ".join(filter(None, parts))
