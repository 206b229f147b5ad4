"""A retention policy from what a person types."""

from __future__ import annotations

from typing import Literal

from tfckpt_trainer.catalog.retention import BestBy, Policy
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


def _count(text: str, what: str) -> int | None:
    digits = text.strip().replace(",", "")
    if not digits:
        return None
    if not digits.isdecimal() or int(digits) == 0:
        raise UsageError(f"{text.strip()!r} is not {what}: type a number above 0.")
    return int(digits)
