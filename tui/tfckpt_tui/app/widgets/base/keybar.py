"""The footer: the keys that do something now, most useful first, as many as fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual import events
from textual.message import Message

from tfckpt_tui.app.widgets.base.painting import Line, Span
from tfckpt_tui.app.widgets.base.pane import Pane
from tfckpt_tui.formats import units

_GAP = "  "
_SPINNER = "◐◓◑◒"


@dataclass(frozen=True)
class KeyHint:
    """One key of the footer.

    Attributes:
        action: What a click on it does.
        key: As it is written on the keyboard.
        label: What it does, in a word or two.
        is_last: Whether it stands at the right end, and is kept however little room there is.
    """

    action: str
    key: str
    label: str
    is_last: bool = False


class KeyBar(Pane):
    """One line of keys; a click on one is as good as the key."""

    boxed = False

    class Chosen(Message):
        """A key was clicked."""

        def __init__(self, action: str) -> None:
            super().__init__()
            self.action = action

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._hints: tuple[KeyHint, ...] = ()
        self._places: list[tuple[int, int, str]] = []
        self._silent_seconds = 0

    def show_silence(self, seconds: int) -> None:
        """Takes for how long the run directory has not answered; 0 where it does."""
        if seconds != self._silent_seconds:
            self._silent_seconds = seconds
            self.repaint()

    def show_hints(self, hints: Sequence[KeyHint]) -> None:
        """Takes the keys that do something now."""
        if tuple(hints) != self._hints:
            self._hints = tuple(hints)
            self.repaint()

    def body(self, width: int, height: int) -> Sequence[Line]:
        """Returns the line, and remembers where each key stands."""
        del height
        self._places = []
        right: list[Span] = []
        for hint in (h for h in self._hints if h.is_last):
            right += [(_GAP, ""), *_spans(hint)]
        room = width - Line(tuple(right)).width
        left: list[Span] = self._silence()
        column = Line(tuple(left)).width
        for hint in (h for h in self._hints if not h.is_last):
            spans = _spans(hint)
            size = Line(spans).width
            gap = len(_GAP) if left else 0
            if column + gap + size > room:
                continue
            left += [(_GAP, "")] * bool(left) + list(spans)
            self._places.append((column + gap, column + gap + size, hint.action))
            column += gap + size
        place = width - Line(tuple(right)).width
        for hint in (h for h in self._hints if h.is_last):
            size = len(_GAP) + Line(_spans(hint)).width
            self._places.append((place + len(_GAP), place + size, hint.action))
            place += size
        return [Line((*left, (" " * (room - column), ""), *right))]

    def _silence(self) -> list[Span]:
        if not self._silent_seconds:
            return []
        spinner = _SPINNER[self._silent_seconds % len(_SPINNER)]
        words = f"the disk has not answered for {units.age(self._silent_seconds)}"
        return [(f"{spinner} {words}; what you see is older", "warn")]

    def on_click(self, event: events.Click) -> None:
        """Does what the key under the mouse does."""
        column = event.x - self.inner_offset[0]
        for start, end, action in self._places:
            if start <= column < end:
                self.post_message(self.Chosen(action))


def _spans(hint: KeyHint) -> tuple[Span, ...]:
    return (hint.key, "key"), (f" {hint.label}", "label")
