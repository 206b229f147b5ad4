"""Take the guards of the run's settings again."""

from __future__ import annotations

from tfckpt_trainer.counts import count
from tfckpt_trainer.rundir.records.command import Command, CommandState, GuardsArguments
from tfckpt_trainer.training.commands.handler import Answer, Handler
from tfckpt_trainer.training.telemetry.run_info import update_run_info


class GuardsHandler(Handler[GuardsArguments]):
    """Reads `config.toml` of the run again; the guards of the script stay."""

    arguments = GuardsArguments

    def commit(self, command: Command, _: GuardsArguments) -> Answer:
        """Takes the guards of the settings on all workers."""
        del command
        guards = self.trainer.guards
        problems = guards.read_settings()
        in_force = guards.recorded
        self.trainer.telemetry.event_log.later(
            lambda: update_run_info(self.trainer.run, guards=in_force)
        )
        told = f"{count(len(in_force), 'guard')} in force."
        return Answer(
            CommandState.DONE, " ".join([told, *problems]), {"guards": list(guards.rules)}
        )
