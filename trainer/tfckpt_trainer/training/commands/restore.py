"""Go back to a checkpoint in place."""

from __future__ import annotations

import time

from tfckpt_trainer.advice import Advice, command_or_key
from tfckpt_trainer.counts import count
from tfckpt_trainer.rundir.records.command import Command, CommandState, RestoreArguments
from tfckpt_trainer.training.checkpoint.restores.restore_manager import SHOWN_LEFT_OUT
from tfckpt_trainer.training.commands.handler import Answer, Handler, Vote


class RestoreHandler(Handler[RestoreArguments]):
    """Restores a checkpoint.

    The workers vote in `Restorer`, not in `prepare`: a start restores without a command.
    """

    arguments = RestoreArguments

    def commit(self, command: Command, arguments: RestoreArguments) -> Answer | Vote:
        """Restores, or changes nothing."""
        name, partial = arguments.name, arguments.partial
        position = self.trainer.position
        began, left = time.monotonic(), position.step
        target = self.trainer.restores.find(name)
        if target.problem:
            return Vote(target.problem)
        outcome = self.trainer.restores.restore(target, command, partial=partial)
        if outcome.problems:
            return Answer(
                CommandState.REFUSED,
                f"Nothing was changed, training goes on. {'; '.join(outcome.problems)}.",
                {"problems": list(outcome.problems)},
                None if outcome.damaged or partial else self._advice(name),
            )
        self.trainer.quick_check.cancel("The run was restored during the check. Training goes on.")
        left_out = outcome.left_out[:SHOWN_LEFT_OUT]
        more = f" {len(outcome.left_out)} left out: {left_out[0]}, …" if left_out else ""
        workers = self.trainer.group.size
        return Answer(
            CommandState.DONE,
            f"At {name} on branch {position.branch}, from step {left:,} to {position.step:,}: "
            f"{count(outcome.variables, 'variable')} proven equal on {count(workers, 'worker')}."
            f"{outcome.input_words}{more}",
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
            },
        )

    def _advice(self, name: str) -> Advice:
        root, choice = self.trainer.run.root, "restore in part"
        part = command_or_key(
            "restore", "restore", root, "--name", name, "--partial", choice=choice
        )
        return Advice.of("To restore only what fits, use {part}.", part=part)
