"""Change hyperparameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tfckpt_trainer.guards import Evidence
from tfckpt_trainer.guards.watch import Firing
from tfckpt_trainer.rundir.records.command import Command, CommandState, SetArguments
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.hyperparameter import ConfirmedChange
from tfckpt_trainer.training.commands.handler import (
    AGREED,
    CommandAnswer,
    CommandVote,
    Handler,
    Trainer,
)
from tfckpt_trainer.training.hyperparameters.agreed_changes import AgreedChanges
from tfckpt_trainer.training.hyperparameters.hyperparameters import (
    ValueChange,
    details_of,
    words_of,
)
from tfckpt_trainer.words.counts import count


class SetHandler(Handler[SetArguments]):
    """Changes hyperparameters on all workers, after this step or a later one."""

    arguments = SetArguments

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(trainer)
        self._changes = AgreedChanges(trainer.group, trainer.hyperparameters)
        self._committed: Command | None = None

    def prepare(self, command: Command, arguments: SetArguments) -> CommandVote:
        """Looks whether there are such hyperparameters, and whether they can have these values."""
        problem = arguments.problem_at(self.trainer.position.step)
        if not problem:
            values, until = arguments.values, arguments.until_step
            problem = self.trainer.hyperparameters.problem_of(values, until)
        return CommandVote(problem) if problem else AGREED

    def commit(self, command: Command, arguments: SetArguments) -> CommandAnswer | CommandVote:
        """Changes them, or plans it."""
        step, by = self.trainer.position.step, command.requested_by
        begins = step if arguments.at_step is None else arguments.at_step
        self._committed = command
        begun, problem = self._changes.change(
            arguments.values,
            step=step,
            begins=begins,
            over=arguments.over,
            by=by,
            until=arguments.until_step,
        )
        if problem:
            return CommandVote(f"Nothing was changed: {problem}.")
        before = {value.name: value for value in self._changes.before}
        changes = self._all_of(arguments.values, begun)
        where = self._where(begins, arguments.over, arguments.until_step, is_later=not begun)
        message = f"{words_of(changes)} {where}"
        replaced = [name for name in arguments.values if before[name].planned is not None]
        if replaced:
            message += f" This replaces what was planned for {', '.join(replaced)}."
        total = self.trainer.total_steps()
        if total is not None and begins >= total:
            message += f" Training ends after step {total:,}, before this has an effect."
        confirmed = self.trainer.hyperparameters.confirmed(
            arguments.values,
            step=step,
            begins=begins,
            over=arguments.over,
            until=arguments.until_step,
        )
        self.trainer.telemetry.note_changes(
            message, changes, step=step, by=by, begins=begins, confirmed=confirmed
        )
        return CommandAnswer(CommandState.DONE, message, {"step": begins, **details_of(changes)})

    def put_back(self, command: Command | None) -> None:
        """Brings the values back, if this command has changed any here; gives up failed plans."""
        if command is None or command is self._committed:
            self._changes.put_back()
        if command is None:
            self.trainer.hyperparameters.drop_plans(self.trainer.position.step)

    def is_due(self) -> bool:
        """Whether a planned change acts after this step."""
        return self.trainer.hyperparameters.is_due(self.trainer.position.step)

    def carry_on(self) -> None:
        """Begins, goes on with and ends changes that were planned."""
        step, hyperparameters = self.trainer.position.step, self.trainer.hyperparameters
        for change in hyperparameters.take_again(step):
            self._make_again(change)
        begun, problem = self._changes.advance(step)
        before = self._changes.before
        asked_by = [
            one.changed_by if one.planned is None else one.planned.by
            for one in before
            if one.acts_after(step)
        ]
        by = ", ".join(dict.fromkeys(asked_by))
        if problem:
            hyperparameters.drop_plans(step)
            told = f"set: a planned change ended, and the values before it stay: {problem}."
            self.trainer.telemetry.note(EventKind.REFUSED, told, by=by)
        elif begun:
            where = self._where(step, 0, None, is_later=False)
            message = f"{words_of(begun)} {where[:-1]}, as planned."
            self.trainer.telemetry.note_changes(message, begun, step=step, by=by)
        elif hyperparameters.planned != {one.name for one in before if one.planned is not None}:
            self.trainer.telemetry.write_hyperparameters(step)

    def _make_again(self, change: ConfirmedChange) -> None:
        """Makes a change that a crash took back."""
        step, begins = self.trainer.position.step, max(change.begins, self.trainer.position.step)
        problem = self.trainer.hyperparameters.problem_of(change.values, change.until)
        begun: list[ValueChange] = []
        if not problem:
            begun, problem = self._changes.change(
                change.values,
                step=step,
                begins=begins,
                over=change.over,
                by=change.by,
                until=change.until,
            )
        if change.rule:
            # Its condition held here before the crash, too, and what it did is done again.
            evidence = Evidence(what="made again", began=step)
            self.trainer.guards.fired(Firing(rule=change.rule, step=step, evidence=evidence))
        if problem:
            told = f"set: {change.words} was not made again: {problem.rstrip('.')}."
            self.trainer.telemetry.note(EventKind.REFUSED, told, by=change.by)
            return
        changes = self._all_of(change.values, begun)
        where = self._where(begins, change.over, change.until, is_later=not begun)
        message = f"{words_of(changes)} {where[:-1]}, as before the restart."
        self.trainer.telemetry.note_changes(
            message, changes, step=step, by=change.by, begins=begins
        )

    def _all_of(
        self, values: Mapping[str, float], begun: Sequence[ValueChange]
    ) -> list[ValueChange]:
        """Returns the changes to `values`: as they were made, or from the values before."""
        made = {change.name: change for change in begun}
        before = {one.name: one.value for one in self._changes.before}
        return [
            made.get(name) or ValueChange(name, before[name], to) for name, to in values.items()
        ]

    def _where(self, begins: int, over: int, until: int | None, *, is_later: bool) -> str:
        workers = count(self.trainer.group.size, "worker")
        when = f"planned after step {begins:,}" if is_later else f"after step {begins:,}"
        steps = f", over {count(over, 'step')}" if over else ""
        last = f", until step {until:,}" if until is not None else ""
        return f"on {workers}, {when}{steps}{last}."
