"""The form that launches training: command, directories and number of workers."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from msgspec.structs import asdict, replace
from textual import on
from textual.widget import Widget
from textual.widgets import Input

from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.preflight import check_options
from tfckpt_trainer.launch.processes.cluster import processes_in_words
from tfckpt_tui.app.dialogs.dialog import Choice, Dialog, field_rows
from tfckpt_tui.app.widgets.base.styled_text import Span
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.services.runs.launch_form import LaunchForm

_TEXTS = {
    "directory": ("run directory", "new, or with checkpoints"),
    "command": ("command of each worker", "python train.py --steps 5000"),
    "working_directory": ("runs in", "a directory"),
}
_NUMBERS = {
    "workers": "workers",
    "parameter_servers": "parameter servers",
    "max_restarts": "max restarts",
}


class LaunchDialog(Dialog[LaunchOptions]):
    """A form for the options of a launch, which are checked while the user types."""

    caption = " launch "
    AUTO_FOCUS = "#command"

    def __init__(
        self, first: LaunchForm, *, fixed_directory: bool, start: str | None = None
    ) -> None:
        """Makes the form.

        Args:
            first: The initial values.
            fixed_directory: Whether the run directory cannot be changed.
            start: The checkpoint to start from; by default the one that a start continues from.
        """
        super().__init__(RunSnapshot(at=time.time(), root=Path(first.directory)))
        self.add_class("-wide")
        self._form = first
        self._fixed = fixed_directory
        self._start = start
        self._options: LaunchOptions | None = None
        self._problem = ""
        self._has_begun = bool(first.command.strip())
        self._check()

    def fields(self) -> Iterable[Widget]:
        """Returns one line for each text, then the numbers."""
        values = asdict(self._form)
        fields: list[Widget] = []
        for name, (title, hint) in _TEXTS.items():
            if name != "directory" or not self._fixed:
                field = Input(values[name], placeholder=hint, id=name)
                field.border_title = title
                fields.append(field)
        numbers = []
        for name, title in _NUMBERS.items():
            field = Input(values[name], id=name, select_on_focus=True)
            field.border_title = title
            numbers.append(field)
        return (*fields, field_rows(numbers, id="numbers"))

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns what the launch starts."""
        if self._form.note:
            yield ((clean(self._form.note), "warn"),)
        options = self._options
        if options is None:
            return
        asked = options.slurm
        verb = "Starts " if asked is None else "Submits a Slurm job with "
        where = () if self._fixed else ((" in ", ""), (clean(options.run_directory), "value"))
        end = ", detached from this terminal." if asked is None else "."
        yield ((verb, ""), (processes_in_words(options.tasks), "strong"), *where, (end, ""))
        if self._start is not None:
            yield (("Training continues from ", ""), (clean(self._start), "strong"), (".", ""))
        for name, value in options.environment:
            yield (("With ", ""), (clean(f"{name}={value}"), "value"))

    def refusal(self) -> str:
        """Returns why the values are invalid."""
        return self._problem

    def shown_refusal(self) -> str:
        """Returns the refusal, unless the form is new: it is incomplete, not wrong."""
        return self._problem if self._has_begun else ""

    def action_submit(self) -> None:
        """Launches, or shows what is missing."""
        self._has_begun = True
        super().action_submit()

    def choices(self) -> list[Choice[LaunchOptions]]:
        """Returns cancel and launch."""
        return [Choice("n", "cancel", None), Choice("y", "launch", self._options, "primary")]

    @on(Input.Changed)
    def read_fields(self) -> None:
        """Reads and checks the values of all fields."""
        typed: dict[str, Any] = {field.id or "": field.value for field in self.query(Input)}
        form = replace(self._form, **typed)
        self._has_begun = self._has_begun or form != self._form
        self._form = form
        self._check()
        self.update_text()

    def _check(self) -> None:
        try:
            options = self._form.options()
            check_options(options)
        except TfckptError as error:
            self._options, self._problem = None, clean(str(error))
        else:
            self._options, self._problem = options, ""
