"""The result of a check, in sentences and as JSON."""

from __future__ import annotations

from tfckpt_trainer.exactness.likely_causes import Cause, likely_cause
from tfckpt_trainer.exactness.step_differences import describe_difference
from tfckpt_trainer.rundir.records.check import Pass
from tfckpt_tui.reports.checking import CheckedPass, CheckReport
from tfckpt_tui.services.exactness.check import CheckResult, Repetition

PASS_WORDS = {Pass.IN_PLACE: "in place", Pass.COLD: "in a new process"}


def cause_of(result: CheckResult, repetition: Repetition) -> Cause | None:
    """Returns the likely cause of the first difference of a pass; None if it is exact."""
    if repetition.difference is None:
        return None
    in_place = next(one for one in result.repetitions if one.phase is Pass.IN_PLACE)
    return likely_cause(repetition.difference, in_place_exact=in_place.exact)


def first_problem(result: CheckResult) -> Repetition | None:
    """Returns the first pass that is not exact."""
    return next((repetition for repetition in result.repetitions if not repetition.exact), None)


def check_report(result: CheckResult, stored: str | None) -> CheckReport:
    """Returns the result for JSON.

    Args:
        result: The result.
        stored: Where it is stored.
    """
    return CheckReport(
        exact=result.exact,
        command=result.options.command,
        workers=result.workers,
        steps=result.steps,
        metrics=result.metrics,
        objects=result.objects,
        input_compared=result.has_input,
        gpu_order_varies=result.gpu_order_varies,
        obstacles=result.obstacles,
        remedies=result.remedies,
        seconds=result.seconds,
        stored=stored,
        passes=tuple(_checked_pass(result, repetition) for repetition in result.repetitions),
    )


def _checked_pass(result: CheckResult, repetition: Repetition) -> CheckedPass:
    found = repetition.difference
    return CheckedPass(
        pass_=repetition.phase,
        exact=repetition.exact,
        steps=repetition.steps,
        what=found.what if found else None,
        name=found.name if found else None,
        kind=found.kind if found else None,
        passed=found.passed if found else None,
        worker=found.worker if found else None,
        step=found.step if found else None,
        after_steps=found.after_steps if found else None,
        message=describe_difference(found) if found else None,
        others=found.others if found else (),
        cause=cause_of(result, repetition),
    )
