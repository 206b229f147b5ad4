"""The command `copy`."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from tfckpt_trainer.bundle.index import index_path
from tfckpt_trainer.bundle.verify import Progress
from tfckpt_trainer.errors import ExitCode, TfckptError, UsageError
from tfckpt_trainer.rundir.paths import RunDirectory, is_plain_name, parse_checkpoint_name
from tfckpt_tui.cli.completion.checkpoint_names import CheckpointOrDirectory
from tfckpt_tui.cli.main import RunArgument, ToolCommand, on_open_run, prints
from tfckpt_tui.cli.output import (
    ReadProgress,
    print_json,
    print_line,
    print_message,
    print_warnings,
)
from tfckpt_tui.formats import units
from tfckpt_tui.reports.new_files import CopyEntry, CopyReport, CopyState
from tfckpt_tui.services.checkpoints.look_up import look_up_all
from tfckpt_tui.services.control.request import FrontEnd
from tfckpt_tui.tools.copying.address import HostPath, parse_destination
from tfckpt_tui.tools.copying.copy import CopiedCheckpoint, CopyOutcome, copy_checkpoints
from tfckpt_tui.tools.copying.destination import CutCopyError


@click.command(cls=ToolCommand, heading="Act")
@RunArgument
@click.argument("words", type=CheckpointOrDirectory(), nargs=-1, metavar="[CKPT]... DEST")
@click.option(
    "--ssh",
    "on_host",
    metavar="HOST:PATH",
    help="Copy to this directory of another host; in place of DEST.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be copied, and change nothing.")
@prints(CopyReport)
@on_open_run
@click.pass_context
def copy(
    context: click.Context,
    run: RunDirectory,
    words: tuple[str, ...],
    on_host: str | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Copy checkpoints to another directory, on this machine or on another host.

    CKPT is a name or a step; by default the newest checkpoint that can be restored. DEST is a
    directory or, as for scp, HOST:PATH. The copies have all that a restore needs, and are verified
    at DEST before they get their names. If a copy is interrupted, the same command continues it.
    """
    names, place = _named(run, words, on_host)
    chosen = look_up_all(run, names or [None])
    progress = _Phases()
    try:
        outcome = copy_checkpoints(
            run,
            chosen,
            place,
            through=FrontEnd.COMMAND_LINE,
            phase=progress,
            seconds=context.find_root().params["timeout"],
            dry_run=dry_run,
        )
    except CutCopyError as error:
        raise CutCopyError(
            f"{error}, and continue with `{_command(run, words, on_host)}`."
        ) from error
    except KeyboardInterrupt:
        interrupted = TfckptError(f"Interrupted. Continue with `{_command(run, words, on_host)}`.")
        interrupted.exit_code = ExitCode.INTERRUPTED
        raise interrupted from None
    finally:
        progress.close()
    if as_json:
        print_json(_report(outcome, dry_run=dry_run))
    else:
        _print(outcome, dry_run=dry_run)
    return int(ExitCode.DONE)


class _Phases:
    """Shows one phase of a copy after the other on a terminal."""

    def __init__(self) -> None:
        self._meter: ReadProgress | None = None

    def __call__(self, label: str) -> Progress:
        self.close()
        self._meter = ReadProgress(label)
        self._meter.announce()
        return self._meter

    def close(self) -> None:
        """Clears the line."""
        if self._meter is not None:
            self._meter.close()


def _named(
    run: RunDirectory, words: tuple[str, ...], on_host: str | None
) -> tuple[tuple[str, ...], Path | HostPath]:
    """Returns the checkpoints that were named, and the destination."""
    if on_host is not None:
        return words, parse_destination(on_host, on_host=True)
    if not words:
        raise click.UsageError("Name the destination: a directory or HOST:PATH.")
    *names, last = words
    if _is_checkpoint(run, last):
        raise UsageError(
            f"{last} is a checkpoint; name a directory or HOST:PATH after it. For a directory of "
            f"this name, write ./{last}."
        )
    return tuple(names), parse_destination(last)


def _is_checkpoint(run: RunDirectory, word: str) -> bool:
    """Whether the last word names a checkpoint, so that the destination was left out."""
    if os.path.isdir(word) or not is_plain_name(word) or ":" in word:
        return False
    said = parse_checkpoint_name(word)
    is_usual = word.isdigit() or (said is not None and said.prefix == "ckpt")
    return is_usual or index_path(run.root / word).exists()


def _command(run: RunDirectory, words: tuple[str, ...], on_host: str | None) -> str:
    """Returns the command that goes on with a copy."""
    ssh = ["--ssh", on_host] if on_host is not None else []
    return shlex.join(["tfckpt-tui", "copy", str(run.root), *ssh, *words])


def _print(outcome: CopyOutcome, *, dry_run: bool) -> None:
    for checkpoint in outcome.checkpoints:
        print_line(_line(outcome, checkpoint, dry_run=dry_run))
    if dry_run:
        print_message(f"{outcome.label} has {units.size(outcome.free_bytes)} free.")
    print_warnings([outcome.warning] if outcome.warning else [])


def _line(outcome: CopyOutcome, checkpoint: CopiedCheckpoint, *, dry_run: bool) -> str:
    name, size = checkpoint.name, units.size(checkpoint.bytes)
    if not checkpoint.is_missing:
        return f"{name}: {size}, already in {outcome.label}, verified"
    rest = checkpoint.bytes - checkpoint.sent_bytes
    there = f" ({units.size(rest)} of it already there)" if rest else ""
    if dry_run:
        return f"{name}: {size} to copy to {outcome.label}{there}"
    return f"{name}: {size} copied to {outcome.label}{there}, verified"


def _report(outcome: CopyOutcome, *, dry_run: bool) -> CopyReport:
    return CopyReport(
        destination=outcome.label,
        transport=outcome.transport,
        dry_run=dry_run,
        free_bytes=outcome.free_bytes,
        latest=outcome.latest or None,
        seconds=outcome.seconds,
        warning=outcome.warning,
        checkpoints=tuple(
            CopyEntry(
                checkpoint=copied.name,
                step=copied.step,
                files=copied.files,
                bytes=copied.bytes,
                sent_bytes=copied.sent_bytes,
                state=_state(copied, dry_run=dry_run),
            )
            for copied in outcome.checkpoints
        ),
    )


def _state(checkpoint: CopiedCheckpoint, *, dry_run: bool) -> CopyState:
    if not checkpoint.is_missing:
        return "present"
    return "missing" if dry_run else "copied"
