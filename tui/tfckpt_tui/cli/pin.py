"""The commands `pin` and `unpin`."""

from __future__ import annotations

import click

from tfckpt_trainer.catalog.retention.pins import is_pinned
from tfckpt_trainer.errors import UnknownCheckpointError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.cli.main import JsonOption, RunArgument, on_open_run
from tfckpt_tui.cli.output import print_json, print_line, print_warnings
from tfckpt_tui.services import prune as service
from tfckpt_tui.services.choose import find_checkpoint
from tfckpt_tui.services.report import list_checkpoints
from tfckpt_tui.services.request import FrontEnd


@click.command()
@RunArgument
@click.argument("name", metavar="CKPT")
@JsonOption
@on_open_run
def pin(run: RunDirectory, name: str, as_json: bool) -> None:
    """Never prune this checkpoint; CKPT is a name or a step."""
    name = find_checkpoint(list_checkpoints(run), name).name
    done = f"{name} is already pinned." if is_pinned(run, name) else f"Pinned {name}."
    _set_pin(run, name, pinned=True, as_json=as_json, done=done)


@click.command()
@RunArgument
@click.argument("name", metavar="CKPT")
@JsonOption
@on_open_run
def unpin(run: RunDirectory, name: str, as_json: bool) -> None:
    """Let this checkpoint be pruned again; CKPT is a name or a step."""
    try:
        name = find_checkpoint(list_checkpoints(run), name).name
    except UnknownCheckpointError:
        # The pin of a checkpoint that is gone or in the trash can be removed, by its name.
        if not is_pinned(run, name):
            raise
    done = f"Unpinned {name}." if is_pinned(run, name) else f"{name} is not pinned."
    _set_pin(run, name, pinned=False, as_json=as_json, done=done)


def _set_pin(run: RunDirectory, name: str, *, pinned: bool, as_json: bool, done: str) -> None:
    warnings = service.set_pins(run, [name], pinned=pinned, through=FrontEnd.COMMAND_LINE)
    if as_json:
        print_json({"name": name, "pinned": pinned, "warnings": list(warnings)})
    else:
        print_line(done)
    print_warnings(warnings)
