"""Compares the repeated steps of a check with the first ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from tfckpt_trainer.rundir.records.check import CheckedStep, CheckFacts, Pass, StateKind
from tfckpt_trainer.words.counts import few_of

SHOWN_OTHERS = 3

Trace = Mapping[tuple[Pass, int], CheckedStep]
"""The records of one worker, by pass and step."""


class What(StrEnum):
    """What differs."""

    STATE = "state"
    INPUT = "input"
    METRIC = "metric"
    END = "end"


@dataclass(frozen=True)
class StepDifference:
    """The first thing of a pass that differs from the first pass.

    Attributes:
        phase: The pass.
        what: What differs.
        name: Name of the state or of the metric; empty for input and end.
        worker: Index of the worker.
        step: Steps done. At the step of the save, the difference is there before any step.
        after_steps: Steps since the restore.
        kind: Kind of the state.
        passed: Whether the state is held by something passed to `TrainingRun`.
        expression: If not, how the script can write it; empty if it cannot.
        others: What else differs at this point, by name.
        values: Python numbers that the restore did not bring back: name, value at the save,
            value after the restore.
        facts: What the worker knows about possible causes.
    """

    phase: Pass
    what: What
    name: str
    worker: int
    step: int
    after_steps: int
    kind: StateKind | None = None
    passed: bool = True
    expression: str = ""
    others: tuple[str, ...] = ()
    values: tuple[tuple[str, str, str], ...] = ()
    facts: CheckFacts | None = None

    @property
    def drives_others(self) -> bool:
        """Whether it is a variable that changes how others are updated."""
        return self.name.endswith(("/learning_rate", "/seed_generator_state"))


def first_difference(traces: Mapping[int, Trace], phase: Pass) -> StepDifference | None:
    """Returns the first thing in which a repeated pass differs, on any worker.

    Differences of one step are ordered: state that was not passed, other state, input, metrics.

    Args:
        traces: The records of each worker, by index.
        phase: The repeated pass.
    """
    steps = sorted(
        {
            step
            for trace in traces.values()
            for trace_phase, step in trace
            if trace_phase is Pass.FIRST
        }
    )
    for step in steps:
        differences = [
            difference
            for worker, trace in sorted(traces.items())
            for difference in _differences_at(trace, worker, phase, step, steps[0])
        ]
        if differences:
            first = min(differences, key=urgency)
            others = dict.fromkeys(
                difference.name
                for difference in differences
                if difference.name not in {"", first.name}
            )
            return replace(first, others=tuple(others))
    return None


def describe_difference(difference: StepDifference) -> str:
    """Returns what differs, on which worker and at which step, as a sentence."""
    where = f"on worker {difference.worker}, "
    if difference.after_steps == 0:
        where += f"right after the restore of step {difference.step}"
    else:
        where += f"after step {difference.step} ({difference.after_steps} after the restore)"
    kind = f"{difference.kind.value} " if difference.kind is not None else ""
    subject = {
        What.STATE: f"The {kind}{difference.name} differs",
        What.INPUT: "The input differs",
        What.METRIC: f"The metric {difference.name} differs",
        What.END: "The repeated training ended",
    }[difference.what]
    return f"{subject} {where}{_others(difference.others)}."


def steps_compared(traces: Mapping[int, Trace], phase: Pass) -> int:
    """Returns how many steps of a repeated pass all workers recorded."""
    counts = []
    for trace in traces.values():
        saved = min((step for _, step in trace), default=0)
        counts.append(
            sum(1 for trace_phase, step in trace if trace_phase is phase and step > saved)
        )
    return min(counts, default=0)


def urgency(difference: StepDifference) -> int:
    """Orders the differences of one step by how well they explain the others."""
    if difference.what is What.STATE and not difference.passed:
        return 0
    if difference.what is What.STATE and (difference.after_steps == 0 or difference.drives_others):
        return 1
    return 2 + [What.END, What.INPUT, What.METRIC, What.STATE].index(difference.what)


def _differences_at(
    trace: Trace, worker: int, phase: Pass, step: int, saved: int
) -> Iterator[StepDifference]:
    first, again = trace.get((Pass.FIRST, step)), trace.get((phase, step))
    if first is None:
        return

    def difference(what: What, name: str = "") -> StepDifference:
        return StepDifference(
            phase=phase,
            what=what,
            name=name,
            worker=worker,
            step=step,
            after_steps=step - saved,
            values=_changed_values(trace, phase, saved),
            facts=_facts(trace),
        )

    if again is None:
        yield difference(What.END)
        return
    for name, state in first.state.items():
        other = again.state.get(name)
        if other is None and not state.passed:
            continue  # The script creates it later.
        if other is None or other.digest != state.digest:
            state_difference = difference(What.STATE, state.title or name)
            yield replace(
                state_difference, kind=state.kind, passed=state.passed, expression=state.expression
            )
    if first.batch != again.batch:
        yield difference(What.INPUT)
    for name, value in first.metrics.items():
        if again.metrics.get(name) != value:
            yield difference(What.METRIC, name)


def _changed_values(trace: Trace, phase: Pass, saved: int) -> tuple[tuple[str, str, str], ...]:
    """Returns Python numbers that differ after the restore, and still after its first step.

    A number that each step sets anew is then as it was: it differed because it was looked at at
    another moment.
    """
    start, restart = (trace.get((trace_phase, saved)) for trace_phase in (Pass.FIRST, phase))
    then, again = (trace.get((trace_phase, saved + 1)) for trace_phase in (Pass.FIRST, phase))
    if start is None or restart is None or then is None or again is None:
        return ()
    return tuple(
        (name, value, restart.values[name])
        for name, value in start.values.items()
        if restart.values.get(name, value) != value
        and again.values.get(name) != then.values.get(name)
    )


def _facts(trace: Trace) -> CheckFacts | None:
    return next((line.facts for line in trace.values() if line.facts is not None), None)


def _others(names: tuple[str, ...]) -> str:
    return f"; so do {few_of(names, SHOWN_OTHERS)}" if names else ""
