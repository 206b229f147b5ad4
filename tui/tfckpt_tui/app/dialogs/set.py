"""The dialog that changes a hyperparameter: its new value, from which step, and what follows."""

from __future__ import annotations

from collections.abc import Iterable

from textual import on
from textual.widget import Widget
from textual.widgets import Input

from tfckpt_trainer.errors import RefusedError, TfckptError, UsageError
from tfckpt_trainer.rundir.records.command import SetArguments
from tfckpt_trainer.rundir.records.hyperparameter import Hyperparameter, number
from tfckpt_tui.app.dialogs.dialog import Choice, Dialog, field_rows
from tfckpt_tui.app.widgets.base.styled_text import Span
from tfckpt_tui.formats import units
from tfckpt_tui.formats.hyperparameters import parse_steps, parse_value, planned_words, title
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.services.runs.hyperparameters import hyperparameters_of

_FIELDS = {
    "value": ("new value", "such as 3e-4"),
    "at-step": ("after step", "the next one"),
    "over": ("over steps", "at once"),
    "until-step": ("until step", "needed"),
}


class SetDialog(Dialog[SetArguments]):
    """Asks for the new value of a hyperparameter, and says what follows."""

    caption = " change a hyperparameter "
    AUTO_FOCUS = "#value"
    typed_outside = "0123456789."

    def __init__(self, snapshot: RunSnapshot, hyperparameter: Hyperparameter) -> None:
        """Makes the dialog.

        Args:
            snapshot: The run.
            hyperparameter: The one to change.
        """
        super().__init__(snapshot)
        self._present = hyperparameter
        self._change: SetArguments | None = None
        self._problem = ""
        self._has_begun = False

    def fields(self) -> Iterable[Widget]:
        """Returns the fields for the value, and from when and until when it holds."""
        names = [name for name in _FIELDS if name != "until-step" or self._present.schedule]
        fields = []
        for name in names:
            words, hint = _FIELDS[name]
            field = Input(placeholder=hint, id=name)
            field.border_title = words
            fields.append(field)
        return (field_rows(fields, id="change"),)

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns the hyperparameter, and what its change does on which workers."""
        present = self._present
        yield (
            (title(present), "strong"),
            (" is ", ""),
            (number(present.value), "value"),
            (f". It can be {present.bounds.words}.", ""),
        )
        if self._change is None:
            return
        yield ()
        yield self._consequence(self._change)
        until = self._change.until_step
        if until is not None:
            yield ((f"After step {until:,}, {clean(present.schedule)} goes on.", ""),)
        if present.planned is not None:
            words = f"This replaces the planned change to {planned_words(present.planned)}."
            yield ((words, "warn"),)

    def refusal(self) -> str:
        """Returns why the value cannot be set."""
        return self._problem

    def shown_refusal(self) -> str:
        """Returns the refusal, unless nothing was typed yet."""
        return self._problem if self._has_begun else ""

    def choices(self) -> list[Choice[SetArguments]]:
        """Returns cancel and change."""
        return [Choice("n", "cancel", None), Choice("y", "change", self._change, "warning")]

    def on_mount(self) -> None:
        """Disables the button that changes, until there is a value."""
        # Not before Textual considers the screen mounted.
        self.call_later(self.read_fields)

    def show(self, snapshot: RunSnapshot) -> None:
        """Takes a newer snapshot, in which the present value may be another."""
        self.snapshot = snapshot
        self.read_fields()

    def action_submit(self) -> None:
        """Changes the value, or says what is missing."""
        self._has_begun = True
        super().action_submit()

    @on(Input.Changed)
    def read_fields(self) -> None:
        """Reads and checks what was typed."""
        typed = {field.id or "": field.value.strip() for field in self.query(Input)}
        self._has_begun = self._has_begun or any(typed.values())
        try:
            self._change, self._problem = self._read(typed), ""
        except TfckptError as error:
            self._change, self._problem = None, clean(str(error))
        self.update_text()

    def _read(self, typed: dict[str, str]) -> SetArguments:
        known = hyperparameters_of(self.snapshot, None, None)
        if not known.is_live:
            raise RefusedError("No trainer answers.")
        self._present = known.values.get(self._present.name, self._present)
        if not typed["value"]:
            raise UsageError("Type a value.")
        values = {self._present.name: parse_value(typed["value"])}
        at_step, over = parse_steps(typed["at-step"]), parse_steps(typed["over"])
        until_step = parse_steps(typed.get("until-step", ""))
        if self._present.schedule and until_step is None:
            raise UsageError(f"Type until which step it replaces {self._present.schedule}.")
        return known.change(values, at_step=at_step, over=over or 0, until_step=until_step)

    def _consequence(self, change: SetArguments) -> Iterable[Span]:
        """Returns a sentence: from what to what, on how many workers, and when."""
        before, after = self._present.value, change.values[self._present.name]
        count = units.count(len(self.snapshot.workers), "worker")
        when = "at the next step" if change.at_step is None else f"after step {change.at_step:,}"
        over = f", in equal parts over {units.count(change.over, 'step')}" if change.over else ""
        return (
            (f"{clean(self._present.name)} ", ""),
            (f"{number(before)} → {number(after)}", "strong"),
            (f" on {count} {when}{over}.", ""),
        )
