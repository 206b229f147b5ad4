"""Changes hyperparameters on all workers, or on none."""

from __future__ import annotations

from collections.abc import Mapping

from tfckpt_trainer.errors import describe_error
from tfckpt_trainer.rundir.records.hyperparameter import Hyperparameter
from tfckpt_trainer.training.hyperparameters.hyperparameters import Hyperparameters, ValueChange
from tfckpt_trainer.training.workers.worker_group import WorkerGroup


class AgreedChanges:
    """Changes hyperparameters. All workers call every method but `put_back` together.

    Attributes:
        before: What was known of each before the last change.
    """

    def __init__(self, group: WorkerGroup, hyperparameters: Hyperparameters) -> None:
        self._group = group
        self._hyperparameters = hyperparameters
        self.before: list[Hyperparameter] = []

    def change(
        self,
        values: Mapping[str, float],
        *,
        step: int,
        begins: int,
        over: int,
        by: str,
        until: int | None = None,
    ) -> tuple[list[ValueChange], str]:
        """Changes values on all workers, or plans it.

        Args:
            values: The values at the end, by name.
            step: Steps done.
            begins: Steps done when the change begins.
            over: Over how many steps the values change; 0 for at once.
            by: Who asked for it.
            until: Steps done when their schedules go on; None for values that follow none.

        Returns:
            The changes that began; and why none did, with the workers that could not.
        """
        self.before = self._hyperparameters.look(step)
        self._hyperparameters.plan(values, begins=begins, steps=over, by=by, until=until)
        return self._advance(step)

    def advance(self, step: int) -> tuple[list[ValueChange], str]:
        """Carries out what was planned for this step; returns what `change` does."""
        self.before = []
        self.before = self._hyperparameters.look(step)
        return self._advance(step)

    def put_back(self) -> str:
        """Brings the values before the last change back; see `Hyperparameters.put_back`."""
        return self._hyperparameters.put_back(self.before)

    def _advance(self, step: int) -> tuple[list[ValueChange], str]:
        begun: list[ValueChange] = []
        problem = ""
        try:
            begun = self._hyperparameters.advance(step)
        except Exception as error:
            # What the script does to take a value may fail.
            problem = f"{type(error).__name__}: {describe_error(error)}"
        problems = self._of_workers(problem)
        if problems:
            problems += self._of_workers(self.put_back())
        elif begun:
            # One may depend on another, as a rate on the factor upon its schedule. And the script
            # may limit what it takes.
            read = {one.name: one for one in self._hyperparameters.look(step)}
            begun = [
                change if read[change.name].planned else change.as_read(read[change.name].value)
                for change in begun
            ]
        return begun, "; ".join(problems)

    def _of_workers(self, problem: str) -> list[str]:
        problems = enumerate(self._group.all_gather(problem))
        return [f"worker {index}: {problem}" for index, problem in problems if problem]
