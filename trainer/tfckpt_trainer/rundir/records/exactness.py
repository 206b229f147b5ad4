"""Whether training resumes exactly from the checkpoints of a run, and what is missing if not."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from tfckpt_trainer.words.counts import count, join_names
from tfckpt_trainer.words.times import local_time


class ExactnessLevel(StrEnum):
    """How much is known about an exact resume.

    `CHECKED`: a check trained, restored and compared. `EXPECTED`: the steps and the input were
    looked into, no state is known to be missing, and nothing was compared. `UNKNOWN`: a part could
    not be looked into. `NOT_POSSIBLE`: state is missing.
    """

    CHECKED = "checked"
    EXPECTED = "expected"
    UNKNOWN = "unknown"
    NOT_POSSIBLE = "not possible"


class InputPosition(StrEnum):
    """What a checkpoint holds of an input pipeline.

    `EXACT`: the position with all buffers. `POSITION`: the same without the state of stateful
    operations. `COUNT`: the number of elements read.
    """

    EXACT = "exact"
    POSITION = "position"
    COUNT = "count"


_RANK = {position: rank for rank, position in enumerate(InputPosition)}


class PipelineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One input pipeline, as its position is saved.

    Attributes:
        name: Its name in the dictionary that was passed as `dataset`; `dataset` if there is one.
        position: What is saved.
        causes: Why not more is saved, each as a noun phrase.
        python: Python functions that it calls, each with its place; nothing looks into them.
        remedies: What to change in the script, each as an imperative sentence.
        skips: Whether a restore reads and drops the counted elements.
    """

    name: str
    position: InputPosition
    causes: list[str] = []
    python: list[str] = []
    remedies: list[str] = []
    skips: bool = False

    @property
    def reason(self) -> str:
        """Why resuming is not exact, as a clause; empty if no state is known to be missing."""
        if not self.causes:
            return ""
        return f"the input pipeline {self.name!r} uses {' and '.join(self.causes)}"

    @property
    def doubt(self) -> str:
        """Why nobody knows whether resuming is exact, as a clause; empty if somebody does."""
        if not self.python:
            return ""
        return f"the input pipeline {self.name!r} calls Python with {join_names(self.python)}"

    @property
    def restored(self) -> str:
        """What a restore does with the input, as a clause."""
        if self.position is InputPosition.EXACT:
            return f"{self.name!r} continues where it was"
        if self.position is InputPosition.POSITION:
            lost = "the state of its operations is not restored"
            return f"{self.name!r} continues at its position, but {lost}"
        if self.position is InputPosition.COUNT and self.skips:
            return f"{self.name!r} starts over and skips the elements that were read"
        return f"{self.name!r} starts over"


class StepFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the trainer found in the graphs of the steps and in all functions that they call.

    Attributes:
        draws: Random operations whose state no checkpoint can hold, each with its place.
        changes: Objects that a step changes and no checkpoint holds, each with a place.
        reads: Objects that a step only reads and no checkpoint holds, each with a place.
        unordered: State that several workers change in the order in which they arrive, each with
            a place.
        python: Python functions that a step calls, each with its place; nothing looks into them.
        unseen: Why the graph of a step is not known, each as a clause.
        remedies: What to change in the script, each as an imperative sentence.
    """

    draws: list[str] = []
    changes: list[str] = []
    reads: list[str] = []
    unordered: list[str] = []
    python: list[str] = []
    unseen: list[str] = []
    remedies: list[str] = []

    @property
    def missing(self) -> list[str]:
        """Why resuming is not exact, each as a clause."""
        draws = f"the step draws random numbers with {join_names(self.draws)}"
        changes = f"no checkpoint holds what the step changes: {join_names(self.changes)}"
        unordered = f"workers change state in no fixed order: {join_names(self.unordered)}"
        clauses = {draws: self.draws, changes: self.changes, unordered: self.unordered}
        return [clause for clause, named in clauses.items() if named]

    @property
    def doubts(self) -> list[str]:
        """Why nobody knows whether resuming is exact, each as a clause."""
        python = f"the step calls Python with {join_names(self.python)}"
        reads = f"no checkpoint holds what the step reads: {join_names(self.reads)}"
        clauses = {python: self.python, reads: self.reads}
        return [*self.unseen, *(clause for clause, named in clauses.items() if named)]


NO_STEP = StepFacts(unseen=["no step has run yet"])
"""What is known before the first step, which is traced when it runs."""


class Exactness(msgspec.Struct, frozen=True, kw_only=True):
    """What resuming from a checkpoint brings back, as far as the trainer has looked.

    Attributes:
        level: What is known.
        reasons: Why it is not possible or unknown, each as a clause; empty otherwise.
        inputs: The input pipelines.
        step: The training steps.
        compared: What a check found, as a clause; empty without one that counts.
        outdated: Which check no longer counts and why, as a clause; empty if there is none.
    """

    level: ExactnessLevel
    reasons: list[str] = []
    inputs: list[PipelineFacts] = []
    step: StepFacts = StepFacts()
    compared: str = ""
    outdated: str = ""

    @property
    def is_missing_state(self) -> bool:
        """Whether state is known to be missing."""
        return self.level is ExactnessLevel.NOT_POSSIBLE

    @property
    def remedies(self) -> list[str]:
        """What to change in the script, each as an imperative sentence."""
        of_inputs = [remedy for pipeline in self.inputs for remedy in pipeline.remedies]
        return list(dict.fromkeys([*of_inputs, *self.step.remedies]))

    @property
    def words(self) -> str:
        """What a check found, or the level with the reasons."""
        words, *more = self.reasons or [""]
        if not self.compared:
            words = f"{self.level.value} because {words}" if words else self.level.value
        # Otherwise the first reason is what the check found.
        told = [self.compared or words, *more, self.outdated]
        return "; ".join(filter(None, told))

    @property
    def explained(self) -> str:
        """The same with what to change in the script, as clauses that a full stop ends."""
        remedies = self.remedies if self.reasons else []
        return ". ".join([self.words, *(remedy.rstrip(".") for remedy in remedies)])

    @property
    def causes(self) -> str:
        """The reasons in few words; empty if there are none."""
        of_inputs = {
            pipeline.reason: " and ".join(pipeline.causes)
            for pipeline in self.inputs
            if pipeline.reason
        }
        return "; ".join(of_inputs.get(reason, reason) for reason in self.reasons)


NOT_COVERED = ("epoch ends", "validation", "the start of a new process")
"""What a quick check does not repeat."""


class CheckSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check: it trained, restored, trained again and compared.

    Attributes:
        at: Time of the check, in seconds since the epoch.
        steps: Number of compared steps.
        difference: The first thing that differs, as a clause; empty if all is equal.
        workers: For a quick check, the number of workers that compared; 0 for another.
        not_covered: What a quick check did not cover.
        script: The script that was checked; empty for a quick check.
        is_outdated: Whether the script has changed since, so that the check does not count.
    """

    at: float
    steps: int
    difference: str = ""
    workers: int = 0
    not_covered: list[str] = []
    script: str = ""
    is_outdated: bool = False

    @property
    def words(self) -> str:
        """What it found, and no more than it compared."""
        if self.is_outdated:
            return f"the check of {self._what} no longer counts, because the script changed"
        if self.difference:
            by = "" if self.workers else f", by a check of {self._what}"
            return f"not exact{by}: {self.difference}"
        steps, workers = count(self.steps, "step"), count(self.workers, "worker")
        if self.workers:
            return f"exact over {steps}, restored in place on {workers}"
        return f"exact over {steps}, by a check of {self._what}"

    @property
    def reason(self) -> str:
        """Why resuming is not exact, as a clause; empty if all is equal."""
        if not self.difference:
            return ""
        check = "a check" if self.workers else f"a check of {self._what}"
        return f"{check} found that {self.difference[0].lower()}{self.difference[1:]}"

    @property
    def _what(self) -> str:
        day = local_time(self.at, "%Y-%m-%d %H:%M")
        return f"{self.script or 'the script'} ({day})"


def exactness_of(inputs: list[PipelineFacts], step: StepFacts) -> Exactness:
    """Returns what is known of a run before anything was compared.

    Args:
        inputs: The input pipelines.
        step: The training steps.
    """
    missing = [*(pipeline.reason for pipeline in inputs if pipeline.reason), *step.missing]
    doubts = [*(pipeline.doubt for pipeline in inputs if pipeline.doubt), *step.doubts]
    level = ExactnessLevel.EXPECTED
    if missing or doubts:
        level = ExactnessLevel.NOT_POSSIBLE if missing else ExactnessLevel.UNKNOWN
    reasons = list(dict.fromkeys(missing or doubts))
    return Exactness(level=level, reasons=reasons, inputs=inputs, step=step)


def merge_steps(facts: Sequence[StepFacts]) -> StepFacts:
    """Returns everything that was found, once."""

    def all_of(name: str) -> list[str]:
        return list(dict.fromkeys(text for fact in facts for text in getattr(fact, name)))

    return StepFacts(**{name: all_of(name) for name in StepFacts.__struct_fields__})


def merge_exactness(of_workers: Sequence[Exactness]) -> Exactness:
    """Returns what holds for all workers: of each pipeline, what the worst worker saves."""
    inputs: dict[str, PipelineFacts] = {}
    for pipeline in (facts for exactness in of_workers for facts in exactness.inputs):
        worst = inputs.get(pipeline.name)
        if worst is None or _lost(pipeline) > _lost(worst):
            inputs[pipeline.name] = pipeline
    step = merge_steps([exactness.step for exactness in of_workers])
    return exactness_of(list(inputs.values()), step)


def with_check(exactness: Exactness | None, check: CheckSummary | None) -> Exactness | None:
    """Returns what is known about a run: what the trainer found, and what a check compared.

    A difference that a quick check found comes first: it was seen in this run. Another check may
    have had other environment variables, so what this run lacks comes before its difference.
    A check that found none does not outweigh state that is known to be missing.
    """
    if check is None:
        return exactness
    base = exactness or Exactness(level=ExactnessLevel.UNKNOWN)
    if check.is_outdated:
        return msgspec.structs.replace(base, outdated=check.words)
    missing = base.reasons if base.is_missing_state else []
    if missing and not check.difference:
        return exactness
    if missing and not check.workers:
        return msgspec.structs.replace(base, reasons=[*missing, check.reason])
    level, reasons = ExactnessLevel.CHECKED, list[str]()
    if check.difference:
        level, reasons = ExactnessLevel.NOT_POSSIBLE, [check.reason, *missing]
    return msgspec.structs.replace(base, level=level, reasons=reasons, compared=check.words)


def _lost(facts: PipelineFacts) -> tuple[int, bool]:
    """Orders facts of one pipeline on several workers by how much is not saved."""
    return _RANK[facts.position], bool(facts.causes)
