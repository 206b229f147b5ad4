"""Automatic pruning: after each save, moves to the trash what no retention rule keeps."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint, rule_groups
from tfckpt_trainer.catalog.directory.symbolic_links import linked_from_below
from tfckpt_trainer.catalog.directory.trash import RETENTION
from tfckpt_trainer.catalog.retention.emptying import Emptied, empty_trash
from tfckpt_trainer.catalog.retention.plan import RetentionPlan, plan
from tfckpt_trainer.catalog.retention.policy import Policy, RetentionSettings
from tfckpt_trainer.catalog.retention.prune import event_of, move_to_trash
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.catalog.scan.foreign_writers import foreign_writers
from tfckpt_trainer.errors import RefusedError, TfckptError, describe_error
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.disk_reserve import keep_reserve
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import CommandKind
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.training.telemetry.event_log_writer import EventLogWriter

LOCK_TIMEOUT_SECONDS = 1.0
"""How long training waits for the lock of the trash; the next save tries again."""


class AutomaticPruner:
    """Prunes by the retention settings, on the chief only. Failures go to the event log.

    Checkpoints are moved to the trash between two steps, which is fast. They are deleted in a
    thread.
    """

    def __init__(
        self, run: RunDirectory, settings: RetentionSettings, event_log: EventLogWriter
    ) -> None:
        self._run = run
        self._settings = settings
        self._event_log = event_log
        self._catalog = Catalog(run)
        self._queue = CommandQueue(run)
        self._waiting: frozenset[str] = frozenset()
        self._recorded: dict[str, Any] | None = None
        self._deleting: threading.Thread | None = None
        self._noted_problems: set[str] = set()

    def after_save(self, parent: str | None) -> None:
        """Prunes by the policy, and starts to delete what is older than `trash_hours`.

        Args:
            parent: The checkpoint that was saved or restored last, which stays.
        """
        if not self._event_log.is_chief:
            return
        keep_reserve(self._run)
        policy = self._settings.policy
        if policy.is_empty:
            return
        self._wait_for_deleting(LOCK_TIMEOUT_SECONDS)
        with self._log_errors("Retention"):
            self._prune(policy, {parent: "saved or restored last"} if parent else {})
        hours = self._settings.trash_hours
        if hours is not None and self._deleting is None:
            # Not a daemon thread: the process waits for the deletion when it ends.
            self._deleting = threading.Thread(
                target=self._delete_old, args=(hours,), name="tfckpt-janitor"
            )
            self._deleting.start()

    def make_room(self, needed: int) -> int:
        """Empties the trash until `needed` bytes were freed, if the settings allow it.

        Returns:
            Bytes freed.
        """
        if not self._settings.make_room:
            return 0
        self._wait_for_deleting(None)
        emptied = Emptied(0, ())
        with self._log_errors("Making room"):
            emptied = empty_trash(self._run, until_freed=needed)
        if emptied.names:
            self._note_emptied(f"to make room for a save: {', '.join(emptied.names)}", emptied)
        self._note_problems(emptied)
        return emptied.freed

    def _prune(self, policy: Policy, newest: Mapping[str, str]) -> None:
        now = time.time()
        checkpoints = self._catalog.scan(now)
        policy = self._judged(policy, checkpoints)
        if self._must_wait(policy, checkpoints):
            return
        in_use = {**newest, **self._to_be_restored()}
        if not self._names_of(plan(checkpoints, policy, in_use=in_use)):
            return
        # An evaluator may be reading one of them. This check takes milliseconds.
        opened = foreign_writers(self._run, now).open_checkpoints
        in_use |= linked_from_below(self._run)
        in_use |= dict.fromkeys(opened, "open in another process")
        names = self._names_of(plan(checkpoints, policy, in_use=in_use))
        if not names:
            return
        warnings: list[str] = []
        manifest = move_to_trash(
            self._run,
            names,
            by=RETENTION,
            now=now,
            update_state_file=True,
            in_use=in_use,
            timeout=LOCK_TIMEOUT_SECONDS,
            on_warning=warnings.append,
        )
        message, details = event_of(EventKind.PRUNE, manifest)
        words = " ".join([message, *warnings])
        self._event_log.note(EventKind.PRUNE, words, by=RETENTION, details=details)

    def _judged(self, policy: Policy, checkpoints: Sequence[Checkpoint]) -> Policy:
        """Asks the rules of the script, and records what they keep for all others who prune."""
        judged = policy.judged(_saved_here(checkpoints))
        recorded = replace(self._settings, policy=judged).recorded if policy.own else None
        if recorded != self._recorded:
            self._recorded = recorded
            self._event_log.update_info(retention=recorded)
        return judged

    def _names_of(self, made: RetentionPlan) -> list[str]:
        """Returns what a plan deletes, without checkpoints that this library did not save."""
        return [c.name for c in made.deleted if c.restorable and c.packed is not None]

    def _to_be_restored(self) -> dict[str, str]:
        """Returns the checkpoints that a waiting command restores after the save."""
        waiting = [*self._queue.pending(), *self._queue.working()]
        return {
            str(command.arguments.get("name")): "about to be restored"
            for command in waiting
            if command.kind is CommandKind.RESTORE
        }

    def _must_wait(self, policy: Policy, checkpoints: Sequence[Checkpoint]) -> bool:
        """Whether a rule cannot be applied yet, such as one by a metric; notes why, once."""
        counted = _saved_here(checkpoints)
        waiting = {str(rule): why for rule in policy.rules if (why := rule.unmet(counted))}
        for rule in waiting.keys() - self._waiting:
            self._event_log.note(
                EventKind.REFUSED,
                f"Retention: {waiting[rule]} All checkpoints are kept until then.",
                by=RETENTION,
            )
        self._waiting |= waiting.keys()
        return bool(waiting)

    def _delete_old(self, hours: float) -> None:
        with self._log_errors("Emptying the trash"):
            emptied = empty_trash(self._run, time.time() - hours * 3600, by=RETENTION)
            if emptied.names:
                self._note_emptied(", ".join(emptied.names), emptied)
            self._note_problems(emptied)

    def _wait_for_deleting(self, seconds: float | None) -> None:
        if self._deleting is not None:
            self._deleting.join(seconds)
            if not self._deleting.is_alive():
                self._deleting = None

    @contextmanager
    def _log_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            # Training goes on, whatever is wrong with what it does beside that.
            kind = EventKind.REFUSED if isinstance(error, RefusedError) else EventKind.FAILED
            is_ours = not isinstance(error, TfckptError | OSError)
            cause = repr(error) if is_ours else describe_error(error)
            self._event_log.note(kind, f"{what}: {cause}", by=RETENTION)

    def _note_problems(self, emptied: Emptied) -> None:
        """Notes files that could not be deleted in the event log, each problem once."""
        for problem in set(emptied.problems) - self._noted_problems:
            self._noted_problems.add(problem)
            self._event_log.note(EventKind.FAILED, f"Emptying the trash: {problem}", by=RETENTION)

    def _note_emptied(self, what: str, emptied: Emptied) -> None:
        self._event_log.note(
            EventKind.EMPTY,
            f"Deleted for good {what}.",
            by=RETENTION,
            details={"names": list(emptied.names), "bytes": emptied.freed},
        )


def _saved_here(checkpoints: Sequence[Checkpoint]) -> Sequence[Checkpoint]:
    """Returns those that this library saved; a plan moves no other."""
    return next(iter(rule_groups(checkpoints)), [])
