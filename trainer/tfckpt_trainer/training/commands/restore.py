"""Go back to a checkpoint in place."""

from __future__ import annotations

import time

from tfckpt_trainer.rundir.records.command import Command, CommandState, RestoreArguments
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.training.checkpoint.restores.restore_manager import SHOWN_LEFT_OUT
from tfckpt_trainer.training.commands.handler import CommandAnswer, CommandVote, Handler
from tfckpt_trainer.training.hyperparameters.hyperparameters import (
    ValueChange,
    details_of,
    words_of,
)
from tfckpt_trainer.words.advice import Advice, command_or_key
from tfckpt_trainer.words.counts import count


class RestoreHandler(Handler[RestoreArguments]):
    """Restores a checkpoint.

    Whether it fits is voted in `Restorer`, not in `prepare`: a start restores without a command.
    """

    arguments = RestoreArguments

    def prepare(self, command: Command, arguments: RestoreArguments) -> CommandVote:
        """Looks whether the hyperparameters can have the values that they get after the restore."""
        del command
        return CommandVote(self.trainer.hyperparameters.problem_of(arguments.values))

    def commit(self, command: Command, arguments: RestoreArguments) -> CommandAnswer | CommandVote:
        """Restores, or changes nothing."""
        name, partial = arguments.name, arguments.partial
        position = self.trainer.position
        began, left = time.monotonic(), position.step
        target = self.trainer.restores.find(name)
        if target.problem:
            return CommandVote(target.problem)
        outcome = self.trainer.restores.restore(target, command, partial=partial)
        if outcome.problems:
            return CommandAnswer(
                CommandState.REFUSED,
                f"Nothing was changed, training goes on. {'; '.join(outcome.problems)}.",
                {"problems": list(outcome.problems)},
                None if outcome.damaged or partial else self._advice(name),
            )
        self.trainer.quick_check.cancel("The run was restored during the check. Training goes on.")
        changes, problem = self._change_values(command, arguments)
        left_out = outcome.left_out[:SHOWN_LEFT_OUT]
        more = f" {len(outcome.left_out)} left out: {left_out[0]}, …" if left_out else ""
        workers = self.trainer.group.size
        changed = f" {words_of(changes)}." if changes else ""
        return CommandAnswer(
            CommandState.FAILED if problem else CommandState.DONE,
            f"{problem}At {name} on branch {position.branch}, "
            f"from step {left:,} to {position.step:,}: "
            f"{count(outcome.variables, 'variable')} proven equal on {count(workers, 'worker')}."
            f"{outcome.input_words}{more}{changed}",
            {
                "name": name,
                "step": position.step,
                "branch": position.branch,
                "variables": outcome.variables,
                "workers": workers,
                "seconds": time.monotonic() - began,
                "notes": outcome.notes_with_workers,
                "inputs": list(outcome.inputs),
                "left_out": list(left_out),
                **details_of(changes),
            },
        )

    def _change_values(
        self, command: Command, arguments: RestoreArguments
    ) -> tuple[list[ValueChange], str]:
        """Changes the values; returns the changes, or a sentence about why there are none."""
        if not arguments.values:
            return [], ""
        restores, by = self.trainer.restores, command.requested_by
        changes, problem = restores.change_values(arguments.values, by=by)
        if problem:
            problem = f"{arguments.name} was restored with its own values: {problem}. "
            self.trainer.telemetry.note(EventKind.REFUSED, f"restore: {problem[:-1]}", command)
        return changes, problem

    def _advice(self, name: str) -> Advice:
        root, choice = self.trainer.run.root, "restore in part"
        part = command_or_key(
            "restore", "restore", root, "--name", name, "--partial", choice=choice
        )
        return Advice.of("To restore only what fits, use {part}.", part=part)
