"""The newest lines of the journal: what happened to the run, who asked and why."""

from __future__ import annotations

from collections.abc import Sequence

from tfckpt_trainer.rundir.records import JournalEntry
from tfckpt_tui import humane
from tfckpt_tui.snapshot import RunSnapshot
from tfckpt_tui.text import clean
from tfckpt_tui.widgets.glyphs import JOURNAL
from tfckpt_tui.widgets.listing import Listing
from tfckpt_tui.widgets.painting import Line, Span, fit, line, shorten


class Events(Listing):
    """The journal, newest first, under what could not be read."""

    has_cursor = False

    def show(self, snapshot: RunSnapshot) -> None:
        """Takes a new snapshot; who scrolled away stays where they are."""
        before = self.snapshot
        self.snapshot = snapshot
        if before is not None and self.top:
            self.scroll_rows(self.row_count() - len(before.journal) - len(before.problems))
        self.repaint()

    def heading(self) -> Sequence[Span]:
        """Returns the title."""
        return (("events", "title"),)

    def note(self) -> Sequence[Span]:
        """Returns how much could not be read."""
        problems = len(self.snapshot.problems) if self.snapshot else 0
        if not problems:
            return ()
        return ((f"✗ {problems} problem" + ("s" if problems > 1 else ""), "bad"),)

    def row_count(self) -> int:
        """Returns how many lines there are."""
        snapshot = self.snapshot
        return len(snapshot.problems) + len(snapshot.journal) if snapshot else 0

    def row_key(self, row: int) -> str:
        """Returns the place of the line; there is no cursor that needed more."""
        return str(row)

    def empty_lines(self, width: int) -> Sequence[Line]:
        """Returns a word while nothing happened."""
        if self.snapshot is None:
            return ()
        words = "nothing happened yet" if self.snapshot.ours else "no journal in this directory"
        return (line((shorten(words, width), "muted")),)

    def row_line(self, row: int, width: int) -> Line:
        """Returns one line."""
        assert self.snapshot is not None
        problems = self.snapshot.problems
        if row < len(problems):
            return line(("✗ ", "bad"), (shorten(problems[row], width - 2), "bad"))
        return _entry(self.snapshot.journal[-1 - (row - len(problems))], width)


def _entry(entry: JournalEntry, width: int) -> Line:
    sign = JOURNAL[entry.kind]
    clock = humane.moment(entry.at, "%H:%M:%S")
    spans: list[Span] = [(f"{clock:<8} ", "faint"), (f"{sign.glyph} ", sign.style)]
    if width >= 60:
        step = f"step {entry.step:,}" if entry.step is not None else ""
        spans.append((f"{step:<13} ", "muted"))
    message = clean(entry.message) or entry.kind.value
    spans.append((message, "bad" if sign.style == "bad" else "value"))
    if entry.by and width >= 90:
        spans += [("  ", ""), (clean(entry.by), "faint")]
    return Line(fit(spans, width))
