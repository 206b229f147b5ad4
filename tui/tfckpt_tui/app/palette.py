"""The palette: every action by its name, with its key, and every checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.keys import format_key

from tfckpt_tui.app.actions import ACTIONS, Action
from tfckpt_tui.formats.text import clean
from tfckpt_tui.settings.config import Config

_MOST_CHECKPOINTS = 20
"""More that match are not offered: a longer name finds them."""


class ActionsProvider(Provider):
    """Offers the actions of the dashboard; one that is not possible now says why."""

    async def discover(self) -> Hits:
        """Yields all actions."""
        for action in ACTIONS:
            yield DiscoveryHit(self._shown(action), self._do(action), help=action.help)

    async def search(self, query: str) -> Hits:
        """Yields the actions whose title matches."""
        matcher = self.matcher(query)
        for action in ACTIONS:
            score = matcher.match(_words(action))
            if score > 0:
                yield Hit(
                    score, matcher.highlight(_words(action)), self._do(action), help=action.help
                )

    def _shown(self, action: Action) -> Content:
        config = getattr(self.app, "config", None)
        key = config.key_of(action) if isinstance(config, Config) else action.key
        shown = f"  {format_key(key)}" if key else ""
        return Content.assemble(_words(action), (shown, "$primary bold"))

    def _do(self, action: Action) -> Callable[[], None]:
        perform = getattr(self.screen, "action_perform", None)
        return self.app.bell if perform is None else partial(perform, action.name)


class CheckpointsProvider(Provider):
    """Goes to a checkpoint by its name, or to the one nearest to a step."""

    async def search(self, query: str) -> Hits:
        """Yields the step that was typed, and checkpoints with the query in their names."""
        show = getattr(self.screen, "go_to", None)
        snapshot = getattr(self.screen, "snapshot", None)
        if show is None or snapshot is None:
            return
        wanted = query.strip().casefold()
        digits = wanted.removeprefix("step").strip().replace(",", "")
        if digits.isascii() and digits.isdigit():
            words = f"go to step {int(digits):,}"
            yield Hit(1.0, words, partial(show, int(digits)), help="The checkpoint nearest to it.")
        found = [c for c in snapshot.checkpoints if wanted and wanted in c.name.casefold()]
        for place, checkpoint in enumerate(found[:_MOST_CHECKPOINTS]):
            # In the order of the history, behind an action of the same name.
            score = 0.5 - place / 1000
            step = "" if checkpoint.step is None else f"step {checkpoint.step:,}, "
            yield Hit(
                score,
                f"go to {clean(checkpoint.name)}",
                partial(show, checkpoint.name),
                help=f"{step}{checkpoint.state.value}",
            )


def _words(action: Action) -> str:
    return f"{action.name}: {action.title}"
