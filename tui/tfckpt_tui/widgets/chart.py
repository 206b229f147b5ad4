"""One metric over the steps of a run, branch by branch, with marks for what happened."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence

from tfckpt_trainer.rundir.records import JournalKind, SeriesPoint
from tfckpt_tui import humane
from tfckpt_tui.snapshot import RunSnapshot
from tfckpt_tui.widgets.braille import Curve, Mark, plot
from tfckpt_tui.widgets.branches import kept_until
from tfckpt_tui.widgets.glyphs import JOURNAL, Sign
from tfckpt_tui.widgets.painting import Line, Span, line
from tfckpt_tui.widgets.pane import Pane, branch_style

_CROWDED_SAVE = "┴"
_MARKED = (JournalKind.SAVE, JournalKind.RESTART, JournalKind.RESTORE)


class Chart(Pane):
    """A curve per branch; what was given up is dim, what is trained now is bright and on top."""

    def __init__(
        self,
        name_shown: str,
        value_of: Callable[[SeriesPoint], float | None],
        *,
        show: Callable[[float | None], str] = humane.metric,
        from_zero: bool = False,
        id: str | None = None,  # noqa: A002
    ) -> None:
        """Makes a chart.

        Args:
            name_shown: Its title.
            value_of: Gives the value of a point; None stands for not-a-number.
            show: Writes the newest value.
            from_zero: Whether its axis begins at 0.
            id: Of the widget.
        """
        super().__init__(id=id)
        self._shown_name = name_shown
        self._show = show
        self._value_of = value_of
        self._from_zero = from_zero

    def heading(self) -> Sequence[Span]:
        """Returns the name of what is drawn, and the branches by their colours."""
        spans: list[Span] = [(self._shown_name, "title")]
        branches = self._branches()
        if len(branches) > 1 and self.size.width >= 30:
            spans.append(("  branch", "label"))
            shown = branches[-4:]
            for branch in shown:
                past = self.snapshot is not None and branch != self.snapshot.branch
                spans.append((f" {branch}", branch_style(branch, past=past)))
        return spans

    def note(self) -> Sequence[Span]:
        """Returns the newest value."""
        points = self.snapshot.points if self.snapshot else ()
        if not points:
            return ()
        return ((self._show(self._value_of(points[-1])), "strong"),)

    def body(self, width: int, height: int) -> Sequence[Line]:
        """Returns the plot."""
        snapshot = self.snapshot
        if snapshot is None or not snapshot.points:
            words = (
                "no measurements yet" if snapshot is None or snapshot.ours else "no measurements"
            )
            gap = " " * max(0, (width - len(words)) // 2)
            return [Line()] * (height // 2) + [line((gap + words, "muted"))]
        curves, marks = self._curves(snapshot), _marks(snapshot, width)
        return plot(curves, marks, width, height, from_zero=self._from_zero)

    def _branches(self) -> list[int]:
        points = self.snapshot.points if self.snapshot else ()
        return sorted({point.branch for point in points})

    def _curves(self, snapshot: RunSnapshot) -> list[Curve]:
        kept = kept_until(snapshot.checkpoints, snapshot.branch)
        past: list[Curve] = []
        present: list[Curve] = []
        for stretch in _stretches(snapshot.points):
            branch = stretch[0].branch
            points = tuple((float(p.step), _finite(self._value_of(p))) for p in stretch)
            turn = bisect_right(points, kept.get(branch, -math.inf), key=lambda point: point[0])
            if points[:turn]:
                present.append(Curve(points[:turn], branch_style(branch)))
            if points[turn:]:
                past.append(Curve(points[max(0, turn - 1) :], branch_style(branch, past=True)))
        return [*past, *present]


def _stretches(points: Sequence[SeriesPoint]) -> list[list[SeriesPoint]]:
    """Splits points where the branch changes or the step goes back: no line joins them."""
    stretches: list[list[SeriesPoint]] = []
    for point in points:
        last = stretches[-1][-1] if stretches else None
        if last is None or last.branch != point.branch or last.step > point.step:
            stretches.append([])
        stretches[-1].append(point)
    return stretches


def _marks(snapshot: RunSnapshot, width: int) -> list[Mark]:
    marks: list[Mark] = []
    crowded = sum(entry.kind is JournalKind.SAVE for entry in snapshot.journal) > width // 4
    for kind in _MARKED:
        sign = JOURNAL[kind]
        if crowded and kind is JournalKind.SAVE:
            sign = Sign(_CROWDED_SAVE, sign.style, sign.meaning)
        marks += [
            Mark(float(entry.step), sign.glyph, sign.style)
            for entry in snapshot.journal
            if entry.kind is kind and entry.step is not None
        ]
    return marks


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
