"""The charts of the run: all metrics, throughput and step time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from msgspec.structs import replace
from textual.binding import Binding, BindingType

from tfckpt_trainer.rundir.records.event import EventEntry
from tfckpt_tui.app.dialogs.reference import ReferenceDialog
from tfckpt_tui.app.screens.chart_page import ChartPage
from tfckpt_tui.app.widgets.base.empty_page import EmptyPage, to_paste
from tfckpt_tui.app.widgets.base.pane import is_open
from tfckpt_tui.charting.choices import ChartChoices, Compared
from tfckpt_tui.charting.measurements import Measurement, measurements
from tfckpt_tui.charting.view import RunSeries
from tfckpt_tui.formats.metric_names import main_of
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.services.runs.recent_runs import remembered_runs
from tfckpt_tui.services.runs.reference import (
    ReferenceReader,
    branch_reference,
    good_branch,
)

_REFERENCE_SECONDS = 5.0
_NONE = (
    "There are no measurements yet. Charts show each metric over the steps, with marks for saves, "
    "restores, restarts, changes and guards."
)
_SOON = "The loss and the throughput appear after the first steps."
_OF_OTHERS = "In a script without tfckpt_trainer: scalars of event files in this directory count."


class ChartsScreen(ChartPage):
    """The measurements of the run, and what they are compared with."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "r",
            "compare",
            "compare",
            tooltip="Draws another run, or another branch, under the curves, with its values and "
            "the difference at the cursor.",
        ),
    ]
    caption = "the charts"

    def __init__(
        self,
        snapshot: RunSnapshot,
        choices: ChartChoices,
        open_event: Callable[[EventEntry], None],
    ) -> None:
        """Makes the screen.

        Args:
            snapshot: Of the run.
            choices: How the user looked at the charts last.
            open_event: Opens the checkpoint of an event, or the event.
        """
        chosen = choices.chosen or main_of(snapshot.samples.metrics)
        super().__init__(replace(choices, chosen=chosen))
        self._compared = choices.compared
        self._reader: ReferenceReader | None = None
        self._is_reading = False
        self._snapshot = snapshot
        self._open_event = open_event

    def on_mount(self) -> None:
        """Shows the snapshot, and reads what the charts were compared with last."""
        self.update_charts()
        self.set_interval(_REFERENCE_SECONDS, self._read_reference_again)
        self._compare_with(self._compared)

    def on_unmount(self) -> None:
        """Keeps the view for the next time."""
        is_compared = self.reference is not None
        self.run_app.chart_choices = ChartChoices(
            self._view.lasting(),
            self._grid_size,
            self._pattern,
            self._joined,
            self._chosen,
            self._compared if is_compared else Compared(),
        )

    def empty_page(self) -> EmptyPage | None:
        """Returns what the page says if nothing was measured."""
        snapshot = self._snapshot
        if snapshot.samples:
            return None
        if snapshot.trainer_answers:
            return EmptyPage(purpose=_NONE, advice=(_SOON,))
        callback = f"keras.callbacks.TensorBoard({clean(snapshot.path)!r}, update_freq=10)"
        return EmptyPage(
            purpose=_NONE,
            advice=self.first_advice(),
            offers=() if snapshot.tracked else (to_paste(self, callback, _OF_OTHERS),),
        )

    def show(self, snapshot: RunSnapshot) -> None:
        """Shows a newer snapshot."""
        self._snapshot = snapshot
        self.update_charts()
        self.update_keys()

    def charted(self) -> RunSnapshot:
        """Returns the newest snapshot."""
        return self._snapshot

    def measurements(self) -> Sequence[Measurement]:
        """Returns what was recorded; before that, what can be."""
        samples = self._snapshot.samples
        possible = measurements(samples.metrics)
        return [one for one in possible if one.key in samples.channels] or possible

    def action_compare(self) -> None:
        """Asks what to compare with, and reads it."""
        self.run_app.start_job("compare", remembered_runs, self._ask)

    def _ask(self, recent: Sequence[Path]) -> None:
        if not is_open(self):
            return
        snapshot = self._snapshot
        others = [path for path in recent if str(path) != snapshot.path]
        branch = good_branch(snapshot.samples, snapshot.branch)
        dialog = ReferenceDialog(snapshot, others, branch, has_one=self.reference is not None)
        self.app.push_screen(dialog, self._compare_with)

    def _compare_with(self, compared: Compared | None) -> None:
        if compared is None:
            return
        self._compared = compared
        snapshot, branch, directory = self._snapshot, compared.branch, compared.directory
        self._reader = None
        if directory is not None:
            self._reader = ReferenceReader(Path(directory))
            self.run_app.start_job(
                "compare",
                self._reader.read_new,
                self._show_reference,
                progress=f"Reading {clean(directory)} …",
            )
        elif branch is None or branch not in snapshot.samples.branches:
            self._show_reference(None)
        else:
            reference = branch_reference(
                snapshot.samples, snapshot.checkpoints, branch, snapshot.epoch_steps
            )
            self._show_reference(reference)

    def _read_reference_again(self) -> None:
        """Reads another run again, which may train on."""
        reader = self._reader
        if reader is None or self.reference is None or self._is_reading:
            return

        def show(newer: RunSeries | None) -> None:
            self._is_reading = False
            # Meanwhile the user may have chosen something else.
            if newer is not None and self._reader is reader:
                self._show_reference(newer)

        self._is_reading = True
        # What was read before stays if it cannot be read again.
        self.run_app.start_job("compare", reader.read_new, show, lambda reason: show(None))

    def _show_reference(self, reference: RunSeries | None) -> None:
        self.reference = reference
        if is_open(self):
            self.update_charts()

    def open_mark(self, entry: EventEntry) -> None:
        """Opens the checkpoint of a mark, or its event."""
        self._open_event(entry)
