"""The commands `trash`, `undo`, `pin` and `unpin`, and how deletions for good are confirmed."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from contextlib import closing

import click

from tfckpt_trainer.catalog.directory.pins import is_pinned
from tfckpt_trainer.catalog.directory.trash import TrashReader
from tfckpt_trainer.catalog.retention.emptying import Emptied, trashed_before
from tfckpt_trainer.errors import (
    ExitCode,
    RefusedError,
    UnknownCheckpointError,
    UsageError,
)
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.trash import TrashManifest
from tfckpt_trainer.words.counts import few_of
from tfckpt_tui.cli.completion.checkpoint_names import CHECKPOINT
from tfckpt_tui.cli.confirmation import confirm, telling_interrupt
from tfckpt_tui.cli.main import RunArgument, on_open_run, prints
from tfckpt_tui.cli.output import (
    CommandProgress,
    ReadProgress,
    print_error,
    print_json,
    print_line,
    print_message,
    print_table,
    print_warnings,
)
from tfckpt_tui.cli.run.control import TimeoutOption
from tfckpt_tui.formats import units
from tfckpt_tui.formats.list_columns import table_of
from tfckpt_tui.formats.trash_columns import COLUMNS
from tfckpt_tui.reports.retention import (
    EmptiedReport,
    PinReport,
    TrashedPrune,
    TrashReport,
    UndoReport,
)
from tfckpt_tui.services.checkpoints.look_up import look_up
from tfckpt_tui.services.control import prune as service
from tfckpt_tui.services.control.request import FrontEnd

_AGE = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<unit>[mhdw]?)")
_SECONDS = {"m": 60, "h": 3600, "": 3600, "d": 86400, "w": 604800}


def parse_age(text: str) -> float:
    """Returns an age such as `30m`, `12h`, `7d` or `2w` in seconds; a bare number is hours.

    Raises:
        UsageError: The text has another form.
    """
    match = _AGE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not an age; give one such as 30m, 12h or 7d.")
    return float(match["number"]) * _SECONDS[match["unit"]]


@click.command()
@RunArgument
@click.option(
    "--trash", metavar="ID", help="Which prune; by default the newest that a user asked for."
)
@TimeoutOption
@prints(UndoReport)
@on_open_run
def undo(run: RunDirectory, trash: str | None, timeout: float, as_json: bool) -> None:
    """Bring back what a prune moved to the trash."""
    see = f"See what is in the trash still with `tfckpt-tui trash {run.shell_word}`."
    with telling_interrupt(see):
        outcome = service.undo(
            run, trash, through=FrontEnd.COMMAND_LINE, timeout=timeout, on_change=CommandProgress()
        )
    if as_json:
        print_json(UndoReport(trash=outcome.trash, names=outcome.names, warnings=outcome.warnings))
    else:
        print_line(f"Brought back {few_of(outcome.names)}.")
    print_warnings(outcome.warnings)


@click.command()
@RunArgument
@click.argument("act", required=False, type=click.Choice(["empty"]), metavar="[empty]")
@click.option(
    "--older-than",
    type=parse_age,
    metavar="AGE",
    help="Empty only what was pruned longer ago: 30m, 12h, 7d; hours without a letter.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@prints(TrashReport, EmptiedReport)
@on_open_run
def trash(
    run: RunDirectory, act: str | None, older_than: float | None, yes: bool, as_json: bool
) -> int:
    """Show the trash, or empty it: `trash RUN empty` deletes for good."""
    if act == "empty":
        return _empty_trash(run, older_than, yes, as_json)
    if older_than is not None or yes:
        raise click.UsageError("--older-than and --yes go with `empty`.")
    return _show_trash(run, as_json)


def _show_trash(run: RunDirectory, as_json: bool) -> int:
    reader = TrashReader(run)
    manifests = reader.read()
    problems = tuple(reader.damaged.values())
    for problem in problems:
        print_message(problem)
    if as_json:
        print_json(TrashReport(trash=tuple(map(_trashed_prune, manifests)), problems=problems))
    elif manifests:
        print_table(*table_of(COLUMNS, manifests, time.time()))
    else:
        print_line("The trash is empty.")
    return ExitCode.PROBLEM if problems else ExitCode.DONE


def _trashed_prune(manifest: TrashManifest) -> TrashedPrune:
    names = tuple(manifest.names)
    return TrashedPrune(manifest.id, manifest.at, manifest.by, names, manifest.size)


def _empty_trash(run: RunDirectory, age: float | None, yes: bool, as_json: bool) -> int:
    before = None if age is None else time.time() - age
    manifests = trashed_before(run, before)
    if manifests and not yes:
        pronoun = "it" if trashed_count(manifests) == 1 else "them"
        confirm(f"Delete {trashed_words(manifests)}, for good? Nothing can bring {pronoun} back.")
    emptied = empty(run, manifests)
    if as_json:
        print_json(
            EmptiedReport(
                freed_bytes=emptied.freed,
                names=emptied.names,
                warnings=warnings_of(emptied),
                problems=emptied.problems,
            )
        )
    else:
        print_emptied(emptied)
    print_warnings(warnings_of(emptied))
    return report_problems(emptied)


def empty(run: RunDirectory, manifests: Sequence[TrashManifest]) -> Emptied:
    """Deletes prunes in the trash for good, and shows the progress.

    Args:
        run: The run directory.
        manifests: The prunes.
    """
    see = f"Some may be gone. See what is left with `tfckpt-tui trash {run.shell_word}`."
    total = trashed_size(manifests)
    with telling_interrupt(see), closing(ReadProgress("deleting")) as meter:
        return service.empty(
            run,
            [manifest.id for manifest in manifests],
            through=FrontEnd.COMMAND_LINE,
            on_progress=lambda freed: meter(freed, total),
        )


def print_emptied(emptied: Emptied) -> None:
    """Prints what was deleted for good, unless problems kept all of it."""
    if emptied.names or emptied.freed or not emptied.problems:
        what = units.count(len(emptied.names), "checkpoint")
        print_line(f"Deleted {what} for good, freed {units.size(emptied.freed)}.")


def warnings_of(emptied: Emptied | None) -> tuple[str, ...]:
    """Returns the warnings of a deletion, and what was kept."""
    return (*map(str, emptied.kept), *emptied.warnings) if emptied is not None else ()


def report_problems(emptied: Emptied | None) -> int:
    """Prints what could not be deleted, and returns the exit code."""
    problems = emptied.problems if emptied is not None else ()
    for problem in problems:
        print_error(problem)
    return ExitCode.PROBLEM if problems else ExitCode.DONE


def trashed_words(manifests: Sequence[TrashManifest]) -> str:
    """Returns number and size of the checkpoints in some prunes, as text."""
    count = units.count(trashed_count(manifests), "checkpoint")
    return f"{count}, {units.size(trashed_size(manifests))}"


def trashed_count(manifests: Sequence[TrashManifest]) -> int:
    """Returns the number of checkpoints in some prunes."""
    return sum(len(manifest.checkpoints) for manifest in manifests)


def trashed_size(manifests: Sequence[TrashManifest]) -> int:
    """Returns the bytes of the checkpoints in some prunes."""
    return sum(manifest.size for manifest in manifests)


@click.command()
@RunArgument
@click.argument("name", type=CHECKPOINT, metavar="CKPT")
@prints(PinReport)
@on_open_run
def pin(run: RunDirectory, name: str, as_json: bool) -> None:
    """Never prune this checkpoint; CKPT is a name or a step."""
    name = look_up(run, name).name
    done = f"{name} is already pinned." if is_pinned(run, name) else f"Pinned {name}."
    _set_pin(run, name, pinned=True, as_json=as_json, done=done)


@click.command()
@RunArgument
@click.argument("name", type=CHECKPOINT, metavar="CKPT")
@prints(PinReport)
@on_open_run
def unpin(run: RunDirectory, name: str, as_json: bool) -> None:
    """Let this checkpoint be pruned again; CKPT is a name or a step."""
    try:
        name = look_up(run, name).name
    except (UnknownCheckpointError, RefusedError):
        # The pin of a checkpoint that is gone or in the trash can be removed, by its name.
        if not is_pinned(run, name):
            raise
    done = f"Unpinned {name}." if is_pinned(run, name) else f"{name} is not pinned."
    _set_pin(run, name, pinned=False, as_json=as_json, done=done)


def _set_pin(run: RunDirectory, name: str, *, pinned: bool, as_json: bool, done: str) -> None:
    warnings = service.set_pins(run, [name], pinned=pinned, through=FrontEnd.COMMAND_LINE)
    if as_json:
        print_json(PinReport(name=name, pinned=pinned, warnings=tuple(warnings)))
    else:
        print_line(done)
    print_warnings(warnings)
