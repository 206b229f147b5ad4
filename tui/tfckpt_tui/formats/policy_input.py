"""A retention policy from what a person types."""

from __future__ import annotations

from tfckpt_trainer.catalog.retention.rules import Policy, parse_best
from tfckpt_trainer.errors import UsageError


def parse_policy(keep_last: str, keep_every: str, keep_best: str) -> Policy:
    """Returns the policy that three inputs mean; an empty one means no such rule.

    Args:
        keep_last: How many.
        keep_every: Steps.
        keep_best: `METRIC:min|max:COUNT`, several with commas between them.

    Raises:
        UsageError: One of them cannot be understood.
    """
    return Policy(
        keep_last=_count(keep_last, "how many of the last to keep"),
        keep_every_steps=_count(keep_every, "the number of steps"),
        keep_best=tuple(parse_best(part) for part in keep_best.split(",") if part.strip()),
    )


def rules_in_words(policy: Policy) -> dict[str, str]:
    """Returns what to type for a policy, by the names of the inputs."""
    best = ", ".join(f"{one.metric}:{one.mode}:{one.count}" for one in policy.keep_best)
    return {
        "keep-last": str(policy.keep_last or ""),
        "keep-every": str(policy.keep_every_steps or ""),
        "keep-best": best,
    }


def _count(text: str, what: str) -> int | None:
    digits = text.strip().replace(",", "")
    if not digits:
        return None
    if not digits.isdecimal() or int(digits) == 0:
        raise UsageError(f"{text.strip()!r} is not {what}: type a number above 0.")
    return int(digits)
