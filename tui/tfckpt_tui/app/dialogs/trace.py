"""The dialog that asks which steps to trace."""

from __future__ import annotations

from collections.abc import Iterable

from textual import on
from textual.widget import Widget
from textual.widgets import Input

from tfckpt_trainer.errors import RefusedError, TfckptError
from tfckpt_trainer.rundir.records.command import CommandKind, ProfileArguments, parse_arguments
from tfckpt_tui.app.dialogs.dialog import Choice, Dialog, field_rows
from tfckpt_tui.app.widgets.base.styled_text import Span
from tfckpt_tui.formats import units
from tfckpt_tui.formats.hyperparameters import parse_steps
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.services.control.profile import parse_workers

_DEFAULT = ProfileArguments()


class TraceDialog(Dialog[ProfileArguments]):
    """Asks how many steps which workers trace, and says what that costs."""

    caption = " trace steps "
    AUTO_FOCUS = "#steps"

    def __init__(self, snapshot: RunSnapshot) -> None:
        super().__init__(snapshot)
        self._arguments: ProfileArguments | None = None
        self._problem = ""

    def fields(self) -> Iterable[Widget]:
        """Returns the fields for the steps and the workers."""
        steps = Input(placeholder=str(_DEFAULT.steps), id="steps")
        workers = Input(placeholder="0, or 0,1, or all", id="workers")
        steps.border_title, workers.border_title = "steps", "workers"
        return (field_rows((steps, workers), id="profile"),)

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns who traces what, and what it costs."""
        arguments = self._arguments or _DEFAULT
        chosen = arguments.workers
        count = len(self.snapshot.workers)
        if chosen is None:
            who = units.count(count, "worker")
        else:
            who = f"{'worker' if len(chosen) == 1 else 'workers'} {', '.join(map(str, chosen))}"
        steps = "step" if arguments.steps == 1 else f"{arguments.steps:,} steps"
        yield (("Traces the next ", ""), (steps, "strong"), (f" on {who}. Training goes on.", ""))
        yield (("Steps are slower while they are traced. Then training waits until the", "muted"),)
        yield (("traces are written.", "muted"),)
        if chosen != [0] and count > 1:
            yield (("The profiler can crash workers other than 0. Save first.", "warn"),)

    def refusal(self) -> str:
        """Returns why nothing can be traced."""
        return self._problem

    def choices(self) -> list[Choice[ProfileArguments]]:
        """Returns cancel and trace."""
        return [Choice("n", "cancel", None), Choice("y", "trace", self._arguments, "primary")]

    def on_mount(self) -> None:
        """Takes the default values."""
        # Not before Textual considers the screen mounted.
        self.call_later(self.read_fields)

    def show(self, snapshot: RunSnapshot) -> None:
        """Takes a newer snapshot, in which the trainer may have gone."""
        self.snapshot = snapshot
        self.read_fields()

    @on(Input.Changed)
    def read_fields(self) -> None:
        """Reads and checks what was typed."""
        try:
            self._arguments, self._problem = self._read(), ""
        except TfckptError as error:
            self._arguments, self._problem = None, clean(str(error))
        self.update_text()

    def _read(self) -> ProfileArguments:
        if not self.snapshot.trainer_answers:
            raise RefusedError("No trainer answers.")
        typed = {field.id: field.value.strip() for field in self.query(Input)}
        steps = parse_steps(typed.get("steps", ""))
        given = {
            "steps": _DEFAULT.steps if steps is None else steps,
            "workers": parse_workers(typed.get("workers", "")),
        }
        arguments = parse_arguments(CommandKind.PROFILE, given)
        assert isinstance(arguments, ProfileArguments)
        return arguments
