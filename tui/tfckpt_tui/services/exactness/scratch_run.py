"""Trains in a scratch directory, which is removed afterwards with all processes."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from tfckpt_trainer.errors import LaunchError, TfckptError
from tfckpt_trainer.launch.launcher import launch
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.processes.logs import last_lines
from tfckpt_trainer.launch.processes.orphans import living_supervisor
from tfckpt_trainer.launch.supervision.stop import stop_supervisor, wait_for_end
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.heartbeats.reading import read_supervisor
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.run import SupervisorState
from tfckpt_trainer.rundir.storage.scratch_directory import scratch_directory

GRACE_SECONDS = 1.0
"""How long workers have to exit when they are interrupted; nothing of theirs is kept."""

_STOP_SECONDS = 15.0
_LOOK_SECONDS = 0.1
_LOG_LINES = 15


@dataclass(frozen=True)
class ScratchRun:
    """A run in a scratch directory.

    Attributes:
        directory: The scratch directory.
        subject: What is done there, for messages: `The check`.
    """

    directory: Path
    subject: str

    @property
    def run(self) -> RunDirectory:
        """The run directory."""
        return RunDirectory(self.directory / "run")

    def train(self, options: LaunchOptions, look: Callable[[], None]) -> None:
        """Starts all workers, and follows them until they end.

        Args:
            options: The options; the run directory has to be this one.
            look: Called ten times a second. What it raises ends the training.

        Raises:
            UsageError: The command cannot be run.
            LaunchError: A worker failed; the message ends with its log.
        """
        launch(options)
        while living_supervisor(self.run, time.time()) is not None:
            look()
            time.sleep(_LOOK_SECONDS)
        look()
        ended = read_supervisor(self.run)
        if ended is None or ended.state is SupervisorState.FAILED:
            raise self._failed(ended.reason if ended is not None else "The workers ended.")

    def end_of_log(self, worker: int) -> str:
        """Returns the last lines of the log of a worker, indented."""
        lines = last_lines(self.run.worker_log(worker), _LOG_LINES)
        return "\n".join(f"  {line}" for line in lines) or "  (it is empty)"

    def _failed(self, reason: str) -> LaunchError:
        lost = [entry for entry in read_entries(self.run) if entry.kind is EventKind.WORKER_LOST]
        worker = lost[-1].details.get("worker") if lost else 0
        index = worker if isinstance(worker, int) else 0
        return LaunchError(
            f"{self.subject} ended early. {reason} The end of its log:\n{self.end_of_log(index)}"
        )


@contextmanager
def scratch_run(word: str, subject: str) -> Iterator[ScratchRun]:
    """Makes a scratch directory. Removes it at the end, and ends all processes of its run.

    SIGTERM and SIGHUP raise `KeyboardInterrupt` meanwhile, as ctrl+c does.

    Args:
        word: Part of the name of the directory.
        subject: What is done there, for messages: `The check`.
    """
    with ExitStack() as handlers:
        handlers.enter_context(_handled(_interrupt, signal.SIGTERM, signal.SIGHUP))
        with scratch_directory(f"tfckpt-{word}-") as directory:
            scratch = ScratchRun(directory, subject)
            try:
                yield scratch
            finally:
                # A second ctrl+c would leave what the first one ends.
                numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
                handlers.enter_context(_handled(signal.SIG_IGN, *numbers))
                _end_processes(scratch.run)


def _end_processes(run: RunDirectory) -> None:
    def end(_: object = None) -> None:
        stop_supervisor(run, _STOP_SECONDS)

    # Whatever went wrong before is the error to report.
    with suppress(TfckptError, OSError):
        end()
        # A supervisor that starts is not known yet. One that ends still writes.
        wait_for_end(run, _STOP_SECONDS, end)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextmanager
def _handled(handler: Any, *numbers: signal.Signals) -> Iterator[None]:
    """Gives signals another handler, if this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    earlier = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, before in earlier.items():
            signal.signal(number, before)
