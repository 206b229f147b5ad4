"""The dialog of the quick check."""

from __future__ import annotations

from collections.abc import Iterable

from tfckpt_trainer.rundir.records.exactness import NOT_COVERED
from tfckpt_tui.app.dialogs.dialog import Choice, Dialog
from tfckpt_tui.app.widgets.base.styled_text import Span
from tfckpt_tui.formats import units
from tfckpt_tui.services.exactness.quick_check import LONG_SECONDS, QUICK_STEPS, estimated_seconds


class QuickCheckDialog(Dialog[bool]):
    """Asks whether the run checks that its next steps repeat exactly."""

    caption = " does this run resume exactly? "

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns what the check does, how long it takes, and what it does not cover."""
        count = units.count(len(self.snapshot.workers), "worker")
        yield (
            ("The run saves, trains the next ", ""),
            (f"{QUICK_STEPS} steps", "strong"),
            (f", restores in place, trains them again, and compares all bits on {count}. ", ""),
            ("It then goes on. The steps are recorded once.", ""),
        )
        yield self._duration()
        yield (("A stop, a pause or a save waits until the run trains them again.", ""),)
        yield ((f"Not covered: {', '.join(NOT_COVERED)}.", "muted"),)

    def refusal(self) -> str:
        """Returns why the run cannot be checked now."""
        return "" if self.snapshot.trainer_answers else "No trainer answers."

    def choices(self) -> list[Choice[bool]]:
        """Returns cancel and check."""
        return [Choice("n", "cancel", None), Choice("y", "check", True, "primary")]

    def _duration(self) -> Iterable[Span]:
        workers = [view.status for view in self.snapshot.workers]
        seconds = estimated_seconds(workers, self.snapshot.checkpoints)
        if seconds is None:
            return (("How long it takes is unknown: no step was timed yet.", "warn"),)
        style = "warn" if seconds > LONG_SECONDS else "value"
        return (("It takes about ", ""), (units.duration(seconds), style), (".", ""))
