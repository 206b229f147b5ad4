"""What the threads of all workers of a run do now."""

from __future__ import annotations

import time

from tfckpt_trainer.errors import NoTrainerError
from tfckpt_trainer.rundir.heartbeats.health import WorkerState, worker_state
from tfckpt_trainer.rundir.heartbeats.reading import read_workers
from tfckpt_trainer.rundir.heartbeats.status_files import other_writer
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.stacks import ThreadStack, WorkerStacks
from tfckpt_trainer.rundir.records.worker import WorkerStatus
from tfckpt_trainer.rundir.stack_requests import ask_for_stacks
from tfckpt_trainer.words.advice import Advice, command_or_key
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.reports.stacks import StacksReport, ThreadFacts, WorkerStacksFacts
from tfckpt_tui.services.runs.process_stacks import dump_stacks
from tfckpt_tui.services.runs.process_watch import ProcessWatch

_INNERMOST = 5
"""Frames that are shown of a thread."""


def read_stacks(run: RunDirectory, timeout: float) -> StacksReport:
    """Asks all workers what their threads do, and waits for the answers.

    Without workers, asks the processes that train without this library, by py-spy.

    Args:
        run: The run directory.
        timeout: Seconds to wait for a worker that does not answer.

    Raises:
        NoTrainerError: No worker of the run lives.
        TfckptError: The request is refused, or py-spy is not installed.
        OSError: It cannot be written.
    """
    now = time.time()
    workers = [w for w in read_workers(run) if worker_state(w, now) is not WorkerState.EXITED]
    processes = () if workers else ProcessWatch(run).look(now)
    if processes:
        return StacksReport(workers=tuple(dump_stacks(one, timeout) for one in processes))
    if not workers:
        raise NoTrainerError(
            f"No worker of {run.root} runs.",
            Advice.of(
                "{logs} shows what the last ones printed.",
                logs=command_or_key("logs", "logs", run.root),
            ),
        )
    answers = ask_for_stacks(run, [worker.index for worker in workers], timeout)
    return StacksReport(
        workers=tuple(_facts(run, worker, answers.get(worker.index), now) for worker in workers)
    )


def innermost_frames(thread: ThreadFacts, *, shows_all: bool) -> tuple[tuple[str, ...], int]:
    """Returns the frames of a thread that are shown, and how many outer ones are left out.

    Args:
        thread: The thread.
        shows_all: Whether all are shown.
    """
    shown = thread.frames if shows_all else thread.frames[-_INNERMOST:]
    return shown, len(thread.frames) - len(shown)


def _facts(
    run: RunDirectory, worker: WorkerStatus, answer: WorkerStacks | None, now: float
) -> WorkerStacksFacts:
    problem = ""
    if answer is None:
        heard = units.ago(max(0.0, now - worker.updated_at))
        problem = f"It did not answer; its last heartbeat was {heard}."
        path = run.worker_stacks(worker.index)
        if writer := other_writer(run, worker.index, path):
            problem += f" {clean(writer)} wrote {clean(str(path))} in its place. Delete that file."
    return WorkerStacksFacts(
        worker=worker.index,
        host=clean(worker.host),
        problem=problem,
        threads=tuple(map(_thread, answer.threads)) if answer is not None else (),
    )


def _thread(thread: ThreadStack) -> ThreadFacts:
    return ThreadFacts(
        name=clean(thread.name),
        is_main=thread.is_main,
        script_line=clean(thread.script_line),
        frames=tuple(map(clean, thread.frames)),
    )
