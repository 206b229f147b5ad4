"""Exports a checkpoint as a model: runs the training script to write, load and compare it."""

from __future__ import annotations

import errno
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tfckpt_trainer.errors import LaunchError, RefusedError, TfckptError, UsageError
from tfckpt_trainer.launch.processes.logs import ERROR_LINES, last_lines, open_log
from tfckpt_trainer.launch.processes.workers import signal_group
from tfckpt_trainer.machine.held_signals import hold_signals
from tfckpt_trainer.rundir.heartbeats.writer_marks import temporary_directory
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.export import (
    ExportFormat,
    ExportPhase,
    ExportRequest,
    ExportResult,
)
from tfckpt_trainer.rundir.storage.documents import load_if_exists, store
from tfckpt_trainer.rundir.storage.files import PrivateDirectory, rename
from tfckpt_trainer.rundir.storage.own_links import held_directory
from tfckpt_trainer.scripts.exit_statuses import exit_words
from tfckpt_trainer.scripts.script_errors import find_script_error
from tfckpt_trainer.words.advice import Advice

SECONDS = 600.0
"""Time limit of one phase: start the script, build the model, write it."""

_REQUEST = "request.json"
_PROGRESS = {
    ExportPhase.WRITE: "The script builds its model, restores {checkpoint} and writes it …",
    ExportPhase.CHECK: "Another process loads it and compares its outputs …",
}


@dataclass(frozen=True)
class Script:
    """How a training script is started."""

    command: Sequence[str]
    working_directory: Path
    environment: Mapping[str, str]


@dataclass(frozen=True)
class _Place:
    """A directory in which a model is written.

    Attributes:
        named: Its path for the script, which may run in a container.
        opened: Its path for this process, whatever lies at its name.
        parent: Where the model will be.
    """

    named: Path
    opened: Path
    parent: Path


@dataclass(frozen=True)
class Exported:
    """A finished export.

    Attributes:
        path: Its path.
        size: Bytes of all its files.
        examples: The examples on which its outputs were compared with the model's, in words.
        outputs: Number of values in an output.
        difference: Their largest relative difference; 0 if they are equal.
        seconds: Duration of the export.
    """

    path: Path
    checkpoint: str
    step: int | None
    format: ExportFormat
    size: int
    examples: str
    outputs: int
    difference: float
    seconds: float


def export(
    run: RunDirectory,
    script: Script,
    checkpoint: str,
    form: ExportFormat,
    target: Path,
    *,
    on_progress: Callable[[str], None] = lambda _: None,
) -> Exported:
    """Writes the model of `checkpoint` to `target`, and checks its outputs.

    `target` is created only after the check. The script runs on the CPU only, so that training
    keeps the accelerators.

    Raises:
        RefusedError: `target` exists already.
        OSError: The disk is full, or a link of another user leads to the directory of `target`.
        LaunchError: The script ends before its training loop.
        TfckptError: The model cannot be written, or its outputs differ when loaded.
    """
    if os.path.lexists(target):
        raise RefusedError(
            f"{target} exists already.",
            Advice.of("Choose another path with --to, or move it away.", "Move it away first."),
        )
    if not target.parent.is_dir():
        raise UsageError(
            f"{target.parent} is not a directory. Create it: "
            f"`mkdir -p {shlex.quote(os.fspath(target.parent))}`."
        )
    began = time.monotonic()
    reports = {}
    with (
        held_directory(target.parent) as held,
        temporary_directory(held.opened / target.name, is_private=True) as made,
        closing(PrivateDirectory(made)) as private,
    ):
        place = _Place(held.named / made.name, private.path, held.opened)
        for phase in ExportPhase:
            on_progress(_PROGRESS[phase].format(checkpoint=checkpoint))
            request = ExportRequest(
                checkpoint=checkpoint, format=form, file_name=target.name, phase=phase
            )
            reports[phase] = _run(run, script, place, request)
        # Whoever may write beside it could have put another model at its name.
        written = private.path / target.name
        size = _size(written)
        private.share_all(held.opened)
        rename(written, held.opened / target.name)
    wrote, checked = reports[ExportPhase.WRITE], reports[ExportPhase.CHECK]
    return Exported(
        path=target,
        checkpoint=checkpoint,
        step=wrote.step,
        format=form,
        size=size,
        examples=wrote.examples,
        outputs=wrote.outputs,
        difference=checked.difference or 0.0,
        seconds=time.monotonic() - began,
    )


def _run(run: RunDirectory, script: Script, place: _Place, request: ExportRequest) -> ExportResult:
    store(place.opened / _REQUEST, request)
    environment = {
        **{name: value for name, value in os.environ.items() if name != "TF_CONFIG"},
        **script.environment,
        "TFCKPT_RUN_DIR": str(run.root),
        "TFCKPT_EXPORT": str(place.named / _REQUEST),
        "TFCKPT_WORKER_INDEX": "0",
        "TFCKPT_WORKER_COUNT": "1",
        "TFCKPT_ATTEMPT": "0",
        "CUDA_VISIBLE_DEVICES": "-1",
    }
    run.create()
    log = run.logs_directory / "export.log"
    process = None
    try:
        with hold_signals():
            process = _start(script, environment, log)
        _wait(process, log)
    finally:
        if process is not None:
            signal_group(process.pid, signal.SIGKILL)
            process.wait()
    report = load_if_exists(place.opened / f"report-{request.phase.value}.json", ExportResult)
    if report is None:
        lines = last_lines(log, ERROR_LINES) or ["nothing"]
        cause = find_script_error(lines) or f"it last printed {lines[-1]!r}"
        raise LaunchError(
            f"The script {exit_words(process.returncode)} before its training loop; "
            f"{cause}. See {log}."
        )
    if report.disk_full:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(place.parent))
    if report.problem:
        raise TfckptError(f"{report.problem} See {log}.")
    return report


def _start(script: Script, environment: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    with open_log(log, 0, script.command) as output:
        try:
            return subprocess.Popen(
                list(script.command),
                cwd=script.working_directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise LaunchError(f"The command cannot be run: {error}.") from None


def _wait(process: subprocess.Popen[bytes], log: Path) -> None:
    try:
        process.wait(SECONDS)
    except subprocess.TimeoutExpired:
        raise LaunchError(
            f"The script did not reach its training loop within {SECONDS:.0f} s. See {log}."
        ) from None


def _size(path: Path) -> int:
    if path.is_dir():
        return sum(entry.stat().st_size for entry in path.rglob("*") if entry.is_file())
    return path.stat().st_size
