"""Plan a restore from the command line, and describe the plan."""

from __future__ import annotations

import time

from tfckpt_trainer.catalog.lineage import BranchStep, RestorePlan, plan_restore
from tfckpt_trainer.catalog.retention.trash import list_trash
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.rundir.health import read_workers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.formats import units
from tfckpt_tui.services.choose import find_by_name, find_by_step


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
    catalog = Catalog(run)
    checkpoints = catalog.scan(time.time())
    tips = catalog.branch_tips(list_trash(run))
    chief = next((status for status in read_workers(run) if status.index == 0), None)
    position = BranchStep(chief.branch, chief.step) if chief is not None else None
    if name is not None:
        target = find_by_name(checkpoints, name)
    else:
        target = find_by_step(checkpoints, step or 0, position)
    return plan_restore(checkpoints, tips, target, position)


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
        sentence += f" The last {steps} are in no checkpoint and are lost."
    return sentence
