"""The stop dialog: save before the run stops, or not."""

from __future__ import annotations

from collections.abc import Iterable

from tfckpt_trainer.catalog.scan.alerts import SAVE_FAILED
from tfckpt_trainer.catalog.scan.lineage import unsaved_steps
from tfckpt_trainer.rundir.records.worker import BEFORE_RUN
from tfckpt_tui.app.dialogs.dialog import Choice, Dialog
from tfckpt_tui.app.protocols import key_of
from tfckpt_tui.app.widgets.base.styled_text import Span
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot


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
        yield from self._losses()

    def _losses(self) -> Iterable[Iterable[Span]]:
        """Returns what is lost without a save, and where the next launch goes on."""
        has_start = self.snapshot.start is not None
        lost = [*lost_steps_line(self.snapshot, "Without a save")]
        if lost:
            yield lost
        elif has_start:
            yield (("The newest checkpoint holds all steps so far.", "muted"),)
        goes_on = (
            "The next launch continues from the newest checkpoint."
            if has_start
            else "There is no checkpoint: without a save, the next launch starts at step 0."
        )
        yield ((goes_on, "muted"),)

    @property
    def _starts(self) -> bool:
        """Whether no worker trains yet, so that there is nothing to save."""
        chief = self.snapshot.chief
        return self.snapshot.silent is None and (chief is None or chief.status.phase in BEFORE_RUN)

    def _when(self) -> Iterable[Iterable[Span]]:
        """Returns when the run stops; not soon if a worker does not react."""
        snapshot = self.snapshot
        if not snapshot.hang:
            count = units.count(len(snapshot.workers), "worker")
            yield (
                (f"Training stops on {count} at step ", ""),
                (f"{snapshot.step or 0:,}", "strong"),
                (" or a few steps later.", ""),
            )
            return
        yield ((f"✗ {clean(snapshot.hang)} ", "bad"),)
        if snapshot.silent is None:
            yield (("Training stops after the next step, if one comes.", ""),)
        else:
            yield (("No worker can save before it goes on.", ""),)
        if snapshot.silent is not None and snapshot.supervisor is not None:
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


def lost_steps_line(snapshot: RunSnapshot, condition: str) -> Iterable[Span]:
    """Returns how many steps are lost on a condition, such as `Without a save`, if any are."""
    position = snapshot.position
    unsaved = unsaved_steps(snapshot.checkpoints, position) if position is not None else 0
    if unsaved:
        since = " since the newest checkpoint" if snapshot.start is not None else ""
        yield (f"{condition}, ", "")
        yield (units.count(unsaved, "step"), "warn")
        yield (f"{since} {units.noun(unsaved, 'is', 'are')} lost.", "")
