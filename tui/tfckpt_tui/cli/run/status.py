"""Commands that show the run: status, journal."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from tfckpt_trainer.errors import ExitCode
from tfckpt_trainer.launch.batch.jobs import WAITING, JobState
from tfckpt_trainer.rundir.event_log import read_entries, require_event_log
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.words.counts import join_names
from tfckpt_tui.cli.main import (
    LogdirOption,
    PidOption,
    RunArgument,
    RunOrProcessArgument,
    on_open_run,
    prints,
)
from tfckpt_tui.cli.output import print_json, print_line, print_message, print_table
from tfckpt_tui.formats import units
from tfckpt_tui.formats.code_version import code_in_words
from tfckpt_tui.formats.list_columns import table_of
from tfckpt_tui.formats.process_columns import COLUMNS, HostProcess, process_facts
from tfckpt_tui.formats.text import clean, strategy_words
from tfckpt_tui.formats.worker_columns import table
from tfckpt_tui.reports.logs import Event, JournalReport
from tfckpt_tui.reports.run_facts import (
    EventFileFacts,
    JobFacts,
    RunFacts,
    StatusReport,
    WorkerLine,
)
from tfckpt_tui.services.batch.job_reader import JobReader
from tfckpt_tui.services.runs.failure_card import failure_text
from tfckpt_tui.services.runs.process_watch import ProcessWatch
from tfckpt_tui.services.runs.report import has_problem, status_report

WATCH_SECONDS = 2.0
_NODES_SHOWN = 8


@click.command()
@RunOrProcessArgument
@click.option("--watch", is_flag=True, help="Print the status every two seconds, until ctrl+c.")
@LogdirOption
@PidOption
@prints(StatusReport)
@on_open_run
def status(run: RunDirectory, watch: bool, as_json: bool) -> int:
    """Show the state of the run and its workers. Exits 1 if something is wrong."""
    jobs, processes = JobReader(), ProcessWatch(run)
    for newer in run.newer_documents()[:1]:
        print_message(newer)
    while True:
        report = status_report(run, jobs=jobs, processes=processes)
        if as_json:
            print_json(report, one_line=watch)
        else:
            _print_status(run, report)
            _print_next_save(run, report)
        if not watch:
            return int(ExitCode.PROBLEM if has_problem(report) else ExitCode.DONE)
        sys.stdout.flush()
        time.sleep(WATCH_SECONDS)
        if not as_json:
            print_line()


@click.command()
@RunArgument
@click.option(
    "--lines",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="Number of newest entries to print.",
)
@prints(JournalReport)
@on_open_run
def journal(run: RunDirectory, lines: int, as_json: bool) -> None:
    """Show the event log of the run: saves, restores, prunes, restarts, failures."""
    entries = read_entries(run, newest=lines)
    require_event_log(run, entries)
    if as_json:
        events = (msgspec.convert(entry, Event, from_attributes=True) for entry in entries)
        print_json(JournalReport(entries=tuple(events)))
        return
    if not entries:
        print_line("There are no events yet.")
    for entry in entries:
        stamp = units.local_time(entry.at)
        by = f" ({entry.by})" if entry.by else ""
        print_line(f"{stamp}  {entry.kind.value:<11}  {entry.message}{by}")


def _print_status(directory: RunDirectory, report: StatusReport) -> None:
    run = report.run
    total = f" of {run.total_steps:,}" if run.total_steps else ""
    step = "unknown" if run.step is None else f"{run.step:,}{total}"
    print_line(f"run       {run.directory}")
    print_line(f"state     {run.words}" + (f": {run.reason}" if run.reason else ""))
    if run.strategy:
        processes = units.processes(run.cluster, run.worker_count)
        print_line(f"strategy  {strategy_words(run.strategy)}, {processes}")
    if run.gpus:
        print_line(f"gpus      {run.gpus}")
    lost = f"; {run.loss} after it" if run.loss else ""
    print_line(f"step      {step} on branch {run.branch}{lost}")
    if report.job is not None:
        print_line(f"job       {_job_text(report.job)}")
    if run.exactness is not None:
        print_line(f"exact     {run.exactness.words}")
    if run.code is not None:
        print_line(f"code      {code_in_words(run.code)}")
    if run.command is not None:
        print_line(f"command   {clean(shlex.join(run.command))}")
    _print_saved(directory, run)
    for alert in report.alerts:
        print_line(f"alert     {alert.message} {alert.advice}")
    for problem in report.problems:
        print_line(f"problem   {problem}")
    if report.failure is not None:
        print_line()
        for text in failure_text(report.failure, time.time(), Path(run.directory)):
            print_line(text)
    if report.workers:
        _print_workers(report.workers)
    _print_processes(report.processes)


def _print_saved(directory: RunDirectory, run: RunFacts) -> None:
    current = f", current {run.checkpoint}" if run.checkpoint else ""
    others = units.count(run.other_files, "file of another format", "files of other formats")
    print_line(
        f"saved     {units.count(run.checkpoints, 'checkpoint')}{current}"
        + (f"; {others}" if run.other_files else "")
    )
    if run.below:
        first = RunDirectory(directory.root / run.below[0])
        names = join_names(run.below)
        told = f"checkpoints in {names}: `tfckpt-tui status {first.shell_word}`"
        print_line(f"below     {clean(told)}")
    if run.event_files is not None:
        print_line(f"metrics   {_event_files_text(run.event_files)}")
    elif run.id is None:
        _print_no_metrics(directory)
    if run.saves:
        print_line(f"saves     {clean(run.saves)}")


def _print_no_metrics(directory: RunDirectory) -> None:
    # Imported here, as below: a run of this library tells its step and its processes itself.
    from tfckpt_tui.services.metrics.metric_tail import has_events_alone

    if has_events_alone(directory):
        print_line("metrics   none: the event files have no scalars yet")


def _print_workers(workers: Sequence[WorkerLine]) -> None:
    print_line()
    header, rows, right = table(workers, lambda column: column.status)
    print_table(header, rows, right)
    for worker in workers:
        if worker.doing:
            print_line(f"worker {worker.index}  {worker.doing}")


def _print_processes(processes: Sequence[HostProcess]) -> None:
    if processes:
        print_line()
        print_table(*table_of(COLUMNS, processes, time.time()))
    for process in processes:
        for label, text in process_facts(process):
            print_line(f"{process.pid:<8}  {label:<9}  {text}")


def _print_next_save(directory: RunDirectory, report: StatusReport) -> None:
    """Says what is not known yet of a process that has saved nothing where it writes events."""
    run, pid = report.run, directory.process
    if pid is None or run.checkpoints or run.other_files:
        return
    from tfckpt_tui.services.runs.training_directory import if_elsewhere

    print_message(f"No checkpoint of process {pid} is known. {if_elsewhere(run.directory, pid)}")


def _event_files_text(files: EventFileFacts) -> str:
    """Returns how far the event files of a directory go."""
    ago = units.ago(max(0.0, time.time() - files.at))
    pace = ""
    if files.step_seconds is not None:
        pace = f", {units.step_time(files.step_seconds)} {files.per}"
    return f"{files.reach} {files.step:,}, written {ago}{pace}"


def _job_text(job: JobFacts) -> str:
    """Returns a job as one line: ID, state, what it waits for, its nodes and its time limit."""
    now = time.time()
    parts = [f"{job.id} {job.state}"]
    if job.problem:
        parts[0] += f" ({job.problem})"
    if job.reason:
        parts.append(job.reason)
    if job.state in WAITING:
        start = job.expected_start
        if start is not None and start > now:
            parts.append(
                f"expected to start in {units.duration(start - now)} ({units.local_time(start)})"
            )
    elif job.state in {JobState.RUNNING, JobState.COMPLETING, JobState.UNKNOWN}:
        nodes = job.nodes
        if nodes:
            names = ", ".join(nodes[:_NODES_SHOWN]) + (" …" if len(nodes) > _NODES_SHOWN else "")
            parts.append(f"{units.count(len(nodes), 'node')} ({names})")
        if job.ends_at is not None and job.ends_at > now:
            parts.append(f"{units.duration(job.ends_at - now)} left of its time limit")
    if job.requeues:
        parts.append(f"requeued {units.count(job.requeues, 'time')}")
    return ", ".join(parts)
