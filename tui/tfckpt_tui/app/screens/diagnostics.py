"""Alerts, unreadable files and diagnostics of a run: consequences, and what to do."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from tfckpt_trainer.catalog.scan.alerts import Alert
from tfckpt_trainer.catalog.scan.observation import Diagnostic
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.words.advice import KeyOf
from tfckpt_tui.app.protocols import run_app_of
from tfckpt_tui.app.widgets.base.empty_page import EmptyPage, to_paste
from tfckpt_tui.app.widgets.base.modal import Modal
from tfckpt_tui.app.widgets.base.pane import is_open
from tfckpt_tui.app.widgets.base.styled_text import Span, lines_to_content
from tfckpt_tui.app.widgets.run.progress import progress_below
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot

_NONE = (
    "There are no alerts and no diagnostics. Problems of the run and of its directory appear "
    "here, each with what to do."
)
_ALERTS = (
    "In {file}: from the next start on, each alert is sent with the app closed too. "
    "`tfckpt-tui alert test {run}` tries it now."
)


class DiagnosticsScreen(Modal[str | None]):
    """A page that scrolls, and follows the snapshots; answers with the action of a pressed key."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,o", "dismiss", "Close", show=False),
    ]

    def __init__(self, snapshot: RunSnapshot) -> None:
        super().__init__()
        self._snapshot = snapshot

    def compose(self) -> ComposeResult:
        """Makes the page."""
        with VerticalScroll(id="diagnostics") as page:
            page.border_title = Content(
                " alerts and diagnostics " if self._snapshot.alerts else " diagnostics "
            )
            yield Static(id="diagnostics-text")
        yield from progress_below(self)

    def on_mount(self) -> None:
        """Focuses the page, so that the arrows scroll."""
        self.query_one("#diagnostics").focus()

    def on_resize(self) -> None:
        """Shows the texts once their width is known."""
        self.call_after_refresh(self._update)

    def on_key(self, event: events.Key) -> None:
        """Closes the page for an action whose key is named on it."""
        app = run_app_of(self)
        advised = {
            name
            for problem in self._shown()
            if problem.advice
            for name in problem.advice.app_actions
        }
        for offer in self._empty().taken if not any(_listed(self._snapshot)) else ():
            if offer.key == event.key and offer.take is not None:
                event.stop()
                offer.take()
        for action in app.actions:
            if action.name in advised and action.key_in(app.config) == event.key:
                event.stop()
                self.dismiss(action.name)

    def show(self, snapshot: RunSnapshot) -> None:
        """Shows a newer snapshot."""
        if _listed(snapshot) != _listed(self._snapshot) and is_open(self):
            self._snapshot = snapshot
            self._update()

    def _update(self) -> None:
        copies = "" if any(_listed(self._snapshot)) else "y copy · "
        page = self.query_one("#diagnostics")
        page.border_subtitle = Content(f" {copies}↑ ↓ scroll · esc close ")
        text = self.query_one("#diagnostics-text", Static)
        text.update(self._content(text.content_size.width))

    def _shown(self) -> tuple[Alert | Diagnostic, ...]:
        return *self._snapshot.alerts, *self._snapshot.diagnostics

    def _content(self, width: int) -> Content:
        key_of = run_app_of(self).key_of
        lines: list[tuple[Span, ...]] = []
        for alert in self._snapshot.alerts:
            lines += [
                (("✗ ", "bad"), (clean(alert.title), "title")),
                ((clean(alert.message), "value"),),
                ((clean(alert.advice.in_app(key_of)), "value"),),
                (),
            ]
        for problem in self._snapshot.problems:
            lines += [(("✗ ", "bad"), ("problem", "title")), ((problem, "value"),), ()]
        for diagnostic in self._snapshot.diagnostics:
            sign: Span = ("! ", "warn") if diagnostic.severity == "warning" else ("○ ", "muted")
            freed = f"  {units.size(diagnostic.bytes)}" if diagnostic.bytes else ""
            lines += [
                (sign, (diagnostic.kind.replace("-", " "), "title"), (freed, "muted")),
                ((clean(_in_app(diagnostic, key_of)), "value"),),
                (),
            ]
        if not lines:
            lines = [one.spans for one in self._empty().lines(width, self)]
        return lines_to_content(lines)

    def _empty(self) -> EmptyPage:
        """Returns what the page says if nothing is wrong: how to hear of it while it is closed."""
        run = RunDirectory(Path(self._snapshot.path))
        program = json.dumps(["tee", "-a", str(Path.home() / "alerts.jsonl")])
        root = shlex.quote(clean(str(run.root)))
        told = _ALERTS.format(file=clean(str(run.config_file)), run=root)
        text = f"[[alerts.commands]]\ncommand = {program}"
        return EmptyPage(purpose=_NONE, offers=(to_paste(self, text, told),))


def _listed(snapshot: RunSnapshot) -> tuple[object, ...]:
    return snapshot.alerts, snapshot.problems, snapshot.diagnostics


def _in_app(diagnostic: Diagnostic, key_of: KeyOf) -> str:
    advice = f" {diagnostic.advice.in_app(key_of)}" if diagnostic.advice is not None else ""
    return f"{diagnostic.found}{advice}"
