"""The columns of checkpoint lists. Each one is declared here, once, for all parts of the product.

The history of the app, its sort order, the filter, copied rows, `ls` and `ls --json` are made from
`COLUMNS`. To add a column, add one entry.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint, CheckpointState
from tfckpt_trainer.rundir.records.checkpoint import Derivation
from tfckpt_trainer.words.times import utc_time
from tfckpt_tui.formats import units
from tfckpt_tui.formats.list_columns import JsonField, ListCell, record_of
from tfckpt_tui.formats.sort_order import SortBy, SortOrders
from tfckpt_tui.formats.text import clean

NOT_FINITE = "✗"
"""Mark of metrics that are NaN or infinite."""


class CheckpointRow(msgspec.Struct, frozen=True):
    """A checkpoint in a list.

    Attributes:
        now: Time at which its age is measured, in seconds since the epoch.
        marked: Whether the user marked it.
    """

    checkpoint: Checkpoint
    now: float
    marked: bool = False


class Sort(msgspec.Struct, frozen=True):
    """How rows are sorted by a column.

    Attributes:
        place: Position among the sort orders, which `<` and `>` go through.
        descending: Whether the largest value comes first, until the order is reversed.
        key: Value to compare, if it is not the value of the column.
    """

    place: int = 100
    descending: bool = True
    key: Callable[[Checkpoint], float | str | None] | None = None


class Units(msgspec.Struct, frozen=True):
    """Units that a number in a filter may have: the factor of each, in lower case."""

    factors: Mapping[str, float]


PLAIN = Units({"": 1.0})
SIZES = Units({"": 1.0, "b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "pb": 1e15})
AGES = Units({"": 3600.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0})


class NumberFilter(msgspec.Struct, frozen=True):
    """A field of comparisons, as in `step>1000`.

    Attributes:
        field: Name in the filter.
        limit: Sign and number of an example.
        units: Units of the number.
        value: Number to compare, if it is not the value of the column.
    """

    field: str
    limit: str
    units: Units = PLAIN
    value: Callable[[CheckpointRow], float | None] | None = None

    @property
    def example(self) -> str:
        """A valid comparison, for the help and for error messages."""
        return f"{self.field}{self.limit}"


class TextFilter(msgspec.Struct, frozen=True):
    """A field of words, as in `state:verified`. A row matches if its text contains the word.

    Attributes:
        field: Name in the filter.
        word: Text of an example.
        exact: Whether the whole text must be equal.
        choices: All possible texts; a row matches if its text begins with the word.
    """

    field: str
    word: str
    exact: bool = False
    choices: tuple[str, ...] = ()

    @property
    def example(self) -> str:
        """A valid word of the filter, for the help and for error messages."""
        return f"{self.field}:{self.word}"


class LinkedFile(msgspec.Struct, frozen=True):
    """A file of a checkpoint that is a symbolic link.

    Attributes:
        name: A file of it that is a symbolic link.
        target: Where that link leads, as it is stored.
    """

    name: str
    target: str


class CheckpointColumn(msgspec.Struct, frozen=True, kw_only=True):
    """One fact about checkpoints, and how each part of the product shows it.

    A column appears only in the parts that it declares.

    Attributes:
        key: Unique name.
        value: The raw value; None if it is unknown.
        text: The value in the history and in `ls`; by default `str(value)`, `–` if unknown.
        history: Column of the history.
        sort: Order of the history.
        number_filter: Field of comparisons.
        text_filter: Field of words.
        flag: Word of the filter that selects rows whose value is true.
        copied: Field of a copied row; the Path is the run directory.
        ls: Heading in `ls`; empty if the column is not printed.
        ls_text: Text in `ls`, if it differs from that in the history.
        json: Field in `ls --json`, which holds the raw value.
    """

    key: str
    value: Callable[[Checkpoint], Any]
    text: Callable[[CheckpointRow], str] | None = None
    history: ListCell | None = None
    sort: Sort | None = None
    number_filter: NumberFilter | None = None
    text_filter: TextFilter | None = None
    flag: str = ""
    copied: Callable[[Path, Checkpoint], str] | None = None
    ls: str = ""
    ls_text: Callable[[CheckpointRow], str] | None = None
    json: JsonField | None = None

    @property
    def align(self) -> str:
        """Alignment of its cells: `<` left or `>` right."""
        return self.history.align if self.history is not None else "<"

    def history_text(self, row: CheckpointRow) -> str:
        """Returns the cell of the history, safe to show."""
        return clean(self._text(row))

    def printed_text(self, row: CheckpointRow) -> str:
        """Returns the cell of `ls`, which is not cleaned."""
        return self._text(row) if self.ls_text is None else self.ls_text(row)

    @property
    def sort_by(self) -> SortBy[Checkpoint]:
        """How rows are sorted by it."""
        assert self.sort is not None
        return SortBy(self.sort.key or self.value, self.sort.descending)

    def filter_number(self, row: CheckpointRow) -> float | None:
        """Returns the number that comparisons of the filter are about."""
        assert self.number_filter is not None
        if self.number_filter.value is not None:
            return self.number_filter.value(row)
        value = self.value(row.checkpoint)
        return None if value is None else float(value)

    def _text(self, row: CheckpointRow) -> str:
        if self.text is not None:
            return self.text(row)
        value = self.value(row.checkpoint)
        return "–" if value is None else str(value)


def checkpoint_path(root: Path, checkpoint: Checkpoint) -> str:
    """Returns the path of a checkpoint, quoted for a shell where necessary."""
    return shlex.quote(str(root / checkpoint.name))


def copied_names() -> str:
    """Returns the names of the copied columns, as in JSON, for a sentence."""
    copied = [column for column in COLUMNS if column.copied is not None]
    names = [column.json.name if column.json is not None else column.key for column in copied]
    return f"{', '.join(names[:-1])} and {names[-1]}"


def copied_row(root: Path, checkpoint: Checkpoint) -> str:
    """Returns the copied columns of a checkpoint, separated by tabs."""
    fields = (c.copied(root, checkpoint) for c in COLUMNS if c.copied is not None)
    return "\t".join(clean(field) for field in fields)


def columns_with(metrics: Iterable[str]) -> tuple[CheckpointColumn, ...]:
    """Returns all columns, with one more for each of these metrics."""
    more = [_metric_column(name) for name in metrics if name != "loss"]
    names = frozenset(column.key for column in more)
    columns: list[CheckpointColumn] = []
    for column in COLUMNS:
        is_other = column.key == "other-metrics"
        columns.append(
            replace(column, text=partial(_other_metrics, elsewhere=names)) if is_other else column
        )
        if column.key == "loss":
            columns += more
    return tuple(columns)


def _metric_column(name: str) -> CheckpointColumn:
    """Returns the column of one metric; it is left out if no checkpoint has that."""

    def text(row: CheckpointRow) -> str:
        return metric_text(row.checkpoint, name) if name in row.checkpoint.metrics else ""

    width = max(8, min(len(name), 16))
    return CheckpointColumn(
        key=name,
        value=lambda c: c.metrics.get(name),
        text=text,
        history=ListCell(name, width, rank=2, widest=lambda _: width),
        sort=Sort(),
    )


def sort_orders(columns: Sequence[CheckpointColumn] | None = None) -> SortOrders[Checkpoint]:
    """Returns the orders that checkpoints can be sorted in.

    Args:
        columns: The columns; by default those that all runs have.
    """
    shown = COLUMNS if columns is None else columns
    sortable = [(column.sort.place, column) for column in shown if column.sort is not None]
    ordered = sorted(sortable, key=lambda pair: pair[0])
    return SortOrders({column.key: column.sort_by for _, column in ordered})


def optional_columns() -> dict[str, str]:
    """Returns the titles of the columns of the history that can be left out, by key."""
    cells = {column.key: column.history for column in COLUMNS}
    return {key: cell.title for key, cell in cells.items() if cell is not None and cell.rank}


def _saved_at_text(checkpoint: Checkpoint) -> str:
    return utc_time(checkpoint.saved_at, "%Y-%m-%dT%H:%M:%S+00:00", impossible="")


def _age(row: CheckpointRow) -> float:
    return max(0.0, row.now - row.checkpoint.saved_at)


def metric_text(checkpoint: Checkpoint, name: str) -> str:
    """Returns a metric of a checkpoint; one that is not finite has the mark `NOT_FINITE`."""
    value = checkpoint.metrics[name]
    if value is not None and math.isfinite(value):
        return units.metric(value)
    return f"{NOT_FINITE} {units.metric(float(checkpoint.not_finite[name]))}"


def not_finite_words(checkpoint: Checkpoint) -> str:
    """Returns how many of its tensors have NaN or infinite values; empty if none is known."""
    if not checkpoint.not_finite_tensors:
        return ""
    return f"{NOT_FINITE} {units.count(checkpoint.not_finite_tensors, 'tensor')} not finite"


def derivation_words(made: Derivation) -> str:
    """Returns how a checkpoint was made from others: `average of ckpt-1 (0.5), ckpt-2 (0.5)`."""
    sources = (
        source.name if source.weight is None else f"{source.name} ({source.weight:.4g})"
        for source in made.sources
    )
    return _made_words(made, sources)


def _why_saved(row: CheckpointRow) -> str:
    """Returns the problem of a checkpoint, what it was made from, or why it was saved."""
    checkpoint = row.checkpoint
    made = checkpoint.derived
    if checkpoint.problem or made is None:
        return checkpoint.problem or checkpoint.trigger
    return _made_words(made, (source.name for source in made.sources))


def _made_words(made: Derivation, sources: Iterable[str]) -> str:
    names = ", ".join(sources)
    return f"{made.operation} of {names}" if names else made.operation


def _loss(row: CheckpointRow) -> str:
    return metric_text(row.checkpoint, "loss") if "loss" in row.checkpoint.metrics else "–"


def _all_metrics(row: CheckpointRow) -> str:
    checkpoint = row.checkpoint
    shown = [f"{name}={metric_text(checkpoint, name)}" for name in checkpoint.metrics]
    return " ".join(filter(None, [*shown, not_finite_words(checkpoint)]))


def _other_metrics(row: CheckpointRow, elsewhere: AbstractSet[str] = frozenset()) -> str:
    names = sorted(row.checkpoint.metrics.keys() - {"loss"} - elsewhere)
    return "  ".join(f"{clean(name)} {metric_text(row.checkpoint, name)}" for name in names)


def _others_not_finite(row: CheckpointRow) -> str:
    """Returns what else than the loss is not finite: metrics, and values that were read."""
    names = sorted(name for name in row.checkpoint.not_finite if name != "loss")
    if row.checkpoint.not_finite_tensors:
        names.insert(0, units.count(row.checkpoint.not_finite_tensors, "tensor"))
    return f"{NOT_FINITE} {', '.join(map(clean, names))}" if names else ""


def _copied_metrics(checkpoint: Checkpoint) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(checkpoint.metrics.items()))


def _duration(checkpoint: Checkpoint) -> float | None:
    return checkpoint.packed.duration_seconds if checkpoint.packed is not None else None


NAMES = "name"
"""The key of the column of names."""

COLUMNS: tuple[CheckpointColumn, ...] = (
    CheckpointColumn(
        key=NAMES,
        value=lambda c: c.name,
        history=ListCell("checkpoint", 10, align="<", widest=lambda width: width // 4),
        sort=Sort(6, descending=False),
        text_filter=TextFilter("name", "b1"),
        copied=lambda _, c: c.name,
        ls="NAME",
        ls_text=lambda row: row.checkpoint.name + (" *" if row.checkpoint.pinned else ""),
        json=JsonField("name", str, "Its files are `NAME.index` and `NAME.data-…`."),
    ),
    CheckpointColumn(
        key="pin",
        value=lambda c: c.pinned,
        text=lambda row: "★" if row.checkpoint.pinned else "",
        history=ListCell("", 1, align="<"),
        flag="pinned",
        json=JsonField("pinned", bool, "Whether it is pinned, so never pruned."),
    ),
    CheckpointColumn(
        key="step",
        value=lambda c: c.step,
        text=lambda row: "–" if row.checkpoint.step is None else f"{row.checkpoint.step:,}",
        history=ListCell("step", 9, rank=3),
        sort=Sort(1),
        number_filter=NumberFilter("step", ">1000"),
        copied=lambda _, c: "" if c.step is None else str(c.step),
        ls="STEP",
        ls_text=lambda row: "–" if row.checkpoint.step is None else str(row.checkpoint.step),
        json=JsonField("step", int | None, "Null if neither the record nor the name contains it."),
    ),
    CheckpointColumn(
        key="branch",
        value=lambda c: c.branch,
        history=ListCell("branch", 6, rank=4),
        sort=Sort(7),
        number_filter=NumberFilter("branch", ">0"),
        text_filter=TextFilter("branch", "2", exact=True),
        copied=lambda _, c: str(c.branch),
        ls="BRANCH",
        json=JsonField("branch", int, "0 is the first branch."),
    ),
    CheckpointColumn(
        key="parent",
        value=lambda c: c.parent,
        text_filter=TextFilter("parent", "ckpt-300"),
        json=JsonField(
            "parent", str | None, "The checkpoint from which training continued to this one."
        ),
    ),
    CheckpointColumn(
        key="state",
        value=lambda c: c.state.value,
        history=ListCell("state", 12, align="<"),
        sort=Sort(5, descending=False),
        text_filter=TextFilter(
            "state", "verified", choices=tuple(state.value for state in CheckpointState)
        ),
        copied=lambda _, c: c.state.value,
        ls="STATE",
        ls_text=lambda row: row.checkpoint.state.value + (" ←" if row.checkpoint.is_head else ""),
        json=JsonField(
            "state", CheckpointState, "Only `complete`, `verified` and `inexact` can be restored."
        ),
    ),
    CheckpointColumn(
        key="current",
        value=lambda c: c.is_head,
        flag="current",
        json=JsonField("current", bool, "Whether a start resumes from it."),
    ),
    CheckpointColumn(
        key="age",
        value=lambda c: c.saved_at,
        text=lambda row: units.age(_age(row)),
        history=ListCell("age", 5, style="muted"),
        sort=Sort(2, descending=False, key=lambda c: -c.saved_at),
        number_filter=NumberFilter(
            "age", "<2h", AGES, lambda row: row.now - row.checkpoint.saved_at
        ),
        copied=lambda _, c: _saved_at_text(c),
        ls="AGE",
        json=JsonField("saved_at", float, "Time of the save."),
    ),
    CheckpointColumn(
        key="verified",
        value=lambda c: c.verified_at,
        json=JsonField(
            "verified_at",
            float | None,
            "When it was last verified by reading; `state` has the result.",
        ),
    ),
    CheckpointColumn(
        key="size",
        value=lambda c: c.size,
        text=lambda row: units.size(row.checkpoint.size),
        history=ListCell("size", 8, rank=1),
        sort=Sort(3),
        number_filter=NumberFilter("size", ">1GB", SIZES),
        copied=lambda _, c: str(c.size),
        ls="SIZE",
        json=JsonField("bytes", int, "Size of all its files."),
    ),
    CheckpointColumn(
        key="shards",
        value=lambda c: c.shards,
        history=ListCell("shards", 6, rank=7),
        sort=Sort(8),
        number_filter=NumberFilter("shards", ">1"),
        ls="SHARDS",
        json=JsonField("shards", int, "Number of data files."),
    ),
    CheckpointColumn(
        key="loss",
        value=lambda c: c.metrics.get("loss"),
        text=_loss,
        history=ListCell("loss", 8, rank=2),
        sort=Sort(4, descending=False),
    ),
    CheckpointColumn(
        key="not-finite",
        value=lambda c: bool(c.not_finite or c.not_finite_tensors),
        text=_others_not_finite,
        history=ListCell(
            "not finite", 10, rank=2, align="<", style="bad", widest=lambda width: width // 6
        ),
        flag="not-finite",
    ),
    CheckpointColumn(
        key="not-finite-metrics",
        value=lambda c: c.not_finite,
        json=JsonField(
            "not_finite", dict[str, str], "Metrics that were `nan`, `inf` or `-inf`, by name."
        ),
    ),
    CheckpointColumn(
        key="not-finite-tensors",
        value=lambda c: c.not_finite_tensors,
        json=JsonField(
            "not_finite_tensors",
            int | None,
            "Number of tensors with values that are not finite; null before `verify --finite`.",
        ),
    ),
    CheckpointColumn(
        key="metrics",
        value=lambda c: dict(c.metrics),
        text=_all_metrics,
        copied=lambda _, c: _copied_metrics(c),
        ls="METRICS",
        json=JsonField("metrics", dict[str, float | None], "Metrics at that step, by name."),
    ),
    CheckpointColumn(
        key="hyperparameters",
        value=lambda c: {name: one.value for name, one in c.hyperparameters.items()},
        json=JsonField(
            "hyperparameters", dict[str, float], "Hyperparameters at that step, by name."
        ),
    ),
    CheckpointColumn(
        key="trigger",
        value=lambda c: c.trigger,
        text=_why_saved,
        history=ListCell("why saved", 14, rank=5, align="<", stretch=1, style="muted"),
        text_filter=TextFilter("why", "command"),
        copied=lambda _, c: c.trigger,
        ls="WHY",
        json=JsonField("trigger", str, "Why it was saved: `every 500 steps`, `command`, …"),
    ),
    CheckpointColumn(
        key="other-metrics",
        value=lambda c: dict(c.metrics),
        text=_other_metrics,
        history=ListCell(
            "other metrics",
            13,
            rank=6,
            align="<",
            stretch=1,
            style="muted",
            widest=lambda _: 40,
        ),
    ),
    CheckpointColumn(
        key="duration",
        value=_duration,
        text=lambda row: units.step_time(_duration(row.checkpoint)),
        history=ListCell("took", 7, rank=10, style="muted"),
        sort=Sort(9),
    ),
    CheckpointColumn(
        key="links",
        value=lambda c: tuple(LinkedFile(link.name, link.target) for link in c.links),
        json=JsonField("links", tuple[LinkedFile, ...], "Its files that are symbolic links."),
    ),
    CheckpointColumn(
        key="problem",
        value=lambda c: c.problem,
        json=JsonField("problem", str, "Why it cannot be restored; empty if it can."),
    ),
    CheckpointColumn(key="path", value=lambda c: c.name, copied=checkpoint_path),
)
"""All columns, in the order in which the history and `ls` show them."""


def json_record() -> type[msgspec.Struct]:
    """Returns the record of a checkpoint in `ls --json`: a field for each column with `json`."""
    fields = [column.json for column in COLUMNS if column.json is not None]
    return record_of("ListedCheckpoint", "A checkpoint.", fields)


def json_values(checkpoint: Checkpoint) -> list[Any]:
    """Returns the values of a checkpoint for the fields of `json_record`."""
    return [column.value(checkpoint) for column in COLUMNS if column.json is not None]
