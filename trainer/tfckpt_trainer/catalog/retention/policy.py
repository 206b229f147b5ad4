"""Retention policies: sets of rules, read from and written to Python, JSON and TOML."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.catalog.retention import rules as registry
from tfckpt_trainer.catalog.retention.own_rules import (
    KEY,
    RetentionRule,
    Verdicts,
    check_rules,
    judge,
    recorded_verdicts,
)
from tfckpt_trainer.catalog.retention.rules import Rule
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.scripts.script_objects import name_of


def _given(value: Any, kind: type[Rule]) -> tuple[Any, ...]:
    if value is None:
        return ()
    return tuple(value) if kind.fields.repeats and isinstance(value, list | tuple) else (value,)


def _value(rules: list[Rule], kind: type[Rule]) -> Any:
    if kind.fields.repeats:
        return [rule.value for rule in rules]
    return rules[0].value if rules else None


@dataclass(frozen=True, init=False, repr=False)
class Policy:
    """Which checkpoints to keep: those that any rule keeps. An empty policy keeps everything.

    Each keyword is one rule. None, or an empty list, means no rule.

    Keyword Args:
        keep_last (int): Keeps the newest N that can be restored.
        keep_every_steps (int): Keeps the first one in every N steps, on each branch.
        keep_every_hours (float): Keeps the first one in every N hours.
        keep_best (list): Keeps the best N by a metric: `BestBy` rules, or texts
            `METRIC:min|max:N`.
        rules (list): Rules of your own, each a `RetentionRule`.

    Attributes:
        rules: The rules of this library, in the order of `retention.rules.RULES`.
        own: The rules of the script, or what the trainer recorded of them.

    Raises:
        TypeError: There is no rule of this name, or a rule has no method `kept`.
        UsageError: A value has another type or form than its rule.
    """

    rules: tuple[Rule, ...]
    own: tuple[RetentionRule, ...]

    def __init__(self, *, rules: Iterable[RetentionRule] = (), **values: Any) -> None:
        built_in = [
            value if isinstance(value, kind) else kind.from_value(value)
            for kind in registry.RULES
            for value in _given(values.pop(kind.fields.key, None), kind)
        ]
        if values:
            keys = ", ".join(kind.fields.key for kind in registry.RULES)
            raise TypeError(f"Policy() has no rule {next(iter(values))!r}; there are {keys}.")
        object.__setattr__(self, "rules", tuple(built_in))
        object.__setattr__(self, "own", check_rules(rules))

    @property
    def is_empty(self) -> bool:
        """Whether it has no rule."""
        return not (self.rules or self.own)

    def with_own(self, rules: Iterable[RetentionRule]) -> Policy:
        """Returns the policy with these rules of a script; an empty one still keeps everything."""
        return self if self.is_empty else Policy(rules=rules, **self.values)

    def judged(self, checkpoints: Sequence[Checkpoint]) -> Policy:
        """Returns the policy with what its own rules say about checkpoints, in place of the rules.

        Raises:
            UsageError: A rule raises an error, or returns something else than it should.
        """
        return self.with_own((judge(self.own, checkpoints),)) if self.own else self

    @property
    def values(self) -> dict[str, Any]:
        """The value of each rule by its key, as in JSON: None or an empty list if not set."""
        return {
            kind.fields.key: _value([rule for rule in self.rules if isinstance(rule, kind)], kind)
            for kind in registry.RULES
        }

    def check(self) -> None:
        """Checks each rule by itself.

        Raises:
            UsageError: A number is out of range.
        """
        for rule in self.rules:
            rule.check()

    def __repr__(self) -> str:
        given = [f"{key}={value!r}" for key, value in self.values.items() if value]
        given += [f"rules=[{', '.join(map(name_of, self.own))}]"] if self.own else []
        return f"Policy({', '.join(given)})"

    def __str__(self) -> str:
        """Returns the rules in words, such as `keep the last 5, the best 3 by min loss`."""
        words = [*map(str, self.rules), *map(name_of, self.own)]
        return f"keep {', '.join(words)}" if words else "keep all"


@dataclass(frozen=True)
class RetentionSettings:
    """The section `retention` of `run.json` and of the configuration file.

    Attributes:
        policy: Which checkpoints to keep.
        trash_hours: Hours until pruned checkpoints are deleted for good; None keeps them forever.
        make_room: Whether a save that does not fit may empty the trash, the oldest prune first.
    """

    other_keys: ClassVar[tuple[str, ...]] = ("trash_hours", "make_room")

    policy: Policy = Policy()
    trash_hours: float | None = None
    make_room: bool = False

    @classmethod
    def known_keys(cls) -> tuple[str, ...]:
        """Returns the keys of the section."""
        return (*(kind.fields.key for kind in registry.RULES), *cls.other_keys)

    @classmethod
    def from_json(cls, section: Mapping[str, Any]) -> RetentionSettings:
        """Reads and checks the section; keys of newer versions that are no rules are ignored.

        Raises:
            UsageError: A value is invalid, or there is a rule that this version does not know.
        """
        values = {
            key: value
            for key, value in section.items()
            if key.startswith("keep_") and key != KEY and value is not None and value != []
        }
        unknown = sorted(values.keys() - set(cls.known_keys()))
        if unknown:
            raise UsageError(
                f"the rule {unknown[0]} is unknown here; upgrade tfckpt-tui to the version "
                "of the trainer."
            )
        hours, room = section.get("trash_hours"), section.get("make_room", False)
        settings = cls(Policy(rules=recorded_verdicts(section), **values), hours, room)
        settings.check()
        return settings

    def to_json(self) -> dict[str, Any]:
        """Returns the section."""
        others = {"trash_hours": self.trash_hours, "make_room": self.make_room}
        return {**self.policy.values, **self._verdicts(), **others}

    def _verdicts(self) -> dict[str, Any]:
        """Returns what the script's own rules say, under its key; nothing if there are none."""
        own = self.policy.own
        if not own:
            return {}
        verdicts = own[0] if isinstance(own[0], Verdicts) else Verdicts(tuple(map(name_of, own)))
        return {KEY: msgspec.to_builtins(verdicts)}

    @property
    def recorded(self) -> dict[str, Any] | None:
        """What `run.json` says of a trainer with these settings; None if it deletes nothing."""
        if self.policy.is_empty and not self.make_room:
            return None
        hours = None if self.policy.is_empty else self.trash_hours
        return {**self.to_json(), "trash_hours": hours}

    def check(self) -> None:
        """Checks all values.

        Raises:
            UsageError: One is invalid; the message names it.
        """
        self.policy.check()
        hours = self.trash_hours
        if hours is None:
            return
        is_number = isinstance(hours, (int, float)) and not isinstance(hours, bool)
        if not (is_number and hours >= 0 and math.isfinite(hours)):
            raise UsageError(f"trash_hours is {hours!r}; it must be a number, 0 or more.")
