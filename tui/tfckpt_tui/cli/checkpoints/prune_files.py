"""What `prune` does with files of other formats, and how it prints the plan of a prune."""

from __future__ import annotations

from collections.abc import Sequence

from tfckpt_trainer.catalog.directory.other_formats import OtherFile
from tfckpt_trainer.catalog.retention.emptying import Emptied
from tfckpt_trainer.catalog.scan.protection import refuse_protected_files
from tfckpt_trainer.errors import ExitCode
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.cli.checkpoints.trash import warnings_of
from tfckpt_tui.cli.confirmation import confirm
from tfckpt_tui.cli.output import (
    print_before_acting,
    print_json,
    print_line,
    print_table,
    print_warnings,
)
from tfckpt_tui.formats import units
from tfckpt_tui.reports.retention import EmptiedTrash, PruneDecision, PrunePlan, PruneReport
from tfckpt_tui.services.control import prune as service
from tfckpt_tui.services.control.prune import PruneOutcome
from tfckpt_tui.services.control.request import FrontEnd


def print_plan(title: str, rows: Sequence[PruneDecision]) -> None:
    """Prints what a prune does with each; `title` heads the names."""
    cells = [
        ("keep" if row.keep else "delete", row.name, units.size(row.bytes), row.reason)
        for row in rows
    ]
    print_table(("PLAN", title, "SIZE", "REASON"), cells, right={2})


def prune_report(
    decisions: Sequence[PruneDecision],
    outcome: PruneOutcome | None,
    emptied: Emptied | None = None,
) -> PruneReport:
    """Returns a prune for JSON: the plan, and what was done if anything was."""
    return PruneReport(
        plan=PrunePlan(
            sum(decision.bytes for decision in decisions if not decision.keep), tuple(decisions)
        ),
        trash=outcome.trash if outcome else None,
        command=outcome.command.id if outcome and outcome.command else None,
        emptied=EmptiedTrash(emptied.freed, emptied.names) if emptied else EmptiedTrash(),
        warnings=(*(outcome.warnings if outcome else ()), *warnings_of(emptied)),
        problems=emptied.problems if emptied else (),
    )


def prune_files(
    run: RunDirectory, files: Sequence[OtherFile], *, dry_run: bool, yes: bool, as_json: bool
) -> int:
    """Moves named files to the trash; returns the exit status."""
    protected = service.protected_files(run)
    names = list(dict.fromkeys(file.name for file in files))
    rows = [
        PruneDecision(
            file.name, file.name in protected, protected.get(file.name, "named"), file.size
        )
        for file in dict.fromkeys(files)
    ]
    if not as_json:
        print_before_acting(lambda: print_plan("FILE", rows))
    if dry_run:
        if as_json:
            print_json(prune_report(rows, None))
        return int(ExitCode.DONE)
    refuse_protected_files(names, protected)
    if not yes:
        confirm(f"Move {units.count(len(names), 'file')} to the trash?")
    done = service.prune_files(run, names, through=FrontEnd.COMMAND_LINE)
    if as_json:
        print_json(prune_report(rows, done))
    else:
        print_line(
            f"Moved {units.count(len(done.names), 'file')} to the trash "
            f"({units.size(done.size)}); `tfckpt-tui undo {run.shell_word}` brings "
            f"{units.noun(len(done.names), 'it', 'them')} back."
        )
    print_warnings(done.warnings)
    return int(ExitCode.DONE)
