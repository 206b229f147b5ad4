"""The message shown if the terminal is too small for the dashboard."""

from __future__ import annotations

from collections.abc import Sequence

from tfckpt_tui.app.protocols import key_of
from tfckpt_tui.app.widgets.base.dashboard_layout import SMALLEST
from tfckpt_tui.app.widgets.base.pane import Pane
from tfckpt_tui.app.widgets.base.styled_text import Line, line, shorten


class TooSmall(Pane):
    """A centred message; keys still work."""

    boxed = False

    def body(self, width: int, height: int) -> Sequence[Line]:
        """Returns the message, the most important line first."""
        words = (
            f"This terminal is {self.size.width}×{self.size.height}.",
            f"tfckpt-tui needs {SMALLEST.width}×{SMALLEST.height}; 80×24 is better.",
            f"Training continues. Press {key_of(self, 'detach')} to detach.",
        )
        shown = [
            line((shorten(text, width), "value" if i else "warn")) for i, text in enumerate(words)
        ]
        centred = [line((" " * max(0, (width - one.width) // 2), ""), *one.spans) for one in shown]
        return [Line()] * max(0, (height - len(words)) // 2) + centred
