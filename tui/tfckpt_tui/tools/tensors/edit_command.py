"""The command `edit`."""

from __future__ import annotations

import click

from tfckpt_trainer.bundle.index import index_path
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.errors import ExitCode
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_tui.cli.completion.checkpoint_names import CHECKPOINT
from tfckpt_tui.cli.completion.tensor_names import CopiedTensor, TensorAndType, TensorName
from tfckpt_tui.cli.confirmation import confirm, explain_interrupt
from tfckpt_tui.cli.main import RunArgument, ToolCommand, on_open_run, prints
from tfckpt_tui.cli.output import (
    ReadProgress,
    print_json,
    print_line,
    print_message,
    print_warnings,
)
from tfckpt_tui.formats import units
from tfckpt_tui.reports.new_files import EditReport
from tfckpt_tui.services.checkpoints.look_up import look_up, telling_what_became_of
from tfckpt_tui.services.control.request import FrontEnd
from tfckpt_tui.tools.tensors.edit import Changes, EditPlan, plan_edit
from tfckpt_tui.tools.tensors.edit import edit as write_edit

_TENSOR = TensorName("checkpoint")


@click.command(cls=ToolCommand, heading="Work with tensors")
@RunArgument
@click.argument("checkpoint", type=CHECKPOINT, metavar="CKPT")
@click.option(
    "--rename",
    "renames",
    type=_TENSOR,
    nargs=2,
    multiple=True,
    metavar="OLD NEW",
    help="Another path for a variable, or for an object with all below it.",
)
@click.option(
    "--drop",
    "drops",
    type=_TENSOR,
    multiple=True,
    metavar="PATTERN",
    help="Leave out tensors, as in 'head/*'.",
)
@click.option(
    "--cast",
    "casts",
    type=TensorAndType("checkpoint"),
    nargs=2,
    multiple=True,
    metavar="PATTERN DTYPE",
    help="Another type for tensors, as in 'model/*' float16.",
)
@click.option(
    "--copy",
    "copies",
    type=CopiedTensor("checkpoint"),
    nargs=2,
    multiple=True,
    metavar="CKPT:TENSOR TENSOR",
    help="Take a tensor from another checkpoint.",
)
@click.option("--name", metavar="NAME", help="The new checkpoint. By default edited-STEP.")
@click.option("--dry-run", is_flag=True, help="Show the plan and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@prints(EditReport)
@on_open_run
def edit(
    run: RunDirectory,
    checkpoint: str,
    renames: tuple[tuple[str, str], ...],
    drops: tuple[str, ...],
    casts: tuple[tuple[str, str], ...],
    copies: tuple[tuple[str, str], ...],
    name: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Rename, drop, cast and copy tensors of a checkpoint, into a new checkpoint.

    CKPT is a name or a step; it stays as it is. TENSOR is a path or name as `inspect` shows it.
    Names refer to the checkpoint before the edit. Copies and casts are done first, then drops,
    then renames.
    """
    changes = Changes([_copy(run, *copy) for copy in copies], casts, drops, renames)
    chosen = look_up(run, checkpoint)
    with telling_what_became_of(run, [checkpoint]):
        plan = plan_edit(run, chosen, changes, name)
    if not as_json:
        for change in plan.edit.changes:
            print_line(change)
        if plan.new.notice:
            print_message(plan.new.notice)
    if dry_run:
        if as_json:
            print_json(_report(plan, None, ()))
        return int(ExitCode.DONE)
    if not yes:
        confirm(f"Write {plan.new.name} from {plan.checkpoint.name} with these changes?")
    meter, checking = ReadProgress("writing"), ReadProgress("verifying")
    try:
        with (
            telling_what_became_of(run, [checkpoint]),
            explain_interrupt(index_path(run.root / plan.new.name)),
        ):
            record, warnings = write_edit(
                run,
                plan,
                through=FrontEnd.COMMAND_LINE,
                on_read=meter.sum_to(plan.edit.size),
                on_verified=checking,
            )
    finally:
        meter.close()
    if as_json:
        print_json(_report(plan, record, warnings))
    else:
        count = units.count(len(plan.edit.tensors), "tensor")
        print_line(f"{record.name}: {count}, {units.size(record.size)}, verified")
        print_warnings(warnings)
    return int(ExitCode.DONE)


def _copy(run: RunDirectory, source: str, target: str) -> tuple[Checkpoint, str, str]:
    name, separator, tensor = source.partition(":")
    if not (name and separator and tensor):
        raise click.UsageError(f"--copy {source}: write it as CKPT:TENSOR, as in 500:model/w.")
    return look_up(run, name), tensor, target


def _report(
    plan: EditPlan, record: CheckpointRecord | None, warnings: tuple[str, ...]
) -> EditReport:
    return EditReport(
        checkpoint=plan.new.name,
        source=plan.checkpoint.name,
        step=plan.new.step,
        branch=plan.checkpoint.branch,
        changes=tuple(plan.edit.changes),
        tensors=len(plan.edit.tensors),
        bytes=None if record is None else record.size,
        written=record is not None,
        warnings=warnings,
    )
