"""Plans which checkpoints a prune deletes, each with the reason; nothing is changed here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import NamedTuple

from tfckpt_trainer.catalog.directory.checkpoints import (
    Checkpoint,
    CheckpointState,
    counted_by_rules,
    rule_groups,
)
from tfckpt_trainer.catalog.retention.own_rules import RetentionRule
from tfckpt_trainer.catalog.retention.policy import Policy
from tfckpt_trainer.catalog.scan.order import OrderGuess, find_order_guess
from tfckpt_trainer.catalog.scan.protection import NOT_IN_USE, protections
from tfckpt_trainer.errors import UnknownCheckpointError, UsageError
from tfckpt_trainer.scripts.script_objects import name_of
from tfckpt_trainer.words.advice import only_command


class RetentionDecision(NamedTuple):
    """Whether one checkpoint stays, and why."""

    checkpoint: Checkpoint
    keep: bool
    reason: str


@dataclass(frozen=True)
class RetentionPlan:
    """What a prune would delete.

    Attributes:
        checkpoints: Those that it decides on, newest first.
        kept: The names of those that stay, each with the reason.
        reasons: Why others are deleted, by name, unless it is that no rule keeps them.
    """

    checkpoints: Sequence[Checkpoint]
    kept: Mapping[str, str]
    reasons: Mapping[str, str]

    def decision(self, checkpoint: Checkpoint) -> RetentionDecision:
        """Returns what the plan says about a checkpoint."""
        name = checkpoint.name
        if name in self.kept:
            return RetentionDecision(checkpoint, True, self.kept[name])
        return RetentionDecision(checkpoint, False, self.reasons.get(name, "no rule keeps it"))

    @property
    def decisions(self) -> list[RetentionDecision]:
        """The decisions on all checkpoints."""
        return [self.decision(checkpoint) for checkpoint in self.checkpoints]

    @cached_property
    def deleted(self) -> tuple[Checkpoint, ...]:
        """The checkpoints that the prune deletes."""
        return tuple([c for c in self.checkpoints if c.name not in self.kept])

    @cached_property
    def order_guess(self) -> OrderGuess | None:
        """What it parts although nothing tells which is newer; None if it guesses nothing."""
        kept = [checkpoint for checkpoint in self.checkpoints if checkpoint.name in self.kept]
        return find_order_guess(kept, self.deleted)

    @cached_property
    def freed_bytes(self) -> int:
        """Bytes that are free once the trash is emptied."""
        return sum([checkpoint.size for checkpoint in self.deleted])


class Prunable:
    """Checkpoints before a prune by rules, with all that is the same for every policy."""

    def __init__(
        self, checkpoints: Sequence[Checkpoint], in_use: Mapping[str, str] = NOT_IN_USE
    ) -> None:
        """Finds what is protected.

        Args:
            checkpoints: Newest first, as `Catalog.scan` returns them.
            in_use: Names of checkpoints that another process may read or write, each with the
                reason.
        """
        self._checkpoints = checkpoints
        self._groups = rule_groups(checkpoints)
        self._protected = protections(checkpoints, in_use)
        counted = {c.name for group in self._groups for c in group if not c.dropped_by_manager}
        others = [c for c in checkpoints if c.name not in counted]
        self._left = {c.name: why for c in others if (why := _why_left(c))}
        self._broken = {c.name: f"{c.state.value}: it cannot be restored" for c in others}

    def plan(self, policy: Policy) -> RetentionPlan:
        """Plans a prune: a checkpoint stays if any rule keeps it.

        Raises:
            UsageError: A rule is invalid, or names a metric that no checkpoint has.
        """
        kept = self._kept_by(policy) | self._protected
        left = self._left
        if policy.is_empty:
            left = dict.fromkeys([c.name for c in self._checkpoints], "no rule was given")
        elif not any(checkpoint.restorable for checkpoint in self._checkpoints):
            why = "no checkpoint can be restored: delete by name"
            left = dict.fromkeys([c.name for c in self._checkpoints], why)
        return RetentionPlan(self._checkpoints, left | kept, self._broken)

    def _kept_by(self, policy: Policy) -> dict[str, str]:
        """Returns the names of what the rules keep, each with the reason of the first one."""
        policy.check()
        kept: dict[str, str] = {}
        for rule in policy.rules:
            unmet = rule.unmet(self._groups[0] if self._groups else [])
            if unmet:
                raise UsageError(unmet)
        for group in self._groups:
            found: list[Iterable[tuple[Checkpoint, str]]] = [
                *(rule.kept(group) for rule in policy.rules),
                *(rule.kept(group) for rule in policy.judged(group).own),
            ]
            for checkpoint, reason in chain.from_iterable(found):
                kept.setdefault(checkpoint.name, reason)
        return kept


def plan(
    checkpoints: Sequence[Checkpoint], policy: Policy, *, in_use: Mapping[str, str] = NOT_IN_USE
) -> RetentionPlan:
    """Plans a prune by rules, for a single policy.

    Args:
        checkpoints: Newest first, as `Catalog.scan` returns them.
        policy: The rules.
        in_use: Names of checkpoints that another process may read or write, each with the reason.

    Raises:
        UsageError: A rule is invalid, or names a metric that no checkpoint has.
    """
    return Prunable(checkpoints, in_use).plan(policy)


def plan_of_names(
    checkpoints: Sequence[Checkpoint],
    names: Iterable[str],
    *,
    in_use: Mapping[str, str] = NOT_IN_USE,
    own: Sequence[RetentionRule] = (),
) -> RetentionPlan:
    """Plans a prune of exactly `names`; protected ones stay. No other checkpoint is in the plan.

    Args:
        checkpoints: Newest first, as `Catalog.scan` returns them.
        names: The checkpoints to delete.
        in_use: Names of checkpoints that another process may read or write, each with the reason.
        own: The trainer's rules of its script. They keep nothing that is named here; the reasons
            say what they would keep.

    Raises:
        UsageError: One of the names does not exist.
    """
    chosen = set(names)
    named = [checkpoint for checkpoint in checkpoints if checkpoint.name in chosen]
    unknown = sorted(chosen - {checkpoint.name for checkpoint in named})
    if unknown:
        raise UnknownCheckpointError(
            f"There is no checkpoint {unknown[0]}.",
            unknown[0],
            only_command("List them with ", "ls"),
        )
    protected = protections(checkpoints, in_use)
    counted = counted_by_rules(checkpoints) if own else []
    reasons = dict.fromkeys(chosen, "chosen")
    for rule in own:
        for checkpoint, reason in rule.kept(counted):
            reasons[checkpoint.name] = f"chosen, but {name_of(rule)} keeps it: {reason}"
    return RetentionPlan(named, protected, reasons)


def _why_left(checkpoint: Checkpoint) -> str:
    """Returns why rules do not delete a checkpoint that they do not count; empty if they do."""
    if checkpoint.stranger:
        return f"it belongs to {checkpoint.stranger}: delete it by name"
    made = checkpoint.derived
    if made is not None:
        return f"made by {made.operation}: delete it by name"
    if checkpoint.restorable:
        return "its CheckpointManager or Saver may keep it: delete it by name"
    if checkpoint.state in {CheckpointState.UNREADABLE, CheckpointState.UNSUPPORTED}:
        problem = checkpoint.problem.rstrip(".")
        return f"{checkpoint.state}: delete it by name ({problem})"
    if not checkpoint.is_proven:
        return "not known to be a checkpoint: prune it by name"
    if checkpoint.lacks_file:
        return "a file is missing, which may have another name: delete it by name"
    if checkpoint.state is CheckpointState.CORRUPT:
        return "corrupt: delete it by name"
    return ""
