"""Decides how each save is done, and records its result."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from tfckpt_trainer.catalog.commit.fallback import bring_back, fallback_of
from tfckpt_trainer.catalog.commit.saves import point_state_file_at
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, WorkerFacts
from tfckpt_trainer.rundir.records.command import Command
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.worker import Activity
from tfckpt_trainer.training.checkpoint.saves.automatic_prune import AutomaticPruner
from tfckpt_trainer.training.checkpoint.saves.background_save import BackgroundSave
from tfckpt_trainer.training.checkpoint.saves.save_options import SaveOptions
from tfckpt_trainer.training.checkpoint.saves.save_protocol import (
    AFTER_ERROR,
    SaveOutcome,
    begin_record,
    on_branch,
)
from tfckpt_trainer.training.checkpoint.saves.saver import Saver
from tfckpt_trainer.training.checkpoint.state import TrainingState
from tfckpt_trainer.training.telemetry.step_metrics import finite, not_finite
from tfckpt_trainer.training.telemetry.telemetry import Telemetry
from tfckpt_trainer.words.counts import size

MOST_NAMES = 4
"""Names under which a save is tried: somebody may take each while it is written."""

EXIT_WAIT_SECONDS = 30.0
"""How long a process that ends without the others waits for a background save."""

OnOutcome = Callable[[SaveOutcome], None]

ResultT = TypeVar("ResultT", SaveOutcome, BackgroundSave | SaveOutcome)


@dataclass(frozen=True)
class PendingSave:
    """A save that was requested and has no outcome yet.

    Attributes:
        trigger: Why it was requested.
        command: The command that asked for it, if one did.
        on_outcome: Called with the outcome.
    """

    trigger: str
    command: Command | None
    on_outcome: OnOutcome


class SaveManager:
    """Saves in the foreground or background. All workers call every public method together.

    Attributes:
        disk_full: Whether the last save was refused because the disk is full.
    """

    def __init__(
        self,
        run: RunDirectory,
        saver: Saver,
        state: TrainingState,
        telemetry: Telemetry,
        pruner: AutomaticPruner,
        options: SaveOptions,
    ) -> None:
        self._run = run
        self._saver = saver
        self._state = state
        self._telemetry = telemetry
        self._pruner = pruner
        self._options = options
        self._current: tuple[BackgroundSave, PendingSave] | None = None
        self._queue: deque[PendingSave] = deque()
        self.disk_full = False

    @property
    def needs_sync(self) -> bool:
        """Whether all workers should call `finish_current`."""
        return self._current is not None and self._current[0].needs_sync

    @property
    def has_disk_space(self) -> bool:
        """Whether one more save fits on the disk."""
        return self._saver.has_disk_space

    def has_restored(self, record: CheckpointRecord) -> None:
        """Takes from a restored checkpoint how large the next one is."""
        self._saver.has_restored(record)

    def request_save(
        self, trigger: str, command: Command | None = None, on_outcome: OnOutcome = lambda _: None
    ) -> None:
        """Saves this step in the foreground or background, as the options say.

        Args:
            trigger: Why.
            command: The command that asks for it.
            on_outcome: Called with the outcome: before this returns, or at a later
                synchronization.
        """
        pending = PendingSave(trigger, command, on_outcome)
        if not self._options.background:
            on_outcome(self.save_now(trigger, command))
        elif self._current is None:
            self._start(pending)
        elif command is None and self._options.when_busy == "skip":
            busy = self._current[0].record.name
            message = f"Save ({trigger}): skipped because {busy} is being written."
            self._telemetry.note(EventKind.REFUSED, message)
        elif command is not None or not any(queued.command is None for queued in self._queue):
            # One scheduled save in the queue is enough: all would save the same step.
            self._queue.append(pending)

    def save_now(self, trigger: str, command: Command | None = None) -> SaveOutcome:
        """Saves this step in the foreground, unless it is saved already."""
        self.finish_all()
        return self._save_here(*self._prepare(trigger, command), command)

    def save_last(self, trigger: str, command: Command | None = None) -> SaveOutcome:
        """Saves the last step of the run: if not in its directory, in the fallback directory."""
        self.finish_all()
        record, facts = self._prepare(trigger, command)
        outcome = self._save_here(record, facts, command)
        if outcome.name is None and not (outcome.disk_full or outcome.refused):
            # What others put in its way while it was written is renamed by the next save.
            record = self._numbered_again(record)
            outcome = self._save_here(record, facts, command)
        fallback = self._fallback if outcome.name is None else None
        if fallback is None:
            return outcome
        record = self._numbered_again(record)
        with self._telemetry.heartbeat.doing(Activity.SAVING, record.name):
            elsewhere = self._saver.in_directory(fallback).save(record, facts)
        if elsewhere.name is None:
            message = f"Save ({trigger}) in {fallback.root}: {elsewhere.problem}"
            self._telemetry.note(EventKind.FAILED, message, command, step=record.step)
            return outcome
        self._telemetry.note(
            EventKind.SAVE,
            f"Saved {record.name} ({trigger}) in {fallback.root}: {elsewhere.durability} "
            "The next start moves it to the run directory.",
            command,
            step=record.step,
        )
        return elsewhere

    @property
    def _fallback(self) -> RunDirectory | None:
        directory = self._options.fallback_directory
        return fallback_of(self._run, Path(directory)) if directory is not None else None

    def bring_back(self) -> None:
        """Moves checkpoints from the fallback directory to the run directory; chief only.

        Raises:
            RefusedError: A checkpoint cannot be copied, such as on a full disk.
        """
        fallback = self._fallback
        if fallback is None:
            return
        brought = bring_back(self._run, fallback)
        told = [f"Moved {name} from {fallback.root} to this run." for name in brought.names]
        for sentence in (*told, *brought.left):
            self._telemetry.event_log.note(EventKind.NOTE, sentence)

    def finish_current(self) -> None:
        """Waits for the background save in progress, and starts the next one in the queue."""
        if self._current is None:
            return
        save, pending = self._current
        if save.needs_sync:
            outcome = save.finish()
        else:
            with self._telemetry.heartbeat.doing(Activity.SAVING, save.record.name):
                outcome = save.finish()
        self._current = None
        self._telemetry.metrics.background = ""
        self._record(save.record, pending.command, outcome)
        pending.on_outcome(outcome)
        if self._queue:
            self._start(self._queue.popleft())

    def finish_all(self) -> None:
        """Waits for the background save in progress and for all in the queue."""
        while self._current is not None:
            self.finish_current()

    def finish_interrupted(self) -> None:
        """Completes or removes saves that an earlier process left unfinished; chief only.

        Raises:
            OSError: The directory of unfinished saves cannot be read.
        """
        self._saver.finish_interrupted()

    @property
    def waits_for_disk_space(self) -> bool:
        """Whether training should pause until the last save, which was refused, fits."""
        return self.disk_full and self._options.when_full == "pause"

    def wait_before_exit(self) -> None:
        """Waits for what this process writes, when it ends without the other workers."""
        if self._current is not None:
            self._current[0].wait(EXIT_WAIT_SECONDS)

    def _save_here(
        self, record: CheckpointRecord, facts: WorkerFacts, command: Command | None
    ) -> SaveOutcome:
        with self._telemetry.heartbeat.doing(Activity.SAVING, record.name):
            record, outcome = self._with_free_name(self._saver.save, record, facts)
        self._record(record, command, outcome)
        return outcome

    def _start(self, pending: PendingSave) -> None:
        record, facts = self._prepare(pending.trigger, pending.command)
        record, started = self._with_free_name(self._saver.start, record, facts)
        if isinstance(started, SaveOutcome):
            self._record(record, pending.command, started)
            pending.on_outcome(started)
            return
        self._current = started, pending
        self._telemetry.metrics.background = f"Writing {record.name} in the background."

    def _prepare(
        self, trigger: str, command: Command | None
    ) -> tuple[CheckpointRecord, WorkerFacts]:
        self._telemetry.metrics.settle()
        position = self._state.position
        values, facts = self._state.user.collect(position.step, self._telemetry.heartbeat.facts())
        self._count()
        record = begin_record(
            position,
            trigger,
            command=command.id if command else None,
            metrics=finite(self._telemetry.metrics.reported),
            not_finite=not_finite(self._telemetry.metrics.reported),
            **values,
        )
        self._telemetry.save_overhead.begin(record.name, record.sequence)
        self._telemetry.metrics.saves.begin()
        return record, facts

    def _count(self) -> None:
        # Each attempt has its own number: one that was reported as failed may exist all the same,
        # and must not share its place in the history with another.
        self._state.position.sequence += 1

    def _numbered_again(self, record: CheckpointRecord) -> CheckpointRecord:
        """Returns a record for another try to save the same step."""
        self._count()
        position = self._state.position
        return replace(on_branch(record, position.branch), sequence=position.sequence)

    def _with_free_name(
        self,
        save: Callable[[CheckpointRecord, WorkerFacts], ResultT],
        record: CheckpointRecord,
        facts: WorkerFacts,
    ) -> tuple[CheckpointRecord, ResultT]:
        """Saves, on a new branch if another file has the name; returns what was saved, and how."""
        result = save(record, facts)
        for _ in range(MOST_NAMES - 1):
            if not isinstance(result, SaveOutcome) or result.free_branch is None:
                break
            record = self._change_branch(record, result.problem, result.free_branch)
            result = save(record, facts)
        return record, result

    def _change_branch(
        self, record: CheckpointRecord, problem: str, branch: int
    ) -> CheckpointRecord:
        """Goes on with a new branch, on which the name of this step is free."""
        self._state.position.branch = branch
        self._telemetry.metrics.branch = branch
        self._telemetry.summaries.start_branch(branch, record.step)
        self._telemetry.note(
            EventKind.NOTE,
            f"{problem}. It is kept; training continues on branch {branch}.",
            step=record.step,
        )
        changed = on_branch(record, branch)
        self._telemetry.save_overhead.begin(changed.name, changed.sequence)
        return changed

    def _record(
        self, record: CheckpointRecord, command: Command | None, outcome: SaveOutcome
    ) -> None:
        """Records the outcome of a save, and prunes after a successful one."""
        telemetry = self._telemetry
        self.disk_full = outcome.disk_full
        if outcome.name is None:
            telemetry.metrics.saves.failed(outcome.problem)
            kind = EventKind.REFUSED if outcome.refused else EventKind.FAILED
            message = f"Save ({record.trigger}): {outcome.problem}"
            telemetry.note(kind, message, command, step=record.step)
        else:
            telemetry.metrics.saves.saved(record.step, is_new=not outcome.already_saved)
        if outcome.name is None or outcome.already_saved:
            telemetry.save_overhead.discard()
            return
        telemetry.save_overhead.saved()
        saved = outcome.name
        self._state.position.parent = saved
        telemetry.event_log.later_told(
            self._run.state_file, lambda: point_state_file_at(self._run, saved)
        )
        self._report(record, outcome, command)
        exactness = outcome.exactness
        if exactness is not None and telemetry.note_exactness(exactness):
            telemetry.event_log.update_info(exactness=exactness)
        if record.trigger != AFTER_ERROR:
            # What led to the error may be wrong with this checkpoint too: keep those before it.
            self._pruner.after_save(saved)

    def _report(
        self, record: CheckpointRecord, outcome: SaveOutcome, command: Command | None
    ) -> None:
        saved = f"Saved {record.name} ({record.trigger})"
        self._telemetry.note(
            EventKind.SAVE,
            f"{saved}: {size(outcome.size)} in {outcome.seconds:.2f} s, "
            f"training stood still for {outcome.stall_seconds:.2f} s, {outcome.durability}",
            command,
            step=record.step,
            checkpoint=record.name,
        )
        self._telemetry.summaries.write_event(
            record.step,
            f"{saved}.",
            [
                ("checkpoint/seconds", outcome.seconds),
                ("checkpoint/stall_seconds", outcome.stall_seconds),
                ("checkpoint/bytes", float(outcome.size)),
            ],
        )
        values = {one.name: one.value for one in record.hyperparameters}
        self._telemetry.summaries.write_hyperparameters(record.step + 1, values)
