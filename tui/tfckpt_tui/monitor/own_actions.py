"""Runs users' own actions in the background, one at a time: requested ones first."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.services.processes.own_actions import ActionOutcome, run_action
from tfckpt_tui.settings.own_actions import ActionSection

MOST_RUNS = 200
"""Number of runs of actions that are listed; the oldest that have ended are forgotten."""

OUTPUT_BYTES = 1 << 17
"""Bytes of the end of its output that are kept of each."""


class ActionState(StrEnum):
    """The state of one run of an action."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class ActionRun(msgspec.Struct, frozen=True):
    """One run of an action.

    Attributes:
        number: Tells it from others; later ones have higher numbers.
        action: The name of the action.
        names: The checkpoints that it is for; none if it is for the run.
        requested: Whether a user requested it; otherwise it is for a new checkpoint.
        state: Its state.
        began_at: When the command was started (seconds since the epoch); None if it waits.
        outcome: How it ended; None before.
    """

    number: int
    action: str
    names: tuple[str, ...]
    requested: bool
    state: ActionState = ActionState.WAITING
    began_at: float | None = None
    outcome: ActionOutcome | None = None


class _Job(msgspec.Struct):
    """What the queue knows of one run; its lock guards it."""

    run: ActionRun
    section: ActionSection
    checkpoints: Sequence[Checkpoint]
    output: bytearray = msgspec.field(default_factory=bytearray)
    dropped: int = 0
    cancelled: threading.Event = msgspec.field(default_factory=threading.Event)


class ActionQueue:
    """Runs actions in a thread, one at a time: requested ones first, then for new checkpoints."""

    def __init__(
        self, run: RunDirectory, on_done: Callable[[ActionRun], None], *, read_only: bool = False
    ) -> None:
        """Creates an empty queue.

        Args:
            run: The run directory.
            on_done: Called with each run that ended, in the thread of the queue.
            read_only: Whether to write nothing into the run directory.
        """
        self._run = run
        self._on_done = on_done
        self._into_run = not read_only
        self._lock = threading.Lock()
        self._jobs: dict[int, _Job] = {}
        self._next = 1
        self._thread: threading.Thread | None = None

    @property
    def runs(self) -> tuple[ActionRun, ...]:
        """All runs, the newest first."""
        with self._lock:
            return tuple(job.run for job in reversed(self._jobs.values()))

    def add(
        self,
        action: str,
        section: ActionSection,
        checkpoints: Sequence[Checkpoint],
        *,
        requested: bool = True,
    ) -> None:
        """Runs an action after those before it; does nothing if it waits for that already.

        Args:
            action: The name of the action.
            section: The action.
            checkpoints: The checkpoint that it is for; all, if it is run once for all.
            requested: Whether a user requests it; otherwise it waits until nothing else does.
        """
        names = tuple(checkpoint.name for checkpoint in checkpoints)
        with self._lock:
            if any((job.run.action, job.run.names) == (action, names) for job in self._waiting()):
                return
            run = ActionRun(self._next, action, names, requested)
            self._jobs[self._next] = _Job(run, section, checkpoints)
            self._next += 1
            self._forget()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="actions", daemon=True)
                self._thread.start()

    def output(self, number: int) -> tuple[int, bytes]:
        """Returns how many bytes of output are not kept any more, and those after them."""
        with self._lock:
            job = self._jobs.get(number)
            return (0, b"") if job is None else (job.dropped, bytes(job.output))

    def cancel(self, number: int) -> None:
        """Ends the command of a run, or takes it out of the queue."""
        with self._lock:
            job = self._jobs.get(number)
            if job is None:
                return
            job.cancelled.set()
            if job.run.state is ActionState.WAITING:
                job.run = replace(job.run, state=ActionState.CANCELLED)

    def stop(self, timeout: float = 5.0) -> None:
        """Ends all commands.

        Args:
            timeout: How long to wait for it (seconds).
        """
        for run in self.runs:
            if run.outcome is None:
                self.cancel(run.number)
        thread = self._thread
        if thread is not None:
            thread.join(timeout)

    def _waiting(self) -> list[_Job]:
        return [job for job in self._jobs.values() if job.run.state is ActionState.WAITING]

    def _forget(self) -> None:
        ended = [number for number, job in self._jobs.items() if job.run.outcome is not None]
        for number in ended[: max(0, len(self._jobs) - MOST_RUNS)]:
            del self._jobs[number]

    def _work(self) -> None:
        while True:
            with self._lock:
                job = min(self._waiting(), key=lambda job: not job.run.requested, default=None)
                if job is None:
                    self._thread = None
                    return
                job.run = replace(job.run, state=ActionState.RUNNING, began_at=time.time())
            outcome = run_action(
                self._run,
                job.run.action,
                job.section,
                job.checkpoints,
                on_output=lambda data, job=job: self._keep(job, data),  # type: ignore[misc]
                cancelled=job.cancelled.is_set,
                into_run=self._into_run,
            )
            state = ActionState.FAILED if outcome.problem else ActionState.DONE
            state = ActionState.CANCELLED if outcome.was_cancelled else state
            with self._lock:
                job.run = replace(job.run, state=state, outcome=outcome)
            self._on_done(job.run)

    def _keep(self, job: _Job, data: bytes) -> None:
        with self._lock:
            job.output += data
            surplus = max(0, len(job.output) - OUTPUT_BYTES)
            job.dropped += surplus
            del job.output[:surplus]
