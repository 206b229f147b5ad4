"""Retention rules of a script: what they keep, and what the trainer recorded that they keep.

The app and the commands cannot import the class of such a rule. The trainer records in `run.json`
what its rules say about each checkpoint, and every other prune goes by that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.scripts.script_objects import name_of, objects_with, one_line

KEY = "keep_by_own_rules"
"""Key of the verdicts in `run.json`. It begins with `keep_`, so that earlier versions refuse it."""


class RetentionRule(Protocol):
    """A retention rule of a script: which checkpoints it keeps, and why.

    Any object with this method is one. Messages name it by its class, or as its `__str__` says.
    """

    def kept(self, checkpoints: Sequence[Checkpoint]) -> Iterable[tuple[Checkpoint, str]]:
        """Returns the checkpoints that the rule keeps, each with the reason in a few words.

        The chief calls this after each save, between two steps. If it raises an error, nothing is
        pruned.

        Args:
            checkpoints: Those that training saved and that can be restored, newest first.
        """


class Verdicts(msgspec.Struct, frozen=True):
    """What the rules of a script say about the checkpoints that they were asked about.

    Attributes:
        rules: Their names.
        reasons: Why each checkpoint is kept, by name; empty if no rule keeps it. A checkpoint that
            is missing here has not been judged, and is kept.
    """

    rules: tuple[str, ...]
    reasons: Mapping[str, str] = {}

    def kept(self, checkpoints: Sequence[Checkpoint]) -> Iterator[tuple[Checkpoint, str]]:
        """Yields the checkpoints that are kept, each with the reason."""
        for checkpoint in checkpoints:
            reason = self.reasons.get(checkpoint.name, f"not judged yet by {self}")
            if reason:
                yield checkpoint, reason

    def __str__(self) -> str:
        return ", ".join(self.rules)


def judge(rules: Sequence[RetentionRule], checkpoints: Sequence[Checkpoint]) -> Verdicts:
    """Asks rules about checkpoints.

    Raises:
        UsageError: A rule raises an error, or returns something else than it should.
    """
    reasons = {checkpoint.name: "" for checkpoint in checkpoints if _is_text(checkpoint.name)}
    for rule in rules:
        try:
            for checkpoint, reason in rule.kept(checkpoints):
                if checkpoint.name in reasons and not reasons[checkpoint.name]:
                    reasons[checkpoint.name] = one_line(reason) or f"kept by {name_of(rule)}"
        except Exception as error:
            raise UsageError(
                f"The retention rule {name_of(rule)} failed: {error!r}. Nothing was pruned. Its "
                "method kept must return pairs of a checkpoint and a reason."
            ) from error
    return Verdicts(tuple(map(name_of, rules)), reasons)


def recorded_verdicts(section: Mapping[str, Any] | None) -> tuple[Verdicts, ...]:
    """Returns what the rules of a trainer keep, according to its section `retention` in `run.json`.

    Raises:
        UsageError: The section is invalid.
    """
    recorded = section.get(KEY) if section is not None else None
    if recorded is None:
        return ()
    try:
        return (msgspec.convert(recorded, Verdicts),)
    except msgspec.ValidationError as error:
        raise UsageError(f"{KEY} in run.json is invalid: {error}.") from error


def check_rules(rules: Iterable[RetentionRule]) -> tuple[RetentionRule, ...]:
    """Returns the rules.

    Raises:
        TypeError: One is a class, or has no method `kept`.
    """
    return objects_with("kept(checkpoints)", rules, "Policy(rules=[…])")


def _is_text(name: str) -> bool:
    """Whether a document can hold a name; the bytes of a file name may be no text."""
    return not any("\ud800" <= character <= "\udfff" for character in name)
