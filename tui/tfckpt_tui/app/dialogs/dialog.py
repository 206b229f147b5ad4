"""The base class of all dialogs: a question, what follows, and buttons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from rich.cells import cell_len
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, ItemGrid, VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Button, Input, Static

from tfckpt_tui.app.widgets.base.dashboard_layout import SHORT
from tfckpt_tui.app.widgets.base.list_pane import ListPane
from tfckpt_tui.app.widgets.base.modal import Modal
from tfckpt_tui.app.widgets.base.pane import is_open
from tfckpt_tui.app.widgets.base.styled_text import Span, lines_to_content, to_content
from tfckpt_tui.app.widgets.run.progress import progress_below
from tfckpt_tui.monitor.snapshot import RunSnapshot

AnswerT = TypeVar("AnswerT")


_FRAME_WIDTH = 6
"""Cells around the title of a field: corners, lines and blanks."""


def field_rows(fields: Sequence[Widget], *, id: str) -> ItemGrid:  # noqa: A002
    """Returns fields in as many rows as their titles need."""
    widest = max(cell_len(str(field.border_title)) for field in fields)
    return ItemGrid(
        *fields,
        id=id,
        classes="fields",
        min_column_width=widest + _FRAME_WIDTH,
        regular=len(fields) % 2 == 0,
    )


@dataclass(frozen=True)
class Choice(Generic[AnswerT]):
    """One button.

    Attributes:
        key: Presses the button, unless a field has the focus.
        label: What the button does, in a few words.
        answer: What the dialog returns; None cancels.
        tone: `default`, `primary`, `warning` or `error`.
    """

    key: str
    label: str
    answer: AnswerT | None
    tone: str = "default"


class Dialog(Modal[AnswerT | None]):
    """A question about the run. It closes with an answer, or with None if it is cancelled."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "Cancel", show=False),
        # With priority: a key typed right after enter must reach the buttons.
        Binding("enter", "submit", "Submit", show=False, priority=True),
        Binding("enter", "enter", "Choose", show=False, priority=True),
        Binding("left", "app.focus_previous", "Previous", show=False),
        Binding("right", "app.focus_next", "Next", show=False),
        # With priority: a box that is higher than the screen would scroll instead.
        Binding("up", "app.focus_previous", "Previous", show=False, priority=True),
        Binding("down", "app.focus_next", "Next", show=False, priority=True),
    ]
    AUTO_FOCUS = "#choice-0"

    caption = ""
    """The title in the frame."""

    typed_outside: ClassVar[str] = "0123456789"
    """Characters that go to the first field even if it does not have the focus."""

    def __init__(self, snapshot: RunSnapshot) -> None:
        super().__init__()
        self.snapshot = snapshot

    # -- for subclasses ----------------------------------------------------------------------

    def fields(self) -> Iterable[Widget]:
        """Returns the widgets above the text, such as input fields."""
        return ()

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns the lines that say what follows."""
        raise NotImplementedError

    def choices(self) -> list[Choice[AnswerT]]:
        """Returns the buttons; the first one cancels and has the focus."""
        raise NotImplementedError

    def refusal(self) -> str:
        """Returns why all buttons but the first are disabled; empty if they are enabled."""
        return ""

    def shown_refusal(self) -> str:
        """Returns the refusal to show now; empty while the user has not begun."""
        return self.refusal()

    def can_choose(self, place: int) -> bool:
        """Whether the button at `place` is enabled; the first one always is."""
        return place == 0 or not self.refusal()

    def read_fields(self) -> None:
        """Reads the fields."""

    def take(self, choice: Choice[AnswerT]) -> None:
        """Closes the dialog with the answer of `choice`."""
        self.dismiss(choice.answer)

    # -- shared behaviour --------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        """Makes the box."""
        with VerticalScroll(id="dialog", can_focus=False) as box:
            box.border_title = Content(self.caption)
            yield from self.fields()
            yield Static(self._content(), id="dialog-text")
            with Horizontal(id="choices"):
                for place, choice in enumerate(self.choices()):
                    yield Button(
                        self._label(place),
                        id=f"choice-{place}",
                        classes=f"-{choice.tone}",
                        disabled=not self.can_choose(place),
                    )
        yield from progress_below(self)

    def _label(self, place: int) -> Content:
        """Returns the key that presses a button now, and what it does."""
        choice = self.choices()[place]
        key = self._key_in_field(place) if isinstance(self.focused, Input) else choice.key
        key_style = "key" if self.can_choose(place) else "faint"
        return to_content((key, key_style), (f"  {choice.label}" if key else choice.label, ""))

    def _key_in_field(self, place: int) -> str:
        """Returns the key of a button while a field takes the letters; empty if it has none."""
        if place == 0:
            return "esc"
        acting = self._acting_button()
        return "⏎" if acting is not None and acting.id == f"choice-{place}" else ""

    @on(events.DescendantFocus)
    @on(events.DescendantBlur)
    def show_keys(self) -> None:
        """Shows the keys that work where the focus is."""
        if not is_open(self):
            return
        for place in range(len(self.choices())):
            button, label = self.query_one(f"#choice-{place}", Button), self._label(place)
            shown = button.label
            if not (isinstance(shown, Content) and label.is_same(shown)):
                # Textual takes labels with the same text and other colours for the same.
                button.set_reactive(Button.label, label)
                button.refresh(layout=True)
                self.call_after_refresh(self._stack_buttons)

    def on_resize(self) -> None:
        """Puts the buttons below each other where they do not fit side by side."""
        self.call_after_refresh(self._stack_buttons)

    def _stack_buttons(self) -> None:
        if is_open(self):
            needed = sum(button.outer_size.width + 1 for button in self.query(Button))
            self.set_class(needed > self.query_one("#choices").size.width, "-stacked")

    def show(self, snapshot: RunSnapshot) -> None:
        """Takes a newer snapshot, so that the text stays true while the dialog is open."""
        self.snapshot = snapshot
        self.update_text()

    def update_text(self) -> None:
        """Updates the text, and enables or disables the buttons."""
        if not is_open(self):
            return
        self.query_one("#dialog-text", Static).update(self._content())
        focused = self.focused
        for place in range(len(self.choices())):
            self.query_one(f"#choice-{place}", Button).disabled = not self.can_choose(place)
        self.show_keys()
        if isinstance(focused, Button) and focused.disabled:
            # Textual moves the focus to another button, which nobody chose.
            self.set_focus(None)

    def key_choice(self, key: str) -> bool:
        """Presses the button of `key`; returns whether there is such a button and it is enabled."""
        for place, choice in enumerate(self.choices()):
            if choice.key == key and self.can_choose(place):
                self.take(choice)
                return True
        return False

    def on_key(self, event: events.Key) -> None:
        """Presses buttons by their keys, and begins to type, unless a field has the focus."""
        if isinstance(self.focused, Input):
            return
        is_button = any(choice.key == event.key for choice in self.choices())
        typed = "" if is_button else event.character or ""
        if self.key_choice(event.key) or self._begin_to_type(typed):
            event.stop()
            event.prevent_default()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leaves enter to the buttons unless a field has the focus."""
        if action == "submit":
            return isinstance(self.focused, Input)
        return super().check_action(action, parameters)

    def action_submit(self) -> None:
        """Presses the button that enter stands on while a field has the focus, if there is one."""
        self.read_fields()
        button = self._acting_button()
        if button is not None:
            button.press()

    def choose_acting(self) -> None:
        """Moves the focus away from the button that cancels, after the user chose something."""
        self.set_focus(self._acting_button())

    def _acting_button(self) -> Button | None:
        """Returns the first enabled button that does not cancel."""
        acting = (p for p in range(1, len(self.choices())) if self.can_choose(p))
        place = next(acting, None)
        return None if place is None else self.query_one(f"#choice-{place}", Button)

    def _begin_to_type(self, character: str) -> bool:
        """Replaces the text of the first field by a character typed outside of it."""
        fields = self.query(Input)
        if not fields or not character or character not in self.typed_outside:
            return False
        field = fields.first()
        field.select_on_focus = False
        field.value = character
        field.cursor_position = len(character)
        self.set_focus(field)
        return True

    @on(Button.Pressed)
    def _press(self, event: Button.Pressed) -> None:
        event.stop()
        place = int((event.button.id or "choice-0").rsplit("-", 1)[-1])
        self.take(self.choices()[place])

    def action_enter(self) -> None:
        """Presses the button with the focus, at once: the next key may be queued already."""
        if isinstance(self.focused, Button):
            self.focused.press()
        elif self.focused is None:
            # The button that had the focus was disabled.
            self.choose_acting()

    def action_cancel(self) -> None:
        """Closes the dialog without an answer."""
        self.dismiss(None)

    def _content(self) -> Content:
        lines = [tuple(line) for line in self.text()]
        refusal = self.shown_refusal()
        if refusal:
            lines += [(), (("✗ ", "bad"), (refusal, "bad"))]
        return lines_to_content(lines)


class ListDialog(Dialog[AnswerT]):
    """A dialog with one list, in as many lines as the terminal has."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "scroll_list(-1)", show=False, priority=True),
        Binding("down", "scroll_list(1)", show=False, priority=True),
        Binding("pageup", "scroll_list(-8)", show=False),
        Binding("pagedown", "scroll_list(8)", show=False),
    ]

    def __init__(self, snapshot: RunSnapshot) -> None:
        super().__init__(snapshot)
        self.add_class("-large", update=False)
        self.VERTICAL_BREAKPOINTS = [(0, "-short"), (SHORT, "-tall")]

    def action_scroll_list(self, rows: int) -> None:
        """Scrolls the list, whatever has the focus."""
        self.query_one("#plan", ListPane).scroll_rows(rows)
