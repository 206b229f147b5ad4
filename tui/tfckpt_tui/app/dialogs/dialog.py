"""The base of all dialogs: a box that says what would happen, and buttons that default to no."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Button, Input, Static

from tfckpt_tui.app.screens.page import is_open
from tfckpt_tui.app.widgets.base.styled_text import Span, lines_to_content, to_content
from tfckpt_tui.monitor.snapshot import RunSnapshot

AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True)
class Choice(Generic[AnswerT]):
    """One button.

    Attributes:
        key: Chooses it without the mouse, while no text is being typed.
        label: What it does, in a word or two.
        answer: What the dialog returns; None is a cancel.
        tone: `default`, `primary`, `warning` or `error`.
    """

    key: str
    label: str
    answer: AnswerT | None
    tone: str = "default"


class Dialog(ModalScreen[AnswerT | None]):
    """A question about the run; it is closed with an answer, or with None for no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "Cancel", show=False),
        # With priority, so that a key typed right after it finds the buttons already.
        Binding("enter", "leave_field", "To the buttons", show=False, priority=True),
        Binding("enter", "enter", "Choose", show=False, priority=True),
        Binding("left", "app.focus_previous", "Previous", show=False),
        Binding("right", "app.focus_next", "Next", show=False),
    ]
    AUTO_FOCUS = "#choice-0"

    caption = ""
    """Stands in the frame."""

    def __init__(self, snapshot: RunSnapshot) -> None:
        super().__init__()
        self.snapshot = snapshot

    # -- what a subclass says ----------------------------------------------------------------

    def fields(self) -> Iterable[Widget]:
        """Returns the widgets above the text, such as inputs."""
        return ()

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns the lines that say what would happen."""
        raise NotImplementedError

    def choices(self) -> list[Choice[AnswerT]]:
        """Returns the buttons; the first is the safe one and has the focus."""
        raise NotImplementedError

    def refusal(self) -> str:
        """Returns why nothing but the first choice can be taken now; empty if all can."""
        return ""

    def can_choose(self, place: int) -> bool:
        """Whether the choice at `place` can be taken now; the first one always can."""
        return place == 0 or not self.refusal()

    def read_fields(self) -> None:
        """Takes up what stands in the fields now."""

    def take(self, choice: Choice[AnswerT]) -> None:
        """Closes the dialog with the answer of `choice`."""
        self.dismiss(choice.answer)

    # -- what it does ------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        """Makes the box."""
        with VerticalScroll(id="dialog", can_focus=False) as box:
            box.border_title = Content(self.caption)
            yield from self.fields()
            yield Static(self._content(), id="dialog-text")
            with Horizontal(id="choices"):
                for place, choice in enumerate(self.choices()):
                    label = to_content((choice.key, "key"), (f"  {choice.label}", ""))
                    yield Button(
                        label,
                        id=f"choice-{place}",
                        classes=f"-{choice.tone}",
                        disabled=not self.can_choose(place),
                    )

    def show(self, snapshot: RunSnapshot) -> None:
        """Takes a newer snapshot: what is said stays true while the dialog is open."""
        self.snapshot = snapshot
        self.update_text()

    def update_text(self) -> None:
        """Writes the text anew and switches the buttons by `refusal`."""
        if not is_open(self):
            return
        self.query_one("#dialog-text", Static).update(self._content())
        for place in range(len(self.choices())):
            self.query_one(f"#choice-{place}", Button).disabled = not self.can_choose(place)

    def key_choice(self, key: str) -> bool:
        """Takes the choice of `key`; returns whether there was one that can be taken."""
        for place, choice in enumerate(self.choices()):
            if choice.key == key and self.can_choose(place):
                self.take(choice)
                return True
        return False

    def on_key(self, event: events.Key) -> None:
        """Lets the keys of the buttons work wherever no text is typed; digits go to a field."""
        typing = isinstance(self.focused, Input)
        taken = not typing and self.key_choice(event.key)
        if taken or self._type_digit(event.character or ""):
            event.stop()
            event.prevent_default()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leaves enter to the buttons unless a field has the focus."""
        if action == "leave_field":
            return isinstance(self.focused, Input)
        return super().check_action(action, parameters)

    def action_leave_field(self) -> None:
        """Goes on from a field to the first button that does something, if one can."""
        self.read_fields()
        acting = (p for p in range(1, len(self.choices())) if self.can_choose(p))
        place = next(acting, None)
        if place is not None:
            # `Button.focus` would come after a key that is typed right behind.
            self.set_focus(self.query_one(f"#choice-{place}", Button))

    def _type_digit(self, character: str) -> bool:
        """Starts the first field anew with a digit typed outside of it, and goes on there."""
        fields = self.query(Input)
        if not (fields and character.isascii() and character.isdigit()):
            return False
        if isinstance(self.focused, Input):
            # Typed so quickly after the first one that it was on its way before the focus moved.
            self.focused.insert_text_at_cursor(character)
            return True
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
        """Presses the button with the focus.

        At once, and not by a message: the next key may be in the queue already.
        """
        if isinstance(self.focused, Button):
            self.focused.press()

    def action_cancel(self) -> None:
        """Closes the dialog; nothing happens."""
        self.dismiss(None)

    def _content(self) -> Content:
        lines = [tuple(line) for line in self.text()]
        refusal = self.refusal()
        if refusal:
            lines += [(), (("✗ ", "bad"), (refusal, "bad"))]
        return lines_to_content(lines)
