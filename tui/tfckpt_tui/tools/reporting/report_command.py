"""The command `report`: options and output."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import click

from tfckpt_trainer.errors import ExitCode, RefusedError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.storage.files import write_atomic
from tfckpt_trainer.rundir.storage.own_links import held_directory
from tfckpt_trainer.rundir.storage.owners import user_name
from tfckpt_tui.cli.main import (
    LogdirOption,
    NamedPath,
    RunArgument,
    ToolCommand,
    on_open_run,
    prints,
)
from tfckpt_tui.cli.output import print_json, print_line, print_message
from tfckpt_tui.formats import units
from tfckpt_tui.tools.reporting.facts import report_of
from tfckpt_tui.tools.reporting.html_report import as_html
from tfckpt_tui.tools.reporting.json_report import RunReport
from tfckpt_tui.tools.reporting.markdown_report import as_markdown

_MARKDOWN = "md"
_STREAMS = {Path("/dev"), Path("/dev/fd"), Path("/proc/self/fd")}
"""Where links lead to what this process has open."""

_RENDERERS = {"html": as_html, _MARKDOWN: as_markdown}


@click.command(cls=ToolCommand, heading="Look at a run")
@RunArgument
@click.option(
    "--output",
    "-o",
    type=NamedPath(),
    metavar="FILE",
    help="The file to write; one that exists is replaced. By default standard output.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(list(_RENDERERS)),
    help="The format; by default that of the ending of --output, or Markdown.",
)
@LogdirOption
@prints(RunReport)
@on_open_run
def report(run: RunDirectory, output: Path | None, kind: str | None, as_json: bool) -> int:
    """Write all that is known of a run into one file: curves, changes, failures, saves, code.

    The file needs no network and no JavaScript.
    """
    if as_json and (output is not None or kind is not None):
        raise click.UsageError("--json prints the facts; leave out --output and --format.")
    kind = kind or _format_of(output)
    facts = report_of(run)
    if as_json:
        print_json(facts)
    elif output is None:
        sys.stdout.write(_RENDERERS[kind](facts))
    else:
        data = _RENDERERS[kind](facts).encode()
        _write(output, data)
        print_line(f"{output}: {units.size(len(data))}")
    for problem in facts.problems:
        print_message(problem)
    return int(ExitCode.PROBLEM if facts.problems else ExitCode.DONE)


def _write(output: Path, data: bytes) -> None:
    if output.is_symlink() and output.parent not in _STREAMS:
        raise RefusedError(
            f"{output} is a symbolic link, and nothing is written through one. Name the file that "
            "it leads to, or another one."
        )
    stream = Path(os.path.realpath(output))
    if stream.exists() and not stream.is_file():
        _write_to_stream(output, stream, data)
        return
    with held_directory(stream.parent if output.is_symlink() else output.parent) as held:
        write_atomic(held.opened / stream.name, data)


def _write_to_stream(output: Path, stream: Path, data: bytes) -> None:
    """Writes to a device or a pipe: nothing can take its place."""
    try:
        # Does not wait for somebody who reads a pipe.
        descriptor = os.open(stream, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise RefusedError(
            f"{output} is a pipe that nobody reads. Name a file, or begin to read it first."
        ) from None
    with os.fdopen(descriptor, "wb") as file:
        owner = os.fstat(file.fileno()).st_uid
        if owner not in {0, os.geteuid()}:
            raise RefusedError(
                f"{output} belongs to {user_name(owner)}, and is not a regular file. Name a file."
            )
        os.set_blocking(file.fileno(), True)
        file.write(data)


def _format_of(output: Path | None) -> str:
    if output is None:
        return _MARKDOWN
    ending = output.suffix.lower().removeprefix(".")
    if ending not in _RENDERERS:
        raise click.UsageError(
            "Name the format: with --format, or by an --output that ends with "
            f"{' or '.join(f'.{kind}' for kind in _RENDERERS)}."
        )
    return ending
