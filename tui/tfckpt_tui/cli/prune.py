"""Commands that free disk space and take it back: prune, undo, trash, pin, unpin."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from tfckpt_trainer.catalog.retention.pinning import in_trash, not_in_view
from tfckpt_trainer.catalog.retention.pins import is_pinned
from tfckpt_trainer.catalog.retention.rules import (
    BestBy,
    Plan,
    Policy,
    parse_best,
    plan,
    plan_of_names,
)
from tfckpt_trainer.catalog.retention.trash import Emptied, TrashLook, trashed_before
from tfckpt_trainer.catalog.scan.foreign_writers import Foreign
from tfckpt_trainer.errors import ExitCode, RefusedError, UsageError
from tfckpt_trainer.rundir.documents import load_if_there
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.records.trash import TrashManifest
from tfckpt_tui.app.actions.table import DEFAULT_KEYS
from tfckpt_tui.cli.control import THROUGH, TimeoutOption, waiting
from tfckpt_tui.cli.main import JsonOption, RunArgument, on_open_run
from tfckpt_tui.cli.output import (
    CommandProgress,
    ReadProgress,
    print_error,
    print_json,
    print_line,
    print_message,
    print_table,
)
from tfckpt_tui.formats import units
from tfckpt_tui.services import prune as service
from tfckpt_tui.services.choose import find_checkpoint
from tfckpt_tui.services.prune import PruneOutcome
from tfckpt_tui.services.report import Json, list_checkpoints
from tfckpt_tui.services.request import detect_trainer
from tfckpt_tui.settings.config import default_rules, read_config

_AGE = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<unit>[mhdw]?)")
_SECONDS = {"m": 60, "h": 3600, "": 3600, "d": 86400, "w": 604800}


def parse_age(text: str) -> float:
    """Returns how many seconds `30m`, `12h`, `7d` or `2w` are; a bare number is hours.

    Raises:
        UsageError: It has another form.
    """
    match = _AGE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is no age; give it as 30m, 12h or 7d.")
    return float(match["number"]) * _SECONDS[match["unit"]]


@dataclass(frozen=True)
class _Intent:
    """What a prune would do.

    Attributes:
        plan: What it moves to the trash.
        refusal: Why it moves nothing: what was named is protected.
        before: What was pruned before this time is deleted for good; None where nothing is.
        overdue: That is this.
    """

    plan: Plan
    refusal: str = ""
    before: float | None = None
    overdue: tuple[TrashManifest, ...] = ()

    @property
    def is_nothing(self) -> bool:
        return not (self.plan.deleted or self.refusal or self.overdue)


@click.command()
@RunArgument
@click.argument("names", nargs=-1, metavar="[CKPT]...")
@click.option("--keep-last", type=int, metavar="N", help="Keep the newest N.")
@click.option("--keep-every", type=int, metavar="N", help="Keep one in every N steps.")
@click.option("--keep-every-hours", type=float, metavar="H", help="Keep one in every H hours.")
@click.option(
    "--keep-best",
    type=parse_best,
    multiple=True,
    metavar="METRIC:min|max:N",
    help="Keep the best N by a metric; may be given several times.",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Take the rules from the [retention] section of this file.",
)
@click.option("--dry-run", is_flag=True, help="Show the plan and do nothing.")
@click.option(
    "--delete",
    is_flag=True,
    help="Delete for good at once, as on a full disk; `undo` does not bring them back.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--beside-trainer",
    is_flag=True,
    help="With --yes: prune although a trainer of somebody else's seems to be writing there.",
)
@waiting
@JsonOption
@on_open_run
def prune(
    run: RunDirectory,
    names: tuple[str, ...],
    keep_last: int | None,
    keep_every: int | None,
    keep_every_hours: float | None,
    keep_best: tuple[BestBy, ...],
    config: Path | None,
    dry_run: bool,
    delete: bool,
    yes: bool,
    beside_trainer: bool,
    no_wait: bool,
    timeout: float,
    as_json: bool,
) -> int:
    """Move to the trash what no rule keeps, or the named ones; `undo` brings them back.

    CKPT is a name or a step. Without names and rules it goes by the trainer's own policy, else by
    the [retention] section of the configuration file, whose trash_hours also deletes for good what
    was pruned longer ago. The newest that can be restored, the one training goes on from, the last
    verified one and pinned ones always stay.
    """
    policy = Policy(keep_last, keep_every, keep_every_hours, keep_best)
    if [bool(names), not policy.is_empty, config is not None].count(True) > 1:
        raise click.UsageError("Give checkpoints, rules or --config: one of the three.")
    if delete and no_wait:
        raise click.UsageError("Give either --delete or --no-wait.")
    presence = detect_trainer(run)
    foreign, in_use = presence.foreign, presence.in_use
    intent = _by_names(run, names, in_use) if names else _by_rules(run, policy, config, in_use)
    if not as_json:
        _print_plan(intent)
    if dry_run or intent.is_nothing:
        if as_json:
            print_json(_outcome_data(intent))
        return ExitCode.DONE
    if intent.refusal:
        raise RefusedError(f"{intent.refusal} Nothing was moved.")
    if not yes:
        _confirm(intent, None if beside_trainer else foreign, delete=delete)
        beside_trainer = beside_trainer or foreign is not None
    going = [checkpoint.name for checkpoint in intent.plan.deleted]
    outcome, deleted = None, None
    if going and delete:
        deleted = _delete_at_once(run, going, intent.plan.freed_bytes, beside_trainer, timeout)
    elif going:
        outcome = service.prune(
            run,
            going,
            through=THROUGH,
            beside_trainer=beside_trainer,
            wait=not no_wait,
            timeout=timeout,
            on_change=CommandProgress(),
        )
    emptied = _delete_for_good(run, intent.before, intent.overdue) if intent.overdue else None
    emptied = _together(deleted, emptied)
    if as_json:
        print_json(_outcome_data(intent, outcome, emptied))
    else:
        _print_outcome(run, outcome, emptied)
    _warn([*(outcome.warnings if outcome else ()), *_warnings_of(emptied)])
    return _report_problems(emptied)


@click.command()
@RunArgument
@click.option(
    "--trash", metavar="ID", help="Which prune; by default the newest that a person asked for."
)
@TimeoutOption
@JsonOption
@on_open_run
def undo(run: RunDirectory, trash: str | None, timeout: float, as_json: bool) -> None:
    """Bring back what a prune moved to the trash."""
    outcome = service.undo(
        run, trash, through=THROUGH, timeout=timeout, on_change=CommandProgress()
    )
    if as_json:
        print_json(
            {
                "trash": outcome.trash,
                "names": list(outcome.names),
                "warnings": list(outcome.warnings),
            }
        )
    else:
        print_line(f"Brought back {', '.join(outcome.names)}.")
    _warn(outcome.warnings)


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
@JsonOption
@on_open_run
def trash(
    run: RunDirectory, act: str | None, older_than: float | None, yes: bool, as_json: bool
) -> int:
    """Show the trash, or empty it: `trash RUN empty` deletes for good."""
    if act == "empty":
        return _empty_trash(run, older_than, yes, as_json)
    if older_than is not None or yes:
        raise click.UsageError("--older-than and --yes go with `empty`.")
    now = time.time()
    look = TrashLook(run)
    manifests = look.take()
    for problem in look.damaged:
        print_message(problem)
    status = ExitCode.PROBLEM if look.damaged else ExitCode.DONE
    if as_json:
        print_json(
            {
                "trash": [
                    {
                        "id": m.id,
                        "at": m.at,
                        "by": m.by,
                        "names": [c.name for c in m.checkpoints],
                        "bytes": sum(c.size for c in m.checkpoints),
                    }
                    for m in manifests
                ],
                "problems": list(look.damaged),
            }
        )
        return status
    rows = [
        (
            m.id,
            units.age(now - m.at),
            units.size(sum(c.size for c in m.checkpoints)),
            ", ".join(c.name for c in m.checkpoints),
            m.by,
        )
        for m in manifests
    ]
    print_table(("ID", "AGE", "SIZE", "CHECKPOINTS", "BY"), rows, right={1, 2})
    return status


@click.command()
@RunArgument
@click.argument("name", metavar="CKPT")
@JsonOption
@on_open_run
def pin(run: RunDirectory, name: str, as_json: bool) -> None:
    """Never prune this checkpoint; CKPT is a name or a step."""
    _set_pin(run, name, pinned=True, as_json=as_json)


@click.command()
@RunArgument
@click.argument("name", metavar="CKPT")
@JsonOption
@on_open_run
def unpin(run: RunDirectory, name: str, as_json: bool) -> None:
    """Let this checkpoint be pruned again; CKPT is a name or a step."""
    _set_pin(run, name, pinned=False, as_json=as_json)


def _by_names(run: RunDirectory, texts: Sequence[str], in_use: frozenset[str]) -> _Intent:
    checkpoints = list_checkpoints(run)
    chosen = {find_checkpoint(checkpoints, text).name for text in texts}
    made = plan_of_names(checkpoints, chosen, in_use=in_use)
    told = Plan(tuple(d for d in made.decisions if d.checkpoint.name in chosen))
    kept = next((d for d in told.decisions if d.keep), None)
    return _Intent(told, f"{kept.checkpoint.name} is not pruned: {kept.reason}." if kept else "")


def _by_rules(
    run: RunDirectory, policy: Policy, config: Path | None, in_use: frozenset[str]
) -> _Intent:
    if not policy.is_empty:
        return _Intent(plan(list_checkpoints(run), policy, in_use=in_use))
    info = load_if_there(run.run_file, RunInfo) if config is None else None
    rules = default_rules(info, read_config(DEFAULT_KEYS, config))
    if rules.policy.is_empty:
        raise click.UsageError(f"Say what to keep, as in --keep-last 5: {rules.source}.")
    print_message(f"By {rules.source}: {rules.policy}.")
    made = plan(list_checkpoints(run), rules.policy, in_use=in_use)
    if rules.trash_hours is None:
        return _Intent(made)
    before = time.time() - rules.trash_hours * 3600
    return _Intent(made, before=before, overdue=trashed_before(run, before))


def _confirm(intent: _Intent, foreign: Foreign | None, *, delete: bool) -> None:
    """Asks a person; a second time where a foreign trainer may live, or nothing comes back."""
    count, lost = len(intent.plan.deleted), _lost(intent.overdue)
    if not count:
        _ask_or_refuse(f"Delete {lost} of the trash for good?")
        return
    also = f", and delete {lost} of the trash for good" if intent.overdue else ""
    what = units.count(count, "checkpoint")
    if delete:
        _ask_or_refuse(f"Delete {what}, without the trash{also}?")
        size = units.size(intent.plan.freed_bytes)
        _ask_or_refuse(f"No undo brings {what} ({size}) back. Delete for good?")
    else:
        _ask_or_refuse(f"Move {what} to the trash{also}?")
    if foreign is not None:
        print_message(f"{service.foreign_words(foreign)}: a trainer of somebody else's may live.")
        _ask_or_refuse("What it restores or lists next may be gone then. Prune all the same?")


def _empty_trash(run: RunDirectory, age: float | None, yes: bool, as_json: bool) -> int:
    before = None if age is None else time.time() - age
    going = trashed_before(run, before)
    if going and not yes:
        _ask_or_refuse(f"Delete {_lost(going)}, for good? No undo brings them back.")
    emptied = _delete_for_good(run, before, going)
    if as_json:
        print_json(
            {
                **_emptied_data(emptied),
                "warnings": list(_warnings_of(emptied)),
                "problems": list(emptied.problems),
            }
        )
    else:
        _print_emptied(emptied)
    _warn(_warnings_of(emptied))
    return _report_problems(emptied)


def _delete_for_good(
    run: RunDirectory, before: float | None, going: Sequence[TrashManifest]
) -> Emptied:
    meter = ReadProgress("deleting")
    try:
        return service.empty(
            run, before, through=THROUGH, on_progress=lambda freed: meter(freed, _size(going))
        )
    finally:
        meter.close()


def _delete_at_once(
    run: RunDirectory, names: Sequence[str], size: int, beside_trainer: bool, timeout: float
) -> Emptied:
    meter = ReadProgress("deleting")
    try:
        return service.delete(
            run,
            names,
            through=THROUGH,
            beside_trainer=beside_trainer,
            timeout=timeout,
            on_change=CommandProgress(),
            on_progress=lambda freed: meter(freed, size),
        )
    finally:
        meter.close()


def _together(first: Emptied | None, second: Emptied | None) -> Emptied | None:
    if first is None or second is None:
        return first or second
    return Emptied(
        first.freed + second.freed,
        first.names + second.names,
        first.kept + second.kept,
        first.problems + second.problems,
        first.warnings + second.warnings,
    )


def _warnings_of(emptied: Emptied | None) -> tuple[str, ...]:
    return (*emptied.kept, *emptied.warnings) if emptied is not None else ()


def _warn(warnings: Sequence[str]) -> None:
    """Tells what else has to be known of something that is done."""
    for warning in warnings:
        print_message(f"Done, but: {warning}")


def _report_problems(emptied: Emptied | None) -> int:
    problems = emptied.problems if emptied is not None else ()
    for problem in problems:
        print_error(problem)
    return ExitCode.PROBLEM if problems else ExitCode.DONE


def _lost(going: Sequence[TrashManifest]) -> str:
    count = sum(len(manifest.checkpoints) for manifest in going)
    return f"{units.count(count, 'checkpoint')}, {units.size(_size(going))}"


def _size(going: Sequence[TrashManifest]) -> int:
    return sum(trashed.size for manifest in going for trashed in manifest.checkpoints)


def _set_pin(run: RunDirectory, name: str, *, pinned: bool, as_json: bool) -> None:
    if pinned or not is_pinned(run, name):
        name = _in_view(run, name)
    warnings = service.set_pins(run, [name], pinned=pinned, through=THROUGH)
    if as_json:
        print_json({"name": name, "pinned": pinned, "warnings": list(warnings)})
    else:
        print_line(f"{'Pinned' if pinned else 'Unpinned'} {name}.")
    _warn(warnings)


def _in_view(run: RunDirectory, text: str) -> str:
    """Returns the checkpoint that a person names; one in the trash is refused with the way back."""
    try:
        return find_checkpoint(list_checkpoints(run), text).name
    except UsageError:
        if in_trash(run, text) is not None:
            raise not_in_view(run, text) from None
        raise


def _print_plan(intent: _Intent) -> None:
    rows = [
        (
            "keep" if decision.keep else "delete",
            decision.checkpoint.name,
            units.size(decision.checkpoint.size),
            decision.reason,
        )
        for decision in intent.plan.decisions
    ]
    print_table(("PLAN", "CHECKPOINT", "SIZE", "REASON"), rows, right={2})
    count = units.count(len(intent.plan.deleted), "checkpoint")
    print_line(f"{count} to delete, {units.size(intent.plan.freed_bytes)}.")
    if intent.overdue:
        print_line(f"{_lost(intent.overdue)} to delete for good: long enough in the trash.")


def _print_outcome(
    run: RunDirectory, outcome: PruneOutcome | None, emptied: Emptied | None
) -> None:
    if outcome is not None and outcome.command is not None:
        print_line(f"Asked for: {outcome.command}")
    elif outcome is not None:
        print_line(
            f"Moved {units.count(len(outcome.names), 'checkpoint')} to the trash "
            f"({units.size(outcome.size)}); `tfckpt-tui undo {run.root}` brings them back."
        )
    if emptied is not None:
        _print_emptied(emptied)


def _print_emptied(emptied: Emptied) -> None:
    what = units.count(len(emptied.names), "checkpoint")
    print_line(f"Deleted {what} for good, freed {units.size(emptied.freed)}.")


def _outcome_data(
    intent: _Intent, outcome: PruneOutcome | None = None, emptied: Emptied | None = None
) -> Json:
    return {
        "plan": {
            "freed_bytes": intent.plan.freed_bytes,
            "decisions": [
                {
                    "name": decision.checkpoint.name,
                    "keep": decision.keep,
                    "reason": decision.reason,
                    "bytes": decision.checkpoint.size,
                }
                for decision in intent.plan.decisions
            ],
        },
        "trash": outcome.trash if outcome else None,
        "command": outcome.command if outcome else None,
        "emptied": _emptied_data(emptied or Emptied(0, ())),
        "warnings": [*(outcome.warnings if outcome else ()), *_warnings_of(emptied)],
        "problems": list(emptied.problems) if emptied else [],
    }


def _emptied_data(emptied: Emptied) -> Json:
    return {"freed_bytes": emptied.freed, "names": list(emptied.names)}


def _ask_or_refuse(question: str) -> None:
    if not sys.stdin.isatty():
        raise RefusedError("Nothing was done: there is no terminal to ask on. Give --yes.")
    if not click.confirm(question, err=True):
        raise RefusedError("Nothing was done.")
