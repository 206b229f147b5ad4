"""Plans a restore, and chooses the checkpoint that a stopped run starts from."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from tfckpt_trainer.catalog.commit.saves import point_state_file_at
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.catalog.directory.history import read_head, refuse_newer_release, resume_point
from tfckpt_trainer.catalog.scan.lineage import BranchStep, BranchTips, RestorePlan, plan_restore
from tfckpt_trainer.errors import RefusedError, TfckptError, describe_error
from tfckpt_trainer.machine.held_signals import hold_signals
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import NEXT_START, EventKind
from tfckpt_trainer.rundir.records.hyperparameter import number, problem_of_values
from tfckpt_trainer.rundir.records.run import Head
from tfckpt_trainer.rundir.storage.documents import remove, store
from tfckpt_trainer.words.counts import noun
from tfckpt_tui.formats import units
from tfckpt_tui.services.checkpoints.choose import find_by_name, find_by_step
from tfckpt_tui.services.checkpoints.compatibility import check_compatibility, find_reference
from tfckpt_tui.services.control.prune import foreign_words, wait_words, without_trainer
from tfckpt_tui.services.control.request import FrontEnd, log_event
from tfckpt_tui.services.control.restore_effects import RestoreEffects, find_effects
from tfckpt_tui.services.control.trainer_presence import detect_trainer
from tfckpt_tui.services.runs.account import RunReading, give_account
from tfckpt_tui.services.runs.brief_reading import read_info
from tfckpt_tui.services.runs.reading import read_whole_run


@dataclass(frozen=True)
class ChosenStart:
    """The checkpoint that the next start of a run continues from.

    Attributes:
        target: The checkpoint.
        message: What was done, as a sentence.
        values: Hyperparameters that then have other values than in the checkpoint, by name.
        reference: The checkpoint that represents the model, as far as files tell.
    """

    target: Checkpoint
    message: str
    values: dict[str, float]
    reference: Checkpoint | None


def plan_restore_of(
    run: RunDirectory, *, step: int | None = None, name: str | None = None
) -> RestorePlan:
    """Returns the plan of `preview_restore`."""
    return preview_restore(run, step=step, name=name)[0]


def preview_restore(
    run: RunDirectory, *, step: int | None = None, name: str | None = None
) -> tuple[RestorePlan, RestoreEffects]:
    """Returns what a restore of the checkpoint with this step or name does, and what it changes.

    Args:
        run: The run directory.
        step: The step; needed if there is no name.
        name: The name.

    Raises:
        UsageError: There is no such checkpoint.
        RefusedError: It cannot be restored, or several branches have the step.
    """
    reading = read_whole_run(run, read_info(run), time.time())
    account = give_account(reading, None)
    plan = _plan_restore(reading, account.position, step=step, name=name)
    return plan, find_effects(plan, account, reading.event_log)


def _plan_restore(
    reading: RunReading, position: BranchStep | None, *, step: int | None, name: str | None
) -> RestorePlan:
    checkpoints = reading.checkpoints
    if name is not None:
        target = find_by_name(checkpoints, name)
    else:
        target = find_by_step(checkpoints, step or 0, position)
    return plan_restore(checkpoints, reading.tips, target, position)


def choose_start(
    run: RunDirectory,
    name: str | None = None,
    *,
    step: int | None = None,
    values: Mapping[str, float] | None = None,
    through: FrontEnd,
) -> ChosenStart:
    """Makes the next start of a stopped run continue from a checkpoint.

    Nothing is deleted. The start begins a new branch if the run has later checkpoints.

    Args:
        run: The run directory.
        name: The checkpoint.
        step: Its step; needed if there is no name.
        values: Hyperparameters that the start changes after its restore, by name.
        through: The front end that asks, for the event log.

    Raises:
        UsageError: There is no such checkpoint.
        RefusedError: It cannot be restored, a trainer uses the directory, or the hyperparameters of
            the checkpoint cannot have these values.
        OSError: The choice cannot be written.
    """
    presence = detect_trainer(run)
    if presence.answers:
        raise RefusedError(f"A trainer runs in {run.root}; restore the checkpoint in place.")
    writers = presence.foreign
    if writers is not None:
        advice = "Stop that program first" if writers.processes else wait_words(writers)
        raise RefusedError(f"{foreign_words(writers)} {advice}, then run this again.")
    with without_trainer(run):
        refuse_newer_release(run)
        reading = read_whole_run(run, read_info(run), time.time())
        position = give_account(reading, None).position
        plan = _plan_restore(reading, position, step=step, name=name)
        values = dict(values or {})
        _require_possible(plan.target, values)
        branch, told = _point_to(run, plan, reading.tips, values)
    name = plan.target.name
    message = f"The next start restores {name} if it matches the model, on branch {branch}"
    changed = ", ".join(f"{key} {number(value)}" for key, value in values.items())
    message += f", and sets {changed}." if changed else "."
    message += f" {told}" if told else ""
    warning = log_event(
        run,
        EventKind.NOTE,
        message,
        through=through,
        checkpoint=name,
        details={NEXT_START: True},
    )
    message = f"{message} {warning}" if warning else message
    return ChosenStart(plan.target, message, values, find_reference(reading.checkpoints))


def _require_possible(target: Checkpoint, values: dict[str, float]) -> None:
    saved = target.hyperparameters
    if values and not saved:
        raise RefusedError(
            f"{target.name} records no hyperparameters. Choose it without values, launch the run, "
            "and change them when it trains."
        )
    problem = problem_of_values(values, saved)
    if problem:
        raise RefusedError(problem)


def _point_to(
    run: RunDirectory, plan: RestorePlan, tips: BranchTips, values: dict[str, float]
) -> tuple[int, str]:
    """Lets the next start carry out a plan.

    Returns:
        The branch of its saves, and what became of a foreign file, as a sentence.
    """
    name, resumed, head = plan.target.name, resume_point(run), read_head(run)
    is_chosen = resumed is not None and resumed.checkpoint == name
    known_branch = resumed.branch if resumed is not None and is_chosen else None
    branch = plan.branch if known_branch is None else known_branch
    told = ""
    is_finished = head is not None and head.finish is not None and head.checkpoint == name
    if is_finished or known_branch is None or resumed is None or values != resumed.values:
        # As a restore leaves it behind: the next start continues from the last one.
        chosen = Head(
            checkpoint=name,
            step=plan.target.step or 0,
            branch=branch,
            sequence=1 + (resumed.sequence if resumed is not None else 0),
            values=values,
            highest_begun=tips.highest,
        )
        # A signal in between would leave a choice that only one of both files names.
        with hold_signals():
            store(run.head_file, chosen)
            try:
                told = point_state_file_at(run, name)
            except OSError:
                # A choice that failed is none.
                if head is None:
                    remove(run.head_file)
                else:
                    store(run.head_file, head)
                raise
    return branch, told


def mismatch_warnings(run: RunDirectory, chosen: ChosenStart) -> tuple[str, ...]:
    """Returns a warning if a chosen start would be refused, as far as files tell."""
    target, reference = chosen.target, chosen.reference
    if reference is None:
        return ()
    name = reference.name
    try:
        checked = check_compatibility(run, reference, target)
    except (TfckptError, OSError) as error:
        return (f"{target.name} could not be compared with {name}: {describe_error(error)}",)
    if not checked.mismatches:
        return ()
    return (
        f"{target.name} does not match {name}: {'; '.join(checked.listed)}. If the model is that "
        f"of {name}, the start is refused; choose {name} instead.",
    )


def describe_plan(plan: RestorePlan) -> str:
    """Returns what a restore does, in sentences."""
    branch = f"new branch {plan.branch}" if plan.is_new_branch else f"branch {plan.branch}"
    back = ""
    if plan.steps_back and plan.position is not None:
        # The position is that of the last heartbeat, and training goes on.
        _, step = plan.position
        back = f"goes back {units.count(plan.steps_back, 'step')} from step {step:,} and "
    sentence = f"Restoring {plan.target.name}. Training {back}continues on {branch}."
    if plan.target.not_finite:
        names = ", ".join(plan.target.not_finite)
        sentence += f" At its step, these metrics were not finite: {names}."
    if plan.unsaved_steps:
        steps = "step" if plan.unsaved_steps == 1 else units.count(plan.unsaved_steps, "step")
        are = noun(plan.unsaved_steps, "is", "are")
        sentence += f" The last {steps} so far {are} in no checkpoint and {are} lost."
    return sentence
