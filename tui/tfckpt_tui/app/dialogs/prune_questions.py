"""The questions around a prune: of a file, beside another program, and on a full disk."""

from __future__ import annotations

from collections.abc import Iterable

from tfckpt_trainer.catalog.directory.other_formats import OtherFile
from tfckpt_trainer.catalog.scan.foreign_writers import ForeignWriters
from tfckpt_tui.app.dialogs.dialog import Choice, Dialog
from tfckpt_tui.app.protocols import key_of
from tfckpt_tui.app.widgets.base.styled_text import Span
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.services.control.prune import foreign_words, wait_words

_MOST_NAMES = 8


class DeleteForGoodDialog(Dialog[bool]):
    """Asks whether to delete for good what could not be moved to the trash."""

    caption = " the disk is full "

    def __init__(self, snapshot: RunSnapshot, names: tuple[str, ...]) -> None:
        """Creates the dialog.

        Args:
            snapshot: Of the run.
            names: The checkpoints that could not be moved to the trash.
        """
        super().__init__(snapshot)
        self._names = names

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns what is deleted."""
        sizes = {c.name: c.size for c in self.snapshot.checkpoints}
        size = units.size(sum(sizes.get(name, 0) for name in self._names))
        yield (("Nothing was moved to the trash: there is no room for its manifest.", ""),)
        yield (
            (units.count(len(self._names), "checkpoint"), "warn"),
            (f" ({size}) can be deleted for good instead.", ""),
        )
        pronoun = "it" if len(self._names) == 1 else "them"
        yield ((f"Nothing can bring {pronoun} back.", "warn"),)
        yield ()
        for name in self._names[:_MOST_NAMES]:
            yield ((clean(name), "value"),)
        if len(self._names) > _MOST_NAMES:
            yield ((f"and {len(self._names) - _MOST_NAMES:,} more", "muted"),)

    def choices(self) -> list[Choice[bool]]:
        """Returns cancel and delete."""
        return [Choice("n", "cancel", None), Choice("y", "delete for good", True, "error")]


class PruneFileDialog(Dialog[bool]):
    """Asks whether to move a file to the trash."""

    caption = " prune a file "

    def __init__(self, snapshot: RunSnapshot, file: OtherFile, reason: str) -> None:
        """Creates the dialog.

        Args:
            snapshot: Of the run.
            file: The file.
            reason: Why it cannot be pruned; empty if it can.
        """
        super().__init__(snapshot)
        self._file = file
        self._reason = reason

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns what goes to the trash."""
        size = units.size(self._file.size)
        yield ((clean(self._file.name), "value"), (f"  {self._file.format.name}, {size}", "muted"))
        if not self._reason:
            yield (
                ("It goes to the trash; ", ""),
                (key_of(self, "undo"), "key"),
                (" brings it back until the trash is emptied.", ""),
            )

    def refusal(self) -> str:
        """Returns why it cannot be pruned."""
        return f"It cannot be pruned: {self._reason}." if self._reason else ""

    def choices(self) -> list[Choice[bool]]:
        """Returns cancel and prune."""
        return [Choice("n", "cancel", None), Choice("y", "move to the trash", True, "warning")]


class BesideTrainerDialog(Dialog[bool]):
    """Asks whether to prune beside a program that cannot be asked."""

    def __init__(self, snapshot: RunSnapshot, foreign: ForeignWriters, count: int) -> None:
        super().__init__(snapshot)
        is_seen = bool(foreign.processes)
        self.caption = f" prune {'beside another program' if is_seen else 'new files'}? "
        self._foreign = foreign
        self._count = count

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns what was found, and what the risk is."""
        yield ((clean(foreign_words(self._foreign)), "warn"),)
        yield ()
        if self._foreign.processes:
            advice = "It does not use tfckpt_trainer and cannot be asked. "
        else:
            advice = f"{wait_words(self._foreign)}{', or confirm' if self._count else ''}. "
        yield (
            (advice, ""),
            ("The prune leaves the state file alone, and all files that are open or ", ""),
            ("just written. ", ""),
            ("A checkpoint that a trainer restores later may be in the trash; ", ""),
            (key_of(self, "undo"), "key"),
            (" brings it back.", ""),
        )

    def refusal(self) -> str:
        """Returns why no checkpoint can be pruned."""
        return "" if self._count else "All chosen checkpoints are open or were just written."

    def choices(self) -> list[Choice[bool]]:
        """Returns cancel and, if there is something to prune, prune."""
        cancel: Choice[bool] = Choice("n", "cancel", None)
        if not self._count:
            return [cancel]
        what = units.count(self._count, "checkpoint")
        return [cancel, Choice("y", f"move {what} to the trash", True, "error")]
