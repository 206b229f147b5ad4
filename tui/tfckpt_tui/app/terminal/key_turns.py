"""Keys that were typed ahead wait until the screen that they open takes them."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from textual.app import App
from textual.events import Event
from textual.message_pump import MessagePump
from textual.timer import Timer

_LONGEST_SECONDS = 1.0
"""A key that a closed widget swallowed must not hold the others back."""


class KeyTurns:
    """Hands keys over one after another.

    Textual passes all keys on at once. Those that follow a key which opens a dialog would reach
    the widget that has the focus before.
    """

    def __init__(self, app: App[Any], forward: Callable[[Event], Awaitable[None]]) -> None:
        """Makes the queue.

        Args:
            app: The app.
            forward: Handles a key, or passes it to the widget with the focus.
        """
        self._app = app
        self._forward = forward
        self._waiting: deque[Event] = deque()
        self._turn = 0
        self._limit: Timer | None = None
        self._is_busy = False

    async def take(self, key: Event) -> None:
        """Handles a key, once those before it are handled."""
        self._waiting.append(key)
        if not self._is_busy:
            await self._hand_over()

    async def _hand_over(self) -> None:
        key = self._waiting.popleft()
        self._is_busy = True
        self._turn += 1
        self._limit = self._app.set_timer(_LONGEST_SECONDS, partial(self._next, self._turn))
        way = self._way_up()
        await self._forward(key)
        # Each widget on the way handles its messages in order: first the key, then this.
        await self._pass_on(way, partial(self._settle, self._turn))

    def _way_up(self) -> list[MessagePump]:
        app = self._app
        target = app.focused or (app.screen if app.screen_stack else app)
        return [node for node in target.ancestors_with_self if node is not app] + [app]

    async def _pass_on(
        self, way: Sequence[MessagePump], then: Callable[[], Awaitable[None]]
    ) -> None:
        """Visits the queues of widgets in turn, and then calls `then`."""
        for place, node in enumerate(way):
            if node.call_later(self._pass_on, way[place + 1 :], then):
                return
        await then()

    async def _settle(self, turn: int) -> None:
        """Waits until the screen on top, which may be new, has its widgets and its focus."""
        top = self._app.screen_stack[-1:]
        await self._pass_on([*top, self._app], partial(self._next, turn))

    async def _next(self, turn: int) -> None:
        if turn != self._turn:
            return
        if self._limit is not None:
            self._limit.stop()
        self._is_busy = False
        if self._waiting:
            await self._hand_over()
