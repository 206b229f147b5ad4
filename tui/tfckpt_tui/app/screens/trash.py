"""The trash screen: brings prunes back, or deletes everything in the trash for good."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from tfckpt_trainer.catalog.retention.plan import RetentionPlan, plan
from tfckpt_trainer.catalog.retention.policy import Policy
from tfckpt_trainer.rundir.records.trash import TrashManifest
from tfckpt_trainer.words.advice import Advice, CommandOrKey
from tfckpt_tui.app.dialogs.dialog import Choice, Dialog
from tfckpt_tui.app.dialogs.undo import UndoDialog
from tfckpt_tui.app.screens.page import Page
from tfckpt_tui.app.widgets.base.empty_page import MANAGER, EmptyPage, manager_line, to_paste
from tfckpt_tui.app.widgets.base.keybar import KeyBar
from tfckpt_tui.app.widgets.base.list_pane import ListPane, TextPane
from tfckpt_tui.app.widgets.base.styled_text import Span, StyledLine, line
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.formats.trash_columns import COLUMNS
from tfckpt_tui.monitor.snapshot import RunSnapshot


class TrashList(ListPane[TrashManifest]):
    """Shows the prunes that can be undone, newest first."""

    title = "trash"
    declared = COLUMNS

    def show(self, snapshot: RunSnapshot) -> None:
        """Shows a new snapshot."""
        self.at = snapshot.at
        self.show_rows(snapshot.trash)

    def note(self) -> Sequence[Span]:
        """Returns the size of the trash."""
        size = sum(manifest.size for manifest in self.rows)
        return ((units.size(size), "value"), (" in it", "label"))

    def row_key(self, row: int) -> str:
        """Returns the id of the prune."""
        return self.rows[row].id


class TrashScreen(Page):
    """Shows the prunes that can be undone, newest first, and the content of the selected one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("u,enter", "bring_back", "bring back", tooltip="Undoes the selected prune."),
        Binding(
            "E",
            "empty",
            "delete all for good",
            tooltip="Frees disk space; cannot be undone.",
        ),
        Binding("T", "close", "Back", show=False),
    ]
    caption = "the trash"
    AUTO_FOCUS = "#trash-list"

    def __init__(
        self,
        snapshot: RunSnapshot,
        bring_back: Callable[[str], None],
        empty: Callable[[Sequence[str]], None],
        refusal: str,
    ) -> None:
        """Creates the screen.

        Args:
            snapshot: Of the run.
            bring_back: Undoes the prune with this id.
            empty: Deletes the prunes with these ids for good.
            refusal: Why both are disabled; empty if they are not.
        """
        super().__init__()
        self._snapshot = snapshot
        self._bring_back = bring_back
        self._empty = empty
        self._refusal = refusal
        self._planned: RetentionPlan | None = None

    def compose(self) -> ComposeResult:
        """Yields the list, the selected prune and the key bar."""
        yield TrashList(id="trash-list")
        yield TextPane(id="trashed")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        """Shows the first snapshot."""
        self.show(self._snapshot)

    def shown_bindings(self) -> list[Binding]:
        """Returns the keys, without those that change the trash if that is impossible now."""
        shown = super().shown_bindings()
        if not self._refusal:
            return shown
        return [binding for binding in shown if binding.action not in {"bring_back", "empty"}]

    def empty_page(self) -> EmptyPage | None:
        """Returns what the page says of a trash without prunes."""
        snapshot = self._snapshot
        if snapshot.trash:
            return None
        if snapshot.damaged_prune is not None:
            return EmptyPage(purpose=_PURPOSE, advice=(_DAMAGED,))
        purpose = f"The trash is empty. {_PURPOSE}"
        if not snapshot.checkpoints:
            manager = to_paste(self, manager_line(snapshot.path), MANAGER)
            offers = () if snapshot.tracked else (manager,)
            return EmptyPage(purpose=purpose, advice=self.launch_advice(), offers=offers)
        why_not = self.why_impossible("prune")
        return EmptyPage(
            purpose=purpose,
            advice=(why_not,) if why_not else (_PRUNE, *self._told_of_prune()),
        )

    def _told_of_prune(self) -> Iterator[str]:
        """Yields what a prune would move, if it would move anything."""
        checkpoints = self._snapshot.checkpoints
        kept = max(1, min(_KEPT, len(checkpoints) - 1))
        if self._planned is None or self._planned.checkpoints is not checkpoints:
            self._planned = plan(checkpoints, Policy(keep_last=kept))
        moved, size = len(self._planned.deleted), units.size(self._planned.freed_bytes)
        if moved:
            count = units.count(len(checkpoints), "checkpoint")
            yield f"With `keep last` {kept}, it moves {moved:,} of {count}, {size}."

    def show(self, snapshot: RunSnapshot) -> None:
        """Shows a newer snapshot."""
        self._snapshot = snapshot
        self.query_one(TrashList).show(snapshot)
        self._update()
        self.update_keys()

    def action_bring_back(self) -> None:
        """Undoes the selected prune, after asking."""
        selected = self.query_one(TrashList).selected
        if selected is None or self._refuse():
            return

        def answered(trash: str | None) -> None:
            if trash is not None:
                self._bring_back(trash)

        self.app.push_screen(UndoDialog(self._snapshot, selected), answered)

    def action_empty(self) -> None:
        """Deletes everything for good, after asking."""
        if not self._snapshot.trash or self._refuse():
            return

        def answered(prunes: Sequence[str] | None) -> None:
            if prunes is not None:
                self._empty(prunes)

        self.app.push_screen(EmptyTrashDialog(self._snapshot), answered)

    @on(ListPane.Moved, "#trash-list")
    def _update(self) -> None:
        selected = self.query_one(TrashList).selected
        title: tuple[Span, ...] = () if selected is None else (("in it", "title"),)
        self.query_one("#trashed", TextPane).show_lines(_lines(selected), title)

    def _refuse(self) -> bool:
        if self._refusal:
            self.notify(self._refusal, severity="warning", markup=False)
        return bool(self._refusal)


class EmptyTrashDialog(Dialog[Sequence[str]]):
    """Asks whether to delete everything in the trash."""

    caption = " delete for good "

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns what is deleted."""
        checkpoints = [c for manifest in self.snapshot.trash for c in manifest.checkpoints]
        size = units.size(sum(checkpoint.size for checkpoint in checkpoints))
        yield (
            (units.count(len(checkpoints), "checkpoint"), "warn"),
            (f" ({size}) of {units.count(len(self.snapshot.trash), 'prune')} ", ""),
            ("will be deleted.", "warn"),
        )
        pronoun = "it" if len(checkpoints) == 1 else "them"
        yield ((f"Nothing can bring {pronoun} back.", "muted"),)

    def choices(self) -> list[Choice[Sequence[str]]]:
        """Returns cancel and delete."""
        told = [manifest.id for manifest in self.snapshot.trash]
        return [Choice("n", "cancel", None), Choice("y", "delete for good", told, "error")]


_KEPT = 3
"""Most checkpoints that the proposed prune keeps."""
_PURPOSE = "Pruned checkpoints are here until it is emptied, and can be brought back."
_DAMAGED = Advice.of(
    "Nothing in it can be brought back. Press {diagnostics} to read why.",
    diagnostics=CommandOrKey("diagnostics"),
)
_PRUNE = Advice.of(
    "Press {prune} to choose what goes here; it asks first.", prune=CommandOrKey("prune")
)


def _lines(manifest: TrashManifest | None) -> list[StyledLine]:
    if manifest is None:
        return []
    return [
        line(
            (clean(trashed.name), "value"),
            ("  step ", "label"),
            ("–" if trashed.step is None else f"{trashed.step:,}", "value"),
            (f"  {units.size(trashed.size)}", "muted"),
        )
        for trashed in manifest.checkpoints
    ]
