"""Several runs side by side: their curves in one chart, and the difference of their settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container

from tfckpt_tui.app.protocols import copy_text
from tfckpt_tui.app.screens.page import Page
from tfckpt_tui.app.widgets.base.columns import Column, Layout, choose, stretched
from tfckpt_tui.app.widgets.base.keybar import KeyBar
from tfckpt_tui.app.widgets.base.list_pane import ListPane
from tfckpt_tui.app.widgets.base.pane import Pane, is_open
from tfckpt_tui.app.widgets.base.styled_text import (
    Span,
    StyledLine,
    branch_style,
    line,
    shorten_middle,
)
from tfckpt_tui.app.widgets.charts.braille import plot
from tfckpt_tui.charting.curves import Curve, curves_of
from tfckpt_tui.charting.measurements import Measurement, measurements
from tfckpt_tui.charting.series import VALUE
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.services.runs.compare_runs import (
    ComparedRun,
    ComparedSetting,
    RunsComparison,
    compare_runs,
)

MOST_RUNS = 6
"""Runs that have a colour of their own."""

_WIDE = 120
_NAME_WIDTH = 20


class RunCurves(Pane):
    """Draws one measurement of all runs."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._runs: Sequence[ComparedRun] = ()
        self._shown: Measurement | None = None
        self._logarithmic = False

    def show_measurement(
        self, runs: Sequence[ComparedRun], shown: Measurement, *, logarithmic: bool
    ) -> None:
        """Draws a measurement."""
        self._runs, self._shown, self._logarithmic = runs, shown, logarithmic
        self.repaint()

    def heading(self) -> Sequence[Span]:
        """Returns the measurement, and the runs in their colours with their newest values."""
        if self._shown is None:
            return ()
        spans: list[Span] = [(clean(self._shown.name), "title")]
        for number, run in enumerate(self._runs):
            segments = run.series.samples.segments(self._shown.key)
            told = f" {self._shown.show(segments[-1].last[VALUE])}" if segments else ""
            spans += [
                ("  ", ""),
                (f"{shorten_middle(run.name, _NAME_WIDTH)}{told}", branch_style(number)),
            ]
        return spans

    def body(self, width: int, height: int) -> Sequence[StyledLine]:
        """Returns the chart."""
        shown = self._shown
        if shown is None:
            return (line(("reading the runs …", "muted")),)
        return plot(
            [*self._curves(shown)],
            (),
            width,
            height,
            from_zero=shown.from_zero,
            show=shown.show,
            logarithmic=self._logarithmic,
        ).lines()

    def _curves(self, shown: Measurement) -> Iterator[Curve]:
        for number, run in enumerate(self._runs):
            style = branch_style(number)
            yield from curves_of(
                run.series.samples.segments(shown.key),
                run.series.kept,
                lambda *_, style=style: style,
            )


class ComparedSettings(ListPane[ComparedSetting]):
    """Lists settings, with a column for each run."""

    has_cursor = False
    title = "settings"

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._runs: Sequence[ComparedRun] = ()
        self._equal = 0

    def show_settings(
        self, runs: Sequence[ComparedRun], settings: Sequence[ComparedSetting], equal: int
    ) -> None:
        """Shows settings, and how many equal ones are left out."""
        self._runs, self._equal = runs, equal
        self.show_rows(settings)

    def note(self) -> Sequence[Span]:
        """Returns how many settings are equal, and not shown."""
        return ((f"{self._equal:,} equal", "label"),) if self._equal else ()

    def why_empty(self) -> str:
        """Returns why there is none."""
        return "no setting differs" if self._runs else ""

    def head_lines(self, width: int) -> Sequence[StyledLine]:
        """Returns the names of the runs."""
        return (self.column_layout(width).head(),) if self.rows else ()

    def column_layout(self, width: int) -> Layout:
        """Returns a column for the names, and one for each run that fits."""
        names = max((len(setting.name) for setting in self.rows), default=8)
        columns = [Column("name", "", min(24, names), align="<")]
        for number, run in enumerate(self._runs):
            column = Column(f"run-{number}", run.name, 12, rank=number, align="<")
            texts = (run.name, *(setting.values[number] for setting in self.rows))
            columns.append(stretched(column, texts))
        return choose(columns, width)

    def cells(self, row: ComparedSetting, layout: Layout) -> Mapping[str, Sequence[Span]]:
        """Returns the texts of one setting."""
        del layout
        style = "value" if row.differs else "muted"
        cells: dict[str, Sequence[Span]] = {"name": ((row.name, "label"),)}
        for number, value in enumerate(row.values):
            cells[f"run-{number}"] = ((value or "–", style),)
        return cells


class RunsCompareScreen(Page):
    """Shows the curves of several runs in one chart, and their settings below or beside it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,l", "turn(1)", "next", key_display="→", tooltip="Shows the next metric."),
        Binding("left,h", "turn(-1)", "Previous", show=False),
        Binding("L", "turn_scale", "log", tooltip="Switches to a logarithmic axis and back."),
        Binding("a", "everything", "equal ones too", tooltip="Shows or hides equal settings."),
        Binding("y", "copy", "copy", tooltip="Copies the settings, separated by tabs."),
        Binding("d", "close", "Back", show=False),
    ]
    caption = "the comparison of runs"
    AUTO_FOCUS = "#settings"

    def __init__(self, roots: Sequence[Path]) -> None:
        """Makes the screen.

        Args:
            roots: The run directories.
        """
        super().__init__()
        self._roots = roots
        self._compared: RunsComparison | None = None
        self._place = 0
        self._logarithmic = False
        self._shows_equal = False
        self.HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (_WIDE, "-wide")]

    def compose(self) -> ComposeResult:
        """Makes the chart, the settings and the keys."""
        with Container(id="page-body"):
            yield RunCurves(id="curves")
            yield ComparedSettings(id="settings")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        """Starts to read the runs in a thread."""
        self.run_app.start_job("compare", partial(compare_runs, self._roots), self._show_runs)

    def action_turn(self, places: int) -> None:
        """Shows the next or the previous metric."""
        self._place += places
        self._update()

    def action_turn_scale(self) -> None:
        """Switches between a linear and a logarithmic axis."""
        self._logarithmic = not self._logarithmic
        self._update()

    def action_everything(self) -> None:
        """Shows or hides equal settings."""
        self._shows_equal = not self._shows_equal
        self._update()

    def action_copy(self) -> None:
        """Copies the settings that are shown."""
        if self._compared is None:
            return
        names = "\t".join(("", *(run.name for run in self._compared.runs)))
        rows = ["\t".join((one.name, *one.values)) for one in self._settings(self._compared)]
        copy_text(self, "\n".join((names, *rows)), units.count(len(rows), "setting"))

    def _show_runs(self, compared: RunsComparison) -> None:
        self._compared = compared
        for run in compared.runs:
            if run.problem:
                self.run_app.progress.report_failure(f"compare {run.name}", run.problem)
                self.run_app.update_progress()
        self._update()

    def _settings(self, compared: RunsComparison) -> list[ComparedSetting]:
        return [one for one in compared.settings if one.differs or self._shows_equal]

    def _update(self) -> None:
        compared = self._compared
        if compared is None or not is_open(self):
            return
        possible = measurements({m for run in compared.runs for m in run.series.samples.metrics})
        shown = possible[self._place % len(possible)]
        chart = self.query_one(RunCurves)
        chart.show_measurement(compared.runs, shown, logarithmic=self._logarithmic)
        settings = self._settings(compared)
        equal = len(compared.settings) - len(settings)
        self.query_one(ComparedSettings).show_settings(compared.runs, settings, equal)
