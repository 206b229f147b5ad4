"""Refuses variables that are created after the restore at the start."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.training.state.walk import Found
from tfckpt_trainer.words.counts import count as counted

_NAMED = 3
"""How many variables a message names."""


class LateVariables:
    """Finds variables that no start could restore, because they do not exist yet at that time.

    Those of metrics do not change training, and some metrics create them late.
    """

    def __init__(self) -> None:
        self._at_start: set[str] | None = None

    def opened(self, states: Iterable[Found]) -> None:
        """Takes all state of the script at the start of the run."""
        self._at_start = _paths(states)

    def check(self, states: Iterable[Found]) -> None:
        """Makes sure that the state has no further variables.

        Raises:
            UsageError: It has.
        """
        if self._at_start is None:
            return
        late = sorted(_paths(states) - self._at_start)
        if not late:
            return
        raise late_variables_error(len(late), late)


def late_variables_error(count: int, names: Sequence[str], advice: str = "") -> UsageError:
    """Returns the error of a step that creates variables.

    Args:
        count: How many.
        names: Their names, or those of the objects that hold them.
        advice: What else to do, as sentences.
    """
    shown = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
    return UsageError(
        f"Training created {counted(count, 'variable')}: {shown}. The next start could not restore "
        "a checkpoint with them. Create all variables within `strategy.scope()`, before "
        "TrainingRun or fit: call `optimizer.build(variables)` of each optimizer with those it "
        f"trains, and call each model once. {advice}".rstrip()
    )


def _paths(states: Iterable[Found]) -> set[str]:
    return {state.path for state in states if state.rule.is_variable and not state.is_metric}
