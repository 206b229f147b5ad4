"""Hyperparameters as text."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.records.hyperparameter import Hyperparameter, PlannedChange, number
from tfckpt_tui.formats.list_columns import ListCell, ListColumn
from tfckpt_tui.formats.text import clean

_EXAMPLE = "Write NAME=VALUE, such as learning_rate=3e-4."


def title(hyperparameter: Hyperparameter) -> str:
    """Returns the name and, if that does not say it, what the value is; safe to show."""
    name, what = clean(hyperparameter.name), clean(hyperparameter.what)
    return f"{name} ({what})" if what else name


def changed_words(hyperparameter: Hyperparameter) -> str:
    """Returns when and by whom it was changed last; empty if it was not. Safe to show."""
    if hyperparameter.changed_at is None:
        return ""
    return f"after step {hyperparameter.changed_at:,} by {clean(hyperparameter.changed_by)}"


def planned_words(planned: PlannedChange) -> str:
    """Returns the end of a change, such as `0.0001 after step 600`."""
    last = f", until step {planned.until:,}" if planned.until is not None else ""
    return f"{number(planned.value)} after step {planned.ends:,}{last}"


def history_words(hyperparameter: Hyperparameter) -> str:
    """Returns when it was changed last, and what it will be; empty if neither. Safe to show."""
    planned, until = hyperparameter.planned, hyperparameter.until
    to_be = f"to be {planned_words(planned)}" if planned is not None else ""
    is_told = until is None or (planned is not None and planned.until == until)
    last = "" if is_told else f"until step {until:,}"
    return "; ".join(filter(None, (changed_words(hyperparameter), last, to_be)))


def _planned(hyperparameter: Hyperparameter) -> str:
    planned = hyperparameter.planned
    return planned_words(planned) if planned is not None else ""


COLUMNS: tuple[ListColumn[Hyperparameter], ...] = (
    ListColumn(
        "name",
        lambda one, _: title(one),
        cell_text=lambda one, _: clean(one.name),
        cell=ListCell("name", 20, align="<", stretch=2),
        command="NAME",
    ),
    ListColumn(
        "value",
        lambda one, _: number(one.value),
        ListCell("value", 10, style="strong"),
        command="VALUE",
    ),
    ListColumn("step", lambda one, _: f"{one.step:,}", command="AT STEP"),
    ListColumn(
        "planned",
        lambda one, _: _planned(one),
        ListCell("planned", 21, rank=1, align="<", stretch=1, style="accent"),
    ),
    ListColumn(
        "changed",
        lambda one, _: history_words(one),
        cell_text=lambda one, _: changed_words(one).removeprefix("after "),
        cell=ListCell("changed after", 34, rank=2, align="<", stretch=3, style="muted"),
        command="CHANGED",
    ),
    ListColumn(
        "what",
        lambda one, _: clean(one.what),
        ListCell("what it is", 18, rank=3, align="<", stretch=1, style="muted"),
    ),
    ListColumn(
        "allowed",
        lambda one, _: _allowed(one),
        cell_text=lambda one, _: one.bounds.words.removeprefix("a number, "),
        cell=ListCell("can be", 22, rank=4, align="<", stretch=2, style="muted"),
        command="ALLOWED",
    ),
)
"""The columns of lists, in the order in which each part shows them."""


def _allowed(one: Hyperparameter) -> str:
    """Returns what `set` takes, and the option that the value needs."""
    return f"{one.bounds.words}{', with --until-step N' if one.schedule else ''}"


def parse_value(text: str) -> float:
    """Returns the value that a user typed.

    Raises:
        UsageError: It is no number, or so small that it would be 0.
    """
    try:
        # Python takes 1_0 for 10: who types it means another number.
        value = float("" if "_" in text else text)
    except ValueError:
        raise UsageError(f"{text!r} is no number.") from None
    if value == 0 and Decimal(text) != 0:
        raise UsageError(f"{text!r} is too small: the value would be 0.")
    return value


def parse_steps(text: str) -> int | None:
    """Returns the number of steps that a user typed; None if nothing was typed.

    Raises:
        UsageError: It is no whole number, or below 0.
    """
    if text and not text.isdecimal():
        raise UsageError(f"{text!r} is no whole number of steps.")
    return int(text) if text else None


def parse_assignments(words: Sequence[str]) -> dict[str, float]:
    """Returns the values by name.

    Args:
        words: Each as `NAME=VALUE`.

    Raises:
        UsageError: A word is not as described, or a name is given twice.
    """
    values = dict(map(_assignment, words))
    if len(values) < len(words):
        raise UsageError("A name is given twice. Give each hyperparameter one value.")
    return values


def _assignment(text: str) -> tuple[str, float]:
    name, sign, value = text.partition("=")
    if not sign:
        raise UsageError(f"{text!r} has no =. {_EXAMPLE}")
    try:
        return name.strip(), parse_value(value)
    except UsageError as error:
        raise UsageError(f"{text!r}: {error} {_EXAMPLE}") from None
