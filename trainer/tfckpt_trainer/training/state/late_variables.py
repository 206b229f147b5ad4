"""Refuses variables that are created after the restore at the start."""

from __future__ import annotations

from collections.abc import Iterable

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.training.state.walk import Found

_NAMED = 3
"""How many variables a message names."""


class LateVariables:
    """Finds variables that no start could restore, because they do not exist yet at that time.

    Those of metrics do not change training, and some metrics create them late.
    """

    def __init__(self) -> None:
        self._at_start: set[str] | None = None

    def opened(self, found: Iterable[Found]) -> None:
        """Takes all state of the script at the start of the run."""
        self._at_start = _paths(found)

    def check(self, found: Iterable[Found]) -> None:
        """Makes sure that the state has no further variables.

        Raises:
            UsageError: It has.
        """
        if self._at_start is None:
            return
        late = sorted(_paths(found) - self._at_start)
        if not late:
            return
        names = ", ".join(late[:_NAMED]) + (", …" if len(late) > _NAMED else "")
        count = "1 variable" if len(late) == 1 else f"{len(late)} variables"
        raise UsageError(
            f"Training created {count}: {names}. The next start could not restore a checkpoint "
            "with them. Create all variables within `strategy.scope()`, before TrainingRun or fit: "
            "call `optimizer.build(variables)` of each optimizer with the variables that it "
            "trains, and call each model once."
        )


def _paths(found: Iterable[Found]) -> set[str]:
    return {one.path for one in found if one.rule.is_variable and not one.is_metric}
