"""Retention while training: after each save, what no rule keeps goes to the trash."""

from __future__ import annotations

import time
from dataclasses import dataclass

import msgspec

from tfckpt_trainer.catalog.checkpoints import Checkpoint
from tfckpt_trainer.catalog.prune import move_to_trash
from tfckpt_trainer.catalog.retention import Policy, plan, policy_from, rules_of
from tfckpt_trainer.catalog.scan import Catalog
from tfckpt_trainer.catalog.trash import empty_trash
from tfckpt_trainer.errors import TfckptError, UsageError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records import JournalKind, RetentionRules
from tfckpt_trainer.training.ledger import Ledger

BY = "retention"
"""Who pruned, in the trash and in the journal."""


@dataclass(frozen=True)
class Housekeeping:
    """What a trainer does with old checkpoints.

    Attributes:
        policy: Which of its own checkpoints it keeps; None keeps all.
        trash_hours: How long what it moved to the trash stays there; None is for good.
        make_room: Whether a save that would not fit may empty the trash, the oldest first.
    """

    policy: Policy | None = None
    trash_hours: float | None = 1.0
    make_room: bool = False

    @property
    def rules(self) -> RetentionRules | None:
        """What `run.json` says of it."""
        policy = self.policy or Policy()
        if policy.is_empty and not self.make_room:
            return None
        rules = rules_of(policy)
        hours = None if policy.is_empty else self.trash_hours
        return msgspec.structs.replace(rules, trash_hours=hours, make_room=self.make_room)

    def check(self) -> None:
        """Refuses what makes no sense: at the start, and not at a save hours later.

        Raises:
            UsageError: It names the option and its value.
        """
        rules = msgspec.structs.replace(
            rules_of(self.policy or Policy()), trash_hours=self.trash_hours
        )
        try:
            policy_from(msgspec.convert(msgspec.to_builtins(rules), RetentionRules))
        except msgspec.ValidationError as error:
            raise UsageError(f"retention={self.policy!r} makes no sense: {error}.") from error


class Janitor:
    """Applies the rules as the chief; whatever fails is written down, and training goes on."""

    def __init__(self, run: RunDirectory, housekeeping: Housekeeping, ledger: Ledger) -> None:
        self._run = run
        self._housekeeping = housekeeping
        self._ledger = ledger
        self._catalog = Catalog(run)
        self._waits_for: frozenset[str] = frozenset()

    def after_save(self, parent: str | None) -> None:
        """Prunes by the policy, and empties what was long enough in the trash.

        Args:
            parent: The checkpoint that was saved or restored last; it stays.
        """
        policy = self._housekeeping.policy
        if policy is None or policy.is_empty:
            return
        try:
            self._prune(policy, frozenset({parent} if parent else ()))
            self._empty_old()
        except (TfckptError, OSError) as error:
            self._ledger.note(JournalKind.FAILED, f"Retention: {error}", by=BY)

    def make_room(self, needed: int) -> int:
        """Empties the trash until `needed` bytes are free, if the rules allow it.

        Returns:
            How many bytes were freed.
        """
        if not self._housekeeping.make_room:
            return 0
        try:
            emptied = empty_trash(self._run, until_freed=needed)
        except (TfckptError, OSError) as error:
            self._ledger.note(JournalKind.FAILED, f"Making room: {error}", by=BY)
            return 0
        if emptied.names:
            why = f"to make room for a save: {', '.join(emptied.names)}"
            self._note_emptied(why, emptied.names, emptied.freed)
        return emptied.freed

    def _prune(self, policy: Policy, in_use: frozenset[str]) -> None:
        now = time.time()
        checkpoints = self._catalog.scan(now)
        if self._misses_a_metric(policy, checkpoints):
            return
        going = plan(checkpoints, policy, in_use=in_use).deleted
        # What it did not save itself is not its own to move.
        names = [c.name for c in going if c.restorable and c.record is not None]
        if not names:
            return
        manifest = move_to_trash(
            self._run, names, by=BY, now=now, update_state_file=True, in_use=in_use
        )
        self._ledger.note(
            JournalKind.PRUNE,
            f"Moved to the trash: {', '.join(names)}.",
            by=BY,
            details={"trash": manifest.id, "names": names},
        )

    def _misses_a_metric(self, policy: Policy, checkpoints: tuple[Checkpoint, ...]) -> bool:
        """Whether a rule goes by a metric that no checkpoint has yet: all are kept until then."""
        missing = set()
        for best in policy.keep_best:
            try:
                plan(checkpoints, Policy(keep_best=(best,)))
            except UsageError:
                missing.add(best.metric)
        if missing - self._waits_for:
            self._waits_for = frozenset(missing)
            names = ", ".join(sorted(missing))
            self._ledger.note(
                JournalKind.REFUSED,
                f"Retention: no checkpoint has a finite value of {names} yet; all are kept.",
                by=BY,
            )
        return bool(missing)

    def _empty_old(self) -> None:
        hours = self._housekeeping.trash_hours
        if hours is None:
            return
        emptied = empty_trash(self._run, time.time() - hours * 3600, by=BY)
        if emptied.names:
            self._note_emptied(", ".join(emptied.names), emptied.names, emptied.freed)

    def _note_emptied(self, what: str, names: tuple[str, ...], freed: int) -> None:
        self._ledger.note(
            JournalKind.EMPTY,
            f"Deleted for good {what}.",
            by=BY,
            details={"names": list(names), "bytes": freed},
        )
