"""Show the guards of a run, change them, and replay one over what was recorded."""

from __future__ import annotations

import time

import click

from tfckpt_trainer.errors import ExitCode, UsageError
from tfckpt_trainer.guards.replay import Replay, ReplayedFiring
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.run import GuardSource
from tfckpt_trainer.words.counts import noun
from tfckpt_tui.cli.completion.names_in_run import GuardRule
from tfckpt_tui.cli.confirmation import confirm
from tfckpt_tui.cli.main import RunArgument, on_open_run, prints
from tfckpt_tui.cli.output import (
    CommandProgress,
    print_json,
    print_line,
    print_message,
    print_table,
)
from tfckpt_tui.cli.run.control import TimeoutOption
from tfckpt_tui.formats.list_columns import table_of
from tfckpt_tui.formats.text import clean
from tfckpt_tui.reports.guards import (
    FiringFacts,
    GuardReplayReport,
    GuardsReport,
    ReplayFacts,
)
from tfckpt_tui.services.control.guard_settings import change_guards, take_guards
from tfckpt_tui.services.control.request import FrontEnd
from tfckpt_tui.services.runs.guards import (
    COLUMNS,
    STEPS_ARE_SKIPPED,
    GuardsOfRun,
    facts_of_guard,
    firing_words,
    read_guards,
    replay_guards,
    summary,
    unseen_metrics,
)


@click.command()
@RunArgument
@click.option(
    "--replay",
    "replayed",
    multiple=True,
    type=GuardRule(),
    metavar="RULE",
    help="Show what this guard would have done so far, without doing it; may be given several "
    "times.",
)
@click.option(
    "--add",
    multiple=True,
    metavar="RULE",
    help="Add it to `.tfckpt/config.toml` of the run; may be given several times.",
)
@click.option(
    "--remove",
    multiple=True,
    type=GuardRule(GuardSource.CONFIG),
    metavar="RULE",
    help="Remove it from there; may be given several times.",
)
@click.option("--yes", is_flag=True, help="With --add: do not ask.")
@TimeoutOption
@prints(GuardsReport, GuardReplayReport)
@on_open_run
def guards(
    run: RunDirectory,
    replayed: tuple[str, ...],
    add: tuple[str, ...],
    remove: tuple[str, ...],
    yes: bool,
    timeout: float,
    as_json: bool,
) -> int:
    """Show the guards of a run, and how often each fired.

    A guard is a rule that acts while the run trains, such as `spike loss: go_back`.
    """
    if replayed:
        if add or remove:
            raise UsageError("Give --replay alone: it changes nothing.")
        return _replay(run, replayed, as_json)
    told = ""
    if add and not yes:
        _ask_about_metrics(run, add)
    if add or remove:
        change_guards(run, add=add, remove=remove)
        told = take_guards(
            run, through=FrontEnd.COMMAND_LINE, timeout=timeout, on_change=CommandProgress()
        )
    found = read_guards(run)
    if as_json:
        print_json(
            GuardsReport(guards=tuple(map(facts_of_guard, found.guards)), problem=found.problem)
        )
    else:
        _print(found)
    if told:
        print_message(f"Changed {run.config_file}. {told}")
    if found.problem:
        print_message(found.problem)
    for guard in found.guards:
        if guard.problem:
            print_message(guard.problem)
    if not add:
        for unseen in unseen_metrics(run, [guard.rule for guard in found.guards]):
            print_message(unseen)
    has_problem = found.problem or any(guard.problem for guard in found.guards)
    return int(ExitCode.PROBLEM if has_problem else ExitCode.DONE)


def _ask_about_metrics(run: RunDirectory, rules: tuple[str, ...]) -> None:
    unseen = unseen_metrics(run, rules, before_the_first=True)
    for told in unseen:
        print_message(told)
    if unseen:
        confirm(f"Add {noun(len(rules), 'the guard', 'the guards')} all the same?")


def _print(found: GuardsOfRun) -> None:
    if not found.guards:
        # A file that cannot be read may have some.
        if not found.problem:
            print_message("The run has no guards. Add one with --add RULE, or in the script.")
        return
    print_table(*table_of(COLUMNS, found.guards, time.time()))


def _replay(run: RunDirectory, rules: tuple[str, ...], as_json: bool) -> int:
    replays = replay_guards(run, rules)
    if as_json:
        print_json(GuardReplayReport(replays=tuple(map(_replay_facts, replays))))
    else:
        for replay in replays:
            _print_replay(replay)
        if any(replay.skips_steps for replay in replays):
            print_message(STEPS_ARE_SKIPPED)
    for replay in replays:
        if replay.why_not:
            print_message(f"{replay.rule}: {replay.why_not}")
    return int(ExitCode.PROBLEM if any(replay.why_not for replay in replays) else ExitCode.DONE)


def _print_replay(replay: Replay) -> None:
    if replay.why_not:
        return
    print_line(f"{replay.rule}: {summary(replay)}")
    for fired in replay.firings:
        print_line(firing_words(fired))


def _replay_facts(replay: Replay) -> ReplayFacts:
    return ReplayFacts(
        rule=replay.rule,
        points=replay.points,
        first_step=replay.first_step,
        last_step=replay.last_step,
        why_not=replay.why_not,
        firings=tuple(map(_firing_facts, replay.firings)),
    )


def _firing_facts(fired: ReplayedFiring) -> FiringFacts:
    evidence = fired.firing.evidence
    return FiringFacts(
        at=fired.at,
        step=fired.firing.step,
        began=evidence.began,
        what=clean(evidence.what),
        values={clean(name): value for name, value in evidence.values.items()},
        window=tuple(evidence.window),
        actions=fired.actions,
        checkpoint=fired.checkpoint,
    )
