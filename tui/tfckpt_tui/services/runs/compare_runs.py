"""Several runs side by side: their curves, and what differs between their settings."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from tfckpt_trainer.catalog.scan.lineage import current_lineage
from tfckpt_trainer.errors import TfckptError, describe_error
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.hyperparameter import number
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_tui.charting.curves import kept_until
from tfckpt_tui.charting.view import RunSeries
from tfckpt_tui.formats.run_columns import short_names
from tfckpt_tui.formats.text import clean, clean_message, strategy_words
from tfckpt_tui.services.checkpoints.look_up import list_checkpoints
from tfckpt_tui.services.runs.brief_reading import brief_account, read_info
from tfckpt_tui.services.runs.hyperparameters import read_hyperparameters
from tfckpt_tui.services.runs.launch_form import last_launch
from tfckpt_tui.services.runs.reference import read_samples
from tfckpt_tui.services.runs.timed_reads import TimedReads

READ_SECONDS = 10.0
"""How long a comparison waits for directories that do not answer."""


@dataclass(frozen=True)
class ComparedRun:
    """What is compared of a run.

    Attributes:
        name: What tells it from the other runs, safe to show.
        series: The values that led to its present model.
        settings: Its settings as text, by name; safe to show.
        problem: Why it cannot be read; empty if it can.
    """

    name: str = ""
    series: RunSeries = field(default_factory=RunSeries)
    settings: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True)
class ComparedSetting:
    """A setting of all runs.

    Attributes:
        name: Its name.
        values: Its value in each run; empty where there is none.
    """

    name: str
    values: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Whether not all runs have the same value."""
        return len(set(self.values)) > 1


@dataclass(frozen=True)
class RunsComparison:
    """Several runs side by side.

    Attributes:
        runs: The runs.
        settings: All of their settings, in the same order for all runs.
    """

    runs: tuple[ComparedRun, ...]
    settings: tuple[ComparedSetting, ...]


def compare_runs(roots: Sequence[Path]) -> RunsComparison:
    """Reads runs, and compares their settings.

    Args:
        roots: The run directories.
    """
    answers = TimedReads(_read).collect(roots, READ_SECONDS)
    silent = ComparedRun(problem="The directory does not answer.")
    names = short_names(roots)
    runs = [replace(answers[root].result or silent, name=names[root]) for root in roots]
    order = dict.fromkeys(setting for run in runs for setting in run.settings)
    settings = (
        ComparedSetting(name, tuple(run.settings.get(name, "") for run in runs)) for name in order
    )
    return RunsComparison(tuple(runs), tuple(settings))


def _read(root: Path) -> ComparedRun:
    run = RunDirectory(root)
    try:
        account, checkpoints = brief_account(root), list_checkpoints(run)
        samples = read_samples(run)
        kept = kept_until(current_lineage(checkpoints, account.branch), account.branch)
        present = RunSeries(samples, kept).present()
        settings = dict(_settings(run, read_info(run)))
    except (TfckptError, OSError) as error:
        return ComparedRun(problem=clean_message(describe_error(error)))
    return ComparedRun(series=present, settings=settings)


def _settings(run: RunDirectory, info: RunInfo | None) -> Iterator[tuple[str, str]]:
    """Yields the settings of a run: what may change first comes first."""
    with suppress(TfckptError):
        for name, one in read_hyperparameters(run).values.items():
            yield clean(name), number(one.value)
    launched = last_launch(run)
    yield "command", clean(shlex.join(launched.command)) if launched is not None else ""
    if info is None:
        return
    yield "strategy", clean(strategy_words(info.strategy))
    yield "workers", str(info.worker_count)
    yield "replicas", str(info.replica_count) if info.replica_count else ""
    yield "steps", f"{info.total_steps:,}" if info.total_steps is not None else ""
    if info.code is not None:
        changed = info.code.changed_files
        more = f" and {changed} changed" if changed else ""
        yield "Git commit", clean(f"{info.code.commit[:12]}{more}")
    for name, version in info.versions.items():
        yield clean(name), clean(version)
    yield "host", clean(info.host)
