"""The stop dialog: save before the run stops, or not."""

from __future__ import annotations

from collections.abc import Iterable

from tfckpt_trainer.catalog.scan.alerts import SAVE_FAILED
from tfckpt_trainer.catalog.scan.lineage import unsaved_steps
from tfckpt_trainer.rundir.heartbeats.health import WorkerState
from tfckpt_trainer.rundir.records.worker import BEFORE_RUN
from tfckpt_tui.app.dialogs.dialog import Choice, Dialog
from tfckpt_tui.app.protocols import key_of
from tfckpt_tui.app.widgets.base.styled_text import Span
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.services.runs.account import WorkerView


class StopDialog(Dialog[bool]):
    """Asks whether to save before the run stops."""

    caption = " stop the run? "

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns what stops, and what is lost without a save."""
        if self._starts:
            yield (("No worker trains yet. The supervisor ends the processes of the run.", ""),)
            return
        yield from self._when()
        for alert in self.snapshot.alerts:
            if alert.kind == SAVE_FAILED:
                yield (
                    (f"✗ {clean(alert.title)}. ", "bad"),
                    ("If the next one fails too, the run is not stopped.", ""),
                )
        unsaved = self._unsaved_steps()
        if unsaved:
            verb = "is" if unsaved == 1 else "are"
            yield (
                ("Without a save, ", ""),
                (units.count(unsaved, "step"), "warn"),
                (f" since the newest checkpoint {verb} lost.", ""),
            )
        else:
            yield (("The newest checkpoint holds all steps so far.", "muted"),)
        yield (("The next launch continues from the newest checkpoint.", "muted"),)

    @property
    def _starts(self) -> bool:
        """Whether no worker trains yet, so that there is nothing to save."""
        chief = self.snapshot.chief
        return self.snapshot.silent is None and (chief is None or chief.status.phase in BEFORE_RUN)

    def _when(self) -> Iterable[Iterable[Span]]:
        """Returns when the run stops; not soon if a worker does not react."""
        if self.snapshot.silent is not None:
            yield from self._after_silence(self.snapshot.silent)
        else:
            count = units.count(len(self.snapshot.workers), "worker")
            stalled = any(view.state is WorkerState.STALLED for view in self.snapshot.workers)
            yield (
                (f"Training stops on {count} at step ", ""),
                (f"{self.snapshot.step or 0:,}", "strong"),
                (" or a few steps later.", ""),
            )
            if stalled:
                yield (("No step was done for a while. It stops after the next one.", "warn"),)

    def _after_silence(self, silent: WorkerView) -> Iterable[Iterable[Span]]:
        yield ((f"✗ Worker {silent.status.index} {clean(silent.silence)}. ", "bad"),)
        yield (("No worker can save before it goes on.", ""),)
        if self.snapshot.supervisor is not None:
            yield (("If it does not, the supervisor ends all workers without a save.", ""),)
        else:
            yield (
                ("If it does not, end the processes with ", ""),
                (key_of(self, "force-stop"), "key"),
                (".", ""),
            )

    def choices(self) -> list[Choice[bool]]:
        """Returns cancel, stop with a save and stop without one."""
        if self._starts:
            return [Choice("n", "cancel", None), Choice("y", "stop", False, "warning")]
        return [
            Choice("n", "cancel", None),
            Choice("s", "save, then stop", True, "warning"),
            Choice("d", "stop without saving", False, "error"),
        ]

    def _unsaved_steps(self) -> int:
        position = self.snapshot.position
        return unsaved_steps(self.snapshot.checkpoints, position) if position is not None else 0
