"""The command `act`: runs an action of the user's configuration."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence

import click

from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.errors import ExitCode, UsageError
from tfckpt_trainer.rundir.heartbeats.health import HAS_ENDED
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.words.counts import few_of
from tfckpt_tui.app.actions.table import DEFAULT_KEYS
from tfckpt_tui.cli.completion.checkpoint_names import CHECKPOINT
from tfckpt_tui.cli.main import RunArgument, on_open_run, prints
from tfckpt_tui.cli.output import print_json, print_line, print_message
from tfckpt_tui.reports.configured import ActionReport, ActionRunFacts
from tfckpt_tui.services.checkpoints.look_up import list_checkpoints, look_up_all
from tfckpt_tui.services.processes.own_actions import ActionOutcome, run_action, wants
from tfckpt_tui.services.runs.brief_reading import brief_account
from tfckpt_tui.settings.config import config_path, read_config
from tfckpt_tui.settings.own_actions import ActionSection, ActsOn

_POLL_SECONDS = 2.0


@click.command()
@RunArgument
@click.argument("action")
@click.argument("names", type=CHECKPOINT, nargs=-1, metavar="[CKPT]...")
@click.option("--all-new", is_flag=True, help="Run it for all checkpoints that it was not run for.")
@click.option(
    "--each-new",
    is_flag=True,
    help="Run it for each new checkpoint until the run ends, one after the other.",
)
@prints(ActionReport)
@on_open_run
def act(
    run: RunDirectory,
    action: str,
    names: tuple[str, ...],
    all_new: bool,
    each_new: bool,
    as_json: bool,
) -> int:
    """Run an action of your configuration file, by default for the newest good checkpoint.

    ACTION is the NAME of a section [actions.NAME]. CKPT is a name or a step. Numbers that the
    command prints are stored for the checkpoint. Its output goes to standard error. Exits 1 if it
    failed.
    """
    section = _section(action)
    if names and (all_new or each_new):
        raise click.UsageError("Give either CKPT, or --all-new and --each-new.")
    if (names or all_new or each_new) and section.on is ActsOn.RUN:
        raise click.UsageError(f"{action} acts on the run, not on checkpoints.")
    if (all_new or each_new) and section.on is ActsOn.MARKED:
        raise click.UsageError(f"{action} acts on several checkpoints at once. Give their names.")
    done = []
    for checkpoints in _targets(run, action, section, names, all_new=all_new, each_new=each_new):
        if not as_json and checkpoints:
            print_message(f"{action} {few_of([one.name for one in checkpoints])} …")
        outcome = run_action(run, action, section, checkpoints, on_output=_pass_on)
        done.append(_facts(checkpoints, outcome))
        if not as_json:
            what = ", ".join(done[-1].checkpoints) or action
            print_line(f"{what}: {outcome.words}")
            sys.stdout.flush()
    if as_json:
        print_json(ActionReport(action=action, runs=tuple(done)))
    elif not done:
        print_line(f"{action} was run for all checkpoints already.")
    return int(ExitCode.PROBLEM if any(one.problem for one in done) else ExitCode.DONE)


def _section(name: str) -> ActionSection:
    actions = read_config(DEFAULT_KEYS).actions
    if name in actions:
        return actions[name]
    known = f"Actions are {', '.join(actions)}." if actions else "It has no actions."
    place = config_path() or "The configuration file"
    raise UsageError(
        f"There is no action {name!r}. {known} Add one to {place}: [actions.{name}] with command = "
        '"PROGRAM {path}".'
    )


def _targets(
    run: RunDirectory,
    action: str,
    section: ActionSection,
    names: Sequence[str],
    *,
    all_new: bool,
    each_new: bool,
) -> Iterator[list[Checkpoint]]:
    """Yields the checkpoints of each run of the action."""
    if section.on is ActsOn.RUN:
        yield []
    elif all_new or each_new:
        yield from ([one] for one in _new_ones(run, action, all_new=all_new, each_new=each_new))
    elif section.on is ActsOn.MARKED:
        yield look_up_all(run, names or [None])
    else:
        yield from ([one] for one in look_up_all(run, names or [None]))


def _new_ones(
    run: RunDirectory, action: str, *, all_new: bool, each_new: bool
) -> Iterator[Checkpoint]:
    """Yields checkpoints that the action was not run for, the oldest first.

    Args:
        run: The run directory.
        action: The name of the action.
        all_new: Whether those that are there already count.
        each_new: Whether to wait for more until the run ends.
    """
    there = list_checkpoints(run)
    tried = {checkpoint.name for checkpoint in there}
    if all_new:
        yield from (checkpoint for checkpoint in reversed(there) if wants(action, checkpoint))
    while each_new:
        # Asked first: a checkpoint that is saved last must not be missed.
        has_ended = brief_account(run.root).state in HAS_ENDED
        found = [one for one in reversed(list_checkpoints(run)) if one.name not in tried]
        new = next((one for one in found if wants(action, one)), None)
        if new is not None:
            tried.add(new.name)
            yield new
        elif has_ended:
            return
        else:
            time.sleep(_POLL_SECONDS)


def _pass_on(output: bytes) -> None:
    """Passes the output of the command on as it is, as a shell would."""
    sys.stderr.buffer.write(output)
    sys.stderr.buffer.flush()


def _facts(checkpoints: Sequence[Checkpoint], outcome: ActionOutcome) -> ActionRunFacts:
    return ActionRunFacts(
        checkpoints=tuple(checkpoint.name for checkpoint in checkpoints),
        exit_code=outcome.exit_code,
        seconds=outcome.seconds,
        values=outcome.values,
        problem=outcome.problem,
    )
