"""What happened to a run that failed, restarts or is degraded, in place of charts."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from functools import partial
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType

from tfckpt_tui.app.protocols import copy_text, key_of
from tfckpt_tui.app.widgets.base.pane import Pane
from tfckpt_tui.app.widgets.base.styled_text import Span, StyledLine, line
from tfckpt_tui.formats import units
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.reports.run_facts import FailureFacts
from tfckpt_tui.services.runs.failure_card import LOG, failure_rows, failure_text, how_to_act

_LABEL_WIDTH = 9
_MOST_WRAPPED = 2
_MOST_OF_ERROR = 5
_EDGES = 4
_STYLES = {"failure": "bad", "error": "bad", "cause": "bad", "line": "strong", "": "accent"}


class FailureCard(Pane, can_focus=True):
    """Which worker failed first and why, what is lost, and what the supervisor does next."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "enter",
            "screen.perform('failure')",
            "log",
            tooltip="Opens the log of the worker at that time.",
        ),
        Binding("n", "next", "next worker", tooltip="Chooses another worker for the log."),
        Binding("y", "copy", "copy", tooltip="Copies what happened as text."),
    ]

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._turn = 0

    @property
    def worker(self) -> int | None:
        """The worker whose log the card opens; None if none is known."""
        workers = self._workers()
        return workers[self._turn % len(workers)] if workers else None

    def show(self, snapshot: RunSnapshot) -> None:
        """Shows a new snapshot; of a new failure, the worker that failed first is chosen."""
        before = self._facts
        self.snapshot = snapshot
        if before is None or self._facts is None or before.at != self._facts.at:
            self._turn = 0
        self.repaint()

    def heading(self) -> Sequence[Span]:
        """Returns the title, and when it happened."""
        facts, at = self._facts, self.snapshot.at if self.snapshot is not None else 0.0
        title: Span = ("what happened", "title")
        if facts is None or facts.at is None:
            return (title,)
        return (title, (f"  {units.ago(max(0.0, at - facts.at))}", "label"))

    def note(self) -> Sequence[Span]:
        """Returns the keys."""
        worker = self.worker
        log = " log" if worker is None else f" log of worker {worker}"
        if not self.has_focus:
            keys: list[Span] = [(key_of(self, "failure"), "key"), (log, "label")]
            if self._facts is not None and self._facts.hangs:
                keys += [("  ", ""), (key_of(self, "stacks"), "key"), (" stacks", "label")]
            return keys
        several = len(self._workers()) > 1
        turn: list[Span] = [("  n", "key"), (" next worker", "label")] if several else []
        return (("⏎", "key"), (log, "label"), *turn, ("  y", "key"), (" copy", "label"))

    def line_count(self, width: int) -> int:
        """Returns how many lines it needs in a pane of this width; 0 if nothing happened."""
        return len(list(self._lines(width - _EDGES)))

    def body(self, width: int, height: int) -> Sequence[StyledLine]:
        """Returns what happened; of the log, the last lines that fit."""
        facts = self._facts
        if facts is None:
            return ()
        lines = list(self._lines(width))
        above = len(lines) - len(facts.log)
        first = min(len(facts.log), max(0, len(lines) - height))
        log = [
            StyledLine((*_label(LOG, first=not place), (text, "muted")))
            for place, text in enumerate(facts.log[first:])
        ]
        return [*lines[:above], *log]

    def action_next(self) -> None:
        """Chooses the next worker."""
        self._turn += 1
        self.repaint()

    def action_copy(self) -> None:
        """Copies what happened as text."""
        facts, snapshot = self._facts, self.snapshot
        if facts is None or snapshot is None:
            return
        rows = failure_text(facts, snapshot.at, snapshot.root)
        lines = f"{units.count(len(rows), 'line')} on the failure"
        copy_text(self, "\n".join([snapshot.path, *rows]), lines)

    def on_click(self, event: events.Click) -> None:
        """Opens the log at a double click, as other panes do what enter does."""
        if event.chain == 2:
            self.app.simulate_key("enter")

    def on_focus(self) -> None:
        """Shows the keys of the card."""
        self.repaint()

    def on_blur(self) -> None:
        """Hides them."""
        self.repaint()

    @property
    def _facts(self) -> FailureFacts | None:
        return self.snapshot.failure if self.snapshot is not None else None

    def _workers(self) -> list[int]:
        facts = self._facts
        if facts is None:
            return []
        others = [index for place in facts.others for index in place.workers]
        first = [facts.worker] if facts.worker is not None else []
        return list(dict.fromkeys([*first, *others]))

    def _lines(self, width: int) -> Iterator[StyledLine]:
        """Yields all lines; those of the log last, each in one line."""
        facts, snapshot = self._facts, self.snapshot
        if facts is None or snapshot is None:
            return
        advice = how_to_act(facts, snapshot.root)
        act = advice.in_app(partial(key_of, self)) if advice is not None else ""
        for label, text in failure_rows(facts, snapshot.at, act):
            most = _MOST_OF_ERROR if label == "error" else _MOST_WRAPPED
            room = width - max(_LABEL_WIDTH, len(label) + 1)
            parts = [text] if label == LOG else _wrapped(text, room, most)
            for place, part in enumerate(parts):
                yield line(*_label(label, first=not place), (part, _STYLES.get(label, "value")))


def _label(label: str, *, first: bool) -> tuple[Span, ...]:
    return ((f"{label if first else '':<{_LABEL_WIDTH - 1}} ", "label"),)


def _wrapped(text: str, width: int, most: int) -> list[str]:
    lines = textwrap.wrap(text, max(1, width), max_lines=most, placeholder="…")
    return lines or [""]
