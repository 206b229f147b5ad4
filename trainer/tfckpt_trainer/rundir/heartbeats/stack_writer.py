"""Writes on request what the threads of this process do, for example while they wait."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from contextlib import suppress
from functools import cache, partial
from types import FrameType

from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.stacks import StackRequest, ThreadStack, WorkerStacks
from tfckpt_trainer.rundir.storage.documents import load, store, try_read
from tfckpt_trainer.rundir.storage.filesystems import is_network_file_system
from tfckpt_trainer.scripts.script_errors import ScriptLine

NETWORK_SECONDS = 10.0
"""How often a worker looks for a request on a network disk, where each look is a call."""

IDLE_SECONDS = 300.0
"""The same while nobody looks at the run."""

_MOST_FRAMES = 200
"""Frames of a thread that are written, the innermost ones."""

_LOOK_SECONDS = 1.0
"""How often a worker looks for a request before its run exists."""

_heartbeat_answers = threading.Event()
_begun = threading.Event()


class StackWriter:
    """Answers requests for stacks; a thread other than the one that trains calls it.

    A thread that holds Python's lock without end cannot be looked at so.
    """

    def __init__(self, run: RunDirectory, index: int) -> None:
        self._run = run
        self._index = index
        self._is_network = is_network_file_system(run.root)
        self._looked_at = time.monotonic()
        self._answered = self._newest()

    def write_if_asked(self, *, is_looked_at: bool = True) -> None:
        """Writes the stacks if there is a new request.

        Args:
            is_looked_at: Whether somebody looks at the run, as who asks does.

        Raises:
            OSError: The disk refuses.
        """
        now = time.monotonic()
        pause = NETWORK_SECONDS if is_looked_at else IDLE_SECONDS
        if self._is_network and now - self._looked_at < pause:
            return
        self._looked_at, newest = now, self._newest()
        if newest == self._answered:
            return
        self._answered = newest
        request = try_read(partial(load, self._run.stacks_request, StackRequest))
        if request is not None:
            stacks = WorkerStacks(
                request=request.id, index=self._index, at=time.time(), threads=stacks_of_threads()
            )
            store(self._run.worker_stacks(self._index), stacks, durable=False)

    def _newest(self) -> tuple[int, int] | None:
        try:
            facts = os.stat(self._run.stacks_request)
        except OSError:
            return None
        return facts.st_mtime_ns, facts.st_ino


@cache
def stack_writer(run: RunDirectory, index: int) -> StackWriter:
    """Returns the only one for a worker of this process: a request cannot fall between two."""
    return StackWriter(run, index)


def answer_before_run(run: RunDirectory, index: int) -> None:
    """Starts a thread that answers requests until the heartbeat of the run does; at most one.

    Reading data, creating a strategy and building a model can hang too.
    """
    if _begun.is_set():
        return
    _begun.set()
    writer = stack_writer(run, index)

    def answer() -> None:
        while not _heartbeat_answers.wait(_LOOK_SECONDS):
            # Who asked is told that this worker does not answer.
            with suppress(OSError):
                writer.write_if_asked()

    threading.Thread(target=answer, name="tfckpt-stacks", daemon=True).start()


def leave_to_heartbeat() -> None:
    """Ends the thread of `answer_before_run`, if there is one."""
    _heartbeat_answers.set()


def stacks_of_threads() -> list[ThreadStack]:
    """Returns what all threads of Python do now, but the present one; the main thread first."""
    threads = {thread.ident: thread for thread in threading.enumerate()}
    frames = sys._current_frames()
    frames.pop(threading.get_ident(), None)
    main = threading.main_thread().ident
    return [
        _stack_of(
            threads[ident].name if ident in threads else f"thread {ident}", ident == main, top
        )
        for ident, top in sorted(frames.items(), key=lambda item: item[0] != main)
    ]


def _stack_of(name: str, is_main: bool, top: FrameType) -> ThreadStack:
    summary = traceback.StackSummary.extract(traceback.walk_stack(top), lookup_lines=False)
    # From the innermost to the outermost.
    frames = list(summary)[:_MOST_FRAMES]
    lines = (ScriptLine(frame.filename, frame.lineno or 0) for frame in frames)
    of_script = next((line for line in lines if line.is_of_script), None)
    return ThreadStack(
        name=name,
        is_main=is_main,
        frames=[f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in reversed(frames)],
        script_line=f"{of_script}: {of_script.source}" if of_script is not None else "",
    )
