"""The base of all dialogs: a box that says what would happen, and buttons that default to no."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Button, Input, Static

from tfckpt_tui.snapshot import RunSnapshot
from tfckpt_tui.widgets.painting import Span
from tfckpt_tui.widgets.words import lines_of_words, words

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

    # -- what it does ------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        """Makes the box."""
        with VerticalScroll(id="dialog", can_focus=False) as box:
            box.border_title = Content(self.caption)
            yield from self.fields()
            yield Static(self._content(), id="dialog-text")
            with Horizontal(id="choices"):
                for place, choice in enumerate(self.choices()):
                    label = words((choice.key, "key"), (f"  {choice.label}", ""))
                    yield Button(label, id=f"choice-{place}", classes=f"-{choice.tone}")

    def on_mount(self) -> None:
        """Switches off what cannot be chosen."""
        self.update_text()

    def show(self, snapshot: RunSnapshot) -> None:
        """Takes a newer snapshot: what is said stays true while the dialog is open."""
        self.snapshot = snapshot
        self.update_text()

    def update_text(self) -> None:
        """Writes the text anew and switches the buttons by `refusal`."""
        if not self.is_mounted:
            return
        self.query_one("#dialog-text", Static).update(self._content())
        refused = bool(self.refusal())
        for place in range(1, len(self.choices())):
            self.query_one(f"#choice-{place}", Button).disabled = refused

    def key_choice(self, key: str) -> bool:
        """Takes the choice of `key`; returns whether there was one that can be taken."""
        for place, choice in enumerate(self.choices()):
            if choice.key == key and not (place and self.refusal()):
                self.dismiss(choice.answer)
                return True
        return False

    def on_key(self, event) -> None:  # type: ignore
        """Lets the keys of the buttons work wherever no text is typed."""
        if not isinstance(self.focused, Input) and self.key_choice(event.key):
            event.stop()
            event.prevent_default()

    @on(Button.Pressed)
    def _press(self, event: Button.Pressed) -> None:
        event.stop()
        place = int((event.button.id or "choice-0").rsplit("-", 1)[-1])
        self.dismiss(self.choices()[place].answer)

    def action_cancel(self) -> None:
        """Closes the dialog; nothing happens."""
        self.dismiss(None)

    def _content(self) -> Content:
        lines = [tuple(line) for line in self.text()]
        refusal = self.refusal()
        if refusal:
            lines += [(), (("✗ ", "bad"), (refusal, "bad"))]
        return lines_of_words(lines)
