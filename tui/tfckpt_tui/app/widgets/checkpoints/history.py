"""The history: all checkpoints, newest first, beside the tree of branches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

from msgspec.structs import replace
from rich.cells import cell_len

from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint, CheckpointState
from tfckpt_trainer.catalog.directory.other_formats import OtherFile
from tfckpt_trainer.catalog.directory.version_one import VersionOne
from tfckpt_trainer.catalog.scan.lineage import Lineage, current_lineage
from tfckpt_trainer.rundir.heartbeats.health import HAS_ENDED, RunState
from tfckpt_trainer.words.advice import Advice, CommandOrKey
from tfckpt_tui.app.protocols import run_app_of
from tfckpt_tui.app.widgets.base.columns import Column, Layout, choose
from tfckpt_tui.app.widgets.base.empty_page import LAUNCH, MANAGER, EmptyPage, Offer, manager_line
from tfckpt_tui.app.widgets.base.icons import CHECKPOINT, MARK, PIN
from tfckpt_tui.app.widgets.base.styled_text import Span, StyledLine, line, padded, shorten
from tfckpt_tui.app.widgets.base.table_pane import TablePane
from tfckpt_tui.app.widgets.checkpoints.branches import BranchTree, Nodes
from tfckpt_tui.formats import checkpoint_columns, units
from tfckpt_tui.formats.checkpoint_columns import (
    NAMES,
    CheckpointColumn,
    CheckpointRow,
)
from tfckpt_tui.formats.checkpoint_filter import Filter
from tfckpt_tui.formats.sort_order import ListOrder
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import NewestRows, RunSnapshot
from tfckpt_tui.services.runs.training_directory import if_elsewhere

_MEASURED_ROWS = 200
"""Number of rows whose texts decide how wide a column is."""

_NONE = "There is no checkpoint yet. Each save adds one here, the newest first."
_SAVE = Advice.of("Press {save} to save one now.", save=CommandOrKey("save"))

_READING = "the newest checkpoints, reading all"

_UNASKED_RANK = 100
"""Added to the rank of columns that the user did not ask for: these are left out first."""
_SAME_RANK = 200
"""Added instead where all rows have the same text."""


class History(TablePane[Checkpoint | VersionOne | OtherFile, Checkpoint]):
    """The list of checkpoints; commands apply to the selected one or to the marked ones."""

    title = "history"

    def __init__(
        self,
        *,
        read_only: bool = False,
        metrics: Iterable[str] = (),
        id: str | None = None,  # noqa: A002
    ) -> None:
        """Makes the list.

        Args:
            read_only: Whether the app changes nothing.
            metrics: Metrics that have a column of their own, besides the loss.
            id: ID of the widget.
        """
        self._all_columns = checkpoint_columns.columns_with(metrics)
        super().__init__(
            checkpoint_columns.sort_orders(self._all_columns), attrgetter("name"), id=id
        )
        self._read_only = read_only
        self._all: tuple[Checkpoint, ...] = ()
        self._checkpoints: tuple[Checkpoint, ...] = ()
        self._unsupported: tuple[VersionOne | OtherFile, ...] = ()
        self._places: dict[str, int] = {}
        self._whole_tree = BranchTree((), Lineage())
        self._tree: BranchTree | Nodes = self._whole_tree
        self._filter = Filter("")
        self._columns: tuple[int, Mapping[str, bool], Layout] | None = None
        self._at = 0.0
        self._pinned = 0

    @property
    def all_items(self) -> tuple[Checkpoint, ...]:
        """All checkpoints, newest first."""
        return self._all

    @property
    def shown_items(self) -> Sequence[Checkpoint]:
        """The checkpoints that match the filter."""
        return self._checkpoints

    @property
    def selected_item(self) -> Checkpoint | None:
        """The checkpoint under the cursor."""
        return self.selected

    @property
    def selected(self) -> Checkpoint | None:
        """The checkpoint under the cursor."""
        selected = super().selected
        return selected if isinstance(selected, Checkpoint) else None

    @property
    def selected_unsupported(self) -> VersionOne | OtherFile | None:
        """The checkpoint in TensorFlow's V1 format, or other file, under the cursor."""
        selected = super().selected
        return None if isinstance(selected, Checkpoint) else selected

    def select(self, name: str) -> None:
        """Moves the cursor to a checkpoint, if it is visible."""
        row = self._places.get(name)
        if row is not None:
            self.move_to(row)

    @property
    def filter(self) -> Filter:
        """The filter."""
        return self._filter

    def filter_by(self, wanted: Filter) -> None:
        """Shows only checkpoints that match `wanted`."""
        self._filter = wanted
        self.choose_rows()

    def heading_clicked(self, x: int) -> None:
        """Sorts by a column; reverses the order at the second click, and ends it at the third."""
        super().heading_clicked(x - self._tree.width - 1)

    def go_to_step(self, step: int) -> None:
        """Moves the cursor to the newest checkpoint whose step is nearest to `step`."""
        distances = [
            (abs(c.step - step), row)
            for row, c in enumerate(self._checkpoints)
            if c.step is not None
        ]
        if distances:
            self.move_to(min(distances)[1])

    def show_newest(self, newest: NewestRows) -> None:
        """Lists the newest checkpoints until a snapshot has all."""
        self._at = newest.at
        branch = newest.checkpoints[0].branch
        self._take(newest.checkpoints, current_lineage(newest.checkpoints, branch))
        self.choose_rows()

    def show(self, snapshot: RunSnapshot) -> None:
        """Shows a new snapshot; rebuilds the tree only if the checkpoints changed."""
        self.snapshot = snapshot
        self._at = snapshot.at
        is_other = snapshot.checkpoints != self._all
        is_other |= self._unsupported != (() if self._filter.tests else _unsupported_in(snapshot))
        if is_other:
            self._take(snapshot.checkpoints, snapshot.lineage)
            # An undo would bring the marks back, unseen, with the checkpoints.
            trashed = {name for manifest in snapshot.trash for name in manifest.names}
            # Those that a prune or undo moves at this moment are listed, and in the trash.
            there = {c.name for c in snapshot.checkpoints if c.state is not CheckpointState.TRASHED}
            self.remove_marks(trashed - there)
        if is_other or self._filter.tests:
            # Ages and marks change without new checkpoints.
            self.choose_rows()
        self.repaint()

    def _take(self, checkpoints: tuple[Checkpoint, ...], lineage: Lineage) -> None:
        self._all = checkpoints
        self._pinned = sum(checkpoint.pinned for checkpoint in checkpoints)
        self._whole_tree = BranchTree(checkpoints, lineage)

    def choose_rows(self) -> None:
        """Lists the checkpoints that match the filter, in the sort order."""
        chosen: Sequence[Checkpoint] = self._all
        if self._filter.tests:
            chosen = self._filter.choose(chosen, self._at, self._marks)
        self._checkpoints = tuple(self.in_order(chosen))
        unsupported = _unsupported_in(self.snapshot) if self.snapshot is not None else ()
        self._unsupported = () if self._filter.tests else unsupported
        self._places = {c.name: row for row, c in enumerate(self._checkpoints)}
        is_whole = self._order is None and not self._filter.tests
        self._tree = self._whole_tree if is_whole else Nodes(self._checkpoints, self._whole_tree)
        self._columns = None
        run_app_of(self).listing = ListOrder(self._filter.text, self._order)
        self.show_rows((*self._checkpoints, *self._unsupported))

    follows_first = True

    def move_to(self, row: int) -> None:
        """Moves the cursor to `row`; on the first one, it goes on to newer checkpoints."""
        super().move_to(row)
        self.follows_first = self.cursor == 0

    def heading(self) -> Sequence[Span]:
        """Returns the title, and the problem of the selected checkpoint."""
        selected = self.selected
        if selected is None or not _is_damaged(selected):
            return super().heading()
        problem = f"{clean(selected.name)}: {clean(selected.problem)}"
        # Besides the corners, the title's own words, and a space on each side of both texts.
        room = max(0, self.size.width - 20 - line(*self.note()).width)
        return (*super().heading(), ("  ✗ ", "bad"), (shorten(problem, room), "bad"))

    def note(self) -> Sequence[Span]:
        """Returns the numbers of checkpoints: all, pinned, marked, in the trash; and of files."""
        snapshot = self.snapshot
        if snapshot is None:
            return ((_READING, "label"),) if self._all else ()
        spans = [*self._count(len(snapshot.checkpoints))]
        if self._pinned:
            spans += [(" · ", "faint"), (f"{PIN} ", "pin"), (f"{self._pinned:,} pinned", "label")]
        marked = len(self.marked)
        if marked:
            spans += [(" · ", "faint"), (f"{MARK} ", "accent"), (f"{marked:,} marked", "label")]
        if snapshot.other_files:
            files = units.count(len(snapshot.other_files), "other file")
            spans += [(" · ", "faint"), (files, "label")]
        if snapshot.diagnostics:
            warns = any(diagnostic.severity == "warning" for diagnostic in snapshot.diagnostics)
            text = units.count(len(snapshot.diagnostics), "diagnostic")
            spans += [(" · ", "faint"), (f"! {text}", "warn" if warns else "label")]
        trashed = sum(len(manifest.checkpoints) for manifest in snapshot.trash)
        if trashed:
            spans += [(" · ", "faint"), (f"{trashed:,} in the trash", "label")]
        return spans

    def _count(self, count: int) -> Sequence[Span]:
        noun = f" {units.noun(count, 'checkpoint')}"
        if not self._filter.tests:
            return ((f"{count:,}", "value"), (noun, "label"))
        shown = f"{len(self._checkpoints):,} of {count:,}"
        return (
            (shown, "value"),
            (noun, "label"),
            (" match ", "label"),
            (clean(self._filter.text), "accent"),
        )

    def row_key(self, row: int) -> str:
        """Returns the checkpoint's name."""
        shown = self.rows[row]
        return shown.name if isinstance(shown, Checkpoint) else _key_of(shown)

    def find_row(self, key: str) -> int | None:
        """Returns the row of a checkpoint, if it is visible."""
        first = len(self._checkpoints)
        others = {_key_of(other): first + row for row, other in enumerate(self._unsupported)}
        return self._places.get(key, others.get(key))

    def head_lines(self, width: int) -> Sequence[StyledLine]:
        """Returns the headings of the columns."""
        if not self._checkpoints:
            return ()
        margin = (" " * (self._tree.width + 1), "")
        return (StyledLine((margin, *self.column_layout(width).head().spans)),)

    def why_empty(self) -> str:
        """Returns why no checkpoint is visible, where that is no matter of saving one."""
        snapshot = self.snapshot
        if snapshot is None:
            return ""
        if self._all:
            return f"no checkpoint matches {clean(self._filter.text)}; esc shows all"
        return "" if snapshot.present else ", ".join(alert.title for alert in snapshot.alerts)

    def empty_lines(self, width: int) -> Sequence[StyledLine]:
        """Returns why no checkpoint is visible, or how to save a first one."""
        snapshot = self.snapshot
        if snapshot is None or self._all or not snapshot.present:
            return super().empty_lines(width)
        if self._read_only:
            advice: tuple[str | Advice, ...] = ()
        elif snapshot.trainer_answers:
            saves = snapshot.info.saves if snapshot.info is not None else ""
            advice = (_SAVE, *([f"Training saves {clean(saves)}."] if saves else []))
        elif snapshot.state is RunState.QUEUED:
            advice = ("Training begins when the batch job starts.",)
        elif snapshot.has_other_trainer:
            advice = (if_elsewhere(snapshot.path, snapshot.processes[0].pid),)
        else:
            advice = (LAUNCH,) if snapshot.state in HAS_ENDED else ()
        manager = Offer(text=manager_line(snapshot.path), told=MANAGER)
        offers = () if snapshot.tracked or snapshot.trainer_answers else (manager,)
        return EmptyPage(purpose=_NONE, advice=advice, offers=offers).lines(width, self)

    def row_line(self, row: int, width: int) -> StyledLine:
        """Returns one checkpoint."""
        checkpoint = self.rows[row]
        if not isinstance(checkpoint, Checkpoint):
            return self._unsupported_line(checkpoint, width)
        row_data = CheckpointRow(checkpoint, self._at, checkpoint.name in self._marks)
        cells = self.column_layout(width).row(
            _cells(row_data, self._all_columns, kept=self._tree.is_ancestor_row(row))
        )
        return StyledLine((*self._tree.row(row), (" ", ""), *cells.spans))

    def _unsupported_line(self, file: VersionOne | OtherFile, width: int) -> StyledLine:
        names = max(cell_len(clean(other.name)) for other in self._unsupported)
        labels = max(cell_len(_label_of(other)) for other in self._unsupported)
        return line(
            (" " * (self._tree.width + 1), ""),
            (padded(clean(file.name), min(names, width // 2)), "muted"),
            (f"  {padded(_label_of(file), labels)}", "label"),
            (f"  {_size_of(file, self._at)}", "muted"),
        )

    def column_layout(self, width: int) -> Layout:
        """Returns the columns that fit into `width`."""
        wanted = run_app_of(self).config.app.columns
        if self._columns is None or self._columns[:2] != (width, wanted):
            self._columns = width, wanted, self._choose_columns(width, wanted)
        return self._columns[2]

    def _choose_columns(self, width: int, wanted: Mapping[str, bool]) -> Layout:
        columns, longest_texts = [], {}
        for column in self._all_columns:
            cell = column.history
            is_shown = wanted.get(column.key, True) or self.is_order(column.key)
            if cell is None or not is_shown:
                continue
            size, rank = cell.width, cell.rank
            texts = self._texts_of(column)
            if cell.widest is not None or cell.stretch:
                longest_texts[column.key] = max(map(cell_len, texts), default=0)
            if cell.widest is not None:
                longest = longest_texts[column.key]
                if not longest:
                    continue
                size = max(size, min(longest, cell.widest(width)))
            if rank and not wanted.get(column.key):
                rank += _SAME_RANK if len(texts) == 1 else _UNASKED_RANK
            laid_out = Column(column.key, cell.title, size, rank, cell.align, cell.stretch)
            columns.append(self.with_arrow(laid_out))
        return _with_whole_names(columns, longest_texts, width - self._tree.width - 1)

    def _texts_of(self, column: CheckpointColumn) -> set[str]:
        rows = (
            CheckpointRow(checkpoint, self._at) for checkpoint in self._checkpoints[:_MEASURED_ROWS]
        )
        return {column.history_text(row) for row in rows}


def _with_whole_names(columns: list[Column], longest: Mapping[str, int], width: int) -> Layout:
    """Returns the columns that fit; names get room that columns that stretch do not need.

    Args:
        columns: The columns, one of them with the names.
        longest: The widths of the longest texts of names and of columns that stretch.
        width: The width of the list.
    """
    layout, names = choose(columns, width), next(one for one in columns if one.key == NAMES)
    spare = sum(
        size - max(column.width, longest[column.key])
        for column, size in layout.columns
        if column.stretch
    )
    more = min(spare, longest[names.key] - names.width)
    if more <= 0:
        return layout
    wider = replace(names, width=names.width + more)
    return choose([wider if column is names else column for column in columns], width)


def _unsupported_in(snapshot: RunSnapshot) -> tuple[VersionOne | OtherFile, ...]:
    return (*snapshot.version_one, *snapshot.other_files)


def _key_of(unsupported: VersionOne | OtherFile) -> str:
    """Returns a key that no name of a file can have."""
    return f"\0{unsupported.name}"


def _label_of(file: VersionOne | OtherFile) -> str:
    if isinstance(file, VersionOne):
        return "not supported: TensorFlow's V1 format"
    return ", ".join(part for part in (file.format.name, file.position) if part)


def _size_of(file: VersionOne | OtherFile, now: float) -> str:
    if isinstance(file, VersionOne):
        return f"{units.size(file.size)} in {units.count(len(file.files), 'file')}"
    return f"{units.size(file.size):>7}, {units.ago(now - file.saved_at)}"


def _is_damaged(checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint has a problem that does not pass by itself, as that of a save does."""
    return bool(checkpoint.problem) and checkpoint.state is not CheckpointState.WRITING


def _cells(
    row: CheckpointRow, columns: Iterable[CheckpointColumn], *, kept: bool
) -> dict[str, Sequence[Span]]:
    """Returns the cells of a row by column; most are plain text in the style of the column."""
    checkpoint = row.checkpoint
    value = "value" if kept else "muted"
    cells: dict[str, Sequence[Span]] = {}
    for column in columns:
        if column.history is not None:
            style = column.history.style
            cells[column.key] = ((column.history_text(row), value if style == "value" else style),)
    icon = CHECKPOINT[checkpoint.state]
    # The word of a good state is calm; one that needs attention has the colour of its icon.
    tone = icon.style if icon.style in {"bad", "warn", "busy"} else value
    cells["state"] = ((f"{icon.glyph} ", icon.style), (checkpoint.state.value, tone))
    cells["pin"] = (
        ((MARK, "accent"),) if row.marked else ((PIN, "pin"),) if checkpoint.pinned else ()
    )
    if checkpoint.is_head:
        cells["name"] = ((cells["name"][0][0], "strong"),)
    if "loss" in checkpoint.not_finite:
        cells["loss"] = ((cells["loss"][0][0], "bad"),)
    if _is_damaged(checkpoint):
        cells["trigger"] = ((cells["trigger"][0][0], "bad"),)
    return cells
