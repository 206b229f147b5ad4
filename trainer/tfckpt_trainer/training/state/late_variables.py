"""Refuses variables that are created after the restore at the start."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.training.state.walk import Found

_NAMED = 3
"""How many variables a message names."""


class LateVariables:
    """Finds variables that no start could restore, because they do not exist yet at that time.

    Those of metrics do not change training, and some metrics create them late.
    """

    def __init__(self, find: Callable[[], Iterable[Found]]) -> None:
        """Takes what finds all state of the script."""
        self._find = find
        self._at_start: set[str] | None = None

    def opened(self) -> None:
        """Takes the variables at the start of the run."""
        self._at_start = self._paths()

    def check(self) -> None:
        """Makes sure that there are no further variables.

        Raises:
            UsageError: There are.
        """
        if self._at_start is None:
            return
        late = sorted(self._paths() - self._at_start)
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

    def _paths(self) -> set[str]:
        return {one.path for one in self._find() if one.rule.is_variable and not one.is_metric}
