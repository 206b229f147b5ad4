"""The retention rules: one class each. To add a rule, write its class and add it to `RULES`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, Self, TypeGuard

import msgspec

from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.errors import UsageError

Kept = list[tuple[Checkpoint, str]]
"""The checkpoints that a rule keeps, each with the reason."""


class RuleFields(msgspec.Struct, frozen=True):
    """How a rule is written in Python, in files, on the command line and in the prune dialog.

    Attributes:
        key: Keyword of `Policy`, key of `[retention]` and of `run.json`. It begins with `keep_`,
            so that other versions recognize a rule that they do not know. The option and the
            title are made from it.
        metavar: What the option takes, for its help.
        help: What the rule keeps, as a sentence that begins with `Keep`.
        example: Shown in that field while it is empty.
        value_type: Type of the value in JSON and TOML.
        repeats: Whether a policy may have several rules of this class.
    """

    key: str
    metavar: str
    help: str
    example: str
    value_type: type[int] | type[float] | type[str]
    repeats: bool = False

    @property
    def option(self) -> str:
        """Option of `prune`."""
        return f"--{self.key.replace('_', '-')}"

    @property
    def title(self) -> str:
        """Title of the field in the prune dialog."""
        return self.key.replace("_", " ")


class Rule(Protocol):
    """A retention rule: which checkpoints it keeps, and why."""

    fields: ClassVar[RuleFields]

    @classmethod
    def from_value(cls, value: Any) -> Self:
        """Returns the rule for a value from Python, JSON or TOML.

        Raises:
            UsageError: The value has another type or form.
        """

    @property
    def value(self) -> Any:
        """The value in JSON and TOML; `from_value` reads it back."""

    def check(self) -> None:
        """Checks the rule by itself.

        Raises:
            UsageError: A number is out of range.
        """

    def unmet(self, checkpoints: Sequence[Checkpoint]) -> str:
        """Returns why the rule cannot be applied to these checkpoints; empty if it can.

        A rule that keeps nothing because its data is missing would delete everything.
        """

    def kept(self, checkpoints: Sequence[Checkpoint]) -> Kept:
        """Returns what the rule keeps.

        Args:
            checkpoints: All that can be restored, newest first.
        """


class NumberRule(msgspec.Struct, frozen=True):
    """Base of the rules that are one number above 0."""

    number: float

    fields: ClassVar[RuleFields]

    @classmethod
    def from_value(cls, value: Any) -> Self:
        """Returns the rule for a number.

        Raises:
            UsageError: The value is not a number of the type that the rule takes.
        """
        wanted = cls.fields.value_type
        if isinstance(value, bool) or not isinstance(value, (int, wanted)):
            what = "a whole number" if wanted is int else "a number"
            raise UsageError(f"{cls.fields.key} is {value!r}; it must be {what}.")
        return cls(wanted(value))  # type: ignore[arg-type]

    @property
    def value(self) -> float:
        """The number."""
        return self.number

    def check(self) -> None:
        """Checks that the number is above 0.

        Raises:
            UsageError: It is not.
        """
        if not (self.number > 0 and math.isfinite(self.number)):
            raise UsageError(f"{self.fields.key} is {self.number}; it must be more than 0.")

    def unmet(self, checkpoints: Sequence[Checkpoint]) -> str:
        """Returns an empty text: these rules need nothing that a checkpoint may lack."""
        del checkpoints
        return ""


class KeepLast(NumberRule, frozen=True):
    """Keeps the newest checkpoints."""

    number: int

    fields: ClassVar[RuleFields] = RuleFields(
        key="keep_last",
        metavar="N",
        help="Keep the newest N that can be restored.",
        example="how many",
        value_type=int,
    )

    def kept(self, checkpoints: Sequence[Checkpoint]) -> Kept:
        """Returns the newest ones."""
        return [(c, f"one of the last {self.number}") for c in checkpoints[: self.number]]

    def __str__(self) -> str:
        return f"the last {self.number}"


class KeepEverySteps(NumberRule, frozen=True):
    """Keeps the first checkpoint at or after each multiple of some steps, on each branch."""

    number: int

    fields: ClassVar[RuleFields] = RuleFields(
        key="keep_every_steps",
        metavar="N",
        help="Keep the first in every N steps, on each branch.",
        example="steps",
        value_type=int,
    )

    def kept(self, checkpoints: Sequence[Checkpoint]) -> Kept:
        """Returns the first one in each span of steps."""
        first: dict[tuple[int, int], Checkpoint] = {}
        for checkpoint in checkpoints:
            if checkpoint.step is not None:
                span = checkpoint.branch, checkpoint.step // self.number
                earliest = first.get(span)
                if earliest is None or earliest.step is None or checkpoint.step < earliest.step:
                    first[span] = checkpoint
        return [(c, f"the first in {self.number} steps") for c in first.values()]

    def __str__(self) -> str:
        return f"one every {self.number} steps"


class KeepEveryHours(NumberRule, frozen=True):
    """Keeps the first checkpoint in each span of some hours."""

    fields: ClassVar[RuleFields] = RuleFields(
        key="keep_every_hours",
        metavar="H",
        help="Keep the first in every H hours.",
        example="hours",
        value_type=float,
    )

    def kept(self, checkpoints: Sequence[Checkpoint]) -> Kept:
        """Returns the first one in each span of hours."""
        first: dict[float, Checkpoint] = {}
        for checkpoint in checkpoints:
            # `//` on floats cannot overflow: an absurd time gets a span of its own.
            span = checkpoint.saved_at / 3600 // self.number
            earliest = first.get(span)
            if earliest is None or checkpoint.saved_at < earliest.saved_at:
                first[span] = checkpoint
        return [(c, f"the first in {self.number:g} h") for c in first.values()]

    def __str__(self) -> str:
        return f"one every {self.number:g} h"


@dataclass(frozen=True)
class BestBy:
    """Keeps the `count` checkpoints with the smallest or largest value of a metric.

    Of equal values, the newer checkpoint is better. NaN, infinite and missing values are never
    the best.
    """

    metric: str
    mode: Literal["min", "max"]
    count: int

    fields: ClassVar[RuleFields] = RuleFields(
        key="keep_best",
        metavar="METRIC:min|max:N",
        help="Keep the best N by a metric; may be given several times.",
        example="loss:min:3",
        value_type=str,
        repeats=True,
    )

    @classmethod
    def from_value(cls, value: Any) -> Self:
        """Returns the rule for `METRIC:min|max:N`.

        Raises:
            UsageError: The value has another form.
        """
        parts = [part.strip() for part in str(value).rsplit(":", 2)]
        if len(parts) == 3 and parts[0] and parts[1] in {"min", "max"} and parts[2].isdecimal():
            return cls(parts[0], "min" if parts[1] == "min" else "max", int(parts[2]))
        raise UsageError(
            f"{cls.fields.key} is {str(value).strip()!r}; it must be {cls.fields.metavar}, such as "
            "loss:min:3."
        )

    @property
    def value(self) -> str:
        """The rule as `METRIC:min|max:N`."""
        return f"{self.metric}:{self.mode}:{self.count}"

    def check(self) -> None:
        """Checks form and count.

        Raises:
            UsageError: The mode is unknown, or the count is not a number above 0.
        """
        if not self.from_value(self.value).count > 0:
            raise UsageError(f"keep_best {self.metric} is {self.count}; it must be more than 0.")

    def unmet(self, checkpoints: Sequence[Checkpoint]) -> str:
        """Returns that no checkpoint has the metric, if that is so."""
        metrics = {m for c in checkpoints for m, value in c.metrics.items() if is_number(value)}
        if self.metric in metrics:
            return ""
        has_other_value = any(self.metric in checkpoint.metrics for checkpoint in checkpoints)
        what = "a finite value of the metric" if has_other_value else "the metric"
        names = ", ".join(sorted(metrics)) or "none"
        return f"No checkpoint has {what} {self.metric!r}; the metrics are: {names}."

    def kept(self, checkpoints: Sequence[Checkpoint]) -> Kept:
        """Returns the best ones."""
        sign = 1.0 if self.mode == "min" else -1.0
        ranked = sorted(
            (sign * value, row)
            for row, checkpoint in enumerate(checkpoints)
            if is_number(value := checkpoint.metrics.get(self.metric))
        )
        return [
            (checkpoints[row], f"{self.mode} {self.metric} {sign * value:.4g}")
            for value, row in ranked[: self.count]
        ]

    def __str__(self) -> str:
        return f"the best {self.count} by {self.mode} {self.metric}"


RULES: tuple[type[Rule], ...] = (KeepLast, KeepEverySteps, KeepEveryHours, BestBy)
"""All rules. The options of `prune`, the keys of files and the prune dialog come from this list."""


def is_number(value: float | None) -> TypeGuard[float]:
    """Whether a metric has a finite value, so that checkpoints can be ranked by it."""
    return value is not None and math.isfinite(value)
