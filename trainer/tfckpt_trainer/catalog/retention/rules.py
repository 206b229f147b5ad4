"""Which checkpoints to keep: a pure function from the history to a plan with reasons."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeGuard

from tfckpt_trainer.catalog.retention.protection import protections
from tfckpt_trainer.catalog.scan.checkpoints import Checkpoint, CheckpointState
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.records.run import RetentionRules


@dataclass(frozen=True)
class BestBy:
    """Keep the `count` checkpoints with the smallest or largest value of a metric."""

    metric: str
    mode: Literal["min", "max"]
    count: int


@dataclass(frozen=True)
class Policy:
    """What to keep; what no rule keeps may go. An empty policy keeps everything.

    Attributes:
        keep_last: The newest so many that can be restored.
        keep_every_steps: One at or after each multiple of so many steps, on each branch.
        keep_every_hours: One in each span of so many hours.
        keep_best: By metrics, of several checkpoints with one value the newest ones;
            not-a-number, infinite and missing values are never the best.
    """

    keep_last: int | None = None
    keep_every_steps: int | None = None
    keep_every_hours: float | None = None
    keep_best: tuple[BestBy, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether it has no rule."""
        return self == Policy()

    def __str__(self) -> str:
        """Returns the rules in words, such as `keep the last 5, the best 3 by min loss`."""
        rules = []
        if self.keep_last is not None:
            rules.append(f"the last {self.keep_last}")
        if self.keep_every_steps is not None:
            rules.append(f"one every {self.keep_every_steps} steps")
        if self.keep_every_hours is not None:
            rules.append(f"one every {self.keep_every_hours:g} h")
        rules += [f"the best {best.count} by {best.mode} {best.metric}" for best in self.keep_best]
        return f"keep {', '.join(rules)}" if rules else "keep all"


def policy_from(rules: RetentionRules) -> Policy:
    """Returns the policy that rules mean.

    Raises:
        UsageError: One of them makes no sense.
    """
    policy = Policy(
        rules.keep_last,
        rules.keep_every_steps,
        rules.keep_every_hours,
        tuple(parse_best(text) for text in rules.keep_best),
    )
    _check_numbers(policy)
    hours = rules.trash_hours
    if hours is not None and not (hours >= 0 and math.isfinite(hours)):
        raise UsageError(f"trash_hours is {hours}; it must be 0 or more.")
    return policy


def rules_of(policy: Policy) -> RetentionRules:
    """Returns a policy as it is written in files."""
    return RetentionRules(
        keep_last=policy.keep_last,
        keep_every_steps=policy.keep_every_steps,
        keep_every_hours=policy.keep_every_hours,
        keep_best=[f"{best.metric}:{best.mode}:{best.count}" for best in policy.keep_best],
    )


def parse_best(text: str) -> BestBy:
    """Returns the rule that `METRIC:min|max:COUNT` means.

    Raises:
        UsageError: It has another form.
    """
    parts = [part.strip() for part in text.rsplit(":", 2)]
    if len(parts) == 3 and parts[0] and parts[1] in {"min", "max"} and parts[2].isdecimal():
        mode: Literal["min", "max"] = "min" if parts[1] == "min" else "max"
        return BestBy(parts[0], mode, int(parts[2]))
    raise UsageError(f"{text.strip()!r} is not METRIC:min|max:COUNT, such as loss:min:3.")


@dataclass(frozen=True)
class Decision:
    """What happens to one checkpoint, and why."""

    checkpoint: Checkpoint
    keep: bool
    reason: str


@dataclass(frozen=True)
class Plan:
    """What a prune would do; nothing has happened yet."""

    decisions: tuple[Decision, ...]

    @property
    def deleted(self) -> tuple[Checkpoint, ...]:
        """What would go."""
        return tuple(d.checkpoint for d in self.decisions if not d.keep)

    @property
    def freed_bytes(self) -> int:
        """How many bytes that would free, once the trash is emptied."""
        return sum(checkpoint.size for checkpoint in self.deleted)


def plan(
    checkpoints: Sequence[Checkpoint], policy: Policy, *, in_use: frozenset[str] = frozenset()
) -> Plan:
    """Decides for each checkpoint whether it stays.

    Args:
        checkpoints: Newest first, as `Catalog.scan` returns them.
        policy: The rules; a checkpoint stays if any of them keeps it.
        in_use: Names of what is being read or written.

    Raises:
        UsageError: A rule makes no sense, or names a metric that no checkpoint has.
    """
    restorable = [checkpoint for checkpoint in checkpoints if checkpoint.restorable]
    _check(policy, restorable)
    kept: dict[str, str] = {}
    for name, reason in [
        *_last(restorable, policy),
        *_every_steps(restorable, policy),
        *_every_hours(restorable, policy),
        *_best(restorable, policy),
    ]:
        kept.setdefault(name, reason)
    kept |= protections(checkpoints, in_use)
    if policy.is_empty:
        default = "no rule was given"
    elif not restorable:
        default = "nothing can be restored: delete by name what is of no use"
    else:
        default = ""
    return Plan(tuple(_decide(c, kept.get(c.name, default)) for c in checkpoints))


def plan_of_names(
    checkpoints: Sequence[Checkpoint],
    names: Iterable[str],
    *,
    in_use: frozenset[str] = frozenset(),
) -> Plan:
    """Makes a plan that deletes exactly `names`, as far as they are not protected.

    Raises:
        UsageError: There is no checkpoint of one of these names.
    """
    chosen = set(names)
    unknown = sorted(chosen - {checkpoint.name for checkpoint in checkpoints})
    if unknown:
        raise UsageError(f"There is no checkpoint {unknown[0]}; list them with `tfckpt-tui ls`.")
    protected = protections(checkpoints, in_use)
    decisions = []
    for checkpoint in checkpoints:
        reason = protected.get(checkpoint.name, "")
        keep = checkpoint.name not in chosen or bool(reason)
        decisions.append(Decision(checkpoint, keep, reason or ("" if keep else "chosen")))
    return Plan(tuple(decisions))


def _decide(checkpoint: Checkpoint, reason: str) -> Decision:
    if reason:
        return Decision(checkpoint, True, reason)
    if checkpoint.state is CheckpointState.CORRUPT:
        return Decision(checkpoint, True, "corrupt: delete it by name, once it is of no use")
    if checkpoint.state is CheckpointState.UNREADABLE:
        return Decision(checkpoint, True, "it cannot be read: nobody knows what is in it")
    if checkpoint.restorable and checkpoint.let_go:
        return Decision(checkpoint, True, "its manager may keep it for good: delete it by name")
    if checkpoint.restorable:
        return Decision(checkpoint, False, "no rule keeps it")
    return Decision(checkpoint, False, f"{checkpoint.state.value}: it cannot be restored")


def _check_numbers(policy: Policy) -> None:
    numbers: list[tuple[str, float | None]] = [
        ("keep-last", policy.keep_last),
        ("keep-every", policy.keep_every_steps),
        ("keep-every-hours", policy.keep_every_hours),
        *((f"keep-best {best.metric}", best.count) for best in policy.keep_best),
    ]
    for name, number in numbers:
        if number is not None and not (number > 0 and math.isfinite(number)):
            raise UsageError(f"{name} is {number}; it must be more than 0.")


def _check(policy: Policy, restorable: Sequence[Checkpoint]) -> None:
    _check_numbers(policy)
    # A metric that was never a number ranks nothing, and a rule that keeps nothing deletes all.
    known = sorted(
        {
            metric
            for checkpoint in restorable
            for metric, value in checkpoint.metrics.items()
            if is_number(value)
        }
    )
    for best in policy.keep_best:
        if best.metric not in known:
            there = any(best.metric in checkpoint.metrics for checkpoint in restorable)
            what = "a finite value of the metric" if there else "the metric"
            names = ", ".join(known) or "none"
            raise UsageError(f"No checkpoint has {what} {best.metric!r}; known are: {names}.")


def is_number(value: float | None) -> TypeGuard[float]:
    """Whether a metric has a finite value, by which checkpoints can be ranked."""
    return value is not None and math.isfinite(value)


def _last(checkpoints: Sequence[Checkpoint], policy: Policy) -> list[tuple[str, str]]:
    count = policy.keep_last or 0
    return [(c.name, f"one of the last {count}") for c in checkpoints[:count]]


def _every_steps(checkpoints: Sequence[Checkpoint], policy: Policy) -> list[tuple[str, str]]:
    every = policy.keep_every_steps
    if every is None:
        return []
    first: dict[tuple[int, int], Checkpoint] = {}
    for checkpoint in checkpoints:
        if checkpoint.step is not None:
            place = checkpoint.branch, checkpoint.step // every
            held = first.get(place)
            if held is None or held.step is None or checkpoint.step < held.step:
                first[place] = checkpoint
    return [(c.name, f"the first in {every} steps") for c in first.values()]


def _every_hours(checkpoints: Sequence[Checkpoint], policy: Policy) -> list[tuple[str, str]]:
    hours = policy.keep_every_hours
    if hours is None:
        return []
    first: dict[float, Checkpoint] = {}
    for checkpoint in checkpoints:
        # `//` on floats has no overflow: an absurd time makes a span of its own.
        place = checkpoint.saved_at / 3600 // hours
        held = first.get(place)
        if held is None or checkpoint.saved_at < held.saved_at:
            first[place] = checkpoint
    return [(c.name, f"the first in {hours:g} h") for c in first.values()]


def _best(checkpoints: Sequence[Checkpoint], policy: Policy) -> list[tuple[str, str]]:
    kept = []
    for best in policy.keep_best:
        sign = 1.0 if best.mode == "min" else -1.0
        ranked = []
        for place, checkpoint in enumerate(checkpoints):
            value = checkpoint.metrics.get(best.metric)
            if is_number(value):
                # Of equal values the newer one stays.
                ranked.append((sign * value, place, checkpoint))
        ranked.sort(key=lambda entry: entry[:2])
        for value, _, checkpoint in ranked[: best.count]:
            kept.append((checkpoint.name, f"{best.mode} {best.metric} {sign * value:.4g}"))
    return kept
