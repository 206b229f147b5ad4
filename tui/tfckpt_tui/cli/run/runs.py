"""The `runs` command: runs and their states."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import click

from tfckpt_trainer.bundle.checksum import require_extension
from tfckpt_trainer.rundir.storage.filesystems import is_network_file_system
from tfckpt_trainer.words.counts import count
from tfckpt_tui.cli.main import DirectoryArgument, prints
from tfckpt_tui.cli.output import (
    ReadProgress,
    print_json,
    print_line,
    print_message,
    print_table,
)
from tfckpt_tui.formats.run_columns import json_values, table
from tfckpt_tui.reports.run_facts import RunLine, RunsReport
from tfckpt_tui.services.runs.account import RunAccount
from tfckpt_tui.services.runs.job_list import ANSWER_TIMEOUT_SECONDS, JobList
from tfckpt_tui.services.runs.open_run import directory_of_runs
from tfckpt_tui.services.runs.recent_runs import remembered_runs
from tfckpt_tui.services.runs.remembered_list import recall_runs, remember_runs
from tfckpt_tui.services.runs.search import RunSearch


def _read(roots: Sequence[Path], below: Path | None) -> list[RunAccount]:
    """Returns the accounts of runs; on a network disk, ended ones that did not change are known."""
    jobs = JobList()
    remembered = below if below is not None and is_network_file_system(below) else None
    if remembered is not None:
        jobs.recall(recall_runs(remembered), only_recent=True)
    with closing(ReadProgress(f"reading {count(len(roots), 'run')}")) as progress:
        progress.announce()
        accounts = jobs.read(roots, with_others=below is None)
    if remembered is not None:
        remember_runs(remembered, jobs.remembered(accounts))
    return accounts


@click.command()
@DirectoryArgument
@prints(RunsReport)
def runs(directory: Path | None, as_json: bool) -> None:
    """List the runs below DIRECTORY, or else the recent runs, with their states.

    A run is a directory with files of this library, TensorFlow's state file, a checkpoint, or a
    .keras or .weights.h5 file.
    `browse` lists the same ones.
    """
    below = directory_of_runs(directory) if directory is not None else None
    search = RunSearch(below) if below is not None else None
    require_extension()
    if search is not None:
        roots = search.find(ANSWER_TIMEOUT_SECONDS, whole=True)
    else:
        roots = remembered_runs()
    accounts = _read(roots, below)
    if search is not None and search.is_running:
        print_message(f"A directory below {directory} does not answer; runs may be missing.")
    if search is not None and search.left_out:
        print_message(f"Not searched: {search.left_out}. To search one, give it to this command.")
    if as_json:
        print_json(RunsReport(runs=tuple(RunLine(*json_values(account)) for account in accounts)))
        return
    if not accounts:
        where = f"There is no run below {directory}."
        print_line(
            where
            if directory is not None
            else "There are no recent runs. Name a directory to list those in it."
        )
        return
    print_table(*table(accounts, time.time()))
