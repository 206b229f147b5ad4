"""The command palette: every action with its key, and every checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, runtime_checkable

from textual.binding import Binding
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.keys import format_key

from tfckpt_tui.app.protocols import ActionInfo, PerformsActions, run_app_of
from tfckpt_tui.app.widgets.base.keybar import key_name
from tfckpt_tui.formats.text import clean

_MAX_CHECKPOINTS = 20
"""A longer name finds the others."""


class ActionsProvider(Provider):
    """Offers all actions of the dashboard; an unavailable one says why it is."""

    async def discover(self) -> Hits:
        """Yields all actions."""
        for action in run_app_of(self.screen).actions:
            yield DiscoveryHit(self._line(action), self._perform(action), help=self._help(action))

    async def search(self, query: str) -> Hits:
        """Yields the actions whose name or title matches."""
        matcher = self.matcher(query)
        for action in run_app_of(self.screen).actions:
            text = _text(action)
            score = matcher.match(text)
            if score > 0:
                yield Hit(
                    score, matcher.highlight(text), self._perform(action), help=self._help(action)
                )

    def _line(self, action: ActionInfo) -> Content:
        key = action.key_in(run_app_of(self.screen).config)
        shown = f"  {format_key(key)}" if key else ""
        return Content.assemble(_text(action), (shown, "$primary bold"))

    def _help(self, action: ActionInfo) -> str:
        screen = self.screen
        reason = screen.why_unavailable(action.name) if isinstance(screen, PerformsActions) else ""
        return f"Not now: {reason}" if reason else action.help

    def _perform(self, action: ActionInfo) -> Callable[[], None]:
        screen = self.screen
        if isinstance(screen, PerformsActions):
            return partial(screen.action_perform, action.name)
        return self.app.bell


@runtime_checkable
class ExplainsBindings(Protocol):
    """An app whose keys are explained, such as the list of runs."""

    @property
    def explained_bindings(self) -> Sequence[Binding]:
        """Its keys that have an explanation."""


class ListProvider(Provider):
    """Offers what the keys of a list of runs do."""

    async def discover(self) -> Hits:
        """Yields all keys."""
        for binding in self._bindings:
            shown = (f"  {key_name(binding)}", "$primary bold")
            line = Content.assemble(binding.description, shown)
            perform = partial(self.app.run_action, binding.action)
            yield DiscoveryHit(line, perform, help=binding.tooltip)

    async def search(self, query: str) -> Hits:
        """Yields those whose word or explanation matches."""
        matcher = self.matcher(query)
        for binding in self._bindings:
            text = f"{binding.description}: {binding.tooltip}"
            score = matcher.match(text)
            if score > 0:
                perform = partial(self.app.run_action, binding.action)
                yield Hit(score, matcher.highlight(text), perform)

    @property
    def _bindings(self) -> Sequence[Binding]:
        return self.app.explained_bindings if isinstance(self.app, ExplainsBindings) else ()


class CheckpointsProvider(Provider):
    """Selects a checkpoint by its name, or the one nearest to a step."""

    async def search(self, query: str) -> Hits:
        """Yields the step that was typed, and checkpoints whose names contain the query."""
        screen = self.screen
        if not isinstance(screen, PerformsActions) or screen.snapshot is None:
            return
        wanted = query.strip().casefold()
        digits = wanted.removeprefix("step").strip().replace(",", "")
        if digits.isascii() and digits.isdigit():
            text = f"go to step {int(digits):,}"
            select = partial(screen.go_to, int(digits))
            yield Hit(1.0, text, select, help="The checkpoint nearest to this step.")
        matches = [c for c in screen.snapshot.checkpoints if wanted and wanted in c.name.casefold()]
        for place, checkpoint in enumerate(matches[:_MAX_CHECKPOINTS]):
            # In the order of the list, after an action of the same name.
            score = 0.5 - place / 1000
            step = "" if checkpoint.step is None else f"step {checkpoint.step:,}, "
            yield Hit(
                score,
                f"go to {clean(checkpoint.name)}",
                partial(screen.go_to, checkpoint.name),
                help=f"{step}{checkpoint.state.value}",
            )


def _text(action: ActionInfo) -> str:
    return f"{action.name}: {action.title}"
