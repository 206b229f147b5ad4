"""The command `export`: options and output."""

from __future__ import annotations

from pathlib import Path

import click

from tfckpt_trainer.errors import RefusedError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import SaveArguments
from tfckpt_trainer.rundir.records.export import ExportFormat
from tfckpt_tui.cli.completion.checkpoint_names import CHECKPOINT
from tfckpt_tui.cli.confirmation import confirm, explain_interrupt
from tfckpt_tui.cli.main import NamedPath, RunArgument, on_open_run, prints
from tfckpt_tui.cli.output import print_json, print_line, print_message
from tfckpt_tui.formats.text import clean
from tfckpt_tui.reports.new_files import ExportReport
from tfckpt_tui.services.checkpoints.look_up import look_up
from tfckpt_tui.services.control.request import DEFAULT_TIMEOUT, FrontEnd, ask
from tfckpt_tui.services.processes.export import (
    default_target,
    describe,
    describe_script,
    export_checkpoint,
    script_of,
    target_for,
)


class _WithCommand(click.Command):
    """Takes what follows `--` for the command, whether a checkpoint stands before it or not."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses what stands before `--`."""
        if "--" not in args:
            return super().parse_args(ctx, args)
        place = args.index("--")
        words = tuple(args[place + 1 :])
        rest = super().parse_args(ctx, args[:place])
        ctx.params["command"] = words
        return rest


@click.command(cls=_WithCommand)
@RunArgument
@click.argument("checkpoint", type=CHECKPOINT, metavar="[CKPT]", required=False)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND…]")
@click.option(
    "--format",
    "form",
    type=click.Choice([form.value for form in ExportFormat]),
    default=ExportFormat.KERAS.value,
    show_default=True,
    help="Export format: a Keras file, a SavedModel, or the weights only.",
)
@click.option("--live", is_flag=True, help="Save now, and export the new checkpoint.")
@click.option(
    "--to",
    "target",
    type=NamedPath(),
    help="Target path; by default RUN/exports/CKPT with the suffix of the format.",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask before the command of the launch runs.")
@prints(ExportReport)
@on_open_run
def export(
    run: RunDirectory,
    checkpoint: str | None,
    command: tuple[str, ...],
    form: str,
    live: bool,
    target: Path | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Export a checkpoint as a model file, and check that its outputs equal the model's.

    CKPT is a name or a step; by default the newest checkpoint that can be restored. The training
    script is started once more to build the model, and does not train: the command of the launch
    is shown first. If the run was not started by `tfckpt-tui launch`, name the script:
    tfckpt-tui export RUN ckpt-500 -- python train.py
    """
    if live and checkpoint is not None:
        raise click.UsageError("Give either a checkpoint or --live.")
    wanted = ExportFormat(form)
    chosen = None if live else look_up(run, checkpoint)
    script = script_of(run, command)
    if target is not None:
        target = target_for(target, wanted)
    if chosen is not None and not chosen.restorable:
        raise RefusedError(f"{chosen.name} is {chosen.state.value}: {chosen.problem}")
    if not command:
        print_message(clean(describe_script(script)))
        if not yes:
            confirm("Run it?")
    if chosen is None:
        print_message("Saving …")
        saved = ask(run, SaveArguments(), through=FrontEnd.COMMAND_LINE, timeout=DEFAULT_TIMEOUT)
        name = str(saved.result["name"])
    else:
        name = chosen.name
    place = target or default_target(run, name, wanted)
    with explain_interrupt(place):
        done = export_checkpoint(
            run,
            name,
            wanted,
            script,
            target=place,
            through=FrontEnd.COMMAND_LINE,
            on_progress=print_message,
        )
    if as_json:
        print_json(
            ExportReport(
                checkpoint=done.checkpoint,
                step=done.step,
                format=done.format,
                path=str(done.path),
                bytes=done.size,
                compared_on=done.examples,
                difference=done.difference,
                seconds=done.seconds,
            )
        )
    else:
        print_line(describe(done))
