"""The columns of run lists. Each one is declared here, once, for all parts of the product.

The list of the app, its sort orders and search, `runs` and `runs --json` are made from `COLUMNS`.
To add a column, add one entry.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tfckpt_trainer.rundir.heartbeats.health import HAS_ENDED, RunState
from tfckpt_tui.formats import units
from tfckpt_tui.formats.list_columns import JsonField, ListCell, record_of, right_aligned
from tfckpt_tui.formats.sort_order import SortBy, SortOrders
from tfckpt_tui.formats.text import clean, strategy_words


def short_names(roots: Sequence[Path]) -> dict[Path, str]:
    """Returns the paths of runs below the directory that holds all of them, safe to show."""
    above = os.path.commonpath([root.parent for root in roots]) if roots else ""
    return {root: clean(os.path.relpath(root, above)) for root in roots}


class RunColumn(msgspec.Struct, frozen=True, kw_only=True):
    """One fact about runs, and how each part of the product shows it.

    All functions get the account of a run. A column appears only in the parts that it declares.

    Attributes:
        key: Unique name.
        value: The raw value; None if it is unknown.
        words: The value in words.
        text: The text in all lists, at a time in seconds since the epoch, if it is not that of the
            value alone.
        cell: Column of the app's list.
        descending: Whether the app's list, sorted by it, has the largest value first; None if it
            cannot be sorted by it.
        is_searched: Whether the search of the app's list looks in its text.
        command: Heading in `runs`.
        command_text: Text in `runs`, if it differs from that in the app.
        json: Field in `runs --json`, which holds the raw value.
    """

    key: str
    value: Callable[[Any], Any]
    words: Callable[[Any], str] = str
    text: Callable[[Any, float], str] | None = None
    cell: ListCell | None = None
    descending: bool | None = None
    is_searched: bool = False
    command: str = ""
    command_text: Callable[[Any], str] | None = None
    json: JsonField | None = None

    def shown(self, run: Any, at: float) -> str:
        """Returns its text in lists; `–` if it is unknown."""
        if self.text is not None:
            return self.text(run, at)
        value = self.value(run)
        return "–" if value is None else self.words(value)


def _state_and_cause(run: Any) -> str:
    """Returns the state with the steps lost, and the alerts or the batch job."""
    state = ", ".join(filter(None, (run.words, run.loss_in_words)))
    if run.alerts:
        return f"{state}: {', '.join(_alerts(run))}"
    return f"{state}: job {run.job_in_short}" if run.job_in_short else state


def _state(run: Any) -> str:
    """Returns the state in a word or two; `runs` and the header name the process."""
    return "untracked" if run.has_other_trainer else str(run.words)


def _step(run: Any) -> int | None:
    """Returns the step of event files: names of checkpoints of other programs may count saves."""
    step: int | None = run.measured.step if run.measured is not None else run.step
    return step


def _share(run: Any) -> float | None:
    """Returns which part of the steps is done, 0 to 1."""
    if run.step is None or not run.total_steps:
        return None
    return min(1.0, float(run.step / run.total_steps))


def _disk_used(run: Any) -> int | None:
    return run.glance.disk_used if run.glance is not None else None


def _losses(run: Any) -> Sequence[float] | None:
    return (run.glance.losses or None) if run.glance is not None else None


def _age(run: Any, at: float) -> str:
    return units.age(max(0.0, at - run.active_at)) if run.active_at else "–"


def _alerts(run: Any) -> tuple[str, ...]:
    return tuple(alert.title for alert in run.alerts)


def _strategy(run: Any) -> str:
    return run.info.strategy if run.info is not None else ""


def _place(run: Any) -> str:
    """Returns the batch job, or else the host of a run that goes on; safe to show."""
    chief = run.chief
    host = chief.status.host if chief is not None and run.state not in HAS_ENDED else ""
    return clean(run.job_in_short or host)


COLUMNS: tuple[RunColumn, ...] = (
    RunColumn(
        key="kind",
        value=lambda run: run.state,
        json=JsonField(
            "state",
            RunState,
            "As `run.state` of `status`, or `unknown` if its directory does not answer.",
        ),
    ),
    RunColumn(
        key="state",
        value=lambda run: run.words,
        text=lambda run, _: _state(run),
        cell=ListCell("state", 10, align="<"),
        descending=False,
        is_searched=True,
        command="STATE",
        command_text=_state_and_cause,
        json=JsonField("words", str, "As `run.words` of `status`."),
    ),
    RunColumn(
        key="step",
        value=_step,
        words="{:,}".format,
        cell=ListCell("step", 9, rank=3),
        descending=True,
        command="STEP",
        json=JsonField(
            "step",
            int | None,
            "That of its event files, if this library did not train it. Else as `run.step` of "
            "`status`.",
        ),
    ),
    RunColumn(
        key="branch",
        value=lambda run: run.branch,
        cell=ListCell("branch", 6, rank=6, style="muted"),
        command="BRANCH",
        json=JsonField("branch", int, "As `run.branch` of `status`."),
    ),
    RunColumn(
        key="lost",
        value=lambda run: run.lost_steps,
        json=JsonField("lost_steps", int, "As `run.lost_steps` of `status`."),
    ),
    RunColumn(
        key="total",
        value=lambda run: run.total_steps,
        words="{:,}".format,
        command="OF",
        json=JsonField("total_steps", int | None, "The step after which training ends."),
    ),
    RunColumn(
        key="share",
        value=_share,
        words="{:.0%}".format,
        cell=ListCell("done", 5, rank=1),
        descending=True,
    ),
    RunColumn(
        key="loss",
        value=lambda run: run.loss,
        words=units.metric,
        cell=ListCell("loss", 8),
        descending=False,
        command="LOSS",
        json=JsonField("loss", float | None, "The newest."),
    ),
    RunColumn(
        key="curve",
        value=_losses,
        cell=ListCell("recent", 8, rank=2, align="<", style="muted"),
    ),
    RunColumn(
        key="rate",
        value=lambda run: run.rate,
        words=units.rate,
        cell=ListCell("rate", 7, rank=4),
        descending=True,
    ),
    RunColumn(
        key="left",
        value=lambda run: run.seconds_left,
        words=units.age,
        cell=ListCell("left", 5, rank=3),
        descending=False,
    ),
    RunColumn(
        key="age",
        value=lambda run: run.active_at or None,
        text=_age,
        cell=ListCell("active", 7, rank=3, style="muted"),
        descending=True,
        command="ACTIVE",
    ),
    RunColumn(
        key="active",
        value=lambda run: run.active_at,
        json=JsonField("active_at", float, "Time of the last activity."),
    ),
    RunColumn(
        key="disk",
        value=_disk_used,
        words=units.size,
        cell=ListCell("disk", 8, rank=4, style="muted"),
        descending=True,
    ),
    RunColumn(
        key="alerts",
        value=_alerts,
        words=lambda titles: clean(", ".join(titles)),
        cell=ListCell("problem", 16, rank=1, align="<", style="bad"),
        descending=True,
        is_searched=True,
        json=JsonField(
            "alerts",
            tuple[str, ...],
            "Its [alerts](../how-to/alerts.md) in a few words each.",
        ),
    ),
    RunColumn(
        key="strategy",
        value=_strategy,
        words=lambda name: strategy_words(name) if name else "",
        cell=ListCell("strategy", 18, rank=6, align="<", style="muted"),
        is_searched=True,
        json=JsonField("strategy", str, "Class of the `tf.distribute` strategy; empty if unknown."),
    ),
    RunColumn(
        key="host",
        value=_place,
        cell=ListCell("host", 12, rank=5, align="<", style="muted"),
        descending=False,
        is_searched=True,
    ),
    RunColumn(
        key="job",
        value=lambda run: run.job_in_short,
        json=JsonField(
            "job",
            str,
            "ID of its batch job, and why the job waits or how it ended; empty without one.",
        ),
    ),
    RunColumn(
        key="path",
        value=lambda run: str(run.root),
        cell=ListCell("run", 18, align="<", style="strong"),
        descending=False,
        is_searched=True,
        command="DIRECTORY",
        json=JsonField("directory", str, "The run directory."),
    ),
)
"""All columns, in the order in which each part shows them."""


def sort_orders() -> SortOrders[Any]:
    """Returns the sort orders of the app's list; lists are sorted by their lengths."""

    def order(column: RunColumn, descending: bool) -> SortBy[Any]:
        def value(run: Any) -> float | str | None:
            found = column.value(run)
            return len(found) if isinstance(found, tuple) else found

        return SortBy(value, descending)

    sortable = (column for column in COLUMNS if column.descending is not None)
    return SortOrders({column.key: order(column, bool(column.descending)) for column in sortable})


def searchable_text(run: Any) -> str:
    """Returns the text in which the search of the app's list looks, in lower case."""
    return " ".join(column.shown(run, 0.0) for column in COLUMNS if column.is_searched).casefold()


def json_record() -> type[msgspec.Struct]:
    """Returns the record of a run in `runs --json`: a field for each column with `json`."""
    fields = [column.json for column in COLUMNS if column.json is not None]
    return record_of("RunLine", "A run in a list.", fields)


def json_values(run: Any) -> list[Any]:
    """Returns the values of a run for the fields of `json_record`."""
    return [column.value(run) for column in COLUMNS if column.json is not None]


def table(runs: Iterable[Any], at: float) -> tuple[list[str], list[list[str]], set[int]]:
    """Returns the headings and rows of `runs`, and which columns are aligned to the right."""
    columns = [column for column in COLUMNS if column.command]
    rows = [
        [
            column.command_text(run) if column.command_text else column.shown(run, at)
            for column in columns
        ]
        for run in runs
    ]
    return [column.command for column in columns], rows, right_aligned(c.cell for c in columns)
