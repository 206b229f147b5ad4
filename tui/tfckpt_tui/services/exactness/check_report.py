"""The result of a check, in sentences and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tfckpt_trainer.exactness.likely_causes import Cause, likely_cause
from tfckpt_trainer.exactness.step_differences import describe_difference
from tfckpt_trainer.rundir.records.check import Pass
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
    return next((one for one in result.repetitions if not one.exact), None)


def result_as_json(result: CheckResult, stored: str | None) -> dict[str, Any]:
    """Returns the result as plain data.

    Args:
        result: The result.
        stored: Where it is stored.
    """
    return {
        "exact": result.exact,
        "command": list(result.options.command),
        "workers": result.workers,
        "steps": result.steps,
        "metrics": list(result.metrics),
        "objects": result.objects,
        "input_compared": result.has_input,
        "gpu_order_varies": result.gpu_order_varies,
        "obstacles": list(result.obstacles),
        "remedies": list(result.remedies),
        "seconds": result.seconds,
        "stored": stored,
        "passes": [_pass_as_json(result, repetition) for repetition in result.repetitions],
    }


def _pass_as_json(result: CheckResult, repetition: Repetition) -> dict[str, Any]:
    found, cause = repetition.difference, cause_of(result, repetition)
    return {
        "pass": repetition.phase.value,
        "exact": repetition.exact,
        "steps": repetition.steps,
        "what": found.what.value if found else None,
        "name": found.name if found else None,
        "kind": found.kind.value if found and found.kind else None,
        "passed": found.passed if found else None,
        "worker": found.worker if found else None,
        "step": found.step if found else None,
        "after_steps": found.after_steps if found else None,
        "message": describe_difference(found) if found else None,
        "others": list(found.others) if found else [],
        "cause": asdict(cause) if cause is not None else None,
    }
