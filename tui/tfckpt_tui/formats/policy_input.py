"""Retention policies as text: one field for each rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfckpt_trainer.catalog.retention import rules
from tfckpt_trainer.catalog.retention.policy import Policy
from tfckpt_trainer.catalog.retention.rules import RuleFields
from tfckpt_trainer.errors import UsageError


def rule_fields() -> tuple[RuleFields, ...]:
    """Returns the fields of the form, in order."""
    return tuple(rule.fields for rule in rules.RULES)


def parse_policy(texts: Mapping[str, str]) -> Policy:
    """Returns the policy for what was typed into the fields.

    Args:
        texts: By the keys of the rules. An empty text is no rule. A rule that may be given several
            times takes several values with commas between them.

    Raises:
        UsageError: A text is not the value of its rule.
    """
    policy = Policy(**{f.key: _parse(f, texts.get(f.key, "")) for f in rule_fields()})
    policy.check()
    return policy


def policy_texts(policy: Policy) -> dict[str, str]:
    """Returns what to type into the fields for a policy, by the keys of the rules."""
    return {key: _text(value) for key, value in policy.values.items()}


def _parse(field: RuleFields, text: str) -> Any:
    if field.repeats:
        return [part.strip() for part in text.split(",") if part.strip()]
    typed = text.strip()
    if field.value_type is not str:
        typed = typed.replace(",", "")
    if not typed:
        return None
    try:
        return field.value_type(typed)
    except ValueError:
        what = "a whole number above 0" if field.value_type is int else "a number above 0"
        raise UsageError(f"{text.strip()!r} is not {what} ({field.title}).") from None


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value).removesuffix(".0")
