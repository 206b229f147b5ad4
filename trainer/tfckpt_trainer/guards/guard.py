"""A guard: a condition, and the actions to carry out when it begins to hold."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Self

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.guards.actions import ACTIONS, Action, Pause, Situation, Stop
from tfckpt_trainer.guards.conditions import CONDITIONS, Condition
from tfckpt_trainer.guards.terms import Word, parse_term, split_words
from tfckpt_trainer.rundir.records.command import CommandArguments

EXAMPLE = "spike loss deviations=8: go_back, skip_batches 10; at most 3"

_LIMIT = re.compile(r"[0-9]{1,15}")

DEFAULT_LIMIT = 3
"""How often a guard fires that changes training, before the next firing pauses the run."""


class Guard:
    """A rule that acts on a run while it trains.

    Its text is `CONDITION: ACTION, ACTION; at most N`. Events and messages name it by its text.

    Attributes:
        condition: When it fires: if this begins to hold.
        actions: What it does then.
        at_most: How often; the next firing pauses the run. None without a limit.
    """

    def __init__(
        self, condition: Condition, actions: Iterable[Action], at_most: int | None = None
    ) -> None:
        """Creates a guard.

        Args:
            condition: When it fires.
            actions: What it does, at least one action.
            at_most: How often it may fire. By default 3 times if an action changes training, else
                without a limit.

        Raises:
            UsageError: A part is no condition or action, there is no action, two of them exclude
                each other, or `at_most` is below 1.
        """
        actions = tuple(actions)
        if not isinstance(condition, Condition) or not all(isinstance(a, Action) for a in actions):
            raise UsageError(
                f"Guard({condition!r}, {actions!r}) is no guard; pass a condition and a list of "
                f"actions, or use Guard.parse({EXAMPLE!r})."
            )
        self.condition = condition
        # Python's sort is stable: hyperparameters change in the order in which they are given.
        self.actions = tuple(sorted(actions, key=lambda action: action.order))
        if not self.actions:
            raise UsageError(f"{condition}: An action is missing. Write one, such as notify.")
        if {Pause, Stop} <= set(map(type, self.actions)):
            raise UsageError(f"{condition}: A guard cannot pause and stop. Write one of both.")
        if at_most is not None and at_most < 1:
            raise UsageError(f"{condition}: at most is {at_most}; it must be at least 1.")
        self.at_most = at_most if at_most is not None else self._default_limit

    @property
    def changes_training(self) -> bool:
        """Whether training goes on differently after a firing."""
        return any(action.changes_training for action in self.actions)

    @property
    def _default_limit(self) -> int | None:
        return DEFAULT_LIMIT if self.changes_training else None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Returns the guard for a text.

        Raises:
            UsageError: The text is no guard; the message has an example.
        """
        try:
            return cls._parse(split_words(text))
        except UsageError as error:
            raise UsageError(
                f"{text!r:.200} is no guard: {error} "
                f"A guard is CONDITION: ACTION, ACTION; at most N, such as {EXAMPLE!r}."
            ) from None

    @classmethod
    def _parse(cls, words: list[Word]) -> Self:
        rule, *limit = _split(words, ";")
        condition, *actions = _split(rule, ":")
        if len(limit) > 1:
            raise UsageError("it has two ;.")
        if len(actions) > 1:
            raise UsageError("it has two :. Put a name that has one into double quotes.")
        return cls(
            parse_term("condition", condition, CONDITIONS),
            [
                parse_term("action", action, ACTIONS)
                for part in actions
                for action in _split(part, ",")
            ],
            _limit(limit[0]) if limit else None,
        )

    def commands(self, situation: Situation) -> list[CommandArguments]:
        """Returns the commands to carry out, in order.

        Raises:
            RefusedError: An action is not possible now.
            UsageError: The run has no such hyperparameter, or that cannot have the value.
        """
        return [command for action in self.actions for command in action.commands(situation)]

    def __str__(self) -> str:
        limit = f"; at most {self.at_most}" if self.at_most != self._default_limit else ""
        return f"{self.condition}: {', '.join(map(str, self.actions))}{limit}"

    def __repr__(self) -> str:
        return f"Guard.parse({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Guard) and (
            (self.condition, self.actions, self.at_most)
            == (other.condition, other.actions, other.at_most)
        )

    def __hash__(self) -> int:
        return hash(str(self))


def _split(words: list[Word], mark: str) -> list[list[Word]]:
    """Returns the parts of a text between marks."""
    parts: list[list[Word]] = [[]]
    for word in words:
        if word == Word("mark", mark):
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _limit(words: list[Word]) -> int:
    texts = [word.text for word in words]
    if len(texts) != 3 or texts[:2] != ["at", "most"] or not _LIMIT.fullmatch(texts[2]):
        raise UsageError(f"After ; it has {' '.join(texts)!r:.80}; write at most N.")
    return int(texts[2])
