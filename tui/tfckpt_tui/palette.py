"""The palette: every action by its name, with its key."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.keys import format_key

from tfckpt_tui.commands.table import ACTIONS, Action


class ActionsProvider(Provider):
    """Offers the actions of the dashboard; one that is not possible now says why."""

    async def discover(self) -> Hits:
        """Yields all actions."""
        for action in ACTIONS:
            yield DiscoveryHit(_shown(action), self._do(action), help=action.help)

    async def search(self, query: str) -> Hits:
        """Yields the actions whose title matches."""
        matcher = self.matcher(query)
        for action in ACTIONS:
            score = matcher.match(_words(action))
            if score > 0:
                yield Hit(
                    score, matcher.highlight(_words(action)), self._do(action), help=action.help
                )

    def _do(self, action: Action) -> Callable[[], None]:
        perform = getattr(self.screen, "action_perform", None)
        return self.app.bell if perform is None else partial(perform, action.name)


def _words(action: Action) -> str:
    return f"{action.name}: {action.title}"


def _shown(action: Action) -> Content:
    key = f"  {format_key(action.key)}" if action.key else ""
    return Content.assemble(_words(action), (key, "$primary bold"))
