"""The command `prune`."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.catalog.directory.other_formats import OtherFile, find_neighbours
from tfckpt_trainer.catalog.retention import rules
from tfckpt_trainer.catalog.retention.emptying import Emptied, trashed_before
from tfckpt_trainer.catalog.retention.own_rules import Verdicts, recorded_verdicts
from tfckpt_trainer.catalog.retention.plan import RetentionPlan, plan, plan_of_names
from tfckpt_trainer.catalog.retention.policy import Policy
from tfckpt_trainer.catalog.scan.foreign_writers import ForeignWriters
from tfckpt_trainer.catalog.scan.named_checkpoints import scan_for_prune
from tfckpt_trainer.catalog.scan.order import find_order_doubt
from tfckpt_trainer.catalog.scan.protection import refuse_protected_files, require_proven
from tfckpt_trainer.errors import ExitCode, RefusedError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.records.trash import TrashManifest
from tfckpt_trainer.rundir.storage.documents import load_if_exists
from tfckpt_tui.app.actions.table import DEFAULT_KEYS
from tfckpt_tui.cli.checkpoints.trash import (
    empty,
    print_emptied,
    report_problems,
    trashed_words,
    warnings_of,
)
from tfckpt_tui.cli.completion.checkpoint_names import CHECKPOINT_OR_FILE
from tfckpt_tui.cli.confirmation import confirm, telling_interrupt
from tfckpt_tui.cli.main import NamedPath, RunArgument, on_open_run, prints
from tfckpt_tui.cli.output import (
    CommandProgress,
    ReadProgress,
    print_before_acting,
    print_json,
    print_line,
    print_message,
    print_table,
    print_warnings,
)
from tfckpt_tui.cli.run.control import waiting
from tfckpt_tui.formats import units
from tfckpt_tui.reports.retention import EmptiedTrash, PruneDecision, PrunePlan, PruneReport
from tfckpt_tui.services.checkpoints.look_up import list_checkpoints, look_up_all
from tfckpt_tui.services.checkpoints.tensor_files import find_file
from tfckpt_tui.services.control import prune as service
from tfckpt_tui.services.control.prune import PruneOutcome
from tfckpt_tui.services.control.request import FrontEnd
from tfckpt_tui.services.control.trainer_presence import detect_trainer
from tfckpt_tui.settings.config import default_policy, read_config


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


@dataclass(frozen=True)
class _Intent:
    """What a prune would do.

    Attributes:
        plan: What it moves to the trash.
        refusal: Why it moves nothing: a named checkpoint is protected.
        overdue: The prunes that are deleted for good.
        doubt: Why the order of the checkpoints, which rules depend on, may be wrong.
        is_guess: Whether nothing at all tells that order.
    """

    plan: RetentionPlan
    refusal: str = ""
    overdue: tuple[TrashManifest, ...] = ()
    doubt: str = ""
    is_guess: bool = False

    @property
    def rows(self) -> list[PruneDecision]:
        """The plan, as it is printed."""
        return [
            PruneDecision(
                decision.checkpoint.name, decision.keep, decision.reason, decision.checkpoint.size
            )
            for decision in self.plan.decisions
        ]

    @property
    def is_nothing(self) -> bool:
        return not (self.plan.deleted or self.refusal or self.overdue)


def rule_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds one option for each retention rule."""
    for rule in reversed(rules.RULES):
        fields = rule.fields
        command = click.option(
            fields.option,
            fields.key,
            type=fields.value_type,
            multiple=fields.repeats,
            metavar=fields.metavar,
            help=fields.help,
        )(command)
    return command


@click.command()
@RunArgument
@click.argument("names", type=CHECKPOINT_OR_FILE, nargs=-1, metavar="[CKPT]...")
@rule_options
@click.option(
    "--config",
    type=NamedPath(),
    metavar="FILE",
    help="Take the rules from the [retention] section of this file.",
)
@click.option("--dry-run", is_flag=True, help="Show the plan and change nothing.")
@click.option(
    "--delete",
    is_flag=True,
    help="Delete for good at once, as on a full disk; `undo` cannot bring anything back.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--beside-trainer",
    is_flag=True,
    help="With --yes: prune although a trainer that does not use this library seems to be running.",
)
@waiting
@prints(PruneReport)
@on_open_run
def prune(
    run: RunDirectory,
    names: tuple[str, ...],
    config: Path | None,
    dry_run: bool,
    delete: bool,
    yes: bool,
    beside_trainer: bool,
    no_wait: bool,
    timeout: float,
    as_json: bool,
    **rule_values: Any,
) -> int:
    """Move checkpoints to the trash: those that no rule keeps, or named ones.

    `undo` brings them back. CKPT is a name or a step, or a file of Keras or safetensors, which no
    rule moves; the newest of each format stays. Without names and rules, the trainer's own
    policy applies, otherwise the [retention] section of the configuration file. Its trash_hours
    also deletes for good what was pruned longer ago. These always stay: the newest checkpoint that
    can be restored, the newest one with finite metrics, and the newest one with no known NaN. So
    do the one that training continues from, the last verified one, and pinned ones.
    """
    policy = Policy(**rule_values)
    _refuse_both(names, policy, config, delete=delete, no_wait=no_wait)
    _bring_back_interrupted(run, dry_run=dry_run)
    files = _files_of(run, names, delete=delete)
    if files:
        return prune_files(run, files, dry_run=dry_run, yes=yes, as_json=as_json)
    presence = detect_trainer(run)
    in_use = presence.in_use
    intent = (
        _by_names(run, names, in_use, delete=delete)
        if names
        else _by_rules(run, policy, config, in_use)
    )
    if delete:
        require_proven(run.root, intent.plan.deleted)
    if not as_json:
        print_before_acting(lambda: _print_plan(run, intent))
    if intent.doubt:
        print_message(intent.doubt)
    if intent.refusal:
        raise RefusedError(f"{intent.refusal} Nothing was changed.")
    if dry_run or intent.is_nothing:
        if as_json:
            print_json(prune_report(intent.rows, None))
        return ExitCode.DONE
    if yes:
        _refuse_guess(intent)
    else:
        _confirm(intent, None if beside_trainer else presence.foreign, delete=delete)
        beside_trainer = beside_trainer or presence.foreign is not None
    chosen = [checkpoint.name for checkpoint in intent.plan.deleted]
    outcome, deleted = None, None
    if chosen and delete:
        deleted = _delete_now(run, chosen, intent.plan.freed_bytes, beside_trainer, timeout)
    elif chosen:
        see = f"See what is in the trash with `tfckpt-tui trash {run.shell_word}`."
        with telling_interrupt(see):
            outcome = service.prune(
                run,
                chosen,
                through=FrontEnd.COMMAND_LINE,
                beside_trainer=beside_trainer,
                wait=not no_wait,
                timeout=timeout,
                on_change=CommandProgress(),
            )
    overdue = empty(run, intent.overdue) if intent.overdue else None
    emptied = _joined(deleted, overdue)
    if as_json:
        print_json(prune_report(intent.rows, outcome, emptied))
    else:
        _print_outcome(run, outcome, emptied)
    print_warnings([*(outcome.warnings if outcome else ()), *warnings_of(emptied)])
    return report_problems(emptied)


def _bring_back_interrupted(run: RunDirectory, *, dry_run: bool) -> None:
    """Settles what was interrupted before: a plan is made of what is there then."""
    if dry_run:
        service.refuse_unfinished(run)
        return
    for told in service.settle_interrupted(run):
        print_message(told)


def _refuse_both(
    names: Sequence[str], policy: Policy, config: Path | None, *, delete: bool, no_wait: bool
) -> None:
    if [bool(names), not policy.is_empty, config is not None].count(True) > 1:
        raise click.UsageError("Give checkpoints, rules or --config: one of the three.")
    if delete and no_wait:
        raise click.UsageError("Give either --delete or --no-wait.")


def _files_of(run: RunDirectory, names: Sequence[str], *, delete: bool) -> list[OtherFile]:
    files = [file for file in map(partial(find_file, run), names) if file is not None]
    if files and (len(files) < len(names) or delete):
        raise click.UsageError("Name files of other formats alone, and without --delete.")
    return files


def _by_names(
    run: RunDirectory, texts: Sequence[str], in_use: Mapping[str, str], *, delete: bool
) -> _Intent:
    chosen = {checkpoint.name for checkpoint in look_up_all(run, texts)}
    _, checkpoints = scan_for_prune(run, chosen, in_use, time.time())
    made = plan_of_names(checkpoints, chosen, in_use=in_use, own=_rules_of_script(run))
    kept = next((d for d in made.decisions if d.keep), None)
    if kept is None:
        return _Intent(made)
    action = "deleted" if delete else "pruned"
    return _Intent(made, f"{kept.checkpoint.name} cannot be {action}: {kept.reason}.")


def _by_rules(
    run: RunDirectory, policy: Policy, config: Path | None, in_use: Mapping[str, str]
) -> _Intent:
    if not policy.is_empty:
        given = policy.with_own(_rules_of_script(run))
        return _rules_intent(run, list_checkpoints(run), given, in_use)
    info = load_if_exists(run.run_file, RunInfo)
    default = default_policy(info, read_config(DEFAULT_KEYS, config), config)
    if default.policy.is_empty:
        raise click.UsageError(f"No rules: {default.source}. Give one, such as --keep-last 5.")
    print_message(f"By {default.source}: {default.policy}.")
    intent = _rules_intent(run, list_checkpoints(run), default.policy, in_use)
    if default.trash_hours is None:
        return intent
    before = time.time() - default.trash_hours * 3600
    return replace(intent, overdue=trashed_before(run, before))


def _rules_of_script(run: RunDirectory) -> tuple[Verdicts, ...]:
    """Returns the trainer's rules of its script, which every prune takes into account."""
    run.require_changeable()
    info = load_if_exists(run.run_file, RunInfo)
    return recorded_verdicts(info.retention) if info is not None else ()


def _rules_intent(
    run: RunDirectory,
    checkpoints: Sequence[Checkpoint],
    policy: Policy,
    in_use: Mapping[str, str],
) -> _Intent:
    made, doubt = plan(checkpoints, policy, in_use=in_use), find_order_doubt(checkpoints)
    if made.order_guess is not None:
        return _Intent(made, doubt=made.order_guess.words, is_guess=True)
    if doubt is None or not made.deleted:
        return _Intent(made)
    pin = f"`tfckpt-tui pin {run.shell_word} {shlex.quote(doubt.later.name)}`"
    return _Intent(made, doubt=f"{doubt.words} {doubt.reservation}, run {pin} first.")


def _refuse_guess(intent: _Intent) -> None:
    if intent.is_guess:
        raise RefusedError(
            "--yes does not answer which checkpoint is newer. Nothing was changed. Name the "
            "checkpoints that go, or run this in a terminal without --yes."
        )


def _confirm(intent: _Intent, foreign: ForeignWriters | None, *, delete: bool) -> None:
    """Asks once; a second time if a foreign trainer may run, or if nothing can be undone."""
    count = len(intent.plan.deleted)
    overdue = trashed_words(intent.overdue)
    if not count:
        confirm(f"Delete {overdue} of the trash for good?")
        return
    also = f", and delete {overdue} of the trash for good" if intent.overdue else ""
    what = units.count(count, "checkpoint")
    if delete:
        confirm(f"Delete {what}, without the trash{also}?")
        size = units.size(intent.plan.freed_bytes)
        confirm(f"No undo brings {what} ({size}) back. Delete for good?")
    else:
        confirm(f"Move {what} to the trash{also}?")
    if foreign is not None:
        print_message(service.foreign_words(foreign))
        confirm("It may restore or list what you prune. Prune anyway?")


def _delete_now(
    run: RunDirectory, names: Sequence[str], size: int, beside_trainer: bool, timeout: float
) -> Emptied:
    see = f"Some checkpoints may be gone. See what is left with `tfckpt-tui ls {run.shell_word}`."
    with telling_interrupt(see), closing(ReadProgress("deleting")) as meter:
        return service.delete(
            run,
            names,
            through=FrontEnd.COMMAND_LINE,
            beside_trainer=beside_trainer,
            timeout=timeout,
            on_change=CommandProgress(),
            on_progress=lambda freed: meter(freed, size),
        )


def _joined(first: Emptied | None, second: Emptied | None) -> Emptied | None:
    if first is None or second is None:
        return first or second
    return Emptied(
        first.freed + second.freed,
        first.names + second.names,
        first.kept + second.kept,
        first.problems + second.problems,
        first.warnings + second.warnings,
    )


def _print_plan(run: RunDirectory, intent: _Intent) -> None:
    others = () if intent.rows else find_neighbours(run.root).others
    if others:
        files = units.count(len(others), "file")
        print_line(
            f"Rules choose checkpoints, and there is none. To prune one of {files}, name it."
        )
        return
    print_plan("CHECKPOINT", intent.rows)
    if not intent.refusal:
        count = units.count(len(intent.plan.deleted), "checkpoint")
        print_line(f"{count} to delete, {units.size(intent.plan.freed_bytes)}.")
    if intent.overdue:
        print_line(f"{trashed_words(intent.overdue)} of the trash to delete for good: trash_hours.")


def _print_outcome(
    run: RunDirectory, outcome: PruneOutcome | None, emptied: Emptied | None
) -> None:
    if outcome is not None and outcome.command is not None:
        print_line(f"Asked for: {outcome.command.id}")
    elif outcome is not None:
        count = len(outcome.names)
        pronoun = "it" if count == 1 else "them"
        print_line(
            f"Moved {units.count(count, 'checkpoint')} to the trash ({units.size(outcome.size)}); "
            f"`tfckpt-tui undo {run.shell_word}` brings {pronoun} back."
        )
    if emptied is not None:
        print_emptied(emptied)
