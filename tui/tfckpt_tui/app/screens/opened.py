"""Whether a screen can still show what comes to it late."""

from __future__ import annotations

from typing import Any

from textual.screen import Screen


def is_open(screen: Screen[Any]) -> bool:
    """Whether the widgets of a screen are there.

    A screen that was closed goes on taking messages for a moment: the results of its jobs, the
    last tick of its timers. Its widgets are gone by then.
    """
    return screen.is_mounted and screen in screen.app.screen_stack
