"""The `runs` command: runs and their states."""

from __future__ import annotations

import time
from pathlib import Path

import click

from tfckpt_trainer.bundle.checksum import require_extension
from tfckpt_trainer.errors import UsageError
from tfckpt_tui.cli.main import DirectoryArgument, prints
from tfckpt_tui.cli.output import print_json, print_line, print_message, print_table
from tfckpt_tui.formats import units
from tfckpt_tui.reports.run_facts import RunLine, RunsReport
from tfckpt_tui.services.runs.account import RunAccount
from tfckpt_tui.services.runs.job_list import ANSWER_TIMEOUT_SECONDS, JobList
from tfckpt_tui.services.runs.recent_runs import remembered_runs
from tfckpt_tui.services.runs.search import RunSearch


@click.command()
@DirectoryArgument
@prints(RunsReport)
def runs(directory: Path | None, as_json: bool) -> None:
    """List the runs below DIRECTORY, or else the recent runs, with their states.

    A run is a directory with files of this library, TensorFlow's state file, a checkpoint, or a
    .keras or .weights.h5 file.
    `browse` lists the same ones.
    """
    if directory is not None and not directory.is_dir():
        raise UsageError(f"{directory} is not a directory; name one that contains runs.")
    require_extension()
    search = RunSearch(directory) if directory is not None else None
    if search is not None:
        roots = search.find(ANSWER_TIMEOUT_SECONDS, whole=True)
    else:
        roots = remembered_runs()
    accounts = JobList().read(roots, with_others=directory is None)
    now = time.time()
    if search is not None and search.is_running:
        print_message(f"A directory below {directory} does not answer; runs may be missing.")
    if search is not None and search.left_out:
        print_message(f"Not searched: {search.left_out}. To search one, give it to this command.")
    if as_json:
        print_json(RunsReport(runs=tuple(map(_line, accounts))))
        return
    if not accounts:
        where = f"There is no run below {directory}."
        print_line(where if directory is not None else "There are no recent runs.")
        return
    rows = [
        (
            _state(account),
            "–" if account.step is None else f"{account.step:,}",
            str(account.branch),
            "–" if account.total_steps is None else f"{account.total_steps:,}",
            "–" if account.loss is None else units.metric(account.loss),
            units.age(max(0.0, now - account.active_at)) if account.active_at else "–",
            str(account.root),
        )
        for account in accounts
    ]
    header = ("STATE", "STEP", "BRANCH", "OF", "LOSS", "ACTIVE", "DIRECTORY")
    print_table(header, rows, right={1, 2, 3, 4, 5})


def _state(account: RunAccount) -> str:
    """Returns the state with the steps lost, and the alerts or the batch job."""
    state = ", ".join(filter(None, (account.words, account.loss_in_words)))
    if account.alerts:
        return f"{state}: {', '.join(alert.title for alert in account.alerts)}"
    return f"{state}: job {account.job_in_short}" if account.job_in_short else state


def _line(account: RunAccount) -> RunLine:
    return RunLine(
        directory=str(account.root),
        state=account.state,
        words=account.words,
        step=account.step,
        branch=account.branch,
        lost_steps=account.lost_steps,
        total_steps=account.total_steps,
        loss=account.loss,
        strategy=account.info.strategy if account.info is not None else "",
        active_at=account.active_at,
        alerts=tuple(alert.title for alert in account.alerts),
        job=account.job_in_short,
    )
