"""Restores checkpoints at the start and on command, and records each restore."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from tfckpt_trainer.bundle.index import index_path
from tfckpt_trainer.catalog.commit.saves import point_state_file_at
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.catalog.directory.history import in_order_of_use, read_head, resume_point
from tfckpt_trainer.catalog.directory.other_formats import OtherFile, find_neighbours
from tfckpt_trainer.catalog.directory.save_directories import delete_checkpoint_of_check
from tfckpt_trainer.catalog.directory.trash import list_trash
from tfckpt_trainer.catalog.retention.prune import event_of_settled, settle_interrupted_prunes
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.catalog.scan.lineage import BranchStep, plan_restore
from tfckpt_trainer.catalog.scan.ownership import is_left_by_others
from tfckpt_trainer.catalog.verification.damaged_documents import damage_at_start
from tfckpt_trainer.catalog.verification.verify_checkpoint import record_damage
from tfckpt_trainer.errors import RefusedError, TfckptError, describe_error
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, WorkerFacts
from tfckpt_trainer.rundir.records.command import Command
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.hyperparameter import number
from tfckpt_trainer.rundir.records.run import Finish, Head
from tfckpt_trainer.rundir.records.worker import Activity
from tfckpt_trainer.rundir.storage.documents import store
from tfckpt_trainer.rundir.storage.files import facts_of
from tfckpt_trainer.rundir.storage.owners import is_own_there, user_name
from tfckpt_trainer.training.checkpoint.restores.restorer import (
    RestoreOutcome,
    Restorer,
    changing_state,
)
from tfckpt_trainer.training.checkpoint.saves.save_manager import SaveManager
from tfckpt_trainer.training.checkpoint.state import Position, TrainingState
from tfckpt_trainer.training.hyperparameters.agreed_changes import AgreedChanges
from tfckpt_trainer.training.hyperparameters.hyperparameters import (
    ValueChange,
    details_of,
    words_of,
)
from tfckpt_trainer.training.hyperparameters.unsaved_changes import (
    UnsavedChanges,
    find_unsaved_changes,
)
from tfckpt_trainer.training.process.signals_and_exit import is_restart
from tfckpt_trainer.training.telemetry.telemetry import Telemetry
from tfckpt_trainer.training.workers.worker_group import WorkerGroup
from tfckpt_trainer.words.clean_text import clean
from tfckpt_trainer.words.counts import count, first_lines, join_names, noun

SHOWN_REFUSED = 10
"""How many problems of checkpoints, or of one, the error of a start names."""

SHOWN_CHANGES = 20
"""How many changes that a start makes again are listed; a program can ask for one in each step."""

SHOWN_LEFT_OUT = 100
"""How many tensors that a partial restore left out are recorded; a wrong model has thousands."""


@dataclass(frozen=True)
class RestoreTarget:
    """A checkpoint to restore, as the chief found it; equal on all workers.

    Attributes:
        name: Name of the checkpoint.
        step: Its step.
        branch: Branch on which training continues after the restore.
        best: Best values of metrics up to its step.
        finish: Why training ended there; None if it did not.
        values: Hyperparameters that a start changes after it, by name.
        problem: Why it cannot be restored; then only the name is set.
    """

    name: str
    step: int = 0
    branch: int = 0
    best: dict[str, float] = field(default_factory=dict)
    finish: Finish | None = None
    values: dict[str, float] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True)
class StartingPoint:
    """Where a run begins that has no checkpoint.

    Attributes:
        step: Steps that were done.
        source: With what it begins, as the end of a clause; empty for the values of the script.
        passed_over: Why it does not begin with newer files of other formats, as sentences.
    """

    step: int = 0
    source: str = ""
    passed_over: tuple[str, ...] = ()


@dataclass(frozen=True)
class _StartPlan:
    """What the chief found at the start.

    Attributes:
        targets: Checkpoints to try, in this order.
        sequence: Number of saves and restores of the run so far.
    """

    targets: list[RestoreTarget]
    sequence: int


class RestoreManager:
    """Restores checkpoints and records it. All workers call every method together.

    Attributes:
        begin: Gives the model its first values, where no checkpoint does, on all workers together.
    """

    def __init__(
        self,
        run: RunDirectory,
        group: WorkerGroup,
        state: TrainingState,
        telemetry: Telemetry,
        restorer: Restorer,
        saves: SaveManager,
    ) -> None:
        self._run = run
        self._group = group
        self._state = state
        self._telemetry = telemetry
        self._restorer = restorer
        self._saves = saves
        self._changes = AgreedChanges(group, state.user.hyperparameters)
        self.begin: Callable[[], StartingPoint] = StartingPoint

    @property
    def position(self) -> Position:
        """Where training is; a restore moves it."""
        return self._state.position

    def restore_newest(self, *, partial: bool) -> Finish | None:
        """Restores the newest good checkpoint, or begins without one if there is none.

        Args:
            partial: Whether to restore what fits if the checkpoint does not fit the model.

        Returns:
            Why training ended at the restored checkpoint; None if it goes on there, or if the
            position in its dataset tells.

        Raises:
            RefusedError: There are checkpoints, and none of them can be restored; or the start was
                to begin with values that the hyperparameters cannot have; or see `begin`.
        """
        plan = self._group.broadcast(
            self._plan_start() if self._group.is_chief else None, _StartPlan
        )
        assert plan is not None
        self._state.position.sequence = plan.sequence
        refused: list[str] = []
        tried: list[str] = []
        for target in plan.targets:
            tried.append(target.name)
            outcome = self._read(target.name, partial=partial)
            if not outcome.problems:
                self._move_to(target, outcome, None, EventKind.START)
                self._change_at_start(target)
                self._find_unsaved_changes(outcome.record)
                if self._group.is_chief:
                    step = self._state.position.step
                    _print_clean(f"Started at step {step:,} from {target.name}.")
                finish = target.finish
                if finish is None or not finish.by_dataset or outcome.input_starts_over:
                    return finish
                return None
            # Of damaged checkpoints, the first problem is enough; of a change, all count.
            refused += outcome.problems[:1] if outcome.damaged else outcome.problems
            self._telemetry.event_log.note(
                EventKind.REFUSED,
                f"{target.name} was skipped at the start: {'; '.join(outcome.problems)}.",
                checkpoint=target.name,
            )
            if not outcome.damaged:
                break
        if refused:
            untried = [target.name for target in plan.targets[len(tried) :]]
            raise RefusedError(self._why_none(refused, tried, untried))
        self._begin_without_checkpoint()
        self._find_unsaved_changes(None)
        return None

    def _begin_without_checkpoint(self) -> None:
        start = self.begin()
        position, step = self._state.position, start.step
        self._state.shared.set_step(step)
        position.step = step
        self._telemetry.metrics.set_position(step, position.branch)
        self._telemetry.summaries.start_branch(position.branch, step)
        self._telemetry.write_hyperparameters(step)
        if start.source:
            words = " ".join(
                (
                    f"Started at step {step:,} {start.source}. The input pipeline starts over.",
                    *start.passed_over,
                )
            )
            if self._group.is_chief:
                _print_clean(words)
            self._telemetry.note(EventKind.START, words)
            return
        self._telemetry.note(EventKind.START, "Started at step 0.")
        if self._group.is_chief:
            self._tell_what_is_left_out(start.passed_over)

    def _tell_what_is_left_out(self, reasons: Sequence[str]) -> None:
        """Names the newest file of each format in the directory, which no start continues from."""
        newest: dict[str, OtherFile] = {}
        with suppress(OSError):
            for file in find_neighbours(self._run.root).others:
                if file.is_readable:
                    newest.setdefault(file.format.name, file)
        if not newest:
            return
        named = [
            f"{file.name} ({file.position})" if file.position else file.name
            for file in newest.values()
        ]
        words = (
            f"No start continues from {', '.join(named)}: training begins with the values of the "
            "script. To begin with those of a file, call `model.load_weights` before, or make a "
            "checkpoint of it with `tfckpt-tui convert`."
            + "".join(f" {reason}" for reason in first_lines(reasons, SHOWN_REFUSED))
        )
        _print_clean(words)
        self._telemetry.note(EventKind.NOTE, words)

    def _find_unsaved_changes(self, record: CheckpointRecord | None) -> None:
        """Has changes made again that were confirmed after the checkpoint, and tells of them."""
        hyperparameters, step = self._state.user.hyperparameters, self._state.position.step
        found = None
        if self._group.is_chief:
            entries = read_entries(self._run)
            found = find_unsaved_changes(entries, record, hyperparameters.seen, step=step)
        agreed = self._group.broadcast(found, UnsavedChanges)
        assert agreed is not None
        hyperparameters.make_again(agreed.changes)
        if agreed.changes:
            words = [change.words for change in agreed.changes]
            self._telemetry.note(
                EventKind.NOTE,
                "Changes that no checkpoint has are made again: "
                f"{'; '.join(first_lines(words, SHOWN_CHANGES))}.",
            )
        for sentence in agreed.left_out:
            self._telemetry.note(EventKind.NOTE, sentence)

    def _change_at_start(self, target: RestoreTarget) -> None:
        if not target.values:
            return
        problem = self._state.user.hyperparameters.problem_of(target.values)
        if not problem:
            _, problem = self.change_values(target.values, by="restore")
        if problem:
            pairs = [f"{name}={number(to)}" for name, to in target.values.items()]
            given = shlex.join(word for pair in pairs for word in ("--set", pair))
            raise RefusedError(
                f"The start from {target.name} was chosen with `{given}`, which this script cannot "
                f"have: {problem.rstrip('.')}. Choose it again, with other values or without, with "
                f"`tfckpt-tui restore {self._run.shell_word} --name {shlex.quote(target.name)} "
                "--next-start`, and start again."
            )

    def change_values(
        self, values: Mapping[str, float], *, by: str
    ) -> tuple[list[ValueChange], str]:
        """Changes hyperparameters on all workers, or on none, after a restore.

        A start from the restored checkpoint changes them again.

        Args:
            values: Their new values, by name.
            by: Who asked for it.

        Returns:
            The changes; and why there are none, with the workers that could not take a value.
        """
        position = self._state.position
        step, name = position.step, position.parent
        changes, problem = self._changes.change(values, step=step, begins=step, over=0, by=by)
        if problem or name is None:
            return [], problem
        workers = count(self._group.size, "worker")
        message = f"{words_of(changes)} on {workers}, after the restore of {name}."
        self._telemetry.note_changes(message, changes, step=step, by=by)
        self._store_head(name, None, values)
        return changes, ""

    def _why_none(
        self, refused: Sequence[str], tried: Sequence[str], untried: Sequence[str]
    ) -> str:
        """Returns why the start restored no checkpoint, and what to do next."""
        problems = "; ".join(first_lines(refused, SHOWN_REFUSED))
        if not untried:
            return (
                f"No checkpoint in {self._run.root} can be restored: {problems}. Train "
                "in another directory, restore what fits with TrainingRun(partial=True), or move "
                "the checkpoints away to start from the beginning."
            )
        place, other = self._run.shell_word, shlex.quote(untried[0])
        were = "checkpoint was" if len(untried) == 1 else "checkpoints were"
        return (
            f"The start could not restore {', '.join(tried)}: {problems}. "
            f"{len(untried):,} other {were} not tried. If the model is right, choose one with "
            f"`tfckpt-tui restore {place} --name {other} --next-start` and start again. If the "
            "model has changed, train in another directory, or restore what fits with "
            "TrainingRun(partial=True)."
        )

    def record_finish(self, finish: Finish) -> None:
        """Records that training ended at the checkpoint that was saved or restored last."""
        position = self._state.position
        if position.parent is not None:
            self._store_head(position.parent, finish)

    def find(self, name: str) -> RestoreTarget:
        """Looks up a checkpoint to restore, after all saves in progress are finished."""
        self._saves.finish_all()
        target = self._group.broadcast(
            self._find(name) if self._group.is_chief else None, RestoreTarget
        )
        assert target is not None
        return target

    def restore(
        self, target: RestoreTarget, command: Command | None = None, *, partial: bool = False
    ) -> RestoreOutcome:
        """Restores `target` in place on all workers, or changes none of them.

        Args:
            target: What to restore.
            command: The command that asks for it.
            partial: Whether to restore what fits if the checkpoint does not fit the model.

        Raises:
            TornRestoreError: A worker failed after all had agreed to restore.
        """
        outcome = self._read(target.name, partial=partial)
        if outcome.problems:
            self._telemetry.note(
                EventKind.REFUSED,
                f"Restore of {target.name}: {'; '.join(outcome.problems)}.",
                command,
                checkpoint=target.name,
            )
        else:
            with changing_state(target.name):
                self._move_to(target, outcome, command, EventKind.RESTORE)
        return outcome

    def _read(self, name: str, *, partial: bool) -> RestoreOutcome:
        with self._telemetry.heartbeat.doing(Activity.RESTORING, name):
            began = time.monotonic()
            outcome = self._restorer.restore(name, partial=partial)
            if outcome.damaged and self._group.is_chief:
                record_damage(self._run, name)
            return replace(outcome, seconds=time.monotonic() - began)

    def _move_to(
        self,
        target: RestoreTarget,
        outcome: RestoreOutcome,
        command: Command | None,
        kind: EventKind,
    ) -> None:
        """Sets the position of the run to that of the restored checkpoint, and records it."""
        # Before anything is told of the restore: the last step was trained before it.
        self._telemetry.metrics.settle()
        position, left = self._state.position, self._state.position.step
        # Whoever restores leaves later changes behind.
        dropped = first_lines(self._state.user.hyperparameters.promised, SHOWN_CHANGES)
        position.step = self._state.shared.step
        position.branch = target.branch
        position.parent = target.name
        position.best = dict(target.best)
        position.sequence += 1
        if outcome.record is not None:
            self._saves.has_restored(outcome.record)
        changes = self._state.user.restore(
            outcome.record, position.step, worker_restored=outcome.worker_restored
        )
        changed = words_of(changes)
        self._telemetry.metrics.set_position(
            position.step, position.branch, self._facts_at(outcome.record)
        )
        self._telemetry.heartbeat.tell_position()
        self._telemetry.summaries.start_branch(position.branch, position.step)
        self._telemetry.summaries.write_event(
            position.step, f"Restored {target.name}, left step {left:,}."
        )
        self._telemetry.write_hyperparameters(position.step)
        self._store_head(target.name, target.finish)
        self._telemetry.event_log.later_told(
            self._run.state_file, lambda: point_state_file_at(self._run, target.name)
        )
        left_out = (
            f"{count(len(outcome.left_out), 'tensor')} left out, " if outcome.left_out else ""
        )
        self._telemetry.note(
            kind,
            f"Restored {target.name} on {count(self._group.size, 'worker')}: "
            f"{count(outcome.variables, 'variable')} proven equal, {left_out}now on branch "
            f"{position.branch}.{outcome.input_words}{outcome.note_words}"
            + (f" Hyperparameters: {changed}." if changed else "")
            + (f" No longer to be made again: {'; '.join(dropped)}." if dropped else ""),
            command,
            checkpoint=target.name,
            details={
                "left_step": left,
                "seconds": outcome.seconds,
                "notes": outcome.notes_with_workers,
                "left_out": list(outcome.left_out[:SHOWN_LEFT_OUT]),
                **details_of(changes),
            },
        )
        if outcome.adopted:
            self._telemetry.note(
                EventKind.NOTE,
                f"Another program saved {target.name}{self._whose(target.name)}. "
                f"Adopted: {'; '.join(outcome.adopted)}.",
                command,
                checkpoint=target.name,
            )

    def _whose(self, name: str) -> str:
        """Returns whose a checkpoint is, as the end of a clause; empty if it is of this user."""
        facts = facts_of(index_path(self._run.root / name))
        if facts is None or is_own_there(self._run.root, facts.st_uid, os.geteuid()):
            return ""
        return f", which belongs to {user_name(facts.st_uid)}"

    def _facts_at(self, record: CheckpointRecord | None) -> WorkerFacts | None:
        """Returns what a record says of this worker; of the chief if it is new."""
        workers = {facts.index: facts for facts in record.workers} if record is not None else {}
        return workers.get(self._group.index) or workers.get(0)

    def _store_head(
        self, checkpoint: str, finish: Finish | None, values: Mapping[str, float] | None = None
    ) -> None:
        position = self._state.position
        head = Head(
            checkpoint=checkpoint,
            step=position.step,
            branch=position.branch,
            sequence=position.sequence,
            finish=finish,
            values=dict(values or {}),
        )
        self._telemetry.event_log.later(
            self._run.head_file, lambda: store(self._run.head_file, head)
        )

    def _plan_start(self) -> _StartPlan:
        """Cleans up after an earlier process, and lists the checkpoints to try; chief only."""
        log = self._telemetry.event_log
        self._settle_prunes()
        with suppress(OSError):
            delete_checkpoint_of_check(self._run.check_directory)
        self._saves.finish_interrupted()
        self._saves.bring_back()
        for sentence in damage_at_start(self._run):
            self._telemetry.event_log.note(EventKind.NOTE, sentence)
        catalog = Catalog(self._run)
        head = read_head(self._run)
        candidates = in_order_of_use(catalog.scan(time.time()), head)
        # It has restored and saved none: it began without those that are here.
        begun = is_restart() and head is None
        strays = [c.name for c in candidates if is_left_by_others(self._run, c, has_begun=begun)]
        strangers = {c.name: c.stranger for c in candidates if c.stranger and c.name not in strays}
        if strays:
            one = "was passed over: it is no checkpoint, and another user put it there"
            more = "were passed over: they are no checkpoints, and another user put them there"
            log.note(EventKind.NOTE, f"{join_names(strays)} {noun(len(strays), one, more)}.")
        for owner in dict.fromkeys(strangers.values()):
            names = [name for name in strangers if strangers[name] == owner]
            one = f"was passed over: it belongs to {owner}, who added it there"
            more = f"were passed over: they belong to {owner}, who added them there"
            log.note(EventKind.NOTE, f"{join_names(names)} {noun(len(names), one, more)}.")
        left = strangers.keys() | set(strays)
        checkpoints = [c for c in candidates if c.step is not None and c.name not in left]
        resumed = resume_point(self._run)
        first = resumed.checkpoint if resumed else None
        checkpoints.sort(key=lambda c: c.name != first)
        tips = catalog.branch_tips(list_trash(self._run))
        targets = [
            RestoreTarget(
                name=c.name,
                step=c.step or 0,
                branch=tips.at_start(c, resumed),
                best=_best_of(c),
                finish=head.finish if head is not None and head.checkpoint == c.name else None,
                values=dict(resumed.values) if resumed and c.name == first else {},
            )
            for c in checkpoints
        ]
        return _StartPlan(targets, resumed.sequence if resumed else 0)

    def _settle_prunes(self) -> None:
        """Brings back what interrupted prunes had moved. What prevents it ends no start."""
        log = self._telemetry.event_log
        try:
            for manifest in settle_interrupted_prunes(self._run, partial(log.note, EventKind.NOTE)):
                kind, message, details = event_of_settled(manifest)
                log.note(kind, message, details=details)
        except (OSError, TfckptError) as error:
            why = describe_error(error).rstrip(".")
            log.note(EventKind.NOTE, f"What was interrupted in the trash stays as it is: {why}.")

    def _find(self, name: str) -> RestoreTarget:
        catalog = Catalog(self._run)
        checkpoints = catalog.scan(time.time())
        checkpoint = next((c for c in checkpoints if c.name == name), None)
        if checkpoint is None:
            newest = ", ".join(c.name for c in checkpoints[:5]) or "none"
            problem = f"There is no checkpoint {name}; the newest are {newest}."
            return RestoreTarget(name, problem=problem)
        tips = catalog.branch_tips(list_trash(self._run))
        position = BranchStep(self._state.position.branch, self._state.position.step)
        try:
            plan = plan_restore(checkpoints, tips, checkpoint, position)
        except RefusedError as refusal:
            return RestoreTarget(name, problem=str(refusal))
        return RestoreTarget(
            name, step=checkpoint.step or 0, branch=plan.branch, best=_best_of(checkpoint)
        )


def _print_clean(words: str) -> None:
    """Prints a sentence on standard error: names in it come from the disk."""
    sys.stderr.write(f"{clean(words)}\n")


def _best_of(checkpoint: Checkpoint) -> dict[str, float]:
    record = checkpoint.record
    return dict(record.best) if record is not None else {}
