"""The command `ls`."""

from __future__ import annotations

import time

import click
from msgspec.structs import replace

from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.cli.main import RunArgument, on_open_run, prints
from tfckpt_tui.cli.output import print_json, print_line, print_message, print_table
from tfckpt_tui.formats import checkpoint_columns, units
from tfckpt_tui.formats.checkpoint_columns import CheckpointRow
from tfckpt_tui.formats.checkpoint_filter import Filter, comparable_fields, parse_complete_filter
from tfckpt_tui.reports.listing import ListReport
from tfckpt_tui.services.runs.listing import list_report, list_with_diagnostics

_NOT_FOLLOWED = "not followed: a link of another user"
"""What is said of a link in place of what loads the file."""


@click.command()
@RunArgument
@click.option(
    "--filter",
    "wanted",
    type=parse_complete_filter,
    default="",
    metavar="WORDS",
    help="List only checkpoints that match all words, as in 'step>1000 state:verified -pinned'.",
)
@prints(ListReport)
@on_open_run
def ls(run: RunDirectory, wanted: Filter, as_json: bool) -> None:
    """List all checkpoints, newest first, and diagnostics of the directory."""
    contents, now = list_with_diagnostics(run), time.time()
    checkpoints = [
        checkpoint for checkpoint in contents.checkpoints if wanted.matches(checkpoint, now)
    ]
    for name in wanted.find_unknown_metrics(contents.checkpoints):
        print_message(
            f"No checkpoint has the metric {name!r}. A filter can compare: "
            f"{', '.join(comparable_fields(contents.checkpoints))}."
        )
    if as_json:
        print_json(list_report(run, replace(contents, checkpoints=checkpoints)))
        return
    columns = [column for column in checkpoint_columns.COLUMNS if column.ls]
    rows = (
        [column.printed_text(row) for column in columns]
        for row in (CheckpointRow(checkpoint, now) for checkpoint in checkpoints)
    )
    right = {place for place, column in enumerate(columns) if column.align == ">"}
    if checkpoints or not contents.other_files:
        print_table([column.ls for column in columns], rows, right)
    if contents.version_one:
        print_line()
        unsupported = [
            (
                checkpoint.name,
                "V1",
                units.size(checkpoint.size),
                units.count(len(checkpoint.files), "file"),
            )
            for checkpoint in contents.version_one
        ]
        print_table(("NOT SUPPORTED", "FORMAT", "SIZE", "FILES"), unsupported, right={2})
    if contents.other_files:
        if checkpoints:
            print_line()
        others = [
            (
                other_file.name,
                other_file.format.name,
                other_file.position or "–",
                units.size(other_file.size),
                units.age(now - other_file.saved_at),
                _NOT_FOLLOWED
                if other_file.is_link_of_others
                else other_file.format.reader.replace("`", ""),
            )
            for other_file in contents.other_files
        ]
        header = ("OTHER FILE", "FORMAT", "POSITION", "SIZE", "AGE", "LOADED BY")
        print_table(header, others, right={3, 4})
    for diagnostic in contents.diagnostics:
        print_message(f"{diagnostic.severity}: {diagnostic.message}")
