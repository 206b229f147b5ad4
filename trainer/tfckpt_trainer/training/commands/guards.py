"""Take the guards of the run's settings again."""

from __future__ import annotations

from tfckpt_trainer.rundir.records.command import Command, CommandState, GuardsArguments
from tfckpt_trainer.training.commands.handler import CommandAnswer, Handler
from tfckpt_trainer.words.counts import count


class GuardsHandler(Handler[GuardsArguments]):
    """Reads `config.toml` of the run again; the guards of the script stay."""

    arguments = GuardsArguments

    def commit(self, command: Command, _: GuardsArguments) -> CommandAnswer:
        """Takes the guards of the settings on all workers."""
        del command
        guards = self.trainer.guards
        problems = guards.read_settings()
        told = f"{count(len(guards.rules), 'guard')} in force."
        return CommandAnswer(
            CommandState.DONE, " ".join([told, *problems]), {"guards": list(guards.rules)}
        )
