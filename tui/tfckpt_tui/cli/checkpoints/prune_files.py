"""What `prune` does with files of other formats."""

from __future__ import annotations

from collections.abc import Sequence

from tfckpt_trainer.catalog.other_formats import OtherFile
from tfckpt_trainer.catalog.retention.emptying import Emptied
from tfckpt_trainer.catalog.retention.protection import refuse_protected_files
from tfckpt_trainer.errors import ExitCode
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.cli.checkpoints.trash import confirm, emptied_data
from tfckpt_tui.cli.output import (
    print_before_acting,
    print_json,
    print_line,
    print_table,
    print_warnings,
)
from tfckpt_tui.formats import units
from tfckpt_tui.services import prune as service
from tfckpt_tui.services.prune import PruneOutcome
from tfckpt_tui.services.report import Json
from tfckpt_tui.services.request import FrontEnd


def prune_files(
    run: RunDirectory, files: Sequence[OtherFile], *, dry_run: bool, yes: bool, as_json: bool
) -> int:
    """Moves named files to the trash; returns the exit status."""
    protected = service.protected_files(run)
    reasons = {file.name: protected.get(file.name, "") for file in files}
    if not as_json:
        print_before_acting(lambda: _print_plan(files, reasons))
    if dry_run:
        if as_json:
            print_json(_data(files, reasons))
        return int(ExitCode.DONE)
    refuse_protected_files(reasons, protected)
    if not yes:
        confirm(f"Move {units.count(len(files), 'file')} to the trash?")
    done = service.prune_files(run, list(reasons), through=FrontEnd.COMMAND_LINE)
    if as_json:
        print_json(_data(files, reasons, done))
    else:
        print_line(
            f"Moved {units.count(len(done.names), 'file')} to the trash "
            f"({units.size(done.size)}); `tfckpt-tui undo {run.shell_word}` brings them back."
        )
    print_warnings(done.warnings)
    return int(ExitCode.DONE)


def _print_plan(files: Sequence[OtherFile], reasons: dict[str, str]) -> None:
    rows = [
        (
            "keep" if reasons[file.name] else "delete",
            file.name,
            units.size(file.size),
            reasons[file.name] or "named",
        )
        for file in files
    ]
    print_table(("PLAN", "FILE", "SIZE", "REASON"), rows, right={2})


def _data(
    files: Sequence[OtherFile], reasons: dict[str, str], done: PruneOutcome | None = None
) -> Json:
    return {
        "plan": {
            "freed_bytes": sum(file.size for file in files if not reasons[file.name]),
            "decisions": [
                {
                    "name": file.name,
                    "keep": bool(reasons[file.name]),
                    "reason": reasons[file.name] or "named",
                    "bytes": file.size,
                }
                for file in files
            ],
        },
        "trash": done.trash if done is not None else None,
        "command": None,
        "emptied": emptied_data(Emptied(0, ())),
        "warnings": list(done.warnings) if done is not None else [],
        "problems": [],
    }
