"""Values of hyperparameters on the command line."""

from __future__ import annotations

from collections.abc import Sequence

from tfckpt_trainer.errors import UsageError
from tfckpt_tui.formats.hyperparameters import parse_value

_EXAMPLE = "Write NAME=VALUE, such as learning_rate=3e-4."


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
