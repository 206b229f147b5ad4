"""Change hyperparameters."""

from __future__ import annotations

from collections.abc import Iterable

from tfckpt_trainer.counts import count
from tfckpt_trainer.errors import describe_error
from tfckpt_trainer.rundir.records.command import Command, CommandState, SetArguments
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.hyperparameter import Hyperparameter
from tfckpt_trainer.training.commands.handler import AGREED, Answer, Handler, Trainer, Vote
from tfckpt_trainer.training.hyperparameters.hyperparameters import ValueChange


class SetHandler(Handler[SetArguments]):
    """Changes hyperparameters on all workers, after this step or a later one."""

    arguments = SetArguments

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(trainer)
        self._before: list[Hyperparameter] = []
        self._committed: Command | None = None

    def prepare(self, command: Command, arguments: SetArguments) -> Vote:
        """Looks whether there are such hyperparameters, and whether they can have these values."""
        step = self.trainer.position.step
        if arguments.at_step is not None and arguments.at_step < step:
            return Vote(
                f"Step {arguments.at_step:,} has been trained: the run is at step {step:,}."
            )
        problem = self.trainer.hyperparameters.problem_of(arguments.values)
        return Vote(problem) if problem else AGREED

    def commit(self, command: Command, arguments: SetArguments) -> Answer | Vote:
        """Changes them, or plans it."""
        step, hyperparameters = self.trainer.position.step, self.trainer.hyperparameters
        begins = step if arguments.at_step is None else arguments.at_step
        self._before = hyperparameters.look(step)
        self._committed = command
        hyperparameters.plan(
            arguments.values, begins=begins, steps=arguments.over, by=command.requested_by
        )
        begun, problem = self._advance()
        if problem:
            return Vote(f"Nothing was changed: {problem}.")
        before = {value.name: value for value in self._before}
        changes = [
            ValueChange(name, before[name].value, to) for name, to in arguments.values.items()
        ]
        message = f"{_words(changes)} {self._where(begins, arguments.over, is_later=not begun)}"
        replaced = [name for name in arguments.values if before[name].planned is not None]
        if replaced:
            message += f" This replaces what was planned for {', '.join(replaced)}."
        self._tell(message, changes, command.requested_by)
        return Answer(CommandState.DONE, message, {"step": begins, **_details(changes)})

    def put_back(self, command: Command) -> None:
        """Brings the values back, if this command has changed any here."""
        if command is self._committed:
            self.trainer.hyperparameters.put_back(self._before)

    def step_done(self) -> None:
        """Begins, goes on with and ends changes that were planned."""
        step, hyperparameters = self.trainer.position.step, self.trainer.hyperparameters
        if not hyperparameters.is_due(step):
            return
        self._before = hyperparameters.look(step)
        begun, problem = self._advance()
        by = ", ".join({value.planned.by for value in self._before if value.planned is not None})
        if problem:
            hyperparameters.drop_plans(step)
            told = f"set: a planned change ended, and the values before it stay: {problem}."
            self.trainer.telemetry.note(EventKind.REFUSED, told, by=by)
        elif begun:
            where = self._where(step, 0, is_later=False)
            self._tell(f"{_words(begun)} {where[:-1]}, as planned.", begun, by)

    def _advance(self) -> tuple[list[ValueChange], str]:
        """Carries out what is due on all workers, or on none.

        Returns:
            The changes that began; and why none did, with the workers that could not.
        """
        group, begun, problem = self.trainer.group, [], ""
        try:
            begun = self.trainer.hyperparameters.advance(self.trainer.position.step)
        except Exception as error:
            # What the script does to take a value may fail.
            problem = f"worker {group.index}: {type(error).__name__}: {describe_error(error)}"
        problems = [vote.refusal for vote in group.all_gather(Vote(problem)) if vote.refusal]
        if problems:
            left = self.trainer.hyperparameters.put_back(self._before)
            problems += [f"worker {group.index}: {left}"] if left else []
        return begun, "; ".join(problems)

    def _tell(self, message: str, changes: Iterable[ValueChange], by: str) -> None:
        telemetry = self.trainer.telemetry
        telemetry.note(EventKind.SET, message, by=by, details=_details(changes))
        telemetry.summaries.write_event(self.trainer.position.step, message)

    def _where(self, begins: int, over: int, *, is_later: bool) -> str:
        workers = count(self.trainer.group.size, "worker")
        when = f"planned after step {begins:,}" if is_later else f"after step {begins:,}"
        steps = f", over {count(over, 'step')}" if over else ""
        return f"on {workers}, {when}{steps}."


def _words(changes: Iterable[ValueChange]) -> str:
    return ", ".join(change.words for change in changes)


def _details(changes: Iterable[ValueChange]) -> dict[str, object]:
    return {
        "hyperparameters": [
            {"name": change.name, "before": change.before, "after": change.after}
            for change in changes
        ]
    }
