"""Plans a restore, and chooses the checkpoint that a stopped run starts from."""

from __future__ import annotations

import time

from tfckpt_trainer.catalog.commit import point_state_file_at
from tfckpt_trainer.catalog.lineage import BranchTips, RestorePlan, plan_restore
from tfckpt_trainer.catalog.retention.trash import list_trash
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.catalog.scan.checkpoints import trained_first
from tfckpt_trainer.catalog.scan.history import read_head, refuse_newer_release, resume_point
from tfckpt_trainer.counts import noun
from tfckpt_trainer.errors import RefusedError, TfckptError, describe_error
from tfckpt_trainer.rundir.documents import store
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import JournalKind
from tfckpt_trainer.rundir.records.run import Head
from tfckpt_tui.formats import units
from tfckpt_tui.services.choose import find_by_name, find_by_step
from tfckpt_tui.services.compatibility import check_compatibility
from tfckpt_tui.services.prune import foreign_words, wait_words, without_trainer
from tfckpt_tui.services.request import FrontEnd, detect_trainer, log_event
from tfckpt_tui.services.runs.reading import brief_account

_MOST_MISMATCHES = 5


def plan_restore_of(
    run: RunDirectory, *, step: int | None = None, name: str | None = None
) -> RestorePlan:
    """Returns what a restore of the checkpoint with this step or name does.

    Args:
        run: The run directory.
        step: The step; needed if there is no name.
        name: The name.

    Raises:
        UsageError: There is no such checkpoint.
        RefusedError: It cannot be restored, or several branches have the step.
    """
    return _plan_restore(run, step=step, name=name)[0]


def _plan_restore(
    run: RunDirectory, *, step: int | None = None, name: str | None = None
) -> tuple[RestorePlan, BranchTips]:
    catalog = Catalog(run)
    checkpoints = catalog.scan(time.time())
    tips = catalog.branch_tips(list_trash(run))
    position = brief_account(run.root).position
    if name is not None:
        target = find_by_name(checkpoints, name)
    else:
        target = find_by_step(checkpoints, step or 0, position)
    return plan_restore(checkpoints, tips, target, position), tips


def choose_start(run: RunDirectory, name: str, *, through: FrontEnd) -> str:
    """Makes the next start of a stopped run continue from a checkpoint.

    Nothing is deleted. The start begins a new branch if the run has later checkpoints.

    Args:
        run: The run directory.
        name: The checkpoint.
        through: The front end that asks, for the event log.

    Returns:
        What was done, as a sentence.

    Raises:
        UsageError: There is no such checkpoint.
        RefusedError: It cannot be restored, or a trainer uses the directory.
        OSError: The choice cannot be written.
    """
    presence = detect_trainer(run)
    if presence.answers:
        raise RefusedError(f"A trainer runs in {run.root}; restore the checkpoint in place.")
    found = presence.foreign
    if found is not None:
        advice = "Stop that program first" if found.processes else wait_words(found)
        raise RefusedError(f"{foreign_words(found)} {advice}, then run this again.")
    with without_trainer(run):
        refuse_newer_release(run)
        plan, tips = _plan_restore(run, name=name)
        resumed = resume_point(run)
        branch = plan.branch
        head = read_head(run)
        is_finished = head is not None and head.finish is not None and head.checkpoint == name
        if resumed is not None and resumed.checkpoint == name and resumed.branch is not None:
            branch = resumed.branch
        if is_finished or resumed is None or resumed.checkpoint != name or resumed.branch is None:
            # As a restore leaves it behind: the next start continues from the last one.
            sequence = 1 + (resumed.sequence if resumed is not None else 0)
            chosen = Head(
                checkpoint=name,
                step=plan.target.step or 0,
                branch=branch,
                sequence=sequence,
                highest_begun=tips.highest,
            )
            store(run.head_file, chosen)
            point_state_file_at(run, name)
    message = f"The next start restores {name} if it matches the model, on branch {branch}."
    warning = log_event(run, JournalKind.NOTE, message, through=through, checkpoint=name)
    return f"{message} {warning}" if warning else message


def mismatch_warnings(run: RunDirectory, name: str) -> tuple[str, ...]:
    """Returns a warning if a start from a checkpoint would be refused, as far as files tell.

    The newest checkpoint that training saved represents the model, or the current one.

    Args:
        run: The run directory.
        name: The checkpoint.
    """
    found = [c for c in Catalog(run).scan(time.time()) if c.restorable]
    target = find_by_name(found, name)
    reference = trained_first(sorted(found, key=lambda c: not c.is_head))[0]
    try:
        checked = check_compatibility(run, reference, target)
    except (TfckptError, OSError) as error:
        return (f"{name} could not be compared with {reference.name}: {describe_error(error)}",)
    if not checked.mismatches:
        return ()
    shown = "; ".join(checked.mismatches[:_MOST_MISMATCHES])
    more = len(checked.mismatches) - _MOST_MISMATCHES
    rest = f"; and {more:,} more" if more > 0 else ""
    return (
        f"{name} does not match {reference.name}: {shown}{rest}. If the model is that of "
        f"{reference.name}, the start is refused; choose {reference.name} instead.",
    )


def describe_plan(plan: RestorePlan) -> str:
    """Returns what a restore does, in sentences."""
    branch = f"new branch {plan.branch}" if plan.is_new_branch else f"branch {plan.branch}"
    back = f"goes back {units.count(plan.steps_back, 'step')} and " if plan.steps_back else ""
    sentence = f"Restoring {plan.target.name}. Training {back}continues on {branch}."
    if plan.target.not_finite:
        names = ", ".join(plan.target.not_finite)
        sentence += f" At its step, these metrics were not finite: {names}."
    if plan.unsaved_steps:
        steps = units.count(plan.unsaved_steps, "step")
        are = noun(plan.unsaved_steps, "is", "are")
        sentence += f" The last {steps} {are} in no checkpoint and {are} lost."
    return sentence
