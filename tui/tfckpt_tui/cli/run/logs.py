"""The `logs` command."""

from __future__ import annotations

import re
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from tfckpt_trainer.errors import TfckptError, UsageError
from tfckpt_trainer.launch.batch.job_record import read_job_record
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.words.advice import only_command
from tfckpt_tui.cli.main import RunArgument, on_open_run, prints
from tfckpt_tui.cli.output import print_json, print_line
from tfckpt_tui.monitor.logs import LogLine, LogRow, LogTail, merge_logs
from tfckpt_tui.reports.logs import FollowedLineReport, LoggedLine, LogsReport
from tfckpt_tui.services.batch.job_reader import why_no_logs

FOLLOW_SECONDS = 0.2

_WORKER_LOG = re.compile(r"worker-(\d{1,9})")


@click.command()
@RunArgument
@click.option(
    "--worker", type=click.IntRange(min=0), help="Only this worker; all workers by default."
)
@click.option("--supervisor", is_flag=True, help="Print the log of the supervisor instead.")
@click.option("--follow", "-f", is_flag=True, help="Print new lines until ctrl+c.")
@click.option(
    "--lines",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="Number of lines from the end of each log.",
)
@prints(LogsReport, FollowedLineReport)
@on_open_run
def logs(
    run: RunDirectory,
    worker: int | None,
    supervisor: bool,
    follow: bool,
    lines: int,
    as_json: bool,
) -> None:
    """Print the output of the workers."""
    if supervisor and worker is not None:
        raise click.UsageError("Give either --worker or --supervisor.")
    paths = _chosen(run, worker, supervisor)
    tails = {path: LogTail(path) for path in paths}
    rows = merge_logs({p.stem: _last(p, tail, lines, not follow) for p, tail in tails.items()})
    if as_json and not follow:
        last = tuple(LoggedLine(row.log, row.at, row.text) for row in rows)
        print_json(LogsReport(lines=last))
        return
    _print_rows(rows, as_json, prefixed=len(tails) > 1)
    while follow:
        sys.stdout.flush()
        time.sleep(FOLLOW_SECONDS)
        new = merge_logs({path.stem: tail.read_new() or [] for path, tail in tails.items()})
        _print_rows(new, as_json, prefixed=len(tails) > 1)


def _chosen(run: RunDirectory, worker: int | None, supervisor: bool) -> list[Path]:
    if supervisor:
        paths = [run.supervisor_log]
    elif worker is not None:
        paths = [run.worker_log(worker)]
    else:
        paths = _worker_logs(run)
    if paths and all(path.exists() for path in paths):
        return paths
    missing = paths[0].name if paths else "of a worker"
    names = ", ".join(path.stem for path in _worker_logs(run))
    has_job = not names and read_job_record(run) is not None
    raise UsageError(
        f"There is no log {missing} in {run.logs_directory}; "
        + (f"there are: {names}." if names else why_no_logs(run)),
        only_command("See ", "status", run.root) if has_job and not run.job_log.exists() else None,
    )


def _worker_logs(run: RunDirectory) -> list[Path]:
    numbered = {
        int(match[1]): path
        for path in run.logs_directory.glob("worker-*.log")
        if (match := _WORKER_LOG.fullmatch(path.stem))
    }
    return [numbered[index] for index in sorted(numbered)]


def _last(path: Path, tail: LogTail, count: int, with_unfinished: bool) -> list[LogLine]:
    """Returns the last lines of a log, with an unfinished one if `with_unfinished` is set."""
    lines = tail.read_new()
    if lines is None:
        raise TfckptError(
            f"{path} cannot be read: it is not a regular file, or belongs to another user. Check "
            f"it with `ls -l {shlex.quote(str(path))}`."
        )
    if with_unfinished and tail.unfinished:
        lines.append(tail.unfinished)
    return lines[-count:] if count else []


def _print_rows(rows: Sequence[LogRow], as_json: bool, *, prefixed: bool) -> None:
    for row in rows:
        if as_json:
            print_json(FollowedLineReport(row.log, row.at, row.text), one_line=True)
        else:
            print_line(f"{row.log}: {row.text}" if prefixed else row.text)
