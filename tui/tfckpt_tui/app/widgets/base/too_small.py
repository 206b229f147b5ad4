"""What is shown instead of the dashboard where the terminal is too small for it."""

from __future__ import annotations

from collections.abc import Sequence

from tfckpt_tui.app.widgets.base.arrangement import SMALLEST
from tfckpt_tui.app.widgets.base.painting import Line, line, shorten
from tfckpt_tui.app.widgets.base.pane import Pane


class TooSmall(Pane):
    """A message in the middle; training goes on, and so do the keys."""

    boxed = False

    def body(self, width: int, height: int) -> Sequence[Line]:
        """Returns the message, its most important line first."""
        words = (
            f"This terminal is {self.size.width}×{self.size.height}.",
            f"tfckpt-tui needs {SMALLEST.width}×{SMALLEST.height}, better 80×24.",
            "Training goes on. q detaches.",
        )
        shown = [
            line((shorten(text, width), "value" if i else "warn")) for i, text in enumerate(words)
        ]
        centred = [line((" " * max(0, (width - one.width) // 2), ""), *one.spans) for one in shown]
        return [Line()] * max(0, (height - len(words)) // 2) + centred
