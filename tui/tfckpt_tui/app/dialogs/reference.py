"""The dialog that asks what the charts are compared with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from textual import on
from textual.widget import Widget
from textual.widgets import Input

from tfckpt_tui.app.dialogs.dialog import Choice, Dialog
from tfckpt_tui.app.widgets.base.styled_text import Span, shorten_middle
from tfckpt_tui.charting.choices import Compared
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot

_MOST_LISTED = 7
_PATH_WIDTH = 58


class ReferenceDialog(Dialog[Compared]):
    """Answers with another run, another branch, or nothing to compare with."""

    caption = " compare with "
    AUTO_FOCUS = "#target"

    def __init__(
        self, snapshot: RunSnapshot, recent: Sequence[Path], branch: int | None, *, has_one: bool
    ) -> None:
        """Makes the dialog.

        Args:
            snapshot: Of the run.
            recent: Other runs, newest first.
            branch: The branch to offer; None if there is no other good one.
            has_one: Whether the charts are compared with something now.
        """
        super().__init__(snapshot)
        self._recent = recent[:_MOST_LISTED]
        self._branch = branch
        self._has_one = has_one
        self._typed = ""

    def fields(self) -> Iterable[Widget]:
        """Returns the field for the run."""
        field = Input(placeholder="1, or /data/runs/other", id="target")
        field.border_title = "a number, or the directory of a run"
        return (field,)

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns the recent runs."""
        if not self._recent:
            yield (("The list of recent runs has no other run.", "muted"),)
        for number, directory in enumerate(self._recent, start=1):
            path = shorten_middle(clean(str(directory)), _PATH_WIDTH)
            yield ((f"{number}  ", "key"), (path, "value"))

    def refusal(self) -> str:
        """Returns why a number means no run."""
        typed = self._typed
        if typed.isdecimal() and len(typed) < 3 and not 1 <= int(typed) <= len(self._recent):
            return f"There is no run {typed} in the list."
        return ""

    def can_choose(self, place: int) -> bool:
        """Whether a button is enabled."""
        choice = self.choices()[place]
        if choice.key == "y":
            return bool(self._typed) and not self.refusal()
        return True

    def choices(self) -> list[Choice[Compared]]:
        """Returns cancel, compare, and the branch and nothing, if these can be chosen."""
        choices: list[Choice[Compared]] = [
            Choice("n", "cancel", None),
            Choice("y", "compare", Compared(self._directory), "primary"),
        ]
        if self._branch is not None:
            choices.append(Choice("b", f"branch {self._branch}", Compared(branch=self._branch)))
        if self._has_one:
            choices.append(Choice("x", "nothing", Compared()))
        return choices

    @property
    def _directory(self) -> str | None:
        if not self._typed or self.refusal():
            return None
        is_number = self._typed.isdecimal() and len(self._typed) < 3
        return str(self._recent[int(self._typed) - 1]) if is_number else self._typed

    @on(Input.Changed)
    def read_fields(self) -> None:
        """Reads the field."""
        self._typed = self.query_one("#target", Input).value.strip()
        self.update_text()
