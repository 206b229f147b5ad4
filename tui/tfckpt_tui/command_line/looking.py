"""Commands that only look: status, ls, journal, logs."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click
import msgspec

from tfckpt_trainer.errors import ExitCode, UsageError
from tfckpt_trainer.rundir.journal import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui import humane
from tfckpt_tui.cli import JsonOption, RunArgument, acting_on_run
from tfckpt_tui.commands.reporting import (
    checkpoints_report,
    is_trouble,
    list_checkpoints,
    status_report,
)
from tfckpt_tui.console import print_json, print_line, print_table
from tfckpt_tui.log_tail import LogTail

WATCH_SECONDS = 2.0
FOLLOW_SECONDS = 0.2


@click.command()
@RunArgument
@click.option("--watch", is_flag=True, help="Print it again every two seconds, until ctrl+c.")
@JsonOption
@acting_on_run
def status(run: RunDirectory, watch: bool, as_json: bool) -> int:
    """Say how the run and each of its workers are; exit 1 where something is wrong."""
    while True:
        report = status_report(run)
        if as_json:
            print_json(report, one_line=watch)
        else:
            _print_status(report)
        if not watch:
            return int(ExitCode.PROBLEM if is_trouble(report) else ExitCode.DONE)
        sys.stdout.flush()
        time.sleep(WATCH_SECONDS)
        if not as_json:
            print_line()


@click.command()
@RunArgument
@JsonOption
@acting_on_run
def ls(run: RunDirectory, as_json: bool) -> None:
    """List all checkpoints, newest first."""
    checkpoints = list_checkpoints(run)
    if as_json:
        print_json(checkpoints_report(run, checkpoints))
        return
    now = time.time()
    rows = [
        (
            checkpoint.name + (" *" if checkpoint.pinned else ""),
            "–" if checkpoint.step is None else str(checkpoint.step),
            str(checkpoint.branch),
            checkpoint.state.value + (" ←" if checkpoint.is_head else ""),
            humane.age(now - checkpoint.saved_at),
            humane.size(checkpoint.size),
            str(checkpoint.shards),
            _metrics(checkpoint.metrics),
            checkpoint.trigger or checkpoint.problem,
        )
        for checkpoint in checkpoints
    ]
    header = ("NAME", "STEP", "BRANCH", "STATE", "AGE", "SIZE", "SHARDS", "METRICS", "WHY")
    print_table(header, rows, right={1, 2, 4, 5, 6})


@click.command()
@RunArgument
@click.option("--lines", type=click.IntRange(min=1), default=50, show_default=True)
@JsonOption
@acting_on_run
def journal(run: RunDirectory, lines: int, as_json: bool) -> None:
    """Tell what happened to the run: saves, restores, prunes, restarts, failures."""
    entries = read_entries(run)[-lines:]
    if as_json:
        print_json({"entries": [_without_schema(msgspec.to_builtins(entry)) for entry in entries]})
        return
    for entry in entries:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.at))
        by = f" ({entry.by})" if entry.by else ""
        print_line(f"{stamp}  {entry.kind.value:<11}  {entry.message}{by}")


@click.command()
@RunArgument
@click.option("--worker", type=click.IntRange(min=0), help="Only this worker; all by default.")
@click.option("--follow", "-f", is_flag=True, help="Go on printing what comes, until ctrl+c.")
@click.option("--lines", type=click.IntRange(min=0), default=20, show_default=True)
@acting_on_run
def logs(run: RunDirectory, worker: int | None, follow: bool, lines: int) -> None:
    """Print what the workers printed."""
    paths = [run.worker_log(worker)] if worker is not None else _logs(run)
    if not paths or not paths[0].exists():
        raise UsageError(
            f"There is no log {paths[0].name if paths else ''} in {run.logs_directory}; only "
            "runs started with `tfckpt-tui launch` have logs."
        )
    tails = {path: LogTail(path) for path in paths}
    prefixed = len(tails) > 1
    for path, tail in tails.items():
        for line in (tail.read_new() or [])[-lines:] if lines else []:
            _print_log_line(path, line, prefixed)
    while follow:
        time.sleep(FOLLOW_SECONDS)
        for path, tail in tails.items():
            for line in tail.read_new() or []:
                _print_log_line(path, line, prefixed)
        sys.stdout.flush()


def _logs(run: RunDirectory) -> list[Path]:
    return sorted(run.logs_directory.glob("worker-*.log"))


def _print_log_line(path: Path, line: str, prefixed: bool) -> None:
    print_line(f"{path.stem}: {line}" if prefixed else line)


def _print_status(report: dict[str, Any]) -> None:
    run = report["run"]
    total = f" of {run['total_steps']:,}" if run["total_steps"] else ""
    step = "unknown" if run["step"] is None else f"{run['step']:,}{total}"
    print_line(f"run       {run['directory']}")
    print_line(f"state     {run['state']}" + (f": {run['reason']}" if run["reason"] else ""))
    if run["strategy"]:
        print_line(f"strategy  {run['strategy']}, {humane.count(run['worker_count'], 'worker')}")
    print_line(f"step      {step} on branch {run['branch']}")
    current = f", current {run['checkpoint']}" if run["checkpoint"] else ""
    print_line(f"saved     {humane.count(run['checkpoints'], 'checkpoint')}{current}")
    if not report["workers"]:
        return
    rows = [
        (
            str(worker["index"]),
            worker["host"],
            worker["state"],
            str(worker["step"]),
            humane.step_time(worker["step_seconds"]),
            humane.metric(worker["loss"]) if worker["loss"] is not None else "–",
            "–" if worker["memory_bytes"] is None else humane.size(worker["memory_bytes"]),
            humane.age(worker["heartbeat_age_seconds"]),
        )
        for worker in report["workers"]
    ]
    print_line()
    header = ("WORKER", "HOST", "STATE", "STEP", "STEP TIME", "LOSS", "MEMORY", "HEARD")
    print_table(header, rows, right={0, 3, 4, 5, 6, 7})


def _metrics(metrics: Any) -> str:
    return " ".join(f"{name}={humane.metric(value)}" for name, value in metrics.items())


def _without_schema(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in {"schema", "unknown"}}
