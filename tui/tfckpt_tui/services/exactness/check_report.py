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
    in_place = next(other for other in result.repetitions if other.phase is Pass.IN_PLACE)
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
    difference = repetition.difference
    return CheckedPass(
        pass_=repetition.phase,
        exact=repetition.exact,
        steps=repetition.steps,
        what=difference.what if difference else None,
        name=difference.name if difference else None,
        kind=difference.kind if difference else None,
        passed=difference.passed if difference else None,
        worker=difference.worker if difference else None,
        step=difference.step if difference else None,
        after_steps=difference.after_steps if difference else None,
        message=describe_difference(difference) if difference else None,
        others=difference.others if difference else (),
        cause=cause_of(result, repetition),
    )
